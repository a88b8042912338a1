//! Which accounts of a VO have anything left at a site: who is within his quota, as the order of jobs sees it.
//!
//! Invariant: it says of an account what a hold of the smallest job would come to there and then: within, where any
//! account that it may spend has something left. An account above those with credit is within; whoever no credit
//! covers is not.
//! Deliberately not here: single jobs. One may lack rights though its account has some left.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, AllocationId, WallTime, mutant};

use crate::ledger::Ledger;

/// The accounts with credit of their own, and which of them have anything left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Funded {
    /// The allocations that have something left.
    allocations: BTreeSet<AllocationId>,
    /// Their paths, each with the members that they name; none where one of them admits all.
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

    /// The allocations that have anything left.
    pub fn allocations(&self) -> &BTreeSet<AllocationId> {
        &self.allocations
    }
}

impl Ledger {
    /// Whether a user has anything left that he may spend here.
    pub fn is_within(&self, user: &AccountPath, now: WallTime) -> bool {
        let mut accounts = self.grants().accounts(user, now);
        accounts.any(|account| self.spendable_for(&account, user, now) > 0)
    }

    /// The allocations that have anything left here.
    pub fn funded_allocations(&self, now: WallTime) -> BTreeSet<AllocationId> {
        let paths = self.grants().paths();
        let live = paths.flat_map(|path| self.grants().live(path, now));
        let left = live.filter(|id| self.spendable(*id) > 0);
        left.map(|id| id.allocation).collect()
    }

    /// Who is within his quota here.
    pub fn funded(&self, now: WallTime) -> Funded {
        let allocations = self.funded_allocations(now);
        let left = self.grants().members_of(allocations.iter().copied());
        let paths: BTreeSet<&AccountPath> = self.grants().paths().collect();
        let above = paths
            .iter()
            .flat_map(|path| path.ancestors().skip(1).collect::<Vec<_>>());
        let is_covered = |path: &AccountPath| path.ancestors().any(|above| paths.contains(&above));
        let above = above.filter(|path| !is_covered(path));
        let all = BTreeMap::from([(AccountPath::root(), BTreeSet::new())]);
        Funded {
            allocations,
            left: mutant!(BandsOfAll, left, all),
            above: above.collect(),
        }
    }
}
