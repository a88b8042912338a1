//! Who may see whose usage, jobs and priorities (docs/privacy.md).
//!
//! Invariant: only [`Visibility::sees`] (with [`Visibility::sees_alone`]) decides, and it is pure. A reader whom the
//! system cannot name sees nothing that is hidden. Deliberately not here: who the reader is (`resolver` asks the
//! kernel and the system), and which part of an answer a handler leaves out.

mod access;
mod resolver;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_fairshare::EntryId;
use fairmesh_model::AccountPath;
use fairmesh_site::{Account, View};
use serde::Deserialize;

pub use access::{Access, CurrentAccess};
pub use resolver::VisibilityResolver;

/// A kind of data that an owner can hide from users whom it does not concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrivateData {
    /// Used core-time, and the credit that is left.
    Usage,
    /// Jobs, with their users and keys.
    Jobs,
    /// Fairshare factors and ranks.
    Priority,
}

impl PrivateData {
    /// All kinds, in the order in which `status` lists them.
    pub const ALL: [Self; 3] = [Self::Usage, Self::Jobs, Self::Priority];

    /// The word in `privacy.hide` of `fairmesh.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Jobs => "jobs",
            Self::Priority => "priority",
        }
    }
}

/// The table `privacy` of `fairmesh.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privacy {
    /// Hidden data: only users whom it concerns see it.
    pub hide: BTreeSet<PrivateData>,
    /// Who sees an entry of the share tree and all below it, by name.
    pub coordinators: BTreeMap<AccountPath, BTreeSet<String>>,
}

/// The user at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reader {
    /// Root, the node's own user, or a user listed as a writer or a reader.
    All,
    /// A user of the machine, by the name that the system gives.
    User(String),
    /// A user id for which the system has no name.
    Unknown,
}

/// What one reader sees of one tree.
#[derive(Debug, Clone)]
pub struct Visibility {
    privacy: Arc<Privacy>,
    reader: Reader,
    view: Arc<View>,
    /// Entries that jobs of the reader are charged to.
    own: Arc<[AccountPath]>,
    coordinated: Vec<AccountPath>,
    /// The reader's own entries, those that the reader coordinates, and all ancestors of both.
    above: BTreeSet<AccountPath>,
}

impl Visibility {
    /// What `reader` sees. `own` finds the reader's own entries; it is called only if something is hidden.
    pub fn new(
        privacy: Arc<Privacy>,
        reader: Reader,
        view: Arc<View>,
        own: impl FnOnce(&str, &Arc<View>) -> Arc<[AccountPath]>,
    ) -> Self {
        let (mut of_user, mut coordinated) = (Arc::default(), Vec::new());
        if let Reader::User(user) = &reader {
            let named = privacy.coordinators.iter();
            let named = named.filter(|(_, users)| users.contains(user));
            coordinated = named.map(|(path, _)| path.clone()).collect();
            if !privacy.hide.is_empty() {
                of_user = own(user, &view);
            }
        }
        let near = of_user.iter().chain(&coordinated);
        let above = near.flat_map(AccountPath::ancestors).collect();
        Self {
            privacy,
            reader,
            view,
            own: of_user,
            coordinated,
            above,
        }
    }

    /// Whether anything of this is hidden from the reader.
    pub fn hides(&self, what: PrivateData) -> bool {
        self.reader != Reader::All && self.privacy.hide.contains(&what)
    }

    /// Whether the reader sees this of an account and everything below it: the account is the reader's own, one that
    /// the reader coordinates, or an ancestor of one of these.
    pub fn sees(&self, what: PrivateData, account: &Account) -> bool {
        let is_above = |path: AccountPath| self.above.contains(&path);
        self.sees_alone(what, account) || self.view.tree_path(account).is_some_and(is_above)
    }

    /// Whether the reader sees this of an account without the accounts below it. Ancestors of the reader's own accounts
    /// do not count: their own usage belongs to other users.
    pub fn sees_alone(&self, what: PrivateData, account: &Account) -> bool {
        if !self.hides(what) {
            return true;
        }
        let Reader::User(user) = &self.reader else {
            return false;
        };
        let is_coordinated = |path: AccountPath| {
            let mut tops = self.coordinated.iter();
            tops.any(|top| path.starts_with(top))
        };
        // Usage may lie at accounts that have no entry.
        self.view.may_charge(user, account)
            || self.view.tree_path(account).is_some_and(is_coordinated)
    }

    /// All entries of the tree that he sees this of, by index. Where it is hidden from him only a coordinator costs a
    /// look at all of them.
    pub fn entries(&self, what: PrivateData) -> BTreeSet<u32> {
        let reader = self.view.reader();
        let hides = self.hides(what);
        let every = entries_of(&self.view)
            .filter(|_| !hides || (!self.coordinated.is_empty() && self.user().is_some()));
        let every = every.filter(|entry| self.sees_entry(what, reader.path(*entry)));
        let above = self.own.iter().flat_map(AccountPath::ancestors);
        let above = above.filter_map(|path| reader.entry(&path));
        // An account without a line counts among all such, and has no entry before its first usage.
        let own = self.own.iter().map(|path| reader.resolve(path).entry);
        let seen = every.chain(above).chain(own);
        seen.map(|entry| u32::try_from(entry.index()).expect("an id has 32 bits"))
            .collect()
    }

    /// [`Self::sees`] for an entry of the share tree.
    pub fn sees_entry(&self, what: PrivateData, path: &AccountPath) -> bool {
        self.sees(what, &account_at(&self.view, path))
    }

    /// Whether nothing is hidden from the reader.
    pub fn is_all(&self) -> bool {
        self.reader == Reader::All
    }

    /// Whether the reader is this user; false for a reader who sees everything.
    pub fn is(&self, user: &str) -> bool {
        self.user() == Some(user)
    }

    /// The reader's name; `None` if the reader sees everything or has no name.
    pub fn user(&self) -> Option<&str> {
        match &self.reader {
            Reader::User(user) => Some(user),
            Reader::All | Reader::Unknown => None,
        }
    }

    /// Accounts that the reader coordinates, including mounted VOs below them: the reader sees all their jobs.
    pub fn coordinates(&self) -> Vec<Account> {
        let mut accounts = Vec::new();
        for top in &self.coordinated {
            accounts.push(account_at(&self.view, top));
            let mounts = self.view.mounts().iter();
            let below = mounts.filter(|(_, at)| *at != top && at.starts_with(top));
            accounts.extend(below.map(|(vo, _)| Account {
                vo: Some(*vo),
                path: AccountPath::root(),
            }));
        }
        accounts
    }
}

/// The entries that jobs of `user` are charged to.
pub(crate) fn own_entries(user: &str, view: &View) -> Arc<[AccountPath]> {
    let entries = view.entries_of(user).into_iter();
    let paths = entries.map(|(entry, _)| view.reader().path(entry).clone());
    paths.collect()
}

fn entries_of(view: &View) -> impl Iterator<Item = EntryId> + '_ {
    (0..).map_while(|index| view.reader().entry_at(index))
}

/// The account whose usage counts at and below an entry of the site's tree.
pub fn account_at(view: &View, path: &AccountPath) -> Account {
    view.account_at(path)
}

#[cfg(test)]
mod tests;
