//! What goes in and out of the network task, as plain values.
//!
//! Invariant: every `Request` command is answered by exactly one `Response` event, unless the task
//! ends first. `Connected` and `Disconnected` of one site alternate, beginning with `Connected`.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{ContentHash, SiteId, VoId};
pub use fairmesh_site::Verdict;
use libp2p::Multiaddr;

/// The name of a gossip message: the first bytes of a hash of its topic and its bytes. Neighbours tell
/// each other names more often than messages, so it is short. Somebody who could find another message
/// of the same name before the first one has spread would delay that one to the next anti-entropy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageName([u8; 8]);

impl MessageName {
    /// The name of these bytes in that topic. The same bytes in two topics are two messages; topics are
    /// all of one length, so nothing needs to part the two.
    pub(crate) fn of(topic: &str, bytes: &[u8]) -> Self {
        let hash = ContentHash::of(&[topic.as_bytes(), bytes].concat());
        Self(*hash.as_bytes().first_chunk().expect("32 bytes hold eight"))
    }

    /// A name from anywhere.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An order to the network task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkCommand {
    /// Replaces the set of sites that may speak with this one: those that a charter names. A site
    /// that is no longer in it is disconnected; a new one with known addresses is dialled.
    Allow(BTreeSet<SiteId>),
    /// Replaces the set of sites that an earlier charter names: each is let in for a moment, unless it is allowed.
    Former(BTreeSet<SiteId>),
    /// Replaces all addresses learnt from charters, as libp2p multiaddresses. Text that is none is
    /// logged and skipped.
    Peers(BTreeMap<SiteId, Vec<String>>),
    /// Replaces the addresses of peers that the configuration names; who has new ones is dialled.
    Configured(Vec<(SiteId, Vec<Multiaddr>)>),
    /// Takes part in a VO's gossip, or changes who belongs to it. Gossip of the topic goes to
    /// `members` and is taken from `members` only, whoever else is connected.
    Subscribe {
        /// The VO of the topic.
        topic: VoId,
        /// The sites whose messages of the topic are accepted.
        members: BTreeSet<SiteId>,
    },
    /// Leaves a VO's gossip.
    Unsubscribe(VoId),
    /// Sends a message to the VO's members; with nobody there, does nothing. The topic must have
    /// been subscribed to. At most `GOSSIP_BYTES_MAX`.
    Publish {
        /// The VO of the topic.
        topic: VoId,
        /// The encoded push, at most `PUSH_BYTES_MAX` bytes.
        bytes: Vec<u8>,
    },
    /// Asks a connected peer. At most `REQUEST_BYTES_MAX`.
    Request {
        /// The peer to ask.
        to: SiteId,
        /// The caller's name for the request, given back in the response.
        id: u64,
        /// The encoded request, at most `REQUEST_BYTES_MAX` bytes.
        bytes: Vec<u8>,
    },
    /// Answers a peer's request. At most `RESPONSE_BYTES_MAX`. Too late an answer is dropped.
    Respond {
        /// The peer that sent the request.
        to: SiteId,
        /// The channel that came with the request.
        channel: u64,
        /// The encoded reply; a longer one than `RESPONSE_BYTES_MAX` is dropped.
        bytes: Vec<u8>,
    },
    /// Reports the verdict on a gossip message. A message without a verdict is not passed on.
    ReportValidation {
        /// Identifies the message, from [`NetworkEvent`].
        message_id: MessageName,
        /// Who sent it to us.
        from: SiteId,
        /// The consumer's verdict; only an accepted message is forwarded.
        verdict: Verdict,
    },
    /// Replaces the set of sites that this node must not be connected with, allowed or not; an
    /// empty set heals and redials at once. Cuts a mesh in two, in tests and demonstrations.
    Block(BTreeSet<SiteId>),
    /// Closes all connections and ends the network's task.
    Shutdown,
}

/// News from the network task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkEvent {
    /// The node can be reached here.
    Listening(Multiaddr),
    /// A peer is there, and has been heard: it accepts us too.
    Connected(SiteId),
    /// A peer is gone; it is redialled for as long as it is allowed.
    Disconnected(SiteId),
    /// A site that is not allowed has called, and was turned away; one a second is reported.
    Called(SiteId),
    /// A gossip message of a member of the topic, to be judged.
    Gossip {
        /// The VO of the topic.
        topic: VoId,
        /// Who passed it to us; not necessarily who wrote it.
        from: SiteId,
        /// Identifies the message for the verdict.
        message_id: MessageName,
        /// The encoded push, not verified yet.
        bytes: Vec<u8>,
    },
    /// A peer has sent a request, which must be answered through its channel.
    Request {
        /// The peer that sent the request.
        from: SiteId,
        /// To be given back in `Respond`.
        channel: u64,
        /// The encoded request, not read yet.
        bytes: Vec<u8>,
    },
    /// What became of a request of ours.
    Response {
        /// The peer that the request went to.
        from: SiteId,
        /// The caller's name for the request.
        id: u64,
        /// The answer, or why there is none.
        result: Result<Vec<u8>, RequestFailure>,
    },
}

/// Why a request has no answer. Nothing is retried: the next round of anti-entropy is the retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// Not sent: no connection with the peer.
    #[error("not connected")]
    NotConnected,
    /// Not sent: too many requests are under way already, with this peer or in all.
    #[error("too many requests in flight")]
    TooManyInFlight,
    /// Not sent: the request is larger than `REQUEST_BYTES_MAX`. The caller is at fault.
    #[error("the request has {bytes} bytes, more than the limit of {bytes_max}")]
    RequestTooLarge {
        /// Size of the request.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The peer announced an answer larger than `RESPONSE_BYTES_MAX`; it was not read. The peer is
    /// at fault.
    #[error("the answer has {bytes} bytes, more than the limit of {bytes_max}")]
    ResponseTooLarge {
        /// Size that the peer announced.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The peer took longer than the request timeout; it may have seen the request.
    #[error("timed out")]
    TimedOut,
    /// The connection ended first; the peer may have seen the request.
    #[error("the connection closed")]
    ConnectionClosed,
    /// The peer closed the stream without an answer: it is busy, stopping, or refuses the request.
    #[error("the peer gave no answer")]
    Refused,
    /// The peer does not speak our version of the protocol.
    #[error("the peer does not speak {}", crate::network::codec::PROTOCOL)]
    Unsupported,
    /// The stream broke otherwise.
    #[error("stream failed: {0}")]
    Stream(String),
}
