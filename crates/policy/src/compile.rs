//! The tree in force at a site: the owner's tree, with every VO where he mounted it.
//!
//! Invariant: the result depends on the arguments alone, and is in path order with parents before
//! children; every entry's parent is an entry (or the root). What cannot be placed is left out with
//! everything below it, and said so; nothing here can fail.
//!
//! Deliberately not here: usage, histories, and which documents are in force (`vo_policies`).
//! Source: FSGrid, abstract (one hierarchy of local and global shares, defined in parts).

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, Date, Distance, PolicyMount, Scope, Share, ShareRule, VoId, Weight, mutant,
    mutated,
};

use crate::in_force::{DocumentRef, InForce, VoEntry};
use crate::level::{LevelRule, Levels};
use crate::site_policy::{SiteEntry, SitePolicy};
use crate::weights::weights;

/// Most entries that mounts of other VOs' policies add to one VO's tree: one policy may be mounted in many
/// places. Ten times what one policy may have.
pub const MOUNTED_ENTRIES_MAX: usize = 1_000_000;

/// The document, or the owner's tree, that an entry comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The owner's site policy.
    Site,
    /// A VO's share policy.
    Document(DocumentRef),
}

/// One entry of the tree in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledEntry {
    /// Its path in the site's tree.
    pub path: AccountPath,
    /// Its share as it was written.
    pub share: Weight,
    /// What it weighs among its siblings, after the owner's weight and cap: only the ratios mean anything. Where
    /// shares are read as published, its target in 10^-9 of its parent.
    pub weight: u64,
    /// The most that it may have before its siblings all go first; the whole is no limit.
    pub at_most: Share,
    /// By whose usage it is compared with its siblings: this site's, unless the owner says otherwise, at
    /// his own levels, mounts included; that of the VO's members, unless the VO does, below a mount.
    pub scope: Scope,
    /// How far they are from their targets.
    pub distance: Distance,
    /// The VO that it belongs to, from the mount down.
    pub vo: Option<VoId>,
    /// Its path in the VO's tree; `/` for the mount itself.
    pub vo_path: Option<AccountPath>,
    /// The other VO whose policy this is a part of, where the VO mounts that.
    pub policy_of: Option<VoId>,
    /// Usage before this date does not count for it and the entries below it.
    pub since: Option<Date>,
    /// The document that the entry comes from.
    pub from: Origin,
}

/// A former path of an entry. Usage there, and below it, counts at the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerPath {
    /// The path that the entry had before.
    pub was: AccountPath,
    /// The path of the entry now.
    pub now: AccountPath,
}

/// The tree in force. The root is implied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompiledTree {
    /// The VO mounted on the whole site, if any.
    pub root_vo: Option<VoId>,
    /// All entries, ascending by path, parents before children.
    pub entries: Vec<CompiledEntry>,
    /// Former paths of entries: each once, and none of them an entry. In path order.
    pub former: Vec<FormerPath>,
    /// How shares are read.
    pub rule: ShareRule,
    /// What could not be placed.
    pub warnings: Vec<CompileWarning>,
}

/// What could not be placed in the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum CompileWarning {
    /// A mount names a VO that this node does not know (yet). It stays as an undivided entry.
    #[error("`{path}` mounts `{alias}`, of which nothing is known (yet): it stays undivided")]
    UnknownMount {
        /// The path of the mount.
        path: AccountPath,
        /// The alias of the VO that is not known.
        alias: String,
    },
    /// An entry that another VO's policy divides stays undivided.
    #[error("`{path}` mounts `{}` of VO {}: {why}; it stays undivided", .of.path, .of.vo.short())]
    Undivided {
        /// The path of the mount.
        path: AccountPath,
        /// The policy that it mounts.
        of: PolicyMount,
        /// Why the policy cannot be mounted.
        why: &'static str,
    },
    /// A former path is an entry of another document, or another document's former path.
    #[error("`{now}` was `{was}`, {why}: usage at `{was}` does not count at `{now}`")]
    NotMoved {
        /// The path of the entry.
        now: AccountPath,
        /// The former path of the entry.
        was: AccountPath,
        /// What is in the way.
        why: &'static str,
    },
    /// Under its mount an entry is too long or too deep; it is left out with what lies below it.
    #[error("`{vo_path}` does not fit below `{mount}` and is left out: {reason}")]
    DoesNotFit {
        /// The path of the mount.
        mount: AccountPath,
        /// The entry, in the VO's tree.
        vo_path: AccountPath,
        /// Which limit it exceeds.
        reason: String,
    },
}

impl CompiledTree {
    /// The entry of `path`.
    pub fn get(&self, path: &AccountPath) -> Option<&CompiledEntry> {
        let at = self.entries.binary_search_by(|entry| entry.path.cmp(path));
        at.ok().map(|at| &self.entries[at])
    }
}

impl CompiledTree {
    /// A tree of entries as they are written, without what VOs divide.
    pub fn of_entries<'a>(
        entries: impl Iterator<Item = (&'a AccountPath, &'a SiteEntry)> + Clone,
    ) -> Self {
        let weights = weights(entries.clone(), ShareRule::Weights);
        let entries = entries.filter(|(path, _)| !path.is_root());
        let entry = |(path, entry): (&AccountPath, &SiteEntry)| CompiledEntry {
            path: path.clone(),
            share: entry.share,
            weight: weights.get(path).copied().unwrap_or_default(),
            at_most: entry.at_most,
            scope: LevelRule::OWNERS.scope,
            distance: LevelRule::OWNERS.distance,
            vo: None,
            vo_path: None,
            policy_of: None,
            since: entry.since,
            from: Origin::Site,
        };
        Self {
            entries: entries.map(entry).collect(),
            ..Self::default()
        }
    }
}

/// Puts every VO in `mounts`, by alias, where `site` mounts it, and of those in `read`, by id, what these mount.
pub fn compile(
    site: &SitePolicy,
    mounts: &BTreeMap<String, InForce>,
    read: &BTreeMap<VoId, InForce>,
    rule: ShareRule,
) -> CompiledTree {
    let mut tree = CompiledTree {
        rule,
        ..CompiledTree::default()
    };
    let listed = || site.entries().filter(|(_, entry)| !entry.is_dropped());
    let weights = weights(listed(), rule);
    let mut levels = Levels::new(LevelRule::OWNERS);
    for (path, entry) in site.entries() {
        levels.say(|| path.clone(), entry.usage, entry.distance);
    }
    for (path, entry) in listed() {
        let alias = entry.mount.as_ref().map(|mount| &mount.alias);
        let vo = alias.and_then(|alias| mounts.get(alias));
        if path.is_root() {
            tree.root_vo = vo.map(|vo| vo.vo);
        } else {
            let level = levels.rule_of(path);
            tree.entries.push(CompiledEntry {
                path: path.clone(),
                share: entry.share,
                weight: weights.get(path).copied().unwrap_or_default(),
                at_most: entry.at_most,
                scope: level.scope,
                distance: level.distance,
                vo: vo.map(|vo| vo.vo),
                vo_path: vo.map(|_| AccountPath::root()),
                policy_of: None,
                since: entry.since,
                from: Origin::Site,
            });
            tree.move_here(path, entry.was.iter().cloned());
        }
        match (alias, vo) {
            (_, Some(vo)) => tree.mount(path, vo, read),
            (Some(alias), None) => tree.warnings.push(CompileWarning::UnknownMount {
                path: path.clone(),
                alias: alias.clone(),
            }),
            (None, None) => {}
        }
    }
    tree.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    tree.settle_former();
    tree
}

impl CompiledTree {
    fn mount(&mut self, mount: &AccountPath, vo: &InForce, read: &BTreeMap<VoId, InForce>) {
        let mut room = MOUNTED_ENTRIES_MAX;
        for entry in &vo.entries {
            match mount.join(&entry.path) {
                Ok(path) => {
                    self.entries.push(CompiledEntry {
                        path: path.clone(),
                        share: entry.share,
                        weight: mutant!(MountedShareWhole, entry.share, Weight::HUNDRED).units(),
                        at_most: entry.at_most,
                        scope: mutant!(MountedLocally, entry.level.scope, Scope::Local),
                        distance: entry.level.distance,
                        vo: Some(vo.vo),
                        vo_path: Some(entry.path.clone()),
                        policy_of: None,
                        since: entry.since,
                        from: Origin::Document(entry.from.clone()),
                    });
                    let former = entry.was.iter().filter_map(|was| mount.join(was).ok());
                    self.move_here(&path, former);
                    if let Some(of) = &entry.mount {
                        self.divide(&path, (vo, entry), of, read.get(&of.vo), &mut room);
                    }
                }
                Err(error) => self.does_not_fit(mount, &entry.path, error.to_string()),
            }
        }
    }

    /// Divides an entry of a VO as another VO's policy says. What that mounts in turn stays undivided, so circles
    /// cannot arise. Only shares, limits and how levels are compared are taken: usage is that of the VO's own members.
    fn divide(
        &mut self,
        at: &AccountPath,
        (vo, entry): (&InForce, &VoEntry),
        of: &PolicyMount,
        inner: Option<&InForce>,
        room: &mut usize,
    ) {
        let parts = inner.map_or(&[][..], |inner| below(inner, &of.path));
        let why = match inner.filter(|inner| inner.charter.is_some()) {
            None => Some("nothing is known of it (yet)"),
            Some(inner) if !inner.readers.contains(&vo.vo) && !mutated!(UnreadMounted) => {
                Some("its charter does not list this VO among its readers")
            }
            Some(_) if parts.is_empty() => Some("it has no such entry, or does not divide it"),
            Some(_) if parts.len() > *room => Some("it has more entries than may be mounted"),
            Some(_) => None,
        };
        if let Some(why) = why {
            return self.undivided(at, of, why);
        }
        *room -= parts.len();
        for part in parts {
            let below = part.path.relative_to(&of.path);
            let below = below.expect("it was found below it");
            let places = at
                .join(&below)
                .and_then(|path| Ok((path, entry.path.join(&below)?)));
            let (path, vo_path) = match places {
                Ok(places) => places,
                Err(error) => {
                    self.does_not_fit(at, &part.path, error.to_string());
                    continue;
                }
            };
            if let Some(of) = &part.mount {
                self.undivided(&path, of, "what is mounted mounts nothing in turn");
            }
            let former = part
                .was
                .iter()
                .filter_map(|was| at.join(&was.relative_to(&of.path)?).ok());
            self.move_here(&path, former);
            self.entries.push(CompiledEntry {
                path,
                share: part.share,
                weight: part.share.units(),
                at_most: part.at_most,
                scope: part.level.scope,
                distance: part.level.distance,
                vo: Some(vo.vo),
                vo_path: Some(vo_path),
                policy_of: Some(of.vo),
                since: part.since,
                from: Origin::Document(part.from.clone()),
            });
        }
    }

    fn move_here(&mut self, now: &AccountPath, former: impl Iterator<Item = AccountPath>) {
        self.former.extend(former.map(|was| FormerPath {
            was,
            now: now.clone(),
        }));
    }

    /// Leaves out former paths that are entries, or that an entry before claims: one document is checked by
    /// itself, but two of them can contradict each other.
    fn settle_former(&mut self) {
        let mut former = std::mem::take(&mut self.former);
        former.sort_by(|a, b| (&a.was, &a.now).cmp(&(&b.was, &b.now)));
        for FormerPath { was, now } in former {
            let is_claimed = self.former.last().is_some_and(|last| last.was == was);
            let why = match self.get(&was) {
                Some(_) => "which is an entry",
                None if is_claimed => "which is another entry's former path",
                None => {
                    self.former.push(FormerPath { was, now });
                    continue;
                }
            };
            self.warnings
                .push(CompileWarning::NotMoved { now, was, why });
        }
    }

    fn undivided(&mut self, path: &AccountPath, of: &PolicyMount, why: &'static str) {
        self.warnings.push(CompileWarning::Undivided {
            path: path.clone(),
            of: of.clone(),
            why,
        });
    }

    fn does_not_fit(&mut self, mount: &AccountPath, vo_path: &AccountPath, reason: String) {
        self.warnings.push(CompileWarning::DoesNotFit {
            mount: mount.clone(),
            vo_path: vo_path.clone(),
            reason,
        });
    }
}

/// The entries of a VO's tree below a path. They are next to each other, and a tree may be mounted in tens of thousands
/// of places: O(log n).
fn below<'a>(tree: &'a InForce, path: &AccountPath) -> &'a [VoEntry] {
    if path.is_root() {
        return &tree.entries;
    }
    let prefix = format!("{path}/");
    let begin = |entry: &VoEntry| entry.path.as_str() < prefix.as_str();
    let begin = tree.entries.partition_point(begin);
    let from = &tree.entries[begin..];
    let len = from.partition_point(|entry| entry.path.as_str().starts_with(&prefix));
    &from[..len]
}

#[cfg(test)]
mod tests;
