//! Sites that an earlier charter listed: each is let in for a visit, in which it gets the charter that removes it.
//!
//! A member that was down when a charter removed it holds the charter before. Turned away at once, it could not tell its
//! removal from a firewall. The site (`fairmesh-site`) answers it with charters and nothing else.
//!
//! Invariant: a former member has at most one connection, for [`VISIT`] in each [`VISITS_INTERVAL`], and all of them have
//! at most [`VISITORS_MAX`]: what they hold is no member's place. This node never dials them.
//! Deliberately not here: closing connections, which the allow list does, and what is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fairmesh_model::SiteId;

/// How long a visit lasts: several round trips of the slowest path, and time for a chain of charters of some megabytes.
pub(crate) const VISIT: Duration = Duration::from_secs(15);

/// From the begin of a visit to that of the next one: a former member that misses a charter waits for a few minutes, and one
/// that calls without end holds a place for an eighth of the time.
pub(crate) const VISITS_INTERVAL: Duration = Duration::from_secs(120);

/// Visits under way. A charter removes few sites at once; the others call again.
pub(crate) const VISITORS_MAX: usize = 8;

/// The former members, and since when each one visits.
#[derive(Debug, Default)]
pub(crate) struct Former {
    sites: BTreeSet<SiteId>,
    visits: BTreeMap<SiteId, Visit>,
}

#[derive(Debug)]
struct Visit {
    began: Instant,
    is_over: bool,
}

impl Former {
    /// Replaces the former members. A visit is remembered as long as its site is one.
    pub(crate) fn set(&mut self, sites: BTreeSet<SiteId>) {
        self.visits.retain(|site, _| sites.contains(site));
        self.sites = sites;
    }

    pub(crate) fn contains(&self, site: SiteId) -> bool {
        self.sites.contains(&site)
    }

    /// Those that may connect: they visit, or their last visit is long over.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = SiteId> {
        let is_over = |site: &SiteId| self.visits.get(site).is_some_and(|visit| visit.is_over);
        let sites = self.sites.iter().copied();
        sites.filter(move |site| !is_over(site))
    }

    /// A former member has opened one more connection and has so many now. Returns whether that stays.
    pub(crate) fn opened(&mut self, site: SiteId, connections: usize, now: Instant) -> bool {
        let under_way = self.visits.iter();
        let under_way = under_way.filter(|(of, visit)| !visit.is_over && **of != site);
        if connections > 1 || under_way.count() >= VISITORS_MAX {
            return false;
        }
        self.visits.entry(site).or_insert(Visit {
            began: now,
            is_over: false,
        });
        true
    }

    /// Ends visits, and lets those in again whose last one is long over. Returns whether anything changed.
    pub(crate) fn advance(&mut self, now: Instant) -> bool {
        let visits = self.visits.len();
        self.visits
            .retain(|_, visit| now < visit.began + VISITS_INTERVAL);
        let mut has_changed = self.visits.len() < visits;
        for visit in self.visits.values_mut() {
            let ends = !visit.is_over && now >= visit.began + VISIT;
            visit.is_over |= ends;
            has_changed |= ends;
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn site(number: u8) -> SiteId {
        SiteId::from_bytes([number; 32])
    }

    #[test]
    fn a_former_member_visits_for_a_moment_on_one_connection() {
        let (mut former, start) = (Former::default(), Instant::now());
        former.set([site(1)].into());
        let is_admitted = |former: &Former| former.admitted().eq([site(1)]);
        assert!(former.opened(site(1), 1, start) && is_admitted(&former));
        assert!(!former.opened(site(1), 2, start), "one connection");
        assert!(!former.advance(start + VISIT / 2));
        // It connects again during the visit, which is no longer for that.
        assert!(former.opened(site(1), 1, start + VISIT / 2));
        assert!(former.advance(start + VISIT) && !is_admitted(&former));
        // A new charter does not begin another visit.
        former.set([site(1), site(2)].into());
        assert!(former.admitted().eq([site(2)]));
        assert!(former.advance(start + VISITS_INTERVAL));
        assert!(former.admitted().eq([site(1), site(2)]));
    }

    #[test]
    fn former_members_take_few_places() {
        let (mut former, now) = (Former::default(), Instant::now());
        let sites: Vec<SiteId> = (0..=8).map(site).collect();
        former.set(sites.iter().copied().collect());
        let stays = sites.iter().map(|site| former.opened(*site, 1, now));
        let stays: Vec<bool> = stays.collect();
        assert_eq!(stays, [&[true; VISITORS_MAX][..], &[false]].concat());
        former.advance(now + VISIT);
        assert!(former.opened(site(8), 1, now + VISIT));
    }
}
