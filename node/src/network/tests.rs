//! Real nodes on loopback: stories about who hears whom.
//!
//! Nothing sleeps: every step waits for the event it is about, within `PATIENCE`. Silence is shown
//! by something later that does arrive on the same path.

mod budgets;
mod connections;
#[cfg(not(feature = "quic"))]
mod flood;
mod gossip;
mod requests;
#[cfg(not(feature = "quic"))]
mod slow;
#[cfg(not(feature = "quic"))]
mod trickle;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairmesh_model::{SiteId, VoId};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;

/// How long a step may take before the test fails; generous, for busy machines.
const PATIENCE: Duration = Duration::from_secs(30);

/// With the feature, the same stories are told over QUIC.
const LISTEN: &str = if cfg!(feature = "quic") {
    "/ip4/127.0.0.1/udp/0/quic-v1"
} else {
    "/ip4/127.0.0.1/tcp/0"
};

const TOPIC: VoId = VoId::from_bytes([0x70; 32]);

struct Node {
    handle: NetworkHandle,
    events: mpsc::Receiver<NetworkEvent>,
    address: Multiaddr,
}

impl Node {
    fn config() -> NetworkConfig {
        NetworkConfig {
            listen: vec![LISTEN.parse().unwrap()],
            allow_private: true,
            gossip_heartbeat: Duration::from_millis(100),
            ping_interval: Duration::from_millis(500),
            redial_min: Duration::from_millis(100),
            redial_max: Duration::from_secs(1),
            ..NetworkConfig::default()
        }
    }

    async fn start(number: u8) -> Self {
        Self::start_with(number, Self::config()).await
    }

    async fn start_with(number: u8, config: NetworkConfig) -> Self {
        let (handle, mut events) = start(config, [number; 32]).unwrap();
        let address = wait_for(&mut events, |event| match event {
            NetworkEvent::Listening(address) => Some(address),
            _ => None,
        })
        .await;
        Self {
            handle,
            events,
            address,
        }
    }

    fn site(&self) -> SiteId {
        self.handle.site()
    }

    async fn send(&self, command: NetworkCommand) {
        self.handle.send(command).await.unwrap();
    }

    /// Tells the node where `others` are and lets them in, so that it dials them.
    async fn meet(&self, others: &[&Node]) {
        let addresses: BTreeMap<SiteId, Vec<String>> = others
            .iter()
            .map(|other| (other.site(), vec![other.address.to_string()]))
            .collect();
        self.send(NetworkCommand::Peers(addresses)).await;
        self.allow(others).await;
    }

    async fn allow(&self, others: &[&Node]) {
        self.send(NetworkCommand::Allow(sites(others))).await;
    }

    async fn subscribe(&self, members: &[&Node]) {
        self.send(NetworkCommand::Subscribe {
            topic: TOPIC,
            members: sites(members),
        })
        .await;
    }

    async fn publish(&self, bytes: Vec<u8>) {
        self.send(NetworkCommand::Publish {
            topic: TOPIC,
            bytes,
        })
        .await;
    }

    async fn until<T>(&mut self, pick: impl FnMut(NetworkEvent) -> Option<T>) -> T {
        wait_for(&mut self.events, pick).await
    }

    async fn until_connected(&mut self, site: SiteId) {
        self.until(|event| (event == NetworkEvent::Connected(site)).then_some(()))
            .await;
    }

    async fn until_disconnected(&mut self, site: SiteId) {
        self.until(|event| (event == NetworkEvent::Disconnected(site)).then_some(()))
            .await;
    }

    async fn until_stats(&self, mut holds: impl FnMut(&NetworkStats) -> bool) {
        let mut stats = self.handle.stats.clone();
        timeout(PATIENCE, stats.wait_for(|stats| holds(stats)))
            .await
            .expect("the counters in time")
            .unwrap();
    }

    /// Asks, and waits for the outcome.
    async fn ask(&mut self, to: SiteId, bytes: Vec<u8>) -> Result<Vec<u8>, RequestFailure> {
        self.send(NetworkCommand::Request { to, id: 5, bytes })
            .await;
        self.outcome().await
    }

    async fn outcome(&mut self) -> Result<Vec<u8>, RequestFailure> {
        self.until(|event| match event {
            NetworkEvent::Response { id: 5, result, .. } => Some(result),
            _ => None,
        })
        .await
    }

    /// Waits for one request, and answers it with `bytes`.
    async fn answer(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let (to, channel, request) = self
            .until(|event| match event {
                NetworkEvent::Request {
                    from,
                    channel,
                    bytes,
                } => Some((from, channel, bytes)),
                _ => None,
            })
            .await;
        self.send(NetworkCommand::Respond { to, channel, bytes })
            .await;
        request
    }

    /// Waits for one gossip message, and passes it on.
    async fn hear(&mut self) -> Vec<u8> {
        let (from, message_id, bytes) = self
            .until(|event| match event {
                NetworkEvent::Gossip {
                    topic: TOPIC,
                    from,
                    message_id,
                    bytes,
                } => Some((from, message_id, bytes)),
                _ => None,
            })
            .await;
        self.send(NetworkCommand::ReportValidation {
            message_id,
            from,
            verdict: Verdict::Accept,
        })
        .await;
        bytes
    }
}

async fn wait_for<T>(
    events: &mut mpsc::Receiver<NetworkEvent>,
    mut pick: impl FnMut(NetworkEvent) -> Option<T>,
) -> T {
    timeout(PATIENCE, async {
        loop {
            let event = events.recv().await.expect("the network runs");
            if let Some(found) = pick(event) {
                return found;
            }
        }
    })
    .await
    .expect("the event in time")
}

/// Publishes new messages on `from`, until `to` has heard one. The mesh forms in its own time, and
/// what is published before goes nowhere, as it should. `tag` keeps the messages of two calls apart.
async fn gossip_until_heard(from: &Node, to: &mut Node, tag: u8) -> Vec<u8> {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let chatter = async {
        for number in 0_u64.. {
            pace.tick().await;
            from.publish([&[tag], &number.to_be_bytes()[..]].concat())
                .await;
        }
    };
    tokio::select! {
        heard = to.hear() => heard,
        () = chatter => unreachable!("more messages than anybody has time for"),
    }
}

fn sites(nodes: &[&Node]) -> BTreeSet<SiteId> {
    nodes.iter().map(|node| node.site()).collect()
}

async fn connected_pair() -> (Node, Node) {
    let (mut a, mut b) = (Node::start(1).await, Node::start(2).await);
    b.allow(&[&a]).await;
    a.meet(&[&b]).await;
    a.until_connected(b.site()).await;
    b.until_connected(a.site()).await;
    (a, b)
}
