//! The mesh as the rest of the node sees it: plain commands in, plain events out.
//!
//! One task owns the libp2p swarm (TCP or QUIC, Noise, Yamux; gossipsub, request-response,
//! identify, ping). Nothing outside this module names a libp2p behaviour, and nothing in here knows
//! what the bytes mean, but how many they are unpacked.
//!
//! Invariants: only the sites of the allow list may speak (default: nobody); gossip of a topic goes
//! to the members of that topic only; no input of a peer makes anything grow without a named limit;
//! the swarm never waits for its consumer. A slow consumer loses gossip first, and never an answer.
//!
//! Deliberately not here: signatures and validity (the consumer judges each message), whom to ask
//! and when (`fairmesh-gossip`), and which sites belong to a VO (`fairmesh-policy`).

mod config;
mod identity;
mod message;
mod stats;

mod address;
mod backoff;
mod behaviour;
mod budget;
mod codec;
mod commands;
mod counted;
mod dialer;
mod driver;
mod former;
mod gate;
mod names;
mod outbox;
mod per_peer;
mod primary_connection;
mod protocol_events;
mod reports;
mod requests;
mod swarm_events;
mod topics;
mod turns;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use fairmesh_model::SiteId;
use futures::FutureExt as _;
use libp2p::core::transport::TransportError;
use libp2p::identity::Keypair;
use tokio::sync::{mpsc, watch};

pub use config::{
    DIALS_MAX, GOSSIP_BYTES_MAX, NetworkConfig, NetworkLimits, REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX,
};
pub use identity::{peer_id_of, site_of};
pub use libp2p::PeerId;
pub use libp2p::multiaddr::{Multiaddr, Protocol};
pub use message::{MessageName, NetworkCommand, NetworkEvent, RequestFailure, Verdict};
pub(crate) use names::check as check_address;
pub(crate) use reports::Throttle;
pub use stats::{Met, NetworkStats, PeerStats};
pub(crate) use turns::TURN;

/// Why the network did not start. Nothing was left running; the configuration or the machine is at
/// fault.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address as configured.
        address: Multiaddr,
        /// What the system said.
        reason: String,
    },
    /// A value of the configuration that libp2p refuses, or no resources for the transports.
    #[error("cannot set up the network: {0}")]
    Setup(String),
}

/// The network task has ended, so the command was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the network has shut down")]
pub struct NetworkClosed;

/// The way to the network task. Clones share it; when the last one is dropped, the task ends.
#[derive(Debug, Clone)]
pub struct NetworkHandle {
    commands: mpsc::Sender<NetworkCommand>,
    stats: watch::Receiver<Arc<NetworkStats>>,
    site: SiteId,
}

impl NetworkHandle {
    /// The identity under which this node speaks.
    pub fn site(&self) -> SiteId {
        self.site
    }

    /// Hands over a command; waits only while 256 are queued already. The
    /// network task never waits for its consumer, so this cannot deadlock.
    pub async fn send(&self, command: NetworkCommand) -> Result<(), NetworkClosed> {
        self.commands.send(command).await.map_err(|_| NetworkClosed)
    }

    /// Counters as of at most a quarter of a second ago. Costs one reference count.
    pub fn stats(&self) -> Arc<NetworkStats> {
        self.stats.borrow().clone()
    }

    /// Ends the task and waits until it has let go of its sockets. Answers under way are lost.
    pub async fn shutdown(&self) {
        // An error means that the task has ended already, which is what was asked for.
        let _ = self.commands.send(NetworkCommand::Shutdown).await;
        self.commands.closed().await;
    }
}

/// Binds the configured addresses and starts the network task, on the current tokio runtime.
///
/// `secret` is the Ed25519 secret of the site; its public half is the `SiteId` and the libp2p peer
/// id. Until [`NetworkCommand::Allow`] names peers, nobody is dialled and nobody is let in.
///
/// Panics outside a tokio runtime.
pub fn start(
    config: NetworkConfig,
    mut secret: [u8; 32],
) -> Result<(NetworkHandle, mpsc::Receiver<NetworkEvent>), NetworkError> {
    // Takes the secret out of `secret`, overwriting it with zeroes.
    let keypair = Keypair::ed25519_from_bytes(&mut secret)
        .map_err(|error| NetworkError::Setup(error.to_string()))?;
    let site = site_of(keypair.public().to_peer_id()).expect("an Ed25519 key makes a site id");
    let bytes = Arc::default();
    let mut swarm = behaviour::build_swarm(&config, &keypair, &bytes)?;
    for address in &config.listen {
        let listening = address::check_free(address)
            .map_err(TransportError::Other)
            .and_then(|()| swarm.listen_on(address.clone()));
        listening.map_err(|error| NetworkError::Listen {
            address: address.clone(),
            reason: address::listen_failure(address, &error),
        })?;
    }
    let (command_sender, command_receiver) = mpsc::channel(config::COMMANDS_MAX);
    let (event_sender, event_receiver) = mpsc::channel(config::EVENTS_MAX);
    let (stats_sender, stats_receiver) = watch::channel(Arc::default());
    let driver = driver::Driver::new(&config, site, (swarm, bytes), event_sender, stats_sender);
    tokio::spawn(driver.run(command_receiver).boxed());
    let handle = NetworkHandle {
        commands: command_sender,
        stats: stats_receiver,
        site,
    };
    Ok((handle, event_receiver))
}
