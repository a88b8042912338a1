//! Starting a node: store, site, network, driver.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use fairmesh_model::{Incarnation, SigningKey};
use fairmesh_round::{FileRead, JOURNAL_BYTES_MAX, Opening, SIDE, take_incarnation};
use fairmesh_site::{Event, Row, Site, SiteConfig, Table};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::{Clock, Driver, NodeHandle, Observation};
use crate::network::{self, Multiaddr, NetworkConfig, NetworkEvent};
use crate::store::{DataDir, Files, Recovery, Store, StoreError};

/// Commands that wait for the driver; beyond this callers wait.
const COMMANDS_MAX: usize = 256;

/// What a node is started with.
pub struct NodeOptions {
    /// The owner's decisions.
    pub site: SiteConfig,
    /// The site's Ed25519 secret.
    pub secret: [u8; 32],
    /// Addresses and limits.
    pub network: NetworkConfig,
    /// Where the store is, and the files beside it that must survive its loss.
    pub data_dir: PathBuf,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Who wants to know when heads become durable here: demonstrations measure by it.
    pub observer: Option<mpsc::UnboundedSender<Observation>>,
    /// 64 random bits: whom the node asks in which order, and the tail of its incarnation.
    pub random: u64,
}

/// The node's task.
pub type NodeTask = JoinHandle<Result<(), StoreError>>;

/// A node that runs.
pub struct Running {
    /// The way to it.
    pub handle: NodeHandle,
    /// Ends when the node does; an error means that its store failed.
    pub driver: NodeTask,
    /// Where it can be reached.
    pub listening: Vec<Multiaddr>,
}

/// Starts a node on the current (multi-threaded) tokio runtime.
pub async fn start(options: NodeOptions) -> anyhow::Result<Running> {
    let now = options.clock.now();
    std::fs::create_dir_all(&options.data_dir)
        .with_context(|| format!("cannot make {}", options.data_dir.display()))?;
    let (files, incarnation) = next_incarnation(&options)?;
    // No two starts share an incarnation, so no two stores share a lineage.
    let (mut data, recovery, opening) = DataDir::open(files, now.wall, incarnation.0)?;
    say_what_was_found(&recovery, &opening);
    let rows = read_rows(data.store())?;
    let key = SigningKey::from_secret(&options.secret);
    let mut site = Site::restore(options.site, key, incarnation, options.random, now, rows);
    let (round, ops) = opening.ready(|| site.rows_held_alone(), JOURNAL_BYTES_MAX, now.wall);
    data.carry_out(ops)?;
    let first = site.handle(options.clock.now(), Event::Tick);

    let expected = options.network.listen.len();
    let (network, mut events) = network::start(options.network, options.secret)?;
    let listening = await_listening(&mut events, expected).await;
    let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
    let (view_sender, view) = watch::channel(site.view());
    let driver = Driver {
        site,
        round,
        data,
        network: network.clone(),
        clock: options.clock,
        view: view_sender,
        replies: HashMap::new(),
        next_ticket: 0,
        pushes: HashMap::new(),
        channels: HashMap::new(),
        observer: options.observer,
        marks: None,
        works: JoinSet::new(),
    };
    let driver = tokio::spawn(driver.run(command_receiver, events, first));
    Ok(Running {
        handle: NodeHandle {
            commands,
            network,
            view,
        },
        driver,
        listening,
    })
}

/// Takes an incarnation that no start of this site has used, and remembers that it did.
fn next_incarnation(options: &NodeOptions) -> anyhow::Result<(Files, Incarnation)> {
    let mut files = Files::new(&options.data_dir);
    let path = options.data_dir.join(SIDE.as_ref());
    let side = match files.read(&SIDE) {
        FileRead::Absent => None,
        FileRead::Bytes(bytes) => Some(bytes),
        FileRead::Refused(why) => anyhow::bail!("{}: {why}", path.display()),
    };
    let now = options.clock.now().wall;
    let (incarnation, ops) = take_incarnation(side.as_deref(), now, options.random)
        .with_context(|| path.display().to_string())?;
    files.carry_out(ops)?;
    Ok((files, incarnation))
}

fn say_what_was_found(recovery: &Recovery, opening: &Opening) {
    for file in &recovery.leftovers_removed {
        tracing::info!(file = %file.display(), "removed what an interrupted start had left");
    }
    if opening.rows_replayed > 0 {
        let rows = opening.rows_replayed;
        tracing::warn!(
            rows,
            "own counters and job marks came back from the journal"
        );
    }
    if let Some(damage) = &opening.journal_damage {
        tracing::error!(
            damage,
            "the journal is not whole: it is begun anew from the store, and what was left of the \
             old one is kept beside it; if the store was lost, too, feed again what was reported last"
        );
    }
}

fn read_rows(store: &Store) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    // Marks of jobs are looked up one by one, when a report names them.
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Jobs) {
        for row in store.scan(table) {
            match row {
                Ok((key, value)) => rows.push((table, key, value)),
                Err(error @ StoreError::Damaged { .. }) => tracing::error!(%error, "left out"),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(rows)
}

/// The addresses that were bound, in the order in which the system gave them.
async fn await_listening(
    events: &mut mpsc::Receiver<NetworkEvent>,
    expected: usize,
) -> Vec<Multiaddr> {
    let mut listening = Vec::new();
    while listening.len() < expected {
        match events.recv().await {
            Some(NetworkEvent::Listening(address)) => listening.push(address),
            // Nobody is allowed yet, so nothing else can come before.
            Some(_) => {}
            None => break,
        }
    }
    listening
}
