//! The libp2p swarm: which transports, which protocols, with which settings, and why.
//!
//! Invariant: whoever may refuse a connection comes before whoever takes note of it. The derived
//! behaviour asks its fields in order and stops at the first refusal, but gossipsub counts a peer as
//! connected as soon as it is asked; placed first, it would keep refused strangers for ever.

use std::sync::Arc;
use std::time::Duration;

use fairmesh_model::Incarnation;
use libp2p::allow_block_list::{self, AllowedPeers};
use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::timeout::TransportTimeout;
use libp2p::core::transport::{Boxed, Transport};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::request_response::{self, ProtocolSupport};
use libp2p::swarm::{self, NetworkBehaviour, Swarm};
use libp2p::{
    PeerId, StreamProtocol, gossipsub, identify, memory_connection_limits, noise, ping, tcp, yamux,
};

use crate::network::codec::{PROTOCOL, SyncCodec};
use crate::network::config::{
    CONNECT_TIMEOUT, GOSSIP_QUEUE_MAX, IDLE_TIMEOUT, IN_FLIGHT_PER_PEER_MAX, INBOUND_PER_PEER_MAX,
    PING_TIMEOUT, REACH_TIMEOUT, STREAMS_MAX, UNACKNOWLEDGED_MAX,
};
use crate::network::counted::{Counted, WireBytes};
use crate::network::gate::Gate;
use crate::network::names::Names;
use crate::network::per_peer::PerPeer;
use crate::network::topics::MemberGossip;
use crate::network::{GOSSIP_BYTES_MAX, MessageName, NetworkConfig, NetworkError, NetworkLimits};

/// All protocols of a node, those that refuse first.
#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    pub(crate) gate: Gate,
    pub(crate) allowed: allow_block_list::Behaviour<AllowedPeers>,
    limits: connection_limits::Behaviour,
    memory: memory_connection_limits::Behaviour,
    /// The last that refuses: it makes room for a connection that all others take.
    pub(crate) per_peer: PerPeer,
    pub(crate) gossip: MemberGossip,
    pub(crate) sync: request_response::Behaviour<SyncCodec>,
    /// Asks what every peer's network refuses at once, whatever its site is doing: a ping that can be sent when it is
    /// wanted.
    pub(crate) probe: request_response::Behaviour<SyncCodec>,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

/// The swarm of a node, listening nowhere yet and allowing nobody. It counts in `bytes` what passes its
/// sockets.
pub(crate) fn build_swarm(
    config: &NetworkConfig,
    keypair: &Keypair,
    bytes: &Arc<WireBytes>,
) -> Result<Swarm<Behaviour>, NetworkError> {
    Ok(Swarm::new(
        Names::new(transport(keypair, bytes)?).boxed(),
        behaviour(config, keypair)?,
        keypair.public().to_peer_id(),
        swarm::Config::with_tokio_executor().with_idle_connection_timeout(IDLE_TIMEOUT),
    ))
}

/// TCP, and QUIC where it is built in; addresses by number only.
pub(super) fn transport(
    keypair: &Keypair,
    bytes: &Arc<WireBytes>,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, NetworkError> {
    let noise = noise::Config::new(keypair)
        .map_err(|error| NetworkError::Setup(format!("Noise: {error}")))?;
    let bytes = Arc::clone(bytes);
    let mut streams = yamux::Config::default();
    streams.set_max_num_streams(STREAMS_MAX);
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let tcp = TransportTimeout::with_outgoing_timeout(tcp, REACH_TIMEOUT)
        .map(move |stream, _| {
            let unacknowledged_ms = UNACKNOWLEDGED_MAX.as_millis() as u32;
            // An error means that the connection has ended already; pings notice what this would have.
            let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream.0, unacknowledged_ms);
            Counted::new(stream, Arc::clone(&bytes))
        })
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(streams)
        .timeout(CONNECT_TIMEOUT);
    #[cfg(feature = "quic")]
    let tcp = {
        let quic = libp2p::quic::tokio::Transport::new(libp2p::quic::Config::new(keypair))
            .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)));
        tcp.boxed()
            .or_transport(quic)
            .map(|either, _| either.into_inner())
    };
    Ok(tcp.boxed())
}

fn behaviour(config: &NetworkConfig, keypair: &Keypair) -> Result<Behaviour, NetworkError> {
    let setup = |error: &dyn std::fmt::Display| NetworkError::Setup(error.to_string());
    let gossip = gossip_config(config.gossip_heartbeat).map_err(|error| setup(&error))?;
    let identify = identify::Config::new("/fairmesh/1".to_owned(), keypair.public())
        .with_agent_version(agent_version(config.incarnation))
        .with_push_listen_addr_updates(true)
        .with_interval(IDENTIFY_AGAIN)
        .with_cache_size(0);
    let ping = ping::Config::new()
        .with_interval(config.ping_interval)
        .with_timeout(config.ping_interval.min(PING_TIMEOUT));
    let sync = request_response::Config::default()
        .with_request_timeout(config.request_timeout)
        .with_max_concurrent_streams(IN_FLIGHT_PER_PEER_MAX + INBOUND_PER_PEER_MAX);
    let codec = SyncCodec {
        // What is left is for the answer.
        request_max: config.request_timeout / 2,
    };
    let protocol = (StreamProtocol::new(PROTOCOL), ProtocolSupport::Full);
    // The network's task counts the time of a probe: libp2p lets the agreement on a protocol take 10 s at least.
    let probe = request_response::Config::default();
    let refused = (StreamProtocol::new(PROBE), ProtocolSupport::Outbound);
    let memory = config.limits.memory_bytes_max;
    Ok(Behaviour {
        gate: Gate::new(config.limits.pending_max),
        allowed: allow_block_list::Behaviour::default(),
        limits: connection_limits::Behaviour::new(connection_limits(&config.limits)),
        memory: memory_connection_limits::Behaviour::with_max_bytes(memory),
        per_peer: PerPeer::default(),
        gossip: MemberGossip::new(gossip).map_err(|error| setup(&error))?,
        sync: request_response::Behaviour::with_codec(codec, [protocol], sync),
        probe: request_response::Behaviour::with_codec(codec, [refused], probe),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::new(ping),
    })
}

/// What a node says of itself: its version and, where it has one, its incarnation.
fn agent_version(incarnation: Incarnation) -> String {
    format!("fairmesh/{} {:x}", env!("CARGO_PKG_VERSION"), incarnation.0)
}

/// The incarnation in what a peer says of itself; none of a release before this one.
pub(crate) fn incarnation_in(agent_version: &str) -> Option<u64> {
    let (_, incarnation) = agent_version.strip_prefix("fairmesh/")?.split_once(' ')?;
    u64::from_str_radix(incarnation, 16).ok()
}

/// A protocol that no node speaks.
const PROBE: &str = "/fairmesh/probe";

/// A peer says who it is as a connection opens, and pushes the addresses that change. Asking it again is for an answer
/// that was lost: each takes half a kilobyte, from every peer.
const IDENTIFY_AGAIN: Duration = Duration::from_secs(3_600);

fn connection_limits(limits: &NetworkLimits) -> ConnectionLimits {
    ConnectionLimits::default()
        .with_max_established(Some(limits.connections_max))
        .with_max_established_incoming(Some(limits.incoming_max()))
}

/// A small mesh: 2/3/4 neighbours, one outbound. Each neighbour more is half a copy of every message
/// more, and with three a message still reaches a thousand nodes in ten hops. Nobody is told by name of
/// what was sent lately (IHAVE), which cost more than the messages themselves: what is lost comes with
/// the next probe. No flooding of our own messages (measured: p99 57 ms against 69 ms), and no peer
/// score: its address rule starves sites behind one address, and who may speak is decided by charters.
fn gossip_config(heartbeat: Duration) -> Result<gossipsub::Config, gossipsub::ConfigBuilderError> {
    gossipsub::ConfigBuilder::default()
        .heartbeat_interval(heartbeat)
        .heartbeat_initial_delay(heartbeat)
        .validation_mode(gossipsub::ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(|message| {
            let name = MessageName::of(message.topic.as_str(), &message.data);
            gossipsub::MessageId::new(name.as_bytes())
        })
        .mesh_outbound_min(1)
        .mesh_n_low(2)
        .mesh_n(3)
        .mesh_n_high(4)
        .gossip_lazy(0)
        .gossip_factor(0.0)
        .idontwant_message_size_threshold(UNWANTED_ABOVE)
        .flood_publish(false)
        .max_transmit_size(GOSSIP_BYTES_MAX + TOPIC_AND_FRAME_BYTES)
        .connection_handler_queue_len(GOSSIP_QUEUE_MAX)
        .build()
}

/// Messages longer than this are announced to neighbours before they are judged, so that they do not send
/// them again: a name takes 45 bytes, and judging, which writes to the disk, takes longer than the way.
const UNWANTED_ABOVE: usize = 100;

/// Room for topic and protobuf around a message: gossipsub's limit covers the whole RPC.
const TOPIC_AND_FRAME_BYTES: usize = 512;
