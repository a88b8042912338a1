//! What happens next in a world, and how much of it an adversary plays back.

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

/// All that will happen.
#[derive(Default)]
pub(crate) struct Queue {
    events: crate::queue::Queue<u64, Queued>,
    /// How many of them an adversary plays back.
    replays: usize,
}

impl Queue {
    pub(crate) fn push(&mut self, at_ms: u64, what: Queued) {
        self.replays += usize::from(what.is_replay());
        self.events.push(at_ms, what);
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Queued)> {
        let (at_ms, what) = self.events.pop()?;
        self.replays -= usize::from(what.is_replay());
        Some((at_ms, what))
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.events.next_at()
    }

    /// How many there are, but for what an adversary keeps for hours to play it back: that is as much as was said.
    pub(crate) fn len(&self) -> usize {
        self.events.len() - self.replays
    }
}
