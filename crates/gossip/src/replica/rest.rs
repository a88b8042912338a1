//! Resting sites: after a head of a site came into force, its next heads wait.
//!
//! A head of a few bytes makes a node visit all rows of its site. All members together have a budget of rows a second.
//! The sites whose last head is not paid off share it equally. A head waits until the site's last one is paid off, so
//! heads of small sites wait for moments only, whatever large sites publish.
//!
//! Invariant: apart from one head of each site, no more rows are visited in any time than the budget allows. That is a
//! small part of the node's time, however many members publish large heads. It is only a delay: the peer that offered a
//! head meanwhile is asked when the rest is over.
//!
//! The equal shares are those of generalized processor sharing (Parekh and Gallager, 1993): while `n` sites rest, the
//! round advances by `1 / n` of the time, and a site rests until the round has advanced by what the site owes.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Millis, MonoTime, SiteId};

use super::{Absorbed, Replica, SiteState};
use crate::content::Content;

/// Nanoseconds of the budget for each row of the site before its last head and for each row after it. Visiting a row
/// takes a tenth of it, and more if the row is new or removed. So after the largest head the next one waits four
/// seconds, if no other site rests.
const REST_OF_ROW_NS: u64 = 4_000;

const NS: u64 = 1_000_000;

/// All resting sites.
#[derive(Debug, Default)]
pub(super) struct Rests {
    /// The time up to which the round has advanced.
    at: MonoTime,
    /// Nanoseconds that the heads of that moment may have taken. The node was busy with them and could take nothing
    /// else, so as much of the time that passes next pays nothing.
    going_through: u64,
    /// Nanoseconds that a site that had rested all the time would have been paid.
    round: u64,
    /// The remainder of the last division. Without it many resting sites would never be paid by short steps.
    undivided: u64,
    /// For each site the round at which its rest ends, and the last peer that offered a head since.
    sites: BTreeMap<SiteId, (u64, Option<SiteId>)>,
    /// The same ends, sorted.
    ends: BTreeSet<(u64, SiteId)>,
    /// Peers to ask: they offered heads of sites whose rest is over.
    to_ask: Vec<SiteId>,
}

impl Rests {
    /// Advances the round to `now`.
    fn advance(&mut self, now: MonoTime) {
        let mut left = now.since(self.at).0.saturating_mul(NS);
        if left == 0 {
            return;
        }
        self.at = now;
        left -= left.min(std::mem::take(&mut self.going_through));
        left += std::mem::take(&mut self.undivided);
        // Site by site, because the round advances faster whenever one of the resting sites ends.
        while let Some((end, site)) = self.ends.first().copied() {
            let resting = self.ends.len() as u64;
            let needed = (end - self.round).saturating_mul(resting);
            if needed > left {
                self.round += left / resting;
                self.undivided = left % resting;
                return;
            }
            left -= needed;
            self.round = end;
            self.ends.pop_first();
            let offered_by = self
                .sites
                .remove(&site)
                .and_then(|(_, offered_by)| offered_by);
            self.to_ask.extend(offered_by);
        }
    }

    /// Adds to what a site owes, in nanoseconds of the budget, from the end of this moment on.
    fn owe(&mut self, site: SiteId, owed: u64, now: MonoTime) {
        self.advance(now);
        // Whole milliseconds, as the clock has: a site with few rows does not rest at all.
        let owed = owed / NS * NS;
        if owed == 0 {
            return;
        }
        self.going_through += owed;
        let (until, offered_by) = self.sites.remove(&site).unwrap_or((self.round, None));
        self.ends.remove(&(until, site));
        let until = until + owed;
        self.ends.insert((until, site));
        self.sites.insert(site, (until, offered_by));
    }

    /// When the first rest ends of a site of which a head was offered, if nothing else happens.
    fn next_end(&self) -> Option<MonoTime> {
        if !self.to_ask.is_empty() {
            return Some(self.at);
        }
        let offered = self.sites.values();
        let offered = offered.filter(|(_, offered_by)| offered_by.is_some());
        let first = offered.map(|(until, _)| *until).min()?;
        // Until then each other site is paid as much, or all that it owes.
        let paid = self
            .ends
            .iter()
            .map(|(end, _)| end.min(&first) - self.round);
        let needed = paid.fold(self.going_through, u64::saturating_add);
        let needed = needed.saturating_sub(self.undivided);
        Some(self.at.after(Millis(needed.div_ceil(NS))))
    }
}

impl SiteState {
    /// Rows of all its heads.
    pub(super) fn rows(&self) -> u64 {
        self.contents.values().map(Content::rows).sum()
    }
}

impl Replica {
    /// Makes the next heads of `site` wait, if `taken` says that one came into force.
    pub(super) fn rest_after(&mut self, site: SiteId, taken: &Absorbed, now: MonoTime) {
        if !matches!(taken, Absorbed::Changed(_)) || site == self.own {
            return;
        }
        let rows = self.sites.get(&site).map_or(0, |held| held.gone_through);
        self.resting.owe(site, rows * REST_OF_ROW_NS, now);
    }

    /// Whether a head of `site` must wait; then `from` is remembered, to be asked when the rest is over.
    pub(super) fn is_resting(&mut self, site: SiteId, from: SiteId, now: MonoTime) -> bool {
        self.resting.advance(now);
        let rest = self.resting.sites.get_mut(&site);
        if let Some((_, offered_by)) = rest {
            *offered_by = Some(from);
            return true;
        }
        false
    }

    /// When the first head that was offered meanwhile can be taken; `None` if none was offered.
    pub fn rests_until(&self) -> Option<MonoTime> {
        self.resting.next_end()
    }

    /// Peers that have offered heads which can be taken by now.
    pub(crate) fn rested(&mut self, now: MonoTime) -> Vec<SiteId> {
        self.resting.advance(now);
        std::mem::take(&mut self.resting.to_ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u8) -> SiteId {
        SiteId::from_bytes([number; 32])
    }

    /// Sites that always have another head ready, of so many rows each: the heads of each that are taken in so many
    /// milliseconds, one of which takes `ns` a row.
    fn taken_of(rows: &[u64], ms: u64) -> Vec<u64> {
        let mut rests = Rests::default();
        let mut taken = vec![0; rows.len()];
        for now in 1..=ms {
            let now = MonoTime(now);
            rests.advance(now);
            for (index, rows) in rows.iter().enumerate() {
                let site = site(u8::try_from(index).expect("few"));
                if !rests.sites.contains_key(&site) {
                    rests.owe(site, rows * REST_OF_ROW_NS, now);
                    taken[index] += 1;
                }
            }
        }
        taken
    }

    #[test]
    fn ten_sites_have_no_more_of_the_budget_than_one() {
        let one: u64 = taken_of(&[300_000], 60_000).iter().sum();
        let ten: u64 = taken_of(&[300_000; 10], 60_000).iter().sum();
        // Beyond the first head of each.
        assert!(ten - 10 <= one, "{ten} of ten, {one} of one");
        assert!(ten >= one, "{ten} of ten, {one} of one");
    }

    #[test]
    fn each_has_an_equal_part_of_it_and_a_small_one_waits_for_moments() {
        let taken = taken_of(&[300_000, 300_000, 300_000, 100_000, 1_000], 120_000);
        let rows = |index: usize, rows: u64| taken[index] * rows;
        assert!(
            rows(3, 100_000).abs_diff(rows(0, 300_000)) <= 600_000,
            "{taken:?}"
        );
        // It owes 4 ms a head, of which it is paid a fifth at a time, and heads are gone through for as long again.
        assert!(taken[4] > 2_000, "{taken:?}");
    }

    #[test]
    fn a_site_that_rests_is_looked_at_when_it_is_said_to_rest_no_more() {
        let mut rests = Rests::default();
        for (number, rows) in (0..).zip([60_000, 1_000, 0, 500_000]) {
            rests.owe(site(number), rows * REST_OF_ROW_NS, MonoTime(5));
        }
        assert!(!rests.sites.contains_key(&site(2)), "it has no rows");
        assert_eq!(rests.next_end(), None, "nobody waits");
        for (number, from) in [(0, 7), (1, 8), (3, 9)] {
            rests.sites.get_mut(&site(number)).expect("it rests").1 = Some(site(from));
        }
        // The first end: 1,000 rows, and as many of the two others; gone through for as long as all of them.
        for (from, paid) in [(8, 3 * 4), (7, 4 + 2 * 240), (9, 4 + 240 + 2_000)] {
            let end = MonoTime(5 + 4 + 240 + 2_000 + paid);
            assert_eq!(rests.next_end(), Some(end));
            rests.advance(MonoTime(end.0 - 1));
            assert_eq!(rests.to_ask, []);
            rests.advance(end);
            assert_eq!(std::mem::take(&mut rests.to_ask), [site(from)]);
        }
        assert_eq!(rests.next_end(), None);
    }
}
