//! What a connected peer was found to hold.
//!
//! Two questions, asked about different things. Does the peer hold all that *we* hold? Then what we
//! have published is safe. Do we hold all that *it* holds? Then it knows nothing of our own past that
//! we do not: the peer may go on to hear from others, but each of those is asked, too.
//!
//! Invariant: what was found holds of one connection; a new one begins without.

use std::collections::BTreeSet;

use fairmesh_model::{SiteId, VoId};

use super::{Asked, Gossip};

/// Most probes in a connection beyond those by the clock: where two nodes never come to agree, the
/// clock's are enough.
const CONFIRMATIONS_MAX: u8 = 16;

/// What was found of one peer since it connected.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// VOs of which it held the same documents and batches, when it last said.
    agreed_on: BTreeSet<VoId>,
    /// VOs of whose batches it held none that we lacked, at some moment.
    told_all_of: BTreeSet<VoId>,
    confirmations: u8,
}

impl Found {
    /// Takes what a comparison of hashes shows.
    pub(super) fn compared(&mut self, vo: VoId, agreed: bool, same_usage: bool) {
        if agreed {
            self.agreed_on.insert(vo);
        } else {
            self.agreed_on.remove(&vo);
        }
        if same_usage {
            self.told_all_of.insert(vo);
        }
    }

    /// A request was not answered: whoever cannot be heard has not disagreed.
    pub(super) fn unanswered(&mut self) {
        self.confirmations = self.confirmations.saturating_sub(1);
    }
}

impl Gossip {
    /// Whether `peer` held what we hold of `vo` when it last said.
    pub fn agreed_on(&self, peer: SiteId, vo: VoId) -> bool {
        let peer = self.peers.get(&peer);
        peer.is_some_and(|peer| peer.found.agreed_on.contains(&vo))
    }

    /// Whether we have come to hold all batches of `vo` that `peer` held at some moment since it
    /// connected.
    pub fn has_told_all(&self, peer: SiteId, vo: VoId) -> bool {
        let peer = self.peers.get(&peer);
        peer.is_some_and(|peer| peer.found.told_all_of.contains(&vo))
    }

    /// Whether there are peers, and each of them has told all that it holds of `vo`, among those that
    /// `counts`.
    pub fn all_have_told_all(&self, vo: VoId, counts: impl Fn(SiteId) -> bool) -> bool {
        let mut peers = self.peers.iter().filter(|(id, _)| counts(**id)).peekable();
        peers.peek().is_some() && peers.all(|(_, peer)| peer.found.told_all_of.contains(&vo))
    }

    /// Everything that the last answer of `peer` brought of `vo` was absorbed, and it was all.
    pub fn absorbed_all(&mut self, peer: SiteId, vo: VoId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.found.told_all_of.insert(vo);
        }
    }

    /// Who belongs to a VO has changed: a peer that had nothing to tell us as a stranger may be asked
    /// again as often as a new one.
    pub fn may_confirm_again(&mut self) {
        for peer in self.peers.values_mut() {
            peer.found.confirmations = 0;
        }
    }

    /// Somebody waits to hear all that `peer` holds: probe it again as soon as what is under way is
    /// over, a bounded number of times in a connection.
    pub fn confirm(&mut self, peer: SiteId) {
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if state.found.confirmations < CONFIRMATIONS_MAX {
            state.found.confirmations += 1;
            self.enqueue(peer, Asked::Probe);
        }
    }
}
