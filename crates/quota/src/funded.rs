//! Which accounts of a VO have anything left at a site: who is within his quota, as the order of jobs sees it.
//!
//! Invariant: it says of an account what a hold of the smallest job would come to there and then: within, where any
//! account that it may spend has something left. An account above those with credit is within; whoever no credit
//! covers is not.
//! Deliberately not here: single jobs. One may lack rights though its account has some left.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, WallTime, mutant};

use crate::ledger::Ledger;

/// The accounts with credit of their own, and which of them have anything left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Funded {
    /// With each that has something left the members that its allocations name; none where one of them admits all.
    left: BTreeMap<AccountPath, BTreeSet<AccountPath>>,
    /// All that lies above an account with credit, and below none.
    above: BTreeSet<AccountPath>,
}

impl Funded {
    /// Whether an account of the VO is within its quota.
    pub fn is_within(&self, account: &AccountPath) -> bool {
        let admits = |members: &BTreeSet<AccountPath>| {
            members.is_empty() || members.iter().any(|member| account.starts_with(member))
        };
        let mut paying = account.ancestors().filter_map(|path| self.left.get(&path));
        paying.any(admits) || self.above.contains(account)
    }

    /// The accounts that have anything left.
    pub fn with_rights(&self) -> impl Iterator<Item = &AccountPath> {
        self.left.keys()
    }
}

impl Ledger {
    /// Whether a user has anything left that he may spend here.
    pub fn is_within(&self, user: &AccountPath, now: WallTime) -> bool {
        let mut accounts = self.grants().accounts(user);
        accounts.any(|account| self.spendable_of(&account, now) > 0)
    }

    /// The accounts with credit that have anything left here.
    pub fn funded_paths(&self, now: WallTime) -> BTreeSet<AccountPath> {
        let paths = self.grants().paths();
        let left = paths.filter(|path| self.spendable_of(path, now) > 0);
        left.cloned().collect()
    }

    /// Who is within his quota here.
    pub fn funded(&self, now: WallTime) -> Funded {
        let left = self.funded_paths(now).into_iter();
        let left = left.map(|path| {
            let members = self.grants().members(&path);
            (path, members)
        });
        let paths: BTreeSet<&AccountPath> = self.grants().paths().collect();
        let above = paths
            .iter()
            .flat_map(|path| path.ancestors().skip(1).collect::<Vec<_>>());
        let is_covered = |path: &AccountPath| path.ancestors().any(|above| paths.contains(&above));
        let above = above.filter(|path| !is_covered(path));
        Funded {
            left: mutant!(BandsOfAll, left.collect(), {
                drop(left);
                BTreeMap::from([(AccountPath::root(), BTreeSet::new())])
            }),
            above: above.collect(),
        }
    }
}
