//! What a mesh of real nodes costs on the wire: nodes with stores and libp2p over TCP on loopback,
//! bytes as their sockets count them, so Noise, yamux, gossipsub and all negotiation are in them.
//!
//! `cargo bench -p fairmesh-node --bench wire -- 12 30` measures meshes of 12 and of 30 nodes: what a node
//! receives for a change of one cell and of a hundred, beyond what it receives meanwhile without one,
//! and what an idle node receives at the default intervals. Goals: 400 bytes for one cell, 1.5 times the
//! cells for a hundred, 300 bytes a second for an idle one among 30.

#[path = "wire/mesh.rs"]
#[allow(dead_code, reason = "some of it is for quotas")]
mod mesh;

use std::time::Duration;

use fairmesh_model::Millis;
use fairmesh_site::Timing;
use mesh::Mesh;

/// Changes that are measured one behind the other.
const CHANGES: u64 = 10;

/// From one to the next: long enough to publish it, to pass it on and to fall silent again; and all of them take a
/// minute, in which every connection is pinged once.
const APART: Duration = Duration::from_secs(6);

/// How long an idle mesh is watched at the default intervals.
const IDLE: Duration = Duration::from_secs(120);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let with_idle = !arguments.iter().any(|argument| argument == "--no-idle");
    let sizes: Vec<usize> = arguments
        .iter()
        .filter_map(|size| size.parse().ok())
        .collect();
    let sizes = if sizes.is_empty() {
        vec![12, 30]
    } else {
        sizes
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (mut one, mut hundred) = (Vec::new(), Vec::new());
    for nodes in &sizes {
        let [_, of_one, of_hundred] = runtime.block_on(changes(*nodes))?;
        let held = |cost: &Cost| {
            if cost.is_held {
                ""
            } else {
                " (not held by all)"
            }
        };
        one.push(format!("{:.0}{}", of_one.received, held(&of_one)));
        // A push of so many cells is little else.
        let times = of_hundred.received / of_hundred.push;
        hundred.push(format!("{times:.2}{}", held(&of_hundred)));
        if with_idle {
            let received = runtime.block_on(idle(*nodes))?;
            if *nodes == 30 {
                let measured = format!("{received:.0}, in {} s", IDLE.as_secs());
                fairmesh_needs::say_row("idle traffic at defaults, 30 nodes", &measured);
            }
        }
    }
    if sizes == [12, 30] {
        fairmesh_needs::say_row(
            "bytes on the wire beyond idle, a node and change, 12 and 30 nodes",
            &format!(
                "{}; {} × the push of the cells",
                one.join(" and "),
                hundred.join(" and ")
            ),
        );
    }
    Ok(())
}

/// What a change costs, in bytes.
struct Cost {
    /// Received by a node beyond what an idle one receives.
    received: f64,
    /// Of the push itself.
    push: f64,
    /// Whether all nodes hold the same behind it, without an exchange.
    is_held: bool,
}

/// Bytes for one change, which comes by pushes and what these have asked for alone: probes would outweigh it,
/// some in one interval and none in the next. What has not come is said. First for the first head of a site,
/// which comes without its content, then for later ones.
async fn changes(nodes: usize) -> anyhow::Result<[Cost; 3]> {
    let timing = Timing {
        publish: Millis(200),
        heartbeat: Millis::from_secs(86_400),
        sync: Millis::from_secs(86_400),
        ..Timing::default()
    };
    let mesh = Mesh::start(nodes, timing).await?;
    // Meanwhile the last of them catch up, and gossipsub chooses its neighbours, in its heartbeats.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = mesh.totals().await?;
    tokio::time::sleep(APART * u32::try_from(CHANGES)?).await;
    let idle = mesh.totals().await?.since(before);
    let mut costs = Vec::new();
    for (round, (what, cells)) in (0..).zip([("first heads, ", 1), ("", 1), ("", 100)]) {
        // The same sites in each round. A first change brings the accounts in, and is not measured.
        let nth = |change: u64| round * nodes as u64 + change;
        mesh.report(nth(0), cells).await?;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let before = mesh.totals().await?;
        for change in 1..=CHANGES {
            mesh.report(nth(change), cells).await?;
            tokio::time::sleep(APART).await;
        }
        let all = mesh.totals().await?.since(before);
        let payload = all.published / CHANGES;
        let is_held = mesh.hold_the_same().await?;
        let of = |bytes: u64| bytes as f64 / CHANGES as f64 / nodes as f64;
        println!(
            "{nodes} nodes, {what}{cells} cells in a change: {:.0} bytes received by a node beyond {:.0} idle \
             in the same time; the push is {payload} bytes; held by all: {is_held}",
            of(all.received) - of(idle.received),
            of(idle.received),
        );
        costs.push(Cost {
            received: of(all.received) - of(idle.received),
            push: payload as f64,
            is_held,
        });
    }
    mesh.stop().await?;
    Ok(costs.try_into().ok().expect("three changes"))
}

/// Bytes that a node receives in a second, in a mesh in which nothing happens, at the default intervals.
async fn idle(nodes: usize) -> anyhow::Result<f64> {
    let mesh = Mesh::start(nodes, Timing::default()).await?;
    mesh.report(0, 1).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = mesh.totals().await?;
    tokio::time::sleep(IDLE).await;
    let all = mesh.totals().await?.since(before);
    let received = all.received as f64 / IDLE.as_secs_f64() / nodes as f64;
    println!(
        "{nodes} nodes, idle for {} s: {received:.0} bytes a second received by a node; {} exchanges and {} \
         heads of all of them",
        IDLE.as_secs(),
        all.probes,
        all.heads,
    );
    mesh.stop().await?;
    Ok(received)
}
