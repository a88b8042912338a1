//! What the network is told at its start, and every limit that it keeps.
//!
//! Invariant: whatever grows with what peers do is bounded by a constant or a field of this file.
//! Deliberately not here: the parsing of configuration files (the node's `config`).

use std::time::Duration;

pub use fairmesh_gossip::wire::{REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use fairmesh_model::{Incarnation, SiteId};
use libp2p::Multiaddr;

/// Largest gossip message. A head with what changed is mostly small; one that is larger is
/// pushed without that, and pulled by anti-entropy. It is copied to every mesh peer, so large messages cost eightfold.
pub const GOSSIP_BYTES_MAX: usize = 64 << 10;

/// Commands that wait for the network task. Beyond this `send` waits.
pub(crate) const COMMANDS_MAX: usize = 256;

/// Events that wait for the consumer. Half of it is kept free of gossip, for answers and requests.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Events other than gossip that may wait beyond [`EVENTS_MAX`] before requests of peers are turned
/// away. Answers and connection changes still get in: they are bounded by what we asked for and by
/// the number of allowed sites.
pub(crate) const BACKLOG_MAX: usize = 256;

/// Requests of ours under way at one peer. Anti-entropy needs one or two; more only queues up in
/// libp2p, which has no back-pressure of its own (rust-libp2p issue 3078).
pub(crate) const IN_FLIGHT_PER_PEER_MAX: usize = 16;

/// Requests of ours under way in all; times [`RESPONSE_BYTES_MAX`] is the memory that answers can
/// take.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// Of these, how many may be under way where one more is asked of a peer that has not answered the last one: the rest is
/// for peers of whom nothing is asked, so that a few that answer nothing do not keep a node from asking all others.
pub(crate) const IN_FLIGHT_SHARED_MAX: usize = 48;

/// Requests of one peer that wait for our answer, or whose answer has not left; further ones are turned away. Times
/// [`RESPONSE_BYTES_MAX`] it is the memory that a peer holds by reading slowly.
pub(crate) const INBOUND_PER_PEER_MAX: usize = 8;

/// Those of all peers; times [`REQUEST_BYTES_MAX`] is the memory that they can take before they are answered.
pub(crate) const INBOUND_MAX: usize = 256;

/// Streams of one connection, of both sides and all protocols: each may hold a window of 256 KiB that nobody reads.
/// We have 16 requests under way, a peer 24, and gossip, pings and names take some.
pub(crate) const STREAMS_MAX: usize = 192;

/// Of all connections so many in a hundred may be such as peers have opened: the rest is for those that this node opens
/// itself, to members that charters name, whoever else comes.
pub(crate) const INCOMING_PERCENT: u32 = 75;

/// Connections with one peer. Two, not one: when both sides dial at once and each may keep only one, each closes the
/// other's, and in 17 of 40 trials none was left. A third one is for another machine with the peer's key, until it
/// has said which start it is: it would never have its turn ([`crate::network::turns`]).
pub(crate) const CONNECTIONS_PER_PEER_MAX: usize = 3;

/// How long nothing may have been received on a connection that gives way: less than a machine takes to start, and enough
/// for a peer that opens connections without end to cost two a second.
pub(crate) const SILENT_AFTER: Duration = Duration::from_millis(500);

/// Dials under way at once. The largest VO may list 2,000 members of which nearly all are dead: each holds its place for
/// `REACH_TIMEOUT`, so with 512 the last is dialled 12 s after the first, and all again within each `redial_max`. A
/// place takes a socket for each address, until one answers.
pub const DIALS_MAX: usize = 512;

/// Addresses tried for one peer and from one source (configuration, charter, the peer itself).
pub(crate) const ADDRESSES_MAX: usize = 16;

/// Topics that one peer may be subscribed to: VOs that one site belongs to, with room to spare.
pub(crate) const TOPICS_PER_PEER_MAX: usize = 128;

/// Messages queued for one slow peer, each at most [`GOSSIP_BYTES_MAX`] (16 MiB in all); the rest is
/// dropped, and anti-entropy carries it. libp2p's default of 5000 would let it take 320 MB.
pub(crate) const GOSSIP_QUEUE_MAX: usize = 256;

/// Pings that may fail in a row before a connection counts as dead.
pub(crate) const PINGS_FAILED_MAX: u32 = 2;

/// How long a ping may take.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a new connection with a peer is kept when the one before, on which its subscriptions went, has ended. Both
/// sides have heard each other by then.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(1);

/// How long a peer may take to refuse a probe. One is sent when a request has no answer in time, which libp2p reports after
/// 10 to 20 s, and when a peer opens a second connection; so a dead connection is closed within half a minute. Longer than a
/// busy machine keeps the task of its network waiting.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer's machine may leave what it was sent without an acknowledgement, or its window closed, before the
/// kernel ends the connection: so a firewall that has dropped its state, or a machine without power, is noticed with the
/// first exchange, and nothing is sent to find that out. More than a request may take, so that a peer that reads too
/// slowly is blamed for that first.
pub(crate) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(25);

/// How long a peer's machine may take to answer at all: a lost packet is sent again after one second, and no path on
/// Earth takes two. An address where nobody is holds its place among the dials for so long.
pub(crate) const REACH_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the system may take to look a host name up. It asks each name server for 5 s: so two that are silent leave
/// time for the answer of a third.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(12);

/// Host names that the system looks up at once. Each takes a thread, which a silent name server holds for up to half a
/// minute; a name server that answers does so within milliseconds, so a thousand names need no more.
pub(crate) const LOOKUPS_MAX: usize = 32;

/// How long reaching a peer and proving who one is may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may lie idle. Peers are meant to stay connected; pings notice the dead.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// How often the counters are published to [`crate::network::NetworkHandle::stats`].
pub(crate) const STATS_INTERVAL: Duration = Duration::from_millis(250);

/// Least time between two log lines about the same thing.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Between two reports of callers that were turned away: a flood of them is no work for the node's task.
pub(crate) const CALLS_INTERVAL: Duration = Duration::from_secs(1);

/// What the network is told at its start.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// Where to listen. Port 0 takes a free one, reported as `NetworkEvent::Listening`.
    pub listen: Vec<Multiaddr>,
    /// Peers whose addresses the operator wrote down. They are dialled once the allow list names
    /// them; being listed here does not allow them.
    pub peers: Vec<(SiteId, Vec<Multiaddr>)>,
    /// Whether to dial loopback, link-local and private addresses that a peer says of itself.
    /// Addresses from the configuration and from charters are used whatever they are.
    pub allow_private: bool,
    /// Rhythm of gossipsub's mesh upkeep: how soon a new peer hears gossip.
    pub gossip_heartbeat: Duration,
    /// How often each connection is pinged: 124 bytes each way, so with many peers most of what an idle
    /// node sends. A peer that leaves one without an answer is probed.
    pub ping_interval: Duration,
    /// How long a request may take, in and out.
    pub request_timeout: Duration,
    /// First wait before a peer is dialled again; doubles up to `redial_max`, with jitter.
    pub redial_min: Duration,
    /// Longest wait before a peer is dialled again.
    pub redial_max: Duration,
    /// How long a peer must be gone before the log says so.
    pub unreachable_after: Duration,
    /// Limits that depend on the machine.
    pub limits: NetworkLimits,
    /// Which start of the site this is. Peers tell by it two machines that run with one key.
    pub incarnation: Incarnation,
}

impl NetworkConfig {
    /// The same at this start of the site.
    #[must_use]
    pub fn at(self, incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            ..self
        }
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            peers: Vec::new(),
            allow_private: false,
            gossip_heartbeat: Duration::from_secs(1),
            ping_interval: Duration::from_secs(60),
            request_timeout: Duration::from_secs(20),
            redial_min: Duration::from_millis(500),
            redial_max: Duration::from_secs(60),
            unreachable_after: Duration::from_secs(5),
            limits: NetworkLimits::default(),
            incarnation: Incarnation(0),
        }
    }
}

/// Limits that depend on the machine.
#[derive(Debug, Clone)]
pub struct NetworkLimits {
    /// Connections in all. Must exceed the number of member sites; each takes a file descriptor.
    pub connections_max: u32,
    /// Incoming connections that have not yet proved who they are: what strangers can take up.
    pub pending_max: u32,
    /// Dials under way at once: [`DIALS_MAX`], less where the process may open few files.
    pub dials_max: usize,
    /// Memory of the whole process above which no new connection is taken, in bytes.
    pub memory_bytes_max: usize,
}

impl NetworkLimits {
    /// Connections that peers may have opened.
    pub(crate) fn incoming_max(&self) -> u32 {
        let most = u64::from(self.connections_max) * u64::from(INCOMING_PERCENT) / 100;
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    }
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            connections_max: 2048,
            pending_max: 64,
            dials_max: DIALS_MAX,
            memory_bytes_max: 4 << 30,
        }
    }
}
