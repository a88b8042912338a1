//! The all-knowing scheduler: one usage table, seen by all sites at once.
//!
//! It is what gossip is measured against, written from the paper's definitions without the nodes' code:
//! of each entry above an account the distance `target − actual`, compared from the VO down. A VO's
//! share is of the site and *active*: finished and running jobs, whatever the mode; what lies below is
//! of the Grid, in the usage mode. There are two of them. With the *same feeds* the table gets what the
//! sites' nodes get, at the same moments, and everybody sees it at once: what differs from a gossiping
//! Grid is gossip and nothing else. With *no feeds* every pass sees what was used anywhere until this
//! very moment: what differs from that is gossip and the age of what feeds say, which a Grid with one
//! server in its middle would have, too.
//!
//! Invariant: nothing is estimated and nothing is late; what running jobs count for is what the mode
//! says, with the requested times, as schedulers know them.
//!
//! Deliberately not here: any network. FSGrid paper, section 5, has no such thing; the ratio to it is
//! the number that its authors did not have.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Cluster, Finished, paper};
use fairmesh_model::{UsageMode, WallTime};

use crate::grid::{UsageSource, UsageTable, places};
use simnet::vo::START;

/// The scheduler.
pub struct Central {
    mode: UsageMode,
    /// The policy: percentages and entries, parents first.
    policy: Vec<(u32, AccountKey)>,
    /// What feeds said last, if there are feeds.
    said: Option<UsageTable>,
    said_at: WallTime,
    has_feeds: bool,
}

/// `target − actual` of one entry, as a fraction.
#[derive(Clone, Copy)]
struct Distance {
    over: i128,
    under: i128,
}

impl Distance {
    /// Of a level that an account does not have.
    const NONE: Self = Self { over: 0, under: 1 };

    fn compare(&self, other: &Self) -> Ordering {
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

impl Central {
    /// A scheduler that knows nothing yet, because nothing has been used. With feeds, it learns of
    /// what is used whenever feeds are asked to tell.
    pub fn new(mode: UsageMode, has_feeds: bool) -> Self {
        let entry = |entry: &paper::PolicyEntry| (entry.percent, entry.account());
        Self {
            mode,
            policy: paper::POLICY.iter().map(entry).collect(),
            said: None,
            said_at: START,
            has_feeds,
        }
    }

    /// The distances of an account's entries, from the VO down.
    fn vector(
        &self,
        site: usize,
        (used, at): (&UsageTable, WallTime),
        account: &AccountKey,
    ) -> Vec<Distance> {
        let above = self
            .policy
            .iter()
            .filter(|(_, entry)| entry.vo == account.vo && account.path.starts_with(&entry.path));
        let distance = |(percent, of): &(u32, AccountKey)| {
            let parent = of.path.parent();
            let (mut own, mut all) = (0, 0);
            for (leaf, number) in used.accounts() {
                let is_in = |path| leaf.vo == of.vo && leaf.path.starts_with(path);
                if !parent.as_ref().is_none_or(is_in) {
                    continue;
                }
                let usage = i128::from(match parent {
                    None => used.counted(site, number, UsageMode::Active, at),
                    Some(_) => used.counted_everywhere(number, self.mode, at),
                });
                all += usage;
                own += if is_in(&of.path) { usage } else { 0 };
            }
            // Nobody has used anything: the actual share is 0.
            let all = all.max(1);
            Distance {
                over: i128::from(*percent) * all - 100 * own,
                under: 100 * all,
            }
        };
        above.map(distance).collect()
    }
}

impl UsageSource for Central {
    fn advance(&mut self, _now: WallTime) {}

    fn finished(&mut self, _site: usize, _job: &Finished) {}

    fn refresh(&mut self, now: WallTime, used: &UsageTable, _clusters: &[Cluster]) {
        if self.has_feeds {
            self.said = Some(used.clone());
            self.said_at = now;
        }
    }

    fn order(
        &mut self,
        site: usize,
        now: WallTime,
        used: &UsageTable,
        accounts: &[AccountKey],
    ) -> BTreeMap<AccountKey, u64> {
        let unused;
        let known = match &self.said {
            Some(said) => (said, self.said_at),
            None if self.has_feeds => {
                unused = used.emptied();
                (&unused, START)
            }
            None => (used, now),
        };
        let vector = |account: &AccountKey| (account.clone(), self.vector(site, known, account));
        places(accounts.iter().map(vector).collect(), |a, b| compare(a, b))
    }
}

/// By the first level in which two vectors differ.
fn compare(one: &[Distance], other: &[Distance]) -> Ordering {
    let level = |of: &[Distance], level| of.get(level).copied().unwrap_or(Distance::NONE);
    let levels = 0..one.len().max(other.len());
    let mut differ = levels.map(|at| level(one, at).compare(&level(other, at)));
    differ
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}
