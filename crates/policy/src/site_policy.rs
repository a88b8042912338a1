//! The site policy: the local owner's own tree, with VOs mounted where he says.
//!
//! The owner has the final decision. A mount's share is multiplied by its `weight`, and its target is at most
//! its `cap` (`weights`); a dropped mount counts as not written. Entries under a mount come from the VO.
//!
//! Invariant: every entry's parent is an entry too (or the root), nothing lies below a mount, and
//! no VO is mounted twice (its users would have two places). Deliberately not here: signatures (this
//! policy never leaves the site) and what an alias stands for (the node's configuration).
//! Source: FSGrid, abstract (the site's autonomy).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Date, Distance, Scope, Share, Weight};

/// The owner's part of the share tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SitePolicy {
    entries: BTreeMap<AccountPath, SiteEntry>,
}

/// One entry of the owner's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteEntry {
    /// Its weight among its siblings, before a mount's `weight` and `cap`.
    pub share: Weight,
    /// The most that it may have of the parent before its siblings all go first; the whole is no limit.
    pub at_most: Share,
    /// By whose usage the entries right below this one are compared, and those further down until one of
    /// them says otherwise. All members' usage makes sense for mounts only.
    pub usage: Option<Scope>,
    /// How far those are from their targets, in the same way.
    pub distance: Option<Distance>,
    /// The VO that divides it, if not the owner.
    pub mount: Option<Mount>,
    /// Paths that it had before: usage there counts here.
    pub was: Vec<AccountPath>,
    /// Usage before this date does not count for it and the entries below it.
    pub since: Option<Date>,
}

/// A place where a VO's tree goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The owner's name for the VO.
    pub alias: String,
    /// The most that the entry's target may be.
    pub cap: Option<Share>,
    /// What the entry's share is multiplied by.
    pub weight: Option<Share>,
    /// Whether the entry counts as not written.
    pub drop: bool,
}

/// Why a site policy was refused. Nothing changed; its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitePolicyError {
    /// An entry without the one above it.
    #[error("the entry above it, `{parent}`, is not listed: add a line `\"{parent}\" = <share>`")]
    MissingParent {
        /// The path of the entry.
        path: AccountPath,
        /// The parent that is missing.
        parent: AccountPath,
    },
    /// An entry of the owner's in a VO's tree.
    #[error(
        "it lies below `{mount}`, which is divided by a VO: remove it, or ask the VO's signers"
    )]
    BelowMount {
        /// The path of the entry.
        path: AccountPath,
        /// The mount above it.
        mount: AccountPath,
    },
    /// One alias in two places.
    #[error("`{alias}` is mounted at `{first}` already: mount a VO once")]
    MountedTwice {
        /// The path of the second mount.
        path: AccountPath,
        /// The alias of the VO.
        alias: String,
        /// The path of the first mount.
        first: AccountPath,
    },
    /// Whose usage counts below a mount is not the owner's to say.
    #[error(
        "below a mount the VO says by whose usage and how entries are compared: remove `{what}`"
    )]
    OfMount {
        /// The path of the mount.
        path: AccountPath,
        /// The key that a mount may not have.
        what: &'static str,
    },
    /// A local entry beside others that are compared by usage of all members: nobody else could check that.
    #[error(
        "`{parent}` has `usage = \"global\"`, and this entry is no VO's: mount VOs right below, and nothing else"
    )]
    GlobalWithoutVo {
        /// The path of the entry.
        path: AccountPath,
        /// The entry above it.
        parent: AccountPath,
    },
    /// The root is the whole site: it can be given to one VO, and neither capped nor dropped nor limited.
    #[error(
        "`/` is the whole site: it is 100, and may have a plain `mount`, or `usage` and `distance`, and nothing else"
    )]
    Root {
        /// The path of the root.
        path: AccountPath,
    },
}

impl SitePolicyError {
    /// The entry at fault.
    pub fn path(&self) -> &AccountPath {
        match self {
            Self::MissingParent { path, .. }
            | Self::BelowMount { path, .. }
            | Self::MountedTwice { path, .. }
            | Self::OfMount { path, .. }
            | Self::GlobalWithoutVo { path, .. }
            | Self::Root { path } => path,
        }
    }
}

impl SitePolicy {
    /// Checks a tree. The root is implied; it is listed only to mount one VO on the whole site, or to say how
    /// the entries of the first level are compared.
    pub fn new(entries: BTreeMap<AccountPath, SiteEntry>) -> Result<Self, SitePolicyError> {
        let mut aliases: BTreeMap<&str, &AccountPath> = BTreeMap::new();
        for (path, entry) in &entries {
            check_entry(&entries, path, entry)?;
            let Some(mount) = &entry.mount else { continue };
            if let Some(first) = aliases.insert(&mount.alias, path) {
                return Err(SitePolicyError::MountedTwice {
                    path: path.clone(),
                    alias: mount.alias.clone(),
                    first: first.clone(),
                });
            }
        }
        Ok(Self { entries })
    }

    /// The entries, ascending by path, parents before children.
    pub fn entries(&self) -> impl Iterator<Item = (&AccountPath, &SiteEntry)> {
        self.entries.iter()
    }

    /// The entry of a path.
    pub fn entry(&self, path: &AccountPath) -> Option<&SiteEntry> {
        self.entries.get(path)
    }

    /// The aliases that must be known, dropped mounts apart, with the path of each.
    pub fn mounts(&self) -> impl Iterator<Item = (&str, &AccountPath)> {
        self.entries.iter().filter_map(|(path, entry)| {
            let mount = entry.mount.as_ref().filter(|mount| !mount.drop)?;
            Some((mount.alias.as_str(), path))
        })
    }
}

impl SiteEntry {
    /// An entry of the owner's own.
    pub const fn local(share: Weight) -> Self {
        Self {
            share,
            at_most: Share::WHOLE,
            usage: None,
            distance: None,
            mount: None,
            was: Vec::new(),
            since: None,
        }
    }

    /// An entry at which the VO with this alias is mounted.
    pub fn mounted(share: Weight, alias: &str) -> Self {
        let mount = Mount {
            alias: alias.to_owned(),
            cap: None,
            weight: None,
            drop: false,
        };
        Self {
            mount: Some(mount),
            ..Self::local(share)
        }
    }

    /// Whether it says how the entries below it are compared, and what.
    fn says(&self) -> Option<&'static str> {
        let usage = self.usage.map(|_| "usage");
        usage.or_else(|| self.distance.map(|_| "distance"))
    }

    /// Whether the entry counts as not written.
    pub fn is_dropped(&self) -> bool {
        self.mount.as_ref().is_some_and(|mount| mount.drop)
    }

    /// The target as published, in 10^-9 of the parent: the share times the weight, and at most the cap.
    pub(crate) fn published(&self) -> u64 {
        let Some(mount) = &self.mount else {
            return self.share.units();
        };
        let weight = mount.weight.unwrap_or(Share::WHOLE);
        let weighed = u128::from(self.share.units()) * u128::from(weight.units());
        let weighed = u64::try_from(weighed / u128::from(Share::ONE)).unwrap_or(u64::MAX);
        weighed.min(mount.cap.map_or(u64::MAX, |cap| u64::from(cap.units())))
    }
}

fn check_entry(
    entries: &BTreeMap<AccountPath, SiteEntry>,
    path: &AccountPath,
    entry: &SiteEntry,
) -> Result<(), SitePolicyError> {
    if let Some(what) = entry.says().filter(|_| entry.mount.is_some()) {
        let path = path.clone();
        return Err(SitePolicyError::OfMount { path, what });
    }
    let Some(parent) = path.parent() else {
        let is_plain = |mount: &Mount| [mount.cap, mount.weight] == [None; 2] && !mount.drop;
        let mount = entry.mount.as_ref();
        let plain = mount.map_or(entry.says().is_some(), is_plain);
        let is_whole = (entry.share, entry.at_most) == (Weight::HUNDRED, Share::WHOLE);
        let good = plain && is_whole && entry.was.is_empty() && entry.since.is_none();
        return if good {
            Ok(())
        } else {
            Err(SitePolicyError::Root { path: path.clone() })
        };
    };
    let above = entries.get(&parent);
    if above.is_some_and(|above| above.usage == Some(Scope::Global)) && entry.mount.is_none() {
        let path = path.clone();
        return Err(SitePolicyError::GlobalWithoutVo { path, parent });
    }
    match above {
        Some(above) if above.mount.is_some() => Err(SitePolicyError::BelowMount {
            path: path.clone(),
            mount: parent,
        }),
        None if !parent.is_root() => Err(SitePolicyError::MissingParent {
            path: path.clone(),
            parent,
        }),
        _ => Ok(()),
    }
}
