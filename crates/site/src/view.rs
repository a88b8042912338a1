//! What look-ups read: who is who, and the share tree.
//!
//! Invariant: a view is replaced as a whole, never changed; the sums in it move on under the
//! readers without ever making them wait (see `fairmesh-fairshare`).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::{EntryId, EntryKind, Resolved, Snapshot, TreeReader};
use fairmesh_model::{AccountPath, SiteId, VoId, WallTime, Weight};

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
    /// The VO whose policy is mounted.
    pub vo: VoId,
    /// Its name, or its id if the name is unknown.
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

    /// The account that `words` are charged to; `None` where they map nowhere.
    pub fn account<'a>(&self, words: impl Into<Words<'a>>) -> Option<Account> {
        self.config.identity.resolve(words)
    }

    /// All entries that jobs of `user` may be charged to, in the order of their paths, with their accounts. A tree is
    /// searched only where a template can make any of its paths.
    pub fn entries_of(&self, user: &str) -> Vec<(EntryId, Account)> {
        let claims = self.config.identity.claims(user);
        let known = claims.accounts().filter_map(|account| {
            let path = self.tree_path(account)?;
            // Where VOs are mounted in each other an entry is of one of them.
            (self.account_at(&path) == *account).then_some(())?;
            Some((self.reader.entry(&path)?, account.clone()))
        });
        let mut found: BTreeMap<EntryId, Account> = known.collect();
        if claims.has_forms() {
            for entry in (0..).map_while(|index| self.reader.entry_at(index)) {
                let path = self.reader.path(entry);
                if claims.may_be(path) {
                    let account = self.account_at(path);
                    if self.may_charge(user, &account) {
                        found.insert(entry, account);
                    }
                }
            }
        }
        found.into_iter().collect()
    }

    /// The account whose usage counts at and below an entry of the site's tree.
    pub fn account_at(&self, path: &AccountPath) -> Account {
        let mut mounts = self.mounts.iter();
        let in_vo = mounts.find_map(|(vo, mount)| Some((*vo, path.relative_to(mount)?)));
        match in_vo {
            Some((vo, path)) => Account { vo: Some(vo), path },
            None => Account {
                vo: None,
                path: path.clone(),
            },
        }
    }

    /// Whether people of one name at two sites may be charged to `account` as if they were one.
    pub fn may_mix_namesakes(&self, account: &Account) -> bool {
        self.config.identity.may_mix_namesakes(account)
    }

    /// Whether jobs of `user` are charged to `account` under some batch account, group or Grid identity.
    pub fn may_charge(&self, user: &str, account: &Account) -> bool {
        self.config.identity.may_charge(user, account)
    }

    /// Whether `account` is somebody else's: jobs of him are charged to it, and none of `user`.
    pub fn is_of_another(&self, user: &str, account: &Account) -> bool {
        self.config.identity.is_of_another(user, account)
    }

    /// The entry that usage of `words` counts against; `None` where they map nowhere.
    pub fn resolve<'a>(&self, words: impl Into<Words<'a>>) -> Option<EntryId> {
        Some(self.locate(&self.account(words)?).entry)
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

    /// The entry `*` that usage of `account` belongs to; `None` where a line covers it.
    pub fn others_of(&self, account: &Account) -> Option<AccountPath> {
        let entry = self.locate(account).entry;
        let path = self.reader.path(entry);
        match self.reader.kind(entry) {
            EntryKind::Listed => None,
            EntryKind::Others | EntryKind::ImpliedOthers => Some(path.clone()),
            EntryKind::Unlisted => self
                .reader
                .parent(entry)
                .map(|above| self.reader.path(above).clone()),
        }
    }

    /// Where `account` would be in the site's tree: below its VO's mount, or as near to that as a path may be long.
    /// `None` where its VO is not mounted, and for an account of the site's own that would be in a VO's tree: what no
    /// VO's members know of counts in none.
    pub fn tree_path(&self, account: &Account) -> Option<AccountPath> {
        let path = &account.path;
        match account.vo {
            None => {
                let is_in = |mount: &AccountPath| path.starts_with(mount);
                (!self.mounts.values().any(is_in)).then(|| path.clone())
            }
            Some(vo) => {
                let mount = self.mounts.get(&vo)?;
                path.ancestors().find_map(|above| mount.join(&above).ok())
            }
        }
    }

    /// The share that the owner has written for an entry of the site's own tree.
    pub fn share_of_owner(&self, path: &AccountPath) -> Option<Weight> {
        let entry = self.config.policy.entry(path)?;
        Some(entry.share)
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

    /// The reader of the share tree.
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
