//! What time the peers take it to be.
//!
//! A site whose clock runs ahead of all others would forget usage that still weighs, and sign
//! windows that nobody believes; so it must be able to tell. Each probe and its answer carry the
//! sender's clock, and here each is kept as its distance from our own monotonic clock.
//!
//! Invariant: one number for each connected peer, the newest that it has said. When the last peer
//! goes, what the peers said last stands.

use std::collections::BTreeMap;

use fairmesh_model::{MonoTime, SiteId, WallTime};

/// Clocks of peers, as wall time minus our monotonic time, milliseconds.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    connected: BTreeMap<SiteId, i128>,
    latest: Option<i128>,
}

impl Clocks {
    /// A connected peer has said what time it is.
    pub(super) fn hear(&mut self, peer: SiteId, at: WallTime, now: MonoTime) {
        self.connected
            .insert(peer, i128::from(at.0) - i128::from(now.0));
        self.latest = self.connected.values().max().copied();
    }

    /// A peer has gone.
    pub(super) fn disconnected(&mut self, peer: SiteId) {
        self.connected.remove(&peer);
        self.latest = self.connected.values().max().copied().or(self.latest);
    }

    /// The most advanced clock, now.
    pub(super) fn latest(&self, now: MonoTime) -> Option<WallTime> {
        Some(at(self.latest?, now))
    }

    /// A connected peer's clock, now.
    pub(super) fn of(&self, peer: SiteId, now: MonoTime) -> Option<WallTime> {
        Some(at(*self.connected.get(&peer)?, now))
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
    fn the_most_advanced_connected_clock_counts_and_the_last_one_is_remembered() {
        let peer = |index: u8| SiteId::from_bytes([index; 32]);
        let mut clocks = Clocks::default();
        assert_eq!(clocks.latest(MonoTime(5)), None);
        clocks.hear(peer(1), WallTime(1_000), MonoTime(100));
        clocks.hear(peer(2), WallTime(5_000), MonoTime(200));
        assert_eq!(clocks.latest(MonoTime(300)), Some(WallTime(5_100)));
        clocks.hear(peer(2), WallTime(1_050), MonoTime(300));
        assert_eq!(clocks.latest(MonoTime(300)), Some(WallTime(1_200)));
        clocks.disconnected(peer(1));
        assert_eq!(clocks.latest(MonoTime(300)), Some(WallTime(1_050)));
        clocks.disconnected(peer(2));
        assert_eq!(clocks.latest(MonoTime(400)), Some(WallTime(1_150)));
    }
}
