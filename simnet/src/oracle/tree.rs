//! The tree of targets at a site, from the owner's decisions and the documents in force.
//!
//! Invariant: the owner's entries stand as he wrote them, each VO's tree stands where he mounts it,
//! and what a policy delegates is divided by the newest policy of that path. A VO of which no charter
//! is held stays undivided, and is nobody's mount.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Charter, Share, SharePolicy, VoId};

use super::AccountKey;
use super::owner::Owner;

/// What a site holds of a VO, newest versions only.
#[derive(Debug, Clone)]
pub struct Held<'a> {
    /// The charter in force.
    pub charter: &'a Charter,
    /// The policy in force of each path.
    pub policies: BTreeMap<&'a AccountPath, &'a SharePolicy>,
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Its share of its parent.
    pub share: Share,
    /// The most that it may have of it before all others of its level go first.
    pub at_most: Share,
    /// The VO over whose members it is compared with its siblings; `None` for usage of this site.
    pub global: Option<VoId>,
}

/// The tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// All entries but the root.
    pub targets: BTreeMap<AccountPath, Target>,
    /// Where VOs are mounted.
    pub mounts: BTreeMap<VoId, AccountPath>,
}

impl Tree {
    /// The tree of an owner who holds these documents.
    pub fn of(owner: &Owner, held: &BTreeMap<VoId, Held<'_>>) -> Self {
        let mut tree = Self::default();
        for entry in &owner.entries {
            let target = Target {
                share: entry.share,
                at_most: entry.at_most,
                global: None,
            };
            if !entry.path.is_root() {
                tree.targets.insert(entry.path.clone(), target);
            }
            let vo = entry.vo.and_then(|vo| Some((vo, held.get(&vo)?)));
            if let Some((vo, held)) = vo {
                tree.mounts.insert(vo, entry.path.clone());
                tree.divide(vo, held, &entry.path, &AccountPath::root());
            }
        }
        tree
    }

    fn divide(&mut self, vo: VoId, held: &Held<'_>, mount: &AccountPath, above: &AccountPath) {
        let Some(policy) = held.policies.get(above) else {
            return;
        };
        for (below, entry) in &policy.shares {
            let Some(in_vo) = above.join(below).ok() else {
                continue;
            };
            let target = Target {
                share: entry.share,
                at_most: entry.at_most.unwrap_or(Share::WHOLE),
                global: Some(vo),
            };
            if let Ok(path) = mount.join(&in_vo) {
                self.targets.insert(path, target);
            }
            if entry.delegate.is_some() {
                self.divide(vo, held, mount, &in_vo);
            }
        }
    }

    /// The deepest entry that an account is or lies below; the root for those of VOs that are not
    /// mounted.
    pub fn place(&self, (vo, path): &AccountKey) -> AccountPath {
        let path = match vo {
            None => Some(path.clone()),
            Some(vo) => self.mounts.get(vo).and_then(|mount| mount.join(path).ok()),
        };
        let mut place = path;
        while let Some(path) = &place {
            if self.targets.contains_key(path) {
                break;
            }
            place = path.parent();
        }
        place.unwrap_or_else(AccountPath::root)
    }
}
