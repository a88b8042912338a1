//! One direction of the way between two sites: how long, how wide and how lossy it is.
//!
//! Invariant: what a link does to a message depends on the link's own description, on its queue and
//! on one stream of random numbers. What is not reordered by a fault arrives in the order in which it
//! was sent, because real links carry one connection.
//!
//! Deliberately not here: whether two sites can reach each other at all (`rules`).

use std::collections::HashMap;

use fairmesh_cluster::Stream;
use serde::{Deserialize, Deserializer, Serialize};

/// A wait after which a lost piece of a reliable exchange is sent again; it doubles each time.
const RESEND_MS: u64 = 250;

/// How often a lost piece is sent again before the exchange counts as failed.
const RESENDS_MAX: u32 = 8;

/// What a link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSpec {
    /// Shortest time that a message takes.
    pub latency_ms: u64,
    /// What is added to it at most.
    pub jitter_ms: u64,
    /// Messages of a thousand that are lost.
    #[serde(deserialize_with = "permille")]
    pub loss_permille: u64,
    /// Pushes of a thousand that arrive twice.
    #[serde(deserialize_with = "permille")]
    pub duplicate_permille: u64,
    /// Messages of a thousand that later ones may overtake.
    #[serde(deserialize_with = "permille")]
    pub reorder_permille: u64,
    /// By how much such a message is late at most.
    pub reorder_ms_max: u64,
    /// Messages of a thousand that come again long after they arrived.
    #[serde(deserialize_with = "permille")]
    pub replay_permille: u64,
    /// How long after, at most.
    pub replay_ms_max: u64,
    /// How fast it is; 0 where that does not matter.
    pub bandwidth_bytes_per_s: u64,
    /// How much waits at a link of limited speed; what is more is lost.
    pub queue_bytes_max: u64,
}

impl LinkSpec {
    /// A good wide-area link: 10 to 30 ms, nothing lost.
    pub const CALM: Self = Self {
        latency_ms: 10,
        jitter_ms: 20,
        loss_permille: 0,
        duplicate_permille: 0,
        reorder_permille: 0,
        reorder_ms_max: 5_000,
        replay_permille: 0,
        replay_ms_max: 3_600_000,
        bandwidth_bytes_per_s: 0,
        queue_bytes_max: 65_536,
    };

    /// Everything goes wrong now and then.
    pub const ROUGH: Self = Self {
        latency_ms: 20,
        jitter_ms: 400,
        loss_permille: 200,
        duplicate_permille: 100,
        reorder_permille: 100,
        reorder_ms_max: 5_000,
        replay_permille: 20,
        replay_ms_max: 6 * 3_600_000,
        bandwidth_bytes_per_s: 0,
        queue_bytes_max: 0,
    };
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self::CALM
    }
}

fn permille<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    match number {
        0..=1_000 => Ok(number),
        _ => Err(serde::de::Error::custom("permille are 1000 at most")),
    }
}

/// When a message arrives: never, once or twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrivals {
    pub(crate) first: Option<u64>,
    pub(crate) again: Option<u64>,
}

/// All links that differ from the usual one, and the state of those that were used.
#[derive(Debug)]
pub(crate) struct Links {
    usual: LinkSpec,
    /// Only looked up, never iterated; as is `state`.
    special: HashMap<(usize, usize), LinkSpec>,
    state: HashMap<(usize, usize), LinkState>,
    random: Stream,
}

#[derive(Debug, Clone, Copy, Default)]
struct LinkState {
    /// Up to when the link is busy sending what waits.
    busy_until_us: u64,
    /// The last arrival in order.
    last_ms: u64,
}

impl Links {
    pub(crate) fn new(usual: LinkSpec, random: Stream) -> Self {
        Self {
            usual,
            special: HashMap::new(),
            state: HashMap::new(),
            random,
        }
    }

    pub(crate) fn spec(&self, from: usize, to: usize) -> LinkSpec {
        if self.special.is_empty() {
            return self.usual;
        }
        *self.special.get(&(from, to)).unwrap_or(&self.usual)
    }

    pub(crate) fn set_usual(&mut self, spec: LinkSpec) {
        self.usual = spec;
    }

    pub(crate) fn set(&mut self, from: usize, to: usize, spec: LinkSpec) {
        self.special.insert((from, to), spec);
    }

    /// One direction is the usual one again.
    pub(crate) fn clear(&mut self, from: usize, to: usize) {
        self.special.remove(&(from, to));
    }

    pub(crate) fn clear_special(&mut self) {
        self.special.clear();
    }

    /// Sends `bytes` at `now_ms`: pushes may be lost or doubled, what is `reliable` is sent again
    /// until it arrives or the exchange has failed. What goes wrong is counted by its word.
    pub(crate) fn send(
        &mut self,
        (from, to): (usize, usize),
        bytes: usize,
        now_ms: u64,
        reliable: bool,
        count: &mut dyn FnMut(&'static str),
    ) -> Arrivals {
        let spec = self.spec(from, to);
        let nothing = Arrivals {
            first: None,
            again: None,
        };
        let Some(sent_ms) = self.through_queue((from, to), bytes, now_ms, &spec, count) else {
            return nothing;
        };
        let mut at = sent_ms + spec.latency_ms + self.draw(spec.jitter_ms);
        let mut resends = 0;
        while self.happens(spec.loss_permille) {
            count("loss");
            if !reliable || resends == RESENDS_MAX {
                return nothing;
            }
            at += RESEND_MS << resends;
            resends += 1;
        }
        if self.happens(spec.reorder_permille) {
            count("reordering");
            at += self.draw(spec.reorder_ms_max);
        } else {
            let state = self.state.entry((from, to)).or_default();
            at = at.max(state.last_ms);
            state.last_ms = at;
        }
        let twice = !reliable && self.happens(spec.duplicate_permille);
        let again = twice.then(|| {
            count("duplication");
            at + 1 + self.draw(spec.jitter_ms.max(1_000))
        });
        Arrivals {
            first: Some(at),
            again,
        }
    }

    /// When a message that arrived at `now_ms` comes again, if it does.
    pub(crate) fn replay(&mut self, from: usize, to: usize, now_ms: u64) -> Option<u64> {
        let spec = self.spec(from, to);
        let replayed = spec.replay_permille > 0 && self.happens(spec.replay_permille);
        replayed.then(|| now_ms + 1 + self.draw(spec.replay_ms_max))
    }

    /// When the last byte has left; `None` where the queue is full.
    fn through_queue(
        &mut self,
        link: (usize, usize),
        bytes: usize,
        now_ms: u64,
        spec: &LinkSpec,
        count: &mut dyn FnMut(&'static str),
    ) -> Option<u64> {
        if spec.bandwidth_bytes_per_s == 0 {
            return Some(now_ms);
        }
        let state = self.state.entry(link).or_default();
        let begin_us = state.busy_until_us.max(now_ms * 1_000);
        let waiting_us = begin_us - now_ms * 1_000;
        let waiting_bytes = waiting_us.saturating_mul(spec.bandwidth_bytes_per_s) / 1_000_000;
        if waiting_bytes > spec.queue_bytes_max {
            count("clogged");
            return None;
        }
        state.busy_until_us = begin_us + bytes as u64 * 1_000_000 / spec.bandwidth_bytes_per_s;
        Some(state.busy_until_us / 1_000)
    }

    fn happens(&mut self, permille: u64) -> bool {
        permille > 0 && self.random.below(1_000) < permille
    }

    fn draw(&mut self, max: u64) -> u64 {
        if max == 0 {
            0
        } else {
            self.random.below(max + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Counts;
    use fairmesh_cluster::Seed;

    fn links(usual: LinkSpec) -> (Links, Counts) {
        (
            Links::new(usual, Seed(1).stream("links")),
            Counts::default(),
        )
    }

    #[test]
    fn a_calm_link_keeps_the_order() {
        let (mut links, mut faults) = links(LinkSpec::CALM);
        let mut last = 0;
        for now in 0..500 {
            let arrivals = links.send((0, 1), 100, now, false, &mut |word| faults.count(word));
            let at = arrivals.first.expect("nothing is lost");
            assert!(at >= last && at >= now + 10 && arrivals.again.is_none());
            last = at;
        }
        assert_eq!(faults.total(), 0);
    }

    #[test]
    fn loss_delays_what_is_reliable_and_drops_what_is_not() {
        let spec = LinkSpec {
            loss_permille: 500,
            ..LinkSpec::CALM
        };
        let (mut links, mut faults) = links(spec);
        let mut arrived = [0, 0];
        for now in 0..1_000 {
            for (kind, reliable) in [false, true].into_iter().enumerate() {
                let arrivals =
                    links.send((0, 1), 100, now, reliable, &mut |word| faults.count(word));
                arrived[kind] += u32::from(arrivals.first.is_some());
            }
        }
        assert!((400..600).contains(&arrived[0]), "{arrived:?}");
        assert!(arrived[1] > 980, "{arrived:?}");
    }

    #[test]
    fn a_clogged_link_is_slow_and_then_drops() {
        let spec = LinkSpec {
            bandwidth_bytes_per_s: 1_000,
            queue_bytes_max: 3_000,
            ..LinkSpec::CALM
        };
        let (mut links, mut faults) = links(spec);
        let at: Vec<Option<u64>> = (0..10)
            .map(|_| {
                links
                    .send((0, 1), 1_000, 0, true, &mut |word| faults.count(word))
                    .first
            })
            .collect();
        assert!(at[0].expect("sent") >= 1_000 && at[2].expect("sent") >= 3_000);
        assert_eq!(at[9], None);
        assert!(faults.of("clogged") > 3);
    }
}
