//! How the same changes spread, and what that costs, by Fairmesh and by what else there is: chitchat
//! (Scuttlebutt, as Cassandra and Quickwit have it) and gossipsub as it comes, which floods signed messages.
//!
//! `cargo bench -p fairmesh-node --bench spread -- 30`: as many nodes of each in this process, one after the other,
//! each at its own defaults. Bytes are those of all IP packets that this machine's network namespace receives, headers
//! and acknowledgements with them, so nothing else may talk on it. What each does for its bytes differs: chitchat
//! neither signs nor encrypts and sends values in full; the flood is lost where nobody listens, and knows of no
//! newcomer; Fairmesh keeps, proves and compresses.

#[path = "spread/chitchat.rs"]
mod chitchat_nodes;
#[path = "spread/fairmesh.rs"]
mod fairmesh_nodes;
#[path = "spread/flood.rs"]
mod flood;
#[path = "wire/mesh.rs"]
#[allow(dead_code, reason = "some of it is for other benches")]
mod mesh;

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_site::Timing;

/// Changes that are measured one behind the other, each by another node.
const CHANGES: u64 = 10;

/// From one to the next. All of them take two minutes, as long as nothing happens before: in that every connection is
/// pinged twice, and every site publishes one heartbeat, all at about the same time. One that has just done so
/// publishes a change ten seconds later.
const APART: Duration = Duration::from_secs(12);

/// How often the nodes are asked whether they hold a change.
const LOOK: Duration = Duration::from_millis(5);

/// The counters of an account in a window.
pub(crate) struct Cell {
    pub(crate) account: String,
    pub(crate) window: u64,
    pub(crate) counters: [u64; 5],
}

/// Nodes that tell each other of changes.
pub(crate) trait Nodes {
    /// Has a node change so many cells, `change % nodes` of them.
    fn change(&mut self, change: u64, cells: usize) -> impl Future<Output = anyhow::Result<()>>;

    /// Whether all hold the last change.
    fn hold_it(&mut self) -> impl Future<Output = anyhow::Result<bool>>;
}

fn main() -> anyhow::Result<()> {
    let size = std::env::args().find_map(|argument| argument.parse().ok());
    let size: usize = size.unwrap_or(30);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mesh = mesh::Mesh::start(size, Timing::default()).await?;
        measure("Fairmesh", size, fairmesh_nodes::Heads::of(mesh)).await?;
        measure("chitchat", size, chitchat_nodes::start(size).await?).await?;
        measure("a gossipsub flood", size, flood::start(size).await?).await
    })
}

/// What `nodes` cost while nothing happens, and for changes of one cell and of a hundred beyond that.
async fn measure(what: &str, size: usize, mut nodes: impl Nodes) -> anyhow::Result<()> {
    // They find each other, and each has changed something before.
    tokio::time::sleep(Duration::from_secs(15)).await;
    for change in 0..size as u64 {
        nodes.change(change, 100).await?;
        until_held(&mut nodes).await?;
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    let mut slots = Vec::new();
    for _ in 0..CHANGES {
        let before = received()?;
        tokio::time::sleep(APART).await;
        slots.push((received()? - before) as f64 / size as f64);
    }
    let idle = slots.iter().sum::<f64>() / CHANGES as f64 / APART.as_secs_f64();
    println!("{what}, {size} nodes: {idle:.0} bytes a second received by a node, idle");
    let without = middle(&mut slots);
    for (round, cells) in (1..).zip([1, 100]) {
        let (mut times, mut slots) = (Vec::new(), Vec::new());
        for change in 1..=CHANGES {
            let (before, began) = (received()?, Instant::now());
            // By sites that have published nothing but heartbeats for a while.
            nodes
                .change(size as u64 + round * CHANGES + change, cells)
                .await?;
            until_held(&mut nodes).await?;
            times.push(began.elapsed());
            tokio::time::sleep(APART.saturating_sub(began.elapsed())).await;
            slots.push((received()? - before) as f64 / size as f64);
        }
        let beyond = middle(&mut slots) - without;
        times.sort();
        println!(
            "{what}, {size} nodes, {cells} cells in a change: {beyond:.0} bytes beyond that; held by all \
             after {:?}, at the most {:?}",
            times[times.len() / 2],
            times[times.len() - 1],
        );
    }
    Ok(())
}

/// The one in the middle: pings and heartbeats of all come in few of the slots, and count as idle.
fn middle(slots: &mut [f64]) -> f64 {
    slots.sort_by(f64::total_cmp);
    slots[slots.len() / 2]
}

async fn until_held(nodes: &mut impl Nodes) -> anyhow::Result<()> {
    while !nodes.hold_it().await? {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Cells as a node that reports jobs changes them: accounts of one window, amounts that grow.
pub(crate) fn cells(change: u64, cells: usize) -> impl Iterator<Item = Cell> {
    (0..cells).map(move |account| {
        let ran = mesh::ran(change, account).0;
        Cell {
            account: format!("/user{account:04}"),
            window: 498_699,
            counters: [ran * 4, ran * 4, 0, 0, ran],
        }
    })
}

/// Bytes of all IP packets received so far (`InOctets` of `IpExt`, proc_net_netstat).
fn received() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/net/netstat")?;
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = rows.next().zip(rows.next()).context("no IpExt")?;
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let octets = pairs.find(|(name, _)| *name == "InOctets");
    Ok(octets.context("no InOctets")?.1.parse()?)
}
