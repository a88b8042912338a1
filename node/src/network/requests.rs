//! Requests under way: ours, until they are answered, and those of peers, until our answer has left.
//!
//! Invariant: both are bounded per peer and in all, and every request of ours that was accepted here
//! leaves exactly once, with an answer or a failure.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Instant;

use fairmesh_model::SiteId;
use libp2p::request_response::{
    InboundRequestId, OutboundFailure, OutboundRequestId, ResponseChannel,
};

use crate::network::RequestFailure;
use crate::network::codec::Oversize;
use crate::network::config::{
    IN_FLIGHT_MAX, IN_FLIGHT_PER_PEER_MAX, IN_FLIGHT_SHARED_MAX, INBOUND_MAX, INBOUND_PER_PEER_MAX,
};

/// A peer's request that waits for our answer.
struct Waiting {
    from: SiteId,
    request: InboundRequestId,
    channel: ResponseChannel<Vec<u8>>,
}

/// An answer of ours that is on its way.
struct Leaving {
    to: SiteId,
    since: Instant,
}

/// All requests under way.
#[derive(Default)]
pub(crate) struct Requests {
    /// Ours, with the caller's name for each.
    ours: BTreeMap<OutboundRequestId, (SiteId, u64)>,
    theirs: BTreeMap<u64, Waiting>,
    leaving: BTreeMap<InboundRequestId, Leaving>,
    channels: u64,
}

impl Requests {
    /// Whether one more request of ours may go to `peer`.
    pub(crate) fn has_room_for(&self, peer: SiteId) -> bool {
        let with_peer = self.ours.values().filter(|(to, _)| *to == peer).count();
        let most = match with_peer {
            0 => IN_FLIGHT_MAX,
            _ => IN_FLIGHT_SHARED_MAX,
        };
        self.ours.len() < most && with_peer < IN_FLIGHT_PER_PEER_MAX
    }

    /// Notes a request of ours that went out.
    pub(crate) fn sent(&mut self, request: OutboundRequestId, peer: SiteId, id: u64) {
        self.ours.insert(request, (peer, id));
    }

    /// Closes a request of ours; whom it went to, and the caller's name for it.
    pub(crate) fn done(&mut self, request: OutboundRequestId) -> Option<(SiteId, u64)> {
        self.ours.remove(&request)
    }

    /// Notes a request of a peer; the channel to answer on, or `None` where it has too many waiting.
    /// Dropping the channel tells the peer.
    pub(crate) fn received(
        &mut self,
        from: SiteId,
        request: InboundRequestId,
        channel: ResponseChannel<Vec<u8>>,
    ) -> Option<u64> {
        let waiting = self.theirs.values().map(|waiting| waiting.from);
        let all = waiting.chain(self.leaving.values().map(|leaving| leaving.to));
        let of_peer = all.filter(|peer| *peer == from).count();
        if of_peer >= INBOUND_PER_PEER_MAX || self.theirs.len() + self.leaving.len() >= INBOUND_MAX
        {
            return None;
        }
        self.channels += 1;
        let waiting = Waiting {
            from,
            request,
            channel,
        };
        self.theirs.insert(self.channels, waiting);
        Some(self.channels)
    }

    /// Takes the channel out, to answer on it; `None` where the request has gone, or was another's. The answer counts
    /// until it has left: a peer that reads slowly holds megabytes of ours.
    pub(crate) fn answered(
        &mut self,
        to: SiteId,
        channel: u64,
        now: Instant,
    ) -> Option<ResponseChannel<Vec<u8>>> {
        if self.theirs.get(&channel)?.from != to {
            return None;
        }
        let waiting = self.theirs.remove(&channel)?;
        self.leaving
            .insert(waiting.request, Leaving { to, since: now });
        Some(waiting.channel)
    }

    /// Forgets a request of a peer whose answer has left, or that has failed. Since when the answer was on its way.
    pub(crate) fn gone(&mut self, request: InboundRequestId) -> Option<Instant> {
        if let Some(leaving) = self.leaving.remove(&request) {
            return Some(leaving.since);
        }
        self.theirs.retain(|_, waiting| waiting.request != request);
        None
    }
}

/// What libp2p says about a failed request, in our words.
pub(crate) fn failure(error: &OutboundFailure) -> RequestFailure {
    match error {
        OutboundFailure::DialFailure => RequestFailure::NotConnected,
        OutboundFailure::Timeout => RequestFailure::TimedOut,
        OutboundFailure::ConnectionClosed => RequestFailure::ConnectionClosed,
        OutboundFailure::UnsupportedProtocols => RequestFailure::Unsupported,
        OutboundFailure::Io(error) => match (Oversize::in_error(error), error.kind()) {
            (Some(Oversize { bytes, bytes_max }), _) => {
                RequestFailure::ResponseTooLarge { bytes, bytes_max }
            }
            (None, ErrorKind::UnexpectedEof) => RequestFailure::Refused,
            (None, _) => RequestFailure::Stream(error.to_string()),
        },
    }
}
