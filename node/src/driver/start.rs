//! Starting a node: store, site, network, driver.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_model::{Incarnation, SigningKey, SiteId, WallTime};
use fairmesh_round::{
    FileRead, JOURNAL_BYTES_MAX, Op, Opening, Owner, SIDE, SideState, take_incarnation,
};
use fairmesh_site::{Event, Row, SITE_KEY, Site, SiteConfig, Table};
use futures::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::data::Data;
use super::room::DiskWatch;
use super::starting::Starting;
use super::{Clock, Driver, NodeHandle, Observation};
use crate::network::{self, Multiaddr, NetworkConfig, NetworkEvent};
use crate::store::{Ballast, DataDir, Files, Recovery, Room, Store, StoreError};

/// Commands that wait for the driver; beyond this callers wait.
const COMMANDS_MAX: usize = 256;

/// Records that are read between two words on how many.
const ROWS_UNTOLD: usize = 1_024;

/// How often a start is tried that has no room.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// What a node is started with.
pub struct NodeOptions {
    /// The owner's configuration of the site.
    pub site: SiteConfig,
    /// The site's Ed25519 secret.
    pub secret: [u8; 32],
    /// The site whose data folder this one takes over: its key was replaced.
    pub takes_over: Option<SiteId>,
    /// Addresses, limits and timeouts of the mesh.
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

/// The handle of the node's task. Its result is the error of the store that ended it, if any.
pub type NodeTask = JoinHandle<Result<(), StoreError>>;

/// A node that runs.
pub struct Running {
    /// The way to it.
    pub handle: NodeHandle,
    /// Ends when the node does; an error means that its store failed.
    pub driver: NodeTask,
    /// Where it can be reached.
    pub listening: Vec<Multiaddr>,
    /// Whether it only shows what it knew, because its disk cannot be written. It ends with
    /// [`StoreError::Writable`] when that is over.
    pub is_read_only: bool,
}

/// Starts a node on the current (multi-threaded) tokio runtime.
pub async fn start(options: NodeOptions) -> anyhow::Result<Running> {
    start_or_show(options, None, &Starting::default()).await
}

/// The same; on a disk that cannot be written it reads from a copy in the folder `copies`, if there is one, and else
/// waits. `starting` is told how far it is.
pub async fn start_or_show(
    options: NodeOptions,
    copies: Option<PathBuf>,
    starting: &Starting,
) -> anyhow::Result<Running> {
    let now = options.clock.now();
    let Folder {
        data,
        incarnation,
        opening,
        damage,
        rows,
        mut late,
        is_copy,
    } = open(&options, copies.as_deref(), starting).await?;
    let mut site = Site::restore_telling(
        options.site,
        SigningKey::from_secret(&options.secret),
        incarnation,
        options.random,
        now,
        rows,
        &mut |what, done, of| starting.tell(what, done, of),
    );
    starting.tell("brings its journal up to date", 0, 0);
    let begun_with = |held| [data.newest(held), site.rows_held_alone()].concat();
    let (round, ops) = opening.ready(begun_with, JOURNAL_BYTES_MAX, now.wall);
    late.extend(ops);
    let first = site.handle(options.clock.now(), Event::Tick);
    starting.tell("begins to listen", 0, 0);
    let expected = options.network.listen.len();
    let (network, mut events) = network::start(options.network.at(incarnation), options.secret)?;
    let listening = await_listening(&mut events, expected).await;
    let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
    let (view_sender, view) = watch::channel(site.view());
    let (disk, believed) = (DiskWatch::new(damage), watch::Sender::new(WallTime(0)));
    let handle = NodeHandle {
        commands,
        clock: Arc::clone(&options.clock),
        network: network.clone(),
        view,
        disk: disk.subscribe(),
        believed: believed.subscribe(),
        stored: data.stored(),
    };
    let driver = Driver {
        site,
        round,
        data,
        late,
        later: VecDeque::new(),
        disk,
        believed,
        network,
        clock: options.clock,
        view: view_sender,
        replies: HashMap::new(),
        next_ticket: 0,
        pushes: BTreeMap::new(),
        channels: HashMap::new(),
        observer: options.observer,
        works: JoinSet::new(),
    };
    Ok(Running {
        handle,
        driver: tokio::spawn(driver.run(command_receiver, events, first).boxed()),
        listening,
        is_read_only: is_copy,
    })
}

/// A folder that is open.
struct Folder {
    data: Data,
    incarnation: Incarnation,
    opening: Opening,
    /// What was damaged and has been set aside.
    damage: Vec<String>,
    rows: Vec<Row>,
    /// What is still to be written, before anything is let out.
    late: VecDeque<Op>,
    is_copy: bool,
}

/// Opens the folder. Where that needs room which there is not, waits for it, or opens a copy.
async fn open(
    options: &NodeOptions,
    copies: Option<&Path>,
    starting: &Starting,
) -> anyhow::Result<Folder> {
    let mut waits = false;
    let ballast = Ballast::of(&options.data_dir);
    loop {
        match try_open(options, starting) {
            Err(StartError::Store(error)) if error.lacks_room() => {
                if ballast.drop_it() {
                    continue;
                }
                let room = Room::of(&options.data_dir);
                let is_read_only = room.is_ok_and(|room| room.is_read_only);
                if let Some(copies) = copies.filter(|_| is_read_only) {
                    match open_copy(options, copies, starting) {
                        Ok(folder) => {
                            tracing::error!(
                                %error,
                                "the disk cannot be written: the node shows what it knew, and takes and publishes nothing"
                            );
                            return Ok(folder);
                        }
                        Err(StartError::Store(why)) if !waits => {
                            tracing::error!(%why, "no copy of the data folder can be read, either");
                        }
                        Err(_) => {}
                    }
                }
                let (what, waits_for) = match is_read_only {
                    true => (
                        "the disk is read-only",
                        "waits for its disk, which is read-only",
                    ),
                    false => ("the disk is full", "waits for room on its disk"),
                };
                if !std::mem::replace(&mut waits, true) {
                    tracing::error!(%error, "{what}: the node waits and starts by itself");
                }
                starting.tell(waits_for, 0, 0);
                tokio::time::sleep(TRY_EVERY).await;
            }
            Err(StartError::Store(error)) => return Err(error.into()),
            Err(StartError::Other(error)) => return Err(error),
            Ok(folder) => {
                ballast.take_on();
                return Ok(folder);
            }
        }
    }
}

/// Why a folder is not open.
enum StartError {
    Store(StoreError),
    Other(anyhow::Error),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn try_open(options: &NodeOptions, starting: &Starting) -> Result<Folder, StartError> {
    let now = options.clock.now().wall;
    let folder = &options.data_dir;
    // Whatever is refused here is refused before anything is touched; it is taken when nobody else has the folder.
    let (files, ..) = next_incarnation(options)?;
    let store = files.open_store(now)?;
    check_owner(&files, &store.0, options)?;
    let (mut files, incarnation, mut late) = next_incarnation(options)?;
    match files.carry_out(&mut late) {
        // It is written before anything is signed under it.
        Err(error) if error.lacks_room() && Store::is_in(folder) => {}
        written => written?,
    }
    // No two starts share an incarnation, so no two stores share a lineage.
    let opened = DataDir::open_with(files, store, now, incarnation.0)?;
    Folder::of(opened, incarnation, late, starting)
}

/// Reads the folder from a copy. Its incarnation is remembered nowhere, and nothing is signed under it.
fn open_copy(
    options: &NodeOptions,
    copies: &Path,
    starting: &Starting,
) -> Result<Folder, StartError> {
    let now = options.clock.now().wall;
    let (files, incarnation, late) = next_incarnation(options)?;
    let opened = DataDir::open_copy(&options.data_dir, copies, now, incarnation.0)?;
    check_owner(
        &files,
        opened.0.store().expect("it was just opened"),
        options,
    )?;
    let folder = Folder::of(opened, incarnation, late, starting)?;
    Ok(Folder {
        is_copy: true,
        ..folder
    })
}

impl Folder {
    fn of(
        (data, recovery, opening): (DataDir, Recovery, Opening),
        incarnation: Incarnation,
        late: VecDeque<Op>,
        starting: &Starting,
    ) -> Result<Self, StartError> {
        let damage = say_what_was_found(&recovery, &opening);
        let store = data.store().expect("it was just opened");
        Ok(Self {
            rows: read_rows(store, starting).map_err(StartError::Other)?,
            data: Data::new(data),
            incarnation,
            opening,
            damage,
            late,
            is_copy: false,
        })
    }
}

/// Takes an incarnation that no start of this site has used, and what remembers that.
fn next_incarnation(
    options: &NodeOptions,
) -> Result<(Files, Incarnation, VecDeque<Op>), StartError> {
    let files = Files::make(&options.data_dir)?;
    let path = options.data_dir.join(SIDE.as_ref());
    let side = match files.read(&SIDE) {
        FileRead::Absent => None,
        FileRead::Bytes(bytes) => Some(bytes),
        FileRead::Refused(why) => {
            let error = anyhow::anyhow!("{}: {why}", path.display());
            return Err(StartError::Other(error));
        }
    };
    let now = options.clock.now().wall;
    let taken = take_incarnation(owner(options), side.as_deref(), now, options.random);
    let taken = taken.with_context(|| path.display().to_string());
    let (incarnation, ops) = taken.map_err(StartError::Other)?;
    Ok((files, incarnation, ops.into()))
}

fn owner(options: &NodeOptions) -> Owner {
    Owner {
        site: SigningKey::from_secret(&options.secret).site_id(),
        takes_over: options.takes_over,
    }
}

/// Refuses a folder whose small file or store is another site's. The file was found to be readable.
fn check_owner(files: &Files, store: &Store, options: &NodeOptions) -> Result<(), StartError> {
    let side = match files.read(&SIDE) {
        FileRead::Bytes(bytes) => SideState::from_bytes(&bytes)
            .ok()
            .and_then(|side| side.site),
        _ => None,
    };
    let of_store = store.get(Table::Meta, SITE_KEY)?;
    let of_store = of_store.and_then(|id| Some(SiteId::from_bytes(id.try_into().ok()?)));
    let checked = owner(options).check(side, of_store);
    let checked = checked.with_context(|| options.data_dir.display().to_string());
    checked.map_err(StartError::Other)
}

/// Logs what an interrupted start or damage has left. Returns what was damaged and set aside.
fn say_what_was_found(recovery: &Recovery, opening: &Opening) -> Vec<String> {
    let mut set_aside = Vec::new();
    if let (Some(damage), Some(aside)) = (&recovery.damage, &recovery.set_aside) {
        set_aside.push(format!(
            "the store is set aside in {}, and a new one is filled from the journal and by peers: {damage}",
            aside.display()
        ));
    }
    for file in &recovery.leftovers_removed {
        tracing::info!(file = %file.display(), "removed what an interrupted start had left");
    }
    if opening.rows_replayed > 0 {
        let rows = opening.rows_replayed;
        tracing::info!(
            rows,
            "the store follows the journal in own counters and job marks"
        );
    }
    if let Some(byte) = opening.journal_torn_at {
        tracing::warn!(
            byte,
            "site.journal is not whole behind this byte: a write that was cut off leaves that, and nothing is lost; \
             if the node was not killed and the machine has not failed, its disk did, and what was reported last is \
             to be fed again"
        );
    }
    if let Some(damage) = &opening.journal_damage {
        let what = "the journal is not whole: a new one begins with the store, and the rest of the old one is kept \
                    beside it; report the last jobs again, nothing counts twice";
        tracing::error!(damage, "{what}");
        set_aside.push(format!("{what}: {damage}"));
    }
    set_aside
}

fn read_rows(store: &Store, starting: &Starting) -> anyhow::Result<Vec<Row>> {
    let (mut rows, all) = (Vec::new(), store.records_at_start());
    // Marks of jobs are looked up one by one, when a report names them.
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Jobs) {
        for row in store.scan(table) {
            if rows.len() % ROWS_UNTOLD == 0 {
                starting.tell("reads records of its store", rows.len(), all);
            }
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
