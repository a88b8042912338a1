//! What a VO and its groups may have in flight, and whose turn it is.
//!
//! Where use is proportional by site, a group may have at each site only its part of what the VO may have there. So several
//! queues of one VO, each of a group of its own, keep a site's limit without seeing what the others send.
//!
//! Invariant: a start needs room at every level, from the account up to the VO.
//! Source: GRUBER (Euro-Par 2005), section 4: a VO with at most 600 CPUs, groups with at most 25 % of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, mutated};

use crate::sla::Sla;

/// CPUs that accounts may hold over the Grid, and what they are entitled to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// CPUs by account; an account that is not here is bounded by those above it only.
    pub cpus: BTreeMap<AccountPath, u64>,
    /// Entitlements by account, in any one unit; an account that is not here has as much as all others of its kind.
    pub entitled: BTreeMap<AccountPath, u64>,
    /// The VO's own document where use is proportional by site; `None`: its limits are of the Grid as a whole.
    pub by_site: Option<Sla>,
}

impl Limits {
    /// The limits of a VO's own document, where sites contribute so many CPUs to it.
    pub fn of(sla: &Sla, contributed: u64) -> Self {
        let cpus = sla.limits(contributed);
        let all = cpus
            .get(&AccountPath::root())
            .copied()
            .unwrap_or(contributed);
        Self {
            cpus,
            entitled: sla.entitlements(all),
            by_site: None,
        }
    }

    /// What accounts may have at a site at which the VO may have so many CPUs; nothing bounds them where use is not
    /// proportional by site.
    pub(super) fn at_site(&self, vo_limit: u64) -> BTreeMap<AccountPath, u64> {
        let by_site = self
            .by_site
            .as_ref()
            .filter(|_| !mutated!(SitePartUnchecked));
        by_site.map_or_else(BTreeMap::new, |sla| sla.limits(vo_limit))
    }

    /// The account at or above `account` whose limit is below `cpus`, if there is one.
    pub fn below(&self, account: &AccountPath, cpus: u64) -> Option<(AccountPath, u64)> {
        let limit = |path: AccountPath| self.cpus.get(&path).map(|limit| (path.clone(), *limit));
        account
            .ancestors()
            .filter_map(limit)
            .find(|(_, limit)| cpus > *limit)
    }
}

/// CPUs in flight by account, each counted at every level.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(BTreeMap<AccountPath, u64>);

impl Held {
    pub(super) fn add(&mut self, account: &AccountPath, cpus: u64) {
        for path in account.ancestors() {
            let held = self.0.entry(path).or_default();
            *held = held.saturating_add(cpus);
        }
    }

    pub(super) fn of(&self, account: &AccountPath) -> u64 {
        self.0.get(account).copied().unwrap_or(0)
    }

    /// Whether `cpus` more keep every limit of the account and of those above it.
    pub(super) fn has_room(
        &self,
        limits: &BTreeMap<AccountPath, u64>,
        account: &AccountPath,
        cpus: u64,
    ) -> bool {
        let bound = |path: &AccountPath| limits.get(path).copied();
        account.ancestors().all(|path| {
            let unchecked = if path.is_root() {
                mutated!(VoLimitUnchecked)
            } else {
                mutated!(GroupLimitUnchecked)
            };
            bound(&path).is_none_or(|limit| self.of(&path).saturating_add(cpus) <= limit)
                || unchecked
        })
    }

    /// Whose turn comes first: who has less in flight of what he is entitled to; then by name.
    pub(super) fn compare(&self, limits: &Limits, a: &AccountPath, b: &AccountPath) -> Ordering {
        let entitled =
            |path: &AccountPath| u128::from(limits.entitled.get(path).copied().unwrap_or(1));
        let held = |path: &AccountPath| u128::from(self.of(path));
        let (a_part, b_part) = (held(a) * entitled(b), held(b) * entitled(a));
        a_part.cmp(&b_part).then_with(|| a.cmp(b))
    }
}
