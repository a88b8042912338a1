//! The clocks of the peers.
//!
//! A site with a wrong clock would sign heads that no member accepts, so it must notice. Each probe and its reply carry
//! the sender's clock. It is kept as the distance from our monotonic clock.
//!
//! Invariant: one number for each connected peer, the newest that it has sent.

use std::collections::BTreeMap;

use fairmesh_model::{MonoTime, SiteId, WallTime, mutant, mutated};

use super::Gossip;
use super::peers::PendingRequest;

/// Clocks of connected peers, as wall time minus our monotonic time, milliseconds.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<SiteId, i128>);

impl Clocks {
    /// Takes the clock of a connected peer from its probe or reply.
    pub(super) fn note(&mut self, peer: SiteId, at: WallTime, now: MonoTime) {
        // Relative to the monotonic clock: our own wall clock may be set at any time.
        self.0.insert(peer, i128::from(at.0) - i128::from(now.0));
    }

    /// Forgets the clock of a peer that has disconnected: it may have been corrected since.
    pub(super) fn disconnected(&mut self, peer: SiteId) {
        if !mutated!(GoneClocksCount) {
            self.0.remove(&peer);
        }
    }

    /// The median, at `now`, of the clocks of the peers that `counts`. For an even number it is the point between the
    /// two middle clocks that is nearest to `own`, so that one of two peers cannot move it alone. `None` without
    /// clocks.
    pub(super) fn median(
        &self,
        now: MonoTime,
        own: WallTime,
        counts: impl Fn(SiteId) -> bool,
    ) -> Option<WallTime> {
        let clocks = self.0.iter().filter(|(peer, _)| counts(**peer));
        let mut clocks: Vec<i128> = clocks.map(|(_, distance)| *distance).collect();
        clocks.sort_unstable();
        let (low, high) = (clocks.len().checked_sub(1)? / 2, clocks.len() / 2);
        let own = i128::from(own.0) - i128::from(now.0);
        let high = mutant!(FurthestClockBelieved, high, clocks.len() - 1);
        let low = mutant!(FurthestClockBelieved, low, high);
        let median = own.clamp(clocks[low], clocks[high]);
        Some(at(median, now))
    }

    /// A connected peer's clock at `now`.
    pub(super) fn clock_of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        Some(at(*self.0.get(&peer)?, now))
    }
}

impl Gossip {
    /// Probes all peers after the own clock was set, so that they see it: random probes would take minutes to reach
    /// each.
    pub fn show_clock(&mut self) {
        let peers: Vec<SiteId> = self.peers.iter().map(|(id, _)| id).collect();
        for peer in peers {
            self.peers.enqueue(peer, PendingRequest::Probe);
        }
    }
}

fn at(distance: i128, now: MonoTime) -> WallTime {
    let at = distance + i128::from(now.0);
    WallTime(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_connected_clocks_counts_and_a_lone_liar_of_two_moves_nothing() {
        let peer = |index: u8| SiteId::from_bytes([index; 32]);
        let median = |clocks: &Clocks, own| {
            clocks
                .median(MonoTime(0), WallTime(own), |_| true)
                .map(|at| at.0)
        };
        let mut clocks = Clocks::default();
        assert_eq!(median(&clocks, 5), None);
        clocks.note(peer(1), WallTime(1_000), MonoTime(0));
        assert_eq!(median(&clocks, 5), Some(1_000));
        clocks.note(peer(2), WallTime(9_000), MonoTime(0));
        assert_eq!(median(&clocks, 1_010), Some(1_010));
        assert_eq!(median(&clocks, 9_999), Some(9_000));
        clocks.note(peer(3), WallTime(1_020), MonoTime(0));
        assert_eq!(median(&clocks, 9_999), Some(1_020));
        clocks.disconnected(peer(3));
        clocks.disconnected(peer(1));
        assert_eq!(median(&clocks, 5), Some(9_000));
    }
}
