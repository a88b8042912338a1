//! The accounts of a VO with rights left at a site: within their quota, for the order of jobs.
//!
//! Invariant: an account is within its quota exactly if a hold for the smallest job would be granted now: some
//! account that it may spend has rights left. An account above those with credit is within its quota; one that no
//! credit covers is not. Deliberately not here: single jobs. One may lack rights though its account has some left.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, AllocationId, WallTime, mutant};

use crate::ledger::Ledger;

/// The accounts within their quota, precomputed, because the order of jobs asks for every leaf of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Funded {
    /// The allocations with rights left at this site.
    allocations: BTreeSet<AllocationId>,
    /// Their paths with the members that may spend them; an empty set means everyone.
    left: BTreeMap<AccountPath, BTreeSet<AccountPath>>,
    /// Ancestors of accounts with credit that no credit covers themselves.
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

    /// The allocations with rights left; equal sets mean an equal order of jobs.
    pub fn allocations(&self) -> &BTreeSet<AllocationId> {
        &self.allocations
    }
}

impl Ledger {
    /// Whether a user has rights left to spend here.
    pub fn is_within(&self, user: &AccountPath, now: WallTime) -> bool {
        let mut accounts = self.grants().accounts(user, now);
        accounts.any(|account| self.spendable_for(&account, user, now) > 0)
    }

    /// The allocations with rights left here.
    pub fn funded_allocations(&self, now: WallTime) -> BTreeSet<AllocationId> {
        let paths = self.grants().paths();
        let live = paths.flat_map(|path| self.grants().live(path, now));
        let left = live.filter(|id| self.spendable(*id) > 0);
        left.map(|id| id.allocation).collect()
    }

    /// The accounts within their quota here.
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
