//! Queued and pending requests of each peer.
//!
//! Invariant: a peer with a queued request is in `waiting`, and each pending request is in `deadlines`. So finding
//! what is due costs what is due, however many peers there are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_model::{ContentHash, MonoTime, SiteId, VoId};

use super::Exchanges;
use crate::digest::{Base, Vector};
use crate::wire::{RequestId, Summary};

/// Most queued requests for one peer. A request that does not fit is dropped; a later probe finds the difference again.
const QUEUE_MAX: usize = 64;

/// A request to a peer, queued or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PendingRequest {
    Probe,
    Pull {
        vo: VoId,
        documents: bool,
        heads: bool,
        /// The vector in the request; `None` before it is sent.
        sent: Option<Vector>,
        /// Our summary before the reply that this pull continues from. If it has not changed, nothing in that reply
        /// could be taken, and the next reply would bring the same.
        unless: Option<Summary>,
    },
    Parts(VoId),
}

impl PendingRequest {
    pub(super) fn pull(vo: VoId, documents: bool, heads: bool) -> Self {
        Self::Pull {
            vo,
            documents,
            heads,
            sent: None,
            unless: None,
        }
    }

    /// Whether both request the same, whatever was sent before.
    fn is_like(&self, other: &Self) -> bool {
        let asks_for = |asked: &Self| match asked {
            Self::Pull {
                vo,
                documents,
                heads,
                ..
            } => Some((*vo, *documents, *heads)),
            _ => None,
        };
        match (asks_for(self), asks_for(other)) {
            (None, None) => self == other,
            (mine, theirs) => mine == theirs,
        }
    }
}

/// The state of the exchange with one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    under_way: BTreeMap<RequestId, (MonoTime, PendingRequest)>,
    queue: VecDeque<PendingRequest>,
    /// The vectors of ours that the peer is known to hold: bases for our differences.
    pub(super) acknowledged: BTreeMap<VoId, Vector>,
    /// The vectors that it last sent: bases for its differences.
    pub(super) received: BTreeMap<VoId, Base>,
    pub(super) agreed_at: Option<MonoTime>,
    pub(super) exchanges: Exchanges,
    /// When a comparison last found no difference, for the VOs without a difference at the last comparison.
    pub(super) agreements: BTreeMap<VoId, MonoTime>,
    /// Our summary and a hash of the peer's request when we last pulled back: the same pair gives no reason to pull
    /// again.
    pub(super) pulled_back: BTreeMap<VoId, (Summary, ContentHash)>,
}

impl Peer {
    /// Whether no probe or pull is pending; there is at most one, because a pull depends on the result of the last.
    pub(super) fn is_free(&self) -> bool {
        self.part_requests() == self.under_way.len()
    }

    /// Whether nothing is queued and at most requests for parts are pending.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.is_free()
    }

    pub(super) fn part_requests(&self) -> usize {
        let asked = self.under_way.values();
        asked
            .filter(|(_, asked)| matches!(asked, PendingRequest::Parts(_)))
            .count()
    }
}

/// All connected peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<SiteId, Peer>,
    waiting: BTreeSet<SiteId>,
    deadlines: BTreeSet<(MonoTime, RequestId, SiteId)>,
}

impl Peers {
    /// Adds a peer in its initial state, even if it was connected before.
    pub(super) fn connect(&mut self, peer: SiteId) {
        self.disconnect(peer);
        self.all.insert(peer, Peer::default());
    }

    /// Removes a peer. Returns its pending requests.
    pub(super) fn disconnect(&mut self, peer: SiteId) -> Vec<RequestId> {
        let state = self.all.remove(&peer).unwrap_or_default();
        self.waiting.remove(&peer);
        for (id, (deadline, _)) in &state.under_way {
            self.deadlines.remove(&(*deadline, *id, peer));
        }
        state.under_way.into_keys().collect()
    }

    pub(super) fn get(&self, peer: SiteId) -> Option<&Peer> {
        self.all.get(&peer)
    }

    pub(super) fn get_mut(&mut self, peer: SiteId) -> Option<&mut Peer> {
        self.all.get_mut(&peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SiteId, &Peer)> {
        self.all.iter().map(|(id, peer)| (*id, peer))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The peers with a queued request.
    pub(super) fn waiting(&self) -> impl Iterator<Item = SiteId> {
        self.waiting.iter().copied()
    }

    /// Queues a request, unless the same is queued already or the queue is full.
    pub(super) fn enqueue(&mut self, to: SiteId, asked: PendingRequest) {
        let Some(peer) = self.all.get_mut(&to) else {
            return;
        };
        let is_queued = peer.queue.iter().any(|queued| queued.is_like(&asked));
        if peer.queue.len() < QUEUE_MAX && !is_queued {
            peer.queue.push_back(asked);
            self.waiting.insert(to);
        }
    }

    /// Probes the idle peers with which no exchange has ended. A random draw would find one of them among a hundred
    /// only after a thousand seconds.
    pub(super) fn probe_new(&mut self) {
        for (id, peer) in &mut self.all {
            if peer.exchanges.ended == 0 && peer.is_idle() {
                peer.queue.push_back(PendingRequest::Probe);
                self.waiting.insert(*id);
            }
        }
    }

    /// Takes the first queued request.
    pub(super) fn dequeue(&mut self, to: SiteId) -> Option<PendingRequest> {
        let peer = self.all.get_mut(&to)?;
        let next = peer.queue.pop_front();
        if peer.queue.is_empty() {
            self.waiting.remove(&to);
        }
        next
    }

    /// Notes a request as pending until `deadline`.
    pub(super) fn sent(
        &mut self,
        to: SiteId,
        id: RequestId,
        deadline: MonoTime,
        asked: PendingRequest,
    ) {
        if let Some(peer) = self.all.get_mut(&to) {
            peer.under_way.insert(id, (deadline, asked));
            self.deadlines.insert((deadline, id, to));
        }
    }

    /// Ends a request. Returns it if it was pending with that peer: a peer must not end another peer's requests.
    pub(super) fn over(&mut self, peer: SiteId, id: RequestId) -> Option<PendingRequest> {
        let (deadline, asked) = self.all.get_mut(&peer)?.under_way.remove(&id)?;
        self.deadlines.remove(&(deadline, id, peer));
        Some(asked)
    }

    /// A pending request whose deadline has passed.
    pub(super) fn late(&self, now: MonoTime) -> Option<(SiteId, RequestId)> {
        let (_, id, peer) = self.deadlines.first().filter(|(at, ..)| *at <= now)?;
        Some((*peer, *id))
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        self.deadlines.first().map(|(at, ..)| *at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever happens, the two lists say what a look at every peer would.
        #[test]
        fn what_is_due_is_what_a_look_at_all_peers_finds(
            steps in proptest::collection::vec((0..6u8, 0..4u8, 0..20u64), 0..80),
        ) {
            let mut peers = Peers::default();
            for (next, (step, peer, number)) in (0..).zip(steps) {
                let peer = SiteId::from_bytes([peer; 32]);
                let vo = VoId::from_bytes([number.to_be_bytes()[7] % 3; 32]);
                match step {
                    0 => peers.connect(peer),
                    1 => drop(peers.disconnect(peer)),
                    2 => peers.enqueue(peer, PendingRequest::pull(vo, number % 2 == 0, true)),
                    3 => {
                        if let Some(asked) = peers.dequeue(peer) {
                            peers.sent(peer, next, MonoTime(number), asked);
                        }
                    }
                    4 => drop(peers.over(peer, number)),
                    _ => {
                        if let Some((late, id)) = peers.late(MonoTime(number)) {
                            prop_assert!(peers.over(late, id).is_some());
                        }
                    }
                }
                let queued = peers.all.iter().filter(|(_, peer)| !peer.queue.is_empty());
                let queued: Vec<SiteId> = queued.map(|(id, _)| *id).collect();
                prop_assert_eq!(peers.waiting().collect::<Vec<_>>(), queued);
                let under_way = peers.all.values().flat_map(|peer| peer.under_way.values());
                let earliest = under_way.map(|(deadline, _)| *deadline).min();
                prop_assert_eq!(peers.next_deadline(), earliest);
            }
        }
    }
}
