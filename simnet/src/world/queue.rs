//! What happens next.
//!
//! Invariant: events come in the order of their times, and of one time in the order in which they
//! were queued; so a run depends on nothing but what queued them.
//!
//! Deliberately not here: removing what has become pointless. Whoever takes an event out looks
//! whether it still means anything.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use fairmesh_site::Done;

use super::Action;
use crate::network::Parcel;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Queued {
    /// A node may have something to do.
    Wake {
        node: usize,
    },
    /// A node is no longer busy with the round before.
    Round {
        node: usize,
    },
    Deliver(Box<Parcel>),
    /// A node looks whether its session with a peer is as it should be.
    Session {
        node: usize,
        peer: usize,
    },
    /// A request has found no answer.
    Failed {
        node: usize,
        id: u64,
        life: u32,
    },
    /// Work that a node has handed out in this life is done.
    Done {
        node: usize,
        life: u32,
        done: Box<Done>,
    },
    Action(Box<Action>),
}

impl Queued {
    fn is_replay(&self) -> bool {
        matches!(self, Self::Deliver(parcel) if parcel.replay_after.is_some())
    }
}

struct Entry {
    at_ms: u64,
    number: u64,
    what: Queued,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives its greatest first: that must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ms, other.number).cmp(&(self.at_ms, self.number))
    }
}

/// All that will happen.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    number: u64,
    /// How many of them an adversary plays back.
    replays: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, at_ms: u64, what: Queued) {
        self.number += 1;
        let number = self.number;
        self.replays += usize::from(what.is_replay());
        self.heap.push(Entry {
            at_ms,
            number,
            what,
        });
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Queued)> {
        let Entry { at_ms, what, .. } = self.heap.pop()?;
        self.replays -= usize::from(what.is_replay());
        Some((at_ms, what))
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ms)
    }

    /// How many there are, but for what an adversary keeps for hours to play it back: that is as much as was said.
    pub(crate) fn len(&self) -> usize {
        self.heap.len() - self.replays
    }
}
