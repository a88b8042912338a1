//! What a VO may have at a site and has: an SLA, next to what was used.
//!
//! Invariant: shares are rounded down, so that the parts of a whole are never more than it.

use fairmesh_model::{Millis, Share};
use serde::{Deserialize, Serialize};

use super::Sign;
use crate::disk::DiskRoom;

/// What one VO may have at a site, and has. Sites write it in what they say of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    /// EA: its part of the site's CPU-time in the epoch, in units of 10⁻⁹. Above the whole where the site has shrunk.
    #[serde(rename = "u")]
    pub epoch_used: u64,
    /// EP: the part that the SLA grants.
    #[serde(rename = "e")]
    pub epoch_share: Share,
    /// What the epoch's share is: a target, an upper limit, or a guarantee.
    #[serde(rename = "g")]
    pub sign: Sign,
    /// BA: CPUs held now.
    #[serde(rename = "h")]
    pub burst_used: u64,
    /// BP: CPUs that may be held.
    #[serde(rename = "b")]
    pub burst_limit: u64,
    /// Whether BP does not bind where the site has no use for the CPUs.
    #[serde(rename = "x")]
    pub extensible: bool,
    /// CPUs that its waiting jobs ask for. They count against the burst limit, and make a guarantee bind.
    #[serde(rename = "w")]
    pub waiting: u64,
    /// For how long it had been over either when this was so, as far as the site knows; `None`: it is over neither.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub over_for: Option<Millis>,
    /// Disk for its files.
    #[serde(rename = "k", default, skip_serializing_if = "DiskRoom::is_unsaid")]
    pub disk: DiskRoom,
}

impl Standing {
    /// Whether the VO has had more of the epoch than the SLA grants. A guarantee grants no end.
    pub fn is_over(&self) -> bool {
        self.sign != Sign::AtLeast && self.epoch_used > u64::from(self.epoch_share.units())
    }

    /// Whether it has more than it may: of the epoch, or now.
    pub fn exceeds(&self) -> bool {
        self.is_over() || self.burst_used > self.burst_limit
    }

    /// CPUs of a site of `total` that are kept for this VO: what it is guaranteed, waits for, and does not hold.
    pub fn owed(&self, total: u64) -> u64 {
        if self.sign != Sign::AtLeast {
            return 0;
        }
        let guaranteed = part_of(total, self.epoch_share);
        guaranteed.saturating_sub(self.burst_used).min(self.waiting)
    }
}

/// `share` of `whole`, rounded down.
pub fn part_of(whole: u64, share: Share) -> u64 {
    let part = u128::from(whole) * u128::from(share.units()) / u128::from(Share::ONE);
    u64::try_from(part).expect("a part is not above its whole")
}
