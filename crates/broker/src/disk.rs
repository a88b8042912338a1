//! Disk at a site for one VO: what is staged and reserved, and whether a job's files fit.
//!
//! Invariant: what is reserved and staged never exceeds the room at the moment of a reservation. Nothing
//! staged is removed to make room for another job, or two jobs could remove each other's files for ever.
//! Source: GRUBER (Euro-Par 2005), section 3.1: disk has a quota and no adaptation.

use std::collections::BTreeMap;

use fairmesh_model::mutated;

/// Room for the files of one user of one VO, MiB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskRoom {
    /// The user's quota; `None`: none.
    pub quota_mib: Option<u64>,
    /// The VO's share of the site's disk; `None`: not limited.
    pub share_mib: Option<u64>,
    /// What lies there already.
    pub staged_mib: u64,
    reserved: BTreeMap<String, u64>,
}

impl DiskRoom {
    /// MiB that another job's files may take; `None`: no limit.
    pub fn left_mib(&self) -> Option<u64> {
        let limits = self.quota_mib.into_iter().chain(self.share_mib);
        let reserved = self.reserved.values().copied();
        let taken = reserved.fold(self.staged_mib, u64::saturating_add);
        Some(limits.min()?.saturating_sub(taken))
    }

    /// Whether files of so many MiB fit.
    pub fn has(&self, mib: u64) -> bool {
        mutated!(DiskUnchecked) || self.left_mib().is_none_or(|left| mib <= left)
    }

    /// Reserves room for a placed job's input, output and scratch. `false`, and nothing changed, where they
    /// do not fit. What the same job had reserved before is replaced.
    pub fn reserve(&mut self, job: &str, mib: u64) -> bool {
        let before = self.reserved.remove(job);
        let fits = self.has(mib);
        match fits.then_some(mib).or(before) {
            Some(held) => self.reserved.insert(job.to_owned(), held),
            None => None,
        };
        fits
    }

    /// Gives back what a job had reserved, at its end.
    pub fn give_back(&mut self, job: &str) {
        self.reserved.remove(job);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    pub(crate) fn the_smaller_of_quota_and_share_bounds_what_is_staged_and_reserved() {
        let mut room = DiskRoom {
            quota_mib: Some(100),
            share_mib: Some(80),
            staged_mib: 30,
            ..DiskRoom::default()
        };
        assert!(room.reserve("a", 40));
        assert_eq!(room.left_mib(), Some(10));
        assert!(!room.reserve("b", 11));
        assert!(
            room.reserve("b", 10) && room.reserve("b", 10),
            "a repeat takes nothing more"
        );
        assert!(!room.reserve("a", 41), "its own room is not enough");
        assert_eq!(room.left_mib(), Some(0), "and is kept");
        room.give_back("a");
        assert_eq!(room.left_mib(), Some(40));
        assert!(DiskRoom::default().has(u64::MAX));
    }
}
