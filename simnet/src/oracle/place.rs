//! Where usage of an account counts.
//!
//! Invariant: usage at or below a former path of an entry counts at or below that entry; the longest former path
//! goes first, and what comes of it is looked at again. Then usage counts at the deepest entry at or above its
//! path, if that is a leaf, and else at the account itself, which is one of the `*` below that entry.
//! Deliberately not here: whether a former path is allowed to be one.

use fairmesh_model::{AccountPath, ShareRule};

use super::AccountKey;
use super::tree::Tree;

/// Where usage counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At an entry.
    Entry(AccountPath),
    /// At an account of an entry `*`, as it is shown.
    Member {
        /// The entry `*`.
        others: AccountPath,
        /// The account.
        account: AccountPath,
    },
}

impl Place {
    /// From the place up to the root, which is left out.
    pub fn way_up(&self) -> Vec<AccountPath> {
        let (own, from) = match self {
            Self::Entry(path) => (None, path),
            Self::Member { others, account } => (Some(account), others),
        };
        let up = std::iter::successors(Some(from.clone()), AccountPath::parent);
        let up = up.filter(|path| !path.is_root());
        own.cloned().into_iter().chain(up).collect()
    }
}

impl Tree {
    /// Where usage of an account counts. That of VOs that are not mounted is the root's.
    pub fn place(&self, (vo, path): &AccountKey) -> Place {
        let path = match vo {
            None => Some(path.clone()),
            Some(vo) => self.mounts.get(vo).and_then(|mount| mount.join(path).ok()),
        };
        let path = self.follow(path.unwrap_or_else(AccountPath::root));
        let is_entry = |path: &AccountPath| path.is_root() || self.targets.contains_key(path);
        let mut above = std::iter::successors(Some(path.clone()), AccountPath::parent);
        let deepest = above.find(is_entry).expect("the root is one");
        let others = match deepest.is_others() {
            true => Some(deepest.clone()),
            false => deepest.others().filter(|others| is_entry(others)),
        };
        match others.filter(|_| self.rule == ShareRule::Weights) {
            None => Place::Entry(deepest),
            Some(others) => {
                let itself = || others.child("=").expect("short");
                let account = if is_entry(&path) { itself() } else { path };
                Place::Member { others, account }
            }
        }
    }

    /// A path without former paths in it.
    fn follow(&self, mut path: AccountPath) -> AccountPath {
        let is_entry = |path: &AccountPath| path.is_root() || self.targets.contains_key(path);
        loop {
            let mut prefixes = std::iter::successors(Some(path.clone()), AccountPath::parent);
            let known = prefixes.find_map(|was| {
                let now = self.former.entries.get(&was).filter(|_| !is_entry(&was))?;
                Some((now, path.relative_to(&was).expect("it is above")))
            });
            let Some((now, below)) = known else {
                return path;
            };
            // A path that is too long is no path: the entry has the usage itself.
            path = now.join(&below).unwrap_or_else(|_| now.clone());
        }
    }
}
