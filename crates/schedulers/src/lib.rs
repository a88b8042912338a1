//! The loops with a batch system beside a node: priorities into it ([`sync`]), usage out of it ([`feed`]).
//!
//! What is common to all systems is here once: rounds and their deadlines ([`loops`]), what to set ([`plan`]), the
//! cursor, files that grow ([`follow`]), commands that are run ([`command`]). A system is a [`Scheduler`] and has a
//! module of its own. The loops reach the node only over its sockets, `lookup.sock` and `control.sock`
//! ([`fairmesh_api::client`]).
//!
//! Invariants: neither loop ends because the batch system or the node is away; no priority is set that does not rest
//! on an answer of the node; nothing is forgotten before the node has acknowledged it.
//! Deliberately not here: reading records (`fairmesh-records`), what a job is charged (the node), the table of the
//! configuration and the commands (`node`).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod feed;
pub mod follow;
pub mod loops;
pub mod plan;
pub mod sync;

pub mod command;
pub mod job;
pub mod past;
pub mod state;

pub mod condor;
pub mod gridengine;
pub mod lsf;
pub mod pbs;
pub mod slurm;

mod capacity;
mod cursor;
mod ended;
mod mark;
pub mod packing;
mod parts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairmesh_api::client::Control;
use fairmesh_client::Scale;
use fairmesh_model::{Millis, WallTime};
use fairmesh_records::ChargeRule;

use feed::{Cursor, Portion};
use job::Job;
use plan::Update;

/// A batch system, as the loops see it. What fails is that it is away, or that its files are.
pub trait Scheduler: Send + std::marker::Sync + 'static {
    /// What it is called in commands, metrics and the node's paths: `slurm`.
    const NAME: &'static str;
    /// What the number is called by which it orders waiting jobs.
    const NUMBER: &'static str;
    /// What has such a number.
    const WAITING: &'static str = "jobs";

    /// The command that prints how many CPUs there are.
    const SHOWS_CPUS: &'static str;

    /// The CPUs that it counts, where it says so.
    fn cpus(&self) -> impl Future<Output = anyhow::Result<Option<u64>>> + Send;

    /// The jobs that wait and run, with `all` also those that ended lately, as far as it shows them. Also gives the
    /// rows that made no sense.
    fn queue(
        &self,
        all: bool,
    ) -> impl Future<Output = anyhow::Result<(Vec<Job>, Vec<String>)>> + Send;

    /// The numbers that waiting jobs have.
    fn numbers(&self) -> impl Future<Output = anyhow::Result<BTreeMap<u64, i64>>> + Send;

    /// Sets numbers, the first one first.
    fn set(&self, updates: &[Update]) -> impl Future<Output = anyhow::Result<Vec<Refusal>>> + Send;

    /// Takes numbers back, so that it orders by itself again: all of them are 0 where it says nothing else.
    fn reset(
        &self,
        updates: &[Update],
    ) -> impl Future<Output = anyhow::Result<Vec<Refusal>>> + Send {
        self.set(updates)
    }

    /// What it says of itself at the beginning of a round of the feed.
    fn about(&mut self) -> impl Future<Output = anyhow::Result<About>> + Send;

    /// What has ended behind the cursor; not asked where there is no source.
    fn ended(&self, cursor: &Cursor) -> impl Future<Output = anyhow::Result<Portion>> + Send;

    /// What else is to be done with the queue in each round of the feed.
    fn tend(
        &self,
        _jobs: &[Job],
        _cluster: &str,
        _node: &Control,
    ) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }
}

/// All systems, by what they are called.
pub const NAMES: [&str; 5] = [
    slurm::Slurm::NAME,
    gridengine::GridEngine::NAME,
    condor::Condor::NAME,
    pbs::Pbs::NAME,
    lsf::Lsf::NAME,
];

/// What a batch system says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The name that its records carry.
    pub cluster: String,
    /// What it lacks to say which jobs have ended, other than by its queue.
    pub lack: Option<String>,
}

impl About {
    /// Of a cluster whose jobs that have ended are in this file or folder.
    pub(crate) fn of_file(common: &LoopSettings, system: &str, file: &Path) -> Self {
        let lack = file.metadata().err().map(|error| {
            let file = file.display();
            format!("{file} cannot be read ({error}): no usage is seen")
        });
        Self {
            cluster: common.cluster.clone().unwrap_or_else(|| system.to_owned()),
            lack,
        }
    }
}

/// A number that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Of which job; none where what was said names none.
    pub job: Option<u64>,
    /// The node's message.
    pub words: String,
    /// Whether that is only that the job has left the queue.
    pub is_gone: bool,
}

/// What all loops are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSettings {
    /// The cluster's name in records; the batch system's own name of it if not given.
    pub cluster: Option<String>,
    /// Folder of the batch system's commands, if they are not in the path.
    pub bin_dir: Option<PathBuf>,
    /// Between two looks at the queue.
    pub interval: Millis,
    /// What a factor and a job's own importance come to in its number: the best possible factor has the range, the
    /// worst 0.
    pub scale: Scale,
    /// A number that is wrong by no more than this may stay, while the order and the distances are right.
    pub granularity: u32,
    /// Most updates a second.
    pub rate: u32,
    /// Between two reports to the node.
    pub feed_interval: Millis,
    /// The file with the feed's cursor.
    pub state_file: PathBuf,
    /// Which jobs are charged.
    pub charge_rule: ChargeRule,
}

/// What a node and one batch system are told of working together.
pub trait Settings: Clone {
    /// What holds where the configuration says nothing, for a node with this data folder.
    fn defaults(data_dir: &Path) -> Self;

    /// What all loops are told.
    fn common(&mut self) -> &mut LoopSettings;
}

/// A range that keeps every digit of a factor. Sites that let age or size weigh beside it take less.
pub const RANGE_DEFAULT: u32 = 1_000_000_000;

/// One point for each of the 200 steps of importance. It is to order one user's jobs, age beside it.
const IMPORTANCE_DEFAULT: u32 = 200;

/// One part in so many of the range is the granularity of sites that chose one.
const GRANULARITY_PART: u32 = 1_000;

impl LoopSettings {
    /// What holds where nothing is said; the cursor is kept in this file.
    pub fn defaults(state_file: PathBuf) -> Self {
        Self {
            cluster: None,
            bin_dir: None,
            interval: Millis::from_secs(30),
            scale: Scale {
                range: RANGE_DEFAULT,
                importance: IMPORTANCE_DEFAULT,
            },
            granularity: granularity_of(RANGE_DEFAULT),
            rate: 200,
            feed_interval: Millis::from_secs(60),
            state_file,
            charge_rule: ChargeRule::default(),
        }
    }

    /// Waits for as long as so many updates may take.
    pub(crate) async fn pause(&self, updates: usize) {
        let updates = u32::try_from(updates).unwrap_or(u32::MAX);
        let second = Duration::from_secs(1);
        tokio::time::sleep(second.saturating_mul(updates) / self.rate).await;
    }
}

/// The granularity that goes with a range. Where the range is the default one nothing weighs beside a factor, so the
/// order and the distances are all that matters; a smaller one is taken to let age and size weigh against factors.
pub fn granularity_of(range: u32) -> u32 {
    match range {
        RANGE_DEFAULT => range,
        range => range / GRANULARITY_PART,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, millis)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn now() -> WallTime {
    WallTime(now_ms())
}
