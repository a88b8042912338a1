//! Who may see whose usage, jobs and priorities, as docs/privacy.md has it.
//!
//! Invariant: [`Sight::sees`] (with [`Sight::sees_alone`]) decides, and nothing else does; it is pure. A reader whom nobody knows sees nothing that
//! is hidden. Deliberately not here: who asks (`eyes`, of the kernel and the system), and what is left out of which
//! answer (each handler asks for what it tells of).

mod access;
mod eyes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_fairshare::EntryId;
use fairmesh_model::AccountPath;
use fairmesh_site::{Account, View};
use serde::Deserialize;

pub use access::{Access, CurrentAccess};
pub use eyes::Eyes;

/// What can be hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// What was used, and what is left of credit.
    Usage,
    /// Which jobs there are.
    Jobs,
    /// Factors and ranks.
    Priority,
}

impl What {
    /// All there is.
    pub const ALL: [Self; 3] = [Self::Usage, Self::Jobs, Self::Priority];

    /// Its word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Jobs => "jobs",
            Self::Priority => "priority",
        }
    }
}

/// The owner's word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privacy {
    /// What is told to those only whom it concerns.
    pub hide: BTreeSet<What>,
    /// Who sees an entry of the share tree and all below it, by name.
    pub coordinators: BTreeMap<AccountPath, BTreeSet<String>>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reader {
    /// One who sees all.
    All,
    /// A user of the machine.
    User(String),
    /// One whom the system does not name.
    Unknown,
}

/// What one reader sees of one tree.
#[derive(Debug, Clone)]
pub struct Sight {
    privacy: Arc<Privacy>,
    reader: Reader,
    view: Arc<View>,
    /// Entries that jobs of the reader are charged to.
    own: Arc<[AccountPath]>,
    coordinated: Vec<AccountPath>,
    /// These, those that he coordinates, and what lies above either.
    above: BTreeSet<AccountPath>,
}

impl Sight {
    /// What `reader` sees. Where anything is hidden from him, `own` says what of the tree is his own.
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
    pub fn hides(&self, what: What) -> bool {
        self.reader != Reader::All && self.privacy.hide.contains(&what)
    }

    /// Whether he sees this of an account with all below it: it is his own or one that he coordinates, or lies above
    /// such a one.
    pub fn sees(&self, what: What, account: &Account) -> bool {
        let is_above = |path: AccountPath| self.above.contains(&path);
        self.sees_alone(what, account) || self.view.tree_path(account).is_some_and(is_above)
    }

    /// Whether he sees this of an account without what is below it: that is not his because what is below is.
    pub fn sees_alone(&self, what: What, account: &Account) -> bool {
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

    /// All entries of the tree that he sees this of, by index. Where it is hidden from him only a coordinator costs a look at
    /// all of them.
    pub fn entries(&self, what: What) -> BTreeSet<u32> {
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

    /// Likewise, of an entry of the share tree.
    pub fn sees_entry(&self, what: What, path: &AccountPath) -> bool {
        self.sees(what, &account_at(&self.view, path))
    }

    /// Whether he sees all, whatever is hidden.
    pub fn is_all(&self) -> bool {
        self.reader == Reader::All
    }

    /// Whether the reader is this user himself.
    pub fn is(&self, user: &str) -> bool {
        self.user() == Some(user)
    }

    /// His name, where he does not see all.
    pub fn user(&self) -> Option<&str> {
        match &self.reader {
            Reader::User(user) => Some(user),
            Reader::All | Reader::Unknown => None,
        }
    }

    /// Accounts that he sees all jobs of, with those below them.
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
