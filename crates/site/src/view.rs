//! What look-ups read: who is who, and the share tree.
//!
//! Invariant: a view is replaced as a whole, never changed; the sums in it move on under the
//! readers without ever making them wait (see `fairmesh-fairshare`).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::{EntryId, Resolved, Snapshot, TreeReader};
use fairmesh_model::{AccountPath, SiteId, VoId, WallTime};

use crate::config::SiteConfig;
use crate::identity::{Account, Words};

/// A site's answers to look-ups, for any thread.
#[derive(Debug)]
pub struct View {
    config: Arc<SiteConfig>,
    mounts: BTreeMap<VoId, AccountPath>,
    divided: BTreeMap<AccountPath, Divided>,
    reader: TreeReader,
}

/// Whose policy divides an entry of a VO that mounts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divided {
    /// The other VO.
    pub vo: VoId,
    /// Its name.
    pub name: String,
}

impl View {
    pub(crate) fn new(
        config: Arc<SiteConfig>,
        mounts: BTreeMap<VoId, AccountPath>,
        divided: BTreeMap<AccountPath, Divided>,
        reader: TreeReader,
    ) -> Self {
        Self {
            config,
            mounts,
            divided,
            reader,
        }
    }

    /// The account that `origin` is charged to; `None` where it maps nowhere.
    pub fn account<'a>(&self, origin: impl Into<Words<'a>>) -> Option<Account> {
        self.config.identity.resolve(origin)
    }

    /// Whether jobs of `user` are charged to `account` under some batch account, group or Grid identity.
    pub fn may_charge(&self, user: &str, account: &Account) -> bool {
        self.config.identity.may_charge(user, account)
    }

    /// Whether `account` is somebody else's: jobs of him are charged to it, and none of `user`.
    pub fn is_of_another(&self, user: &str, account: &Account) -> bool {
        self.config.identity.is_of_another(user, account)
    }

    /// The entry that usage of `origin` counts against; `None` where it maps nowhere.
    pub fn resolve<'a>(&self, origin: impl Into<Words<'a>>) -> Option<EntryId> {
        Some(self.locate(&self.account(origin)?).entry)
    }

    /// Where usage of `account` counts in the site's tree. An account of a VO that is not mounted here counts
    /// against the root.
    pub fn locate(&self, account: &Account) -> Resolved {
        let path = self.tree_path(account);
        self.reader.resolve(&path.unwrap_or_else(AccountPath::root))
    }

    /// The same at the moment of a copy of the tree's sums.
    pub fn locate_in(&self, snapshot: &Snapshot, account: &Account) -> Resolved {
        let path = self.tree_path(account);
        snapshot.resolve(&path.unwrap_or_else(AccountPath::root))
    }

    /// Where `account` would be in the site's tree; `None` where its VO is not mounted, or the
    /// path would be too long.
    pub fn tree_path(&self, account: &Account) -> Option<AccountPath> {
        match account.vo {
            None => Some(account.path.clone()),
            Some(vo) => self.mounts.get(&vo)?.join(&account.path).ok(),
        }
    }

    /// Where the VOs are mounted.
    pub fn mounts(&self) -> &BTreeMap<VoId, AccountPath> {
        &self.mounts
    }

    /// Whose policy divides the entry at `path`, or one above it, where a VO mounts another's.
    pub fn divided_by(&self, path: &AccountPath) -> Option<&Divided> {
        if self.divided.is_empty() {
            return None;
        }
        path.ancestors().find_map(|above| self.divided.get(&above))
    }

    /// The tree.
    pub fn reader(&self) -> &TreeReader {
        &self.reader
    }
}

/// What an answer rests on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Member sites of the VOs that the site takes part in, itself included.
    pub sites_total: u32,
    /// Those of which anything is held.
    pub sites_known: u32,
    /// Cores that the charters declare for all of them.
    pub cores_total: u64,
    /// Cores of those of which anything is held.
    pub cores_known: u64,
    /// When each last signed something that is held, by its own clock.
    pub signed_at: BTreeMap<SiteId, WallTime>,
}

impl Coverage {
    /// The site that signed last the longest ago, and when that was.
    pub fn oldest(&self) -> Option<(SiteId, WallTime)> {
        self.signed_at
            .iter()
            .map(|(site, at)| (*site, *at))
            .min_by_key(|(site, at)| (*at, *site))
    }
}
