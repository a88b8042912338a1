//! Counters of the network, as a plain snapshot.
//!
//! Invariant: counters only grow while the task lives; a site that is no longer allowed takes its
//! counters with it, so their number is bounded by the allow list.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fairmesh_model::SiteId;

/// Counters of the whole node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// One entry per allowed site.
    pub peers: BTreeMap<SiteId, PeerStats>,
    /// Connections with all peers.
    pub connections: u64,
    /// Bytes that the TCP sockets gave: handshakes, Noise, yamux and all protocols, without the headers
    /// of TCP and IP.
    pub wire_received_bytes: u64,
    /// Bytes that the TCP sockets took.
    pub wire_sent_bytes: u64,
    /// Payload bytes handed to gossip by this node; how many copies leave is gossipsub's matter.
    pub gossip_published_bytes: u64,
    /// Gossip messages dropped because our consumer was too slow. Anti-entropy brings them.
    pub gossip_dropped: u64,
    /// Gossip messages refused because the sender is no member of the topic, or this node takes no part in it.
    pub gossip_foreign: u64,
    /// Requests of peers turned away, because too many were waiting.
    pub requests_turned_away: u64,
    /// Connections refused: no charter names the other side, or a limit was reached.
    pub connections_refused: u64,
}

/// A node that answers at a peer's address, and is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The peer, which closes the connection.
    Refusal,
    /// A node with another key.
    OtherKey,
}

/// Counters of one peer. Bytes are payload: requests, responses, and gossip received from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// Whether the peer is connected and has been heard.
    pub connected: bool,
    /// When that last changed; absent if it was never connected.
    pub changed_at: Option<Instant>,
    /// How long its last connection took that has ended.
    pub lasted: Option<Duration>,
    /// What the last dial met since the last connection, if that was a node.
    pub met: Option<Met>,
    /// Connections with it: one, or two where both sides dialled at once.
    pub connections: u32,
    /// Bytes of messages, requests and replies from the peer, without framing.
    pub bytes_in: u64,
    /// Payload bytes sent, without gossip.
    pub bytes_out: u64,
    /// Round-trip time of the last ping.
    pub round_trip: Option<Duration>,
    /// Requests of ours that failed.
    pub requests_failed: u64,
    /// Dials to the peer that failed, since the start.
    pub dials_failed: u64,
    /// Those of them that failed before its last connection ended.
    pub dials_failed_before: u64,
    /// Why the last dial failed; kept after success, for people who look later.
    pub dial_failure: Option<String>,
    /// Gossip messages that were dropped because the peer took them too slowly.
    pub gossip_undelivered: u64,
    /// What it sent and was dropped unread, because it had used up its budget.
    pub throttled: u64,
    /// What it sent too much of; while it is barred for that, it says so.
    pub over_budget: Option<String>,
    /// Requests that it did not send, and answers that it did not take, in time.
    pub slow: u64,
    /// Whether it is barred now.
    pub barred: bool,
    /// How often it was barred.
    pub bars: u64,
    /// Where two machines are that run with its key.
    pub machines: Option<[String; 2]>,
}
