//! Disk at a site for one VO: what is staged and reserved, and whether a job's files fit.
//!
//! Invariant: a job is sent nowhere where its files do not fit beside what is staged and what is reserved. Nothing
//! staged is removed to make room for another job, or two jobs could remove each other's files for ever.
//! Deliberately not here: who reserves; a queue does, for as long as a job of its own is in flight.
//! Source: GRUBER (Euro-Par 2005), section 3.1: disk has a quota and no adaptation.

use fairmesh_model::mutated;
use serde::{Deserialize, Serialize};

/// Room for the files of a VO, MiB. Sites write it in what they say of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskRoom {
    /// The user's quota; `None`: none, or not known.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub quota_mib: Option<u64>,
    /// The VO's share of the site's disk; `None`: not limited.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub share_mib: Option<u64>,
    /// What lies there already.
    #[serde(rename = "m", default)]
    pub staged_mib: u64,
    /// What is kept for jobs that were placed and have not ended; of who asks, so that nobody else is told.
    #[serde(skip)]
    pub reserved_mib: u64,
}

impl DiskRoom {
    /// MiB that another job's files may take; `None`: no limit.
    pub fn left_mib(&self) -> Option<u64> {
        let limits = self.quota_mib.into_iter().chain(self.share_mib);
        let taken = self.staged_mib.saturating_add(self.reserved_mib);
        Some(limits.min()?.saturating_sub(taken))
    }

    /// Whether files of so many MiB fit.
    pub fn has(&self, mib: u64) -> bool {
        mutated!(DiskUnchecked) || self.left_mib().is_none_or(|left| mib <= left)
    }

    /// Whether nothing is said of it.
    pub(crate) fn is_unsaid(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    pub(crate) fn the_smaller_of_quota_and_share_bounds_what_is_staged_and_reserved() {
        let room = DiskRoom {
            quota_mib: Some(100),
            share_mib: Some(80),
            staged_mib: 30,
            reserved_mib: 40,
        };
        assert_eq!(room.left_mib(), Some(10));
        assert!(room.has(10) && !room.has(11));
        let quota_mib = Some(75);
        assert!(!DiskRoom { quota_mib, ..room }.has(6));
        let staged_mib = 90;
        assert_eq!(DiskRoom { staged_mib, ..room }.left_mib(), Some(0));
        assert!(DiskRoom::default().has(u64::MAX));
    }
}
