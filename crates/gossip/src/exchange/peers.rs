//! What is queued for peers, and what is under way with them.
//!
//! Invariant: whoever has something queued is in `waiting`, and whatever is under way is in `deadlines`, so
//! that what is due is found at the cost of what is due, however many peers there are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_model::{ContentHash, MonoTime, SiteId, VoId};

use super::Exchanges;
use crate::digest::{Base, Vector};
use crate::wire::{RequestId, Summary};

/// Most requests that wait for one peer; what does not fit comes up again in a later exchange.
const QUEUE_MAX: usize = 64;

/// What is, or will be, asked of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PendingRequest {
    Probe,
    Pull {
        vo: VoId,
        documents: bool,
        heads: bool,
        /// The vector that was sent, once it is.
        sent: Option<Vector>,
        /// What was held when the answer that this pull goes on from was asked for. Where it still
        /// is, that answer brought nothing that could be taken, and the next one would not either.
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

    /// Whether it asks for what `other` asks for.
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

/// What is known of one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    under_way: BTreeMap<RequestId, (MonoTime, PendingRequest)>,
    queue: VecDeque<PendingRequest>,
    /// The vectors that the peer is known to hold of us, for differences.
    pub(super) acknowledged: BTreeMap<VoId, Vector>,
    /// The vectors that it last sent us, for its differences.
    pub(super) received: BTreeMap<VoId, Base>,
    pub(super) agreed_at: Option<MonoTime>,
    pub(super) exchanges: Exchanges,
    /// When exchanges last ended with nothing to pull of a VO: of those of which the peer held what we hold when it last said.
    pub(super) agreements: BTreeMap<VoId, MonoTime>,
    /// What we held, and what the peer showed, when it last gave reason to pull from it in turn.
    pub(super) pulled_back: BTreeMap<VoId, (Summary, ContentHash)>,
}

impl Peer {
    /// Whether a probe or a pull may be sent.
    pub(super) fn is_free(&self) -> bool {
        self.part_requests() == self.under_way.len()
    }

    /// Whether nothing is queued, or under way but requests for parts.
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

/// All peers that are connected.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<SiteId, Peer>,
    waiting: BTreeSet<SiteId>,
    deadlines: BTreeSet<(MonoTime, RequestId, SiteId)>,
}

impl Peers {
    /// A peer of which nothing is known yet.
    pub(super) fn connect(&mut self, peer: SiteId) {
        self.disconnect(peer);
        self.all.insert(peer, Peer::default());
    }

    /// Forgets a peer. Returns the requests that were under way with it.
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

    /// Those with something queued.
    pub(super) fn waiting(&self) -> impl Iterator<Item = SiteId> {
        self.waiting.iter().copied()
    }

    /// Queues what is to be asked, unless it is queued already or too much is.
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

    /// Probes the idle peers with which no exchange has ended. The draw alone would find one of them among a hundred
    /// only after a thousand seconds.
    pub(super) fn probe_new(&mut self) {
        for (id, peer) in &mut self.all {
            if peer.exchanges.ended == 0 && peer.is_idle() {
                peer.queue.push_back(PendingRequest::Probe);
                self.waiting.insert(*id);
            }
        }
    }

    /// What is queued first.
    pub(super) fn dequeue(&mut self, to: SiteId) -> Option<PendingRequest> {
        let peer = self.all.get_mut(&to)?;
        let next = peer.queue.pop_front();
        if peer.queue.is_empty() {
            self.waiting.remove(&to);
        }
        next
    }

    /// A request is sent.
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

    /// A request is over: what was asked, if it was under way.
    pub(super) fn over(&mut self, peer: SiteId, id: RequestId) -> Option<PendingRequest> {
        let (deadline, asked) = self.all.get_mut(&peer)?.under_way.remove(&id)?;
        self.deadlines.remove(&(deadline, id, peer));
        Some(asked)
    }

    /// A request that should have been answered by now.
    pub(super) fn late(&self, now: MonoTime) -> Option<(SiteId, RequestId)> {
        let (_, id, peer) = self.deadlines.first().filter(|(at, ..)| *at <= now)?;
        Some((*peer, *id))
    }

    /// When the next request is late.
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
