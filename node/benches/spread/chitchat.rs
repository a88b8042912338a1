//! Nodes of chitchat, which tell each other of keys and values over UDP.

use std::net::SocketAddr;
use std::time::Duration;

use chitchat::transport::UdpTransport;
use chitchat::{ChitchatConfig, ChitchatHandle, ChitchatId, spawn_chitchat};

use crate::{Nodes, cells};

/// Its nodes, and which changed last.
pub(crate) struct Chitchats {
    nodes: Vec<ChitchatHandle>,
    last: usize,
}

/// Nodes that know the first one; all else as the library's own example has it, once a second.
pub(crate) async fn start(count: usize) -> anyhow::Result<Chitchats> {
    let mut nodes = Vec::new();
    let mut ports = Vec::new();
    for number in 0..count {
        let free = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
        ports.push(free);
        let config = config(number, free, ports[0]);
        nodes.push(spawn_chitchat(config, Vec::new(), &UdpTransport).await?);
    }
    Ok(Chitchats { nodes, last: 0 })
}

fn config(number: usize, at: SocketAddr, first: SocketAddr) -> ChitchatConfig {
    ChitchatConfig {
        chitchat_id: ChitchatId::new(format!("site-{number}"), 0, at),
        cluster_id: "grid".to_owned(),
        gossip_interval: Duration::from_secs(1),
        listen_addr: at,
        seed_nodes: vec![first.to_string()],
        failure_detector_config: Default::default(),
        marked_for_deletion_grace_period: Duration::from_secs(7_200),
        catchup_callback: None,
        extra_liveness_predicate: None,
    }
}

impl Nodes for Chitchats {
    async fn change(&mut self, change: u64, count: usize) -> anyhow::Result<()> {
        self.last = usize::try_from(change)? % self.nodes.len();
        let node = self.nodes[self.last].chitchat();
        let mut node = node.lock().await;
        for cell in cells(change, count) {
            let [a, b, c, d, e] = cell.counters;
            let key = format!("{}/{}", cell.account, cell.window);
            node.self_node_state()
                .set(key, format!("{a},{b},{c},{d},{e}"));
        }
        Ok(())
    }

    async fn hold_it(&mut self) -> anyhow::Result<bool> {
        let writer = self.nodes[self.last].chitchat_id().clone();
        let mut versions = Vec::new();
        for node in &self.nodes {
            let node = node.chitchat();
            let node = node.lock().await;
            versions.push(node.node_state(&writer).map(|state| state.max_version()));
        }
        Ok(versions
            .iter()
            .all(|version| *version == versions[self.last]))
    }
}
