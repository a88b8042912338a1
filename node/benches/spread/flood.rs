//! Nodes of gossipsub with all its defaults, which flood what they publish, signed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity};
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use tokio::sync::{mpsc, oneshot};

use crate::{Nodes, cells};

/// Its nodes: where they are told what to publish, and how much each has received.
pub(crate) struct Flood {
    publish: Vec<mpsc::Sender<Vec<u8>>>,
    received: Vec<Arc<AtomicU64>>,
    published: Vec<u64>,
}

/// Nodes that are all connected with each other, and subscribed.
pub(crate) async fn start(count: usize) -> anyhow::Result<Flood> {
    let mut at: Vec<Multiaddr> = Vec::new();
    let (mut publish, mut received) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut swarm = swarm()?;
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
        for other in &at {
            swarm.dial(other.clone())?;
        }
        let (listening, address) = oneshot::channel();
        let (to_publish, changes) = mpsc::channel(8);
        let counter = Arc::new(AtomicU64::new(0));
        tokio::spawn(run(swarm, listening, changes, counter.clone()));
        at.push(address.await?);
        publish.push(to_publish);
        received.push(counter);
    }
    let published = vec![0; count];
    Ok(Flood {
        publish,
        received,
        published,
    })
}

fn swarm() -> anyhow::Result<Swarm<gossipsub::Behaviour>> {
    let tcp = tcp::Config::default().nodelay(true);
    let swarm = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp, noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key| {
            let signed = MessageAuthenticity::Signed(key.clone());
            let config = gossipsub::Config::default();
            Ok(gossipsub::Behaviour::new(signed, config)?)
        })?;
    let mut swarm = swarm.build();
    swarm.behaviour_mut().subscribe(&topic())?;
    Ok(swarm)
}

fn topic() -> IdentTopic {
    IdentTopic::new("grid")
}

async fn run(
    mut swarm: Swarm<gossipsub::Behaviour>,
    listening: oneshot::Sender<Multiaddr>,
    mut changes: mpsc::Receiver<Vec<u8>>,
    received: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut listening = Some(listening);
    loop {
        tokio::select! {
            change = changes.recv() => {
                let Some(bytes) = change else { return Ok(()) };
                swarm.behaviour_mut().publish(topic(), bytes)?;
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::NewListenAddr { address, .. } => {
                    if let Some(listening) = listening.take() {
                        // Who waits for it is there as long as this starts.
                        let _ = listening.send(address);
                    }
                }
                SwarmEvent::Behaviour(gossipsub::Event::Message { .. }) => {
                    received.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            },
        }
    }
}

impl Nodes for Flood {
    async fn change(&mut self, change: u64, count: usize) -> anyhow::Result<()> {
        let node = usize::try_from(change)? % self.publish.len();
        let cells: Vec<_> = cells(change, count)
            .map(|cell| (cell.account, cell.window, cell.counters))
            .collect();
        let mut bytes = Vec::new();
        ciborium::into_writer(&cells, &mut bytes)?;
        self.published[node] += 1;
        Ok(self.publish[node].send(bytes).await?)
    }

    /// Each has received what the others have published.
    async fn hold_it(&mut self) -> anyhow::Result<bool> {
        let all: u64 = self.published.iter().sum();
        let mut nodes = self.received.iter().zip(&self.published);
        Ok(nodes.all(|(received, own)| received.load(Ordering::Relaxed) + own >= all))
    }
}
