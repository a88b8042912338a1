//! The commands of a batch system that needs no words of its own: `fairmesh gridengine` and its like.
//!
//! Invariant: `setup` changes nothing, and exits with 1 if something is missing, so that a configuration manager can
//! ask. Deliberately not here: what a system lacks (each says it), and Slurm, which has more words (`slurm`).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;

use clap::{Args, Subcommand};
use fairmesh_api::finding::Code;
use fairmesh_model::Millis;
use fairmesh_node::config::Config;
use fairmesh_node::config::schedulers::Table;
use fairmesh_schedulers::condor::Condor;
use fairmesh_schedulers::gridengine::GridEngine;
use fairmesh_schedulers::loops::LoopSet;
use fairmesh_schedulers::lsf::Lsf;
use fairmesh_schedulers::pbs::Pbs;
use fairmesh_schedulers::{Scheduler, Settings};

use super::check::{self, CheckArgs, Lack};
use super::{FeedArgs, Pair, Sockets, SyncArgs};
use crate::output::Exit;

// What the command is about is said with its name (`cli`).
#[derive(Debug, Args)]
pub(crate) struct SystemArgs {
    /// The node's configuration, with the system's table.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/etc/fairmesh/fairmesh.toml"
    )]
    config: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Keep the order of what waits equal to the node's factors
    Sync(SyncArgs),
    /// Report jobs to the node
    Feed(FeedArgs),
    /// Do both, until SIGTERM
    Run,
    /// Say who in the queue maps where, and who maps nowhere
    Check(CheckArgs),
    /// Print what the system's configuration needs, and say what a running one lacks
    Setup,
}

/// A batch system with these commands.
pub(crate) trait System: Scheduler + Clone {
    /// What it is told.
    type Settings: Settings;
    /// What it is called in words.
    const TITLE: &'static str;
    /// The findings about it: it is away, its configuration, who maps nowhere, its range, its CPUs.
    const CODES: [Code; 5];

    /// Its table of the configuration.
    fn table(config: &Config) -> Option<&Table<Self::Settings>>;

    /// The one of these settings.
    fn of(settings: Self::Settings) -> Self;

    /// The one beside the node of a configuration.
    fn beside(config: &Config) -> Pair<Self> {
        let table = Self::table(config).cloned();
        let table = table.unwrap_or_else(|| Table::defaults(&config.data_dir));
        let mut system = table.system;
        Pair {
            settings: system.common().clone(),
            scheduler: Self::of(system),
            sockets: Sockets::of(config),
        }
    }

    /// Prints what its configuration needs; gives what it lacks, and what to do about each.
    async fn setup(&self, out: &mut dyn Write) -> anyhow::Result<Vec<(String, String)>>;
}

/// What all such systems are asked for in turn.
pub(crate) struct Known {
    pub(crate) title: &'static str,
    pub(crate) codes: [Code; 5],
    /// Whether the configuration has its table, and whether the loops run with the node.
    pub(crate) with_node: fn(&Config) -> Option<bool>,
    /// What it is called in metrics, and the pause of its feed.
    pub(crate) feed: fn(&Config) -> (&'static str, Millis),
    pub(crate) lacks: for<'a> fn(&'a Config) -> Asked<'a>,
    pub(crate) start: fn(&Config, &mut LoopSet),
}

/// What a batch system lacks, once it has been asked.
type Asked<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Vec<Lack>>> + 'a>>;

impl Known {
    const fn of<S: System>() -> Self {
        Self {
            title: S::TITLE,
            codes: S::CODES,
            with_node: |config| S::table(config).map(|table| table.with_node),
            feed: |config| (S::NAME, S::beside(config).settings.feed_interval),
            lacks: |config| Box::pin(lacks::<S>(config)),
            start: |config, loops| S::beside(config).start(true, true, loops),
        }
    }
}

pub(crate) const KNOWN: [Known; 4] = [
    Known::of::<GridEngine>(),
    Known::of::<Condor>(),
    Known::of::<Pbs>(),
    Known::of::<Lsf>(),
];

/// All that `setup` and `check` would say is missing.
///
/// # Errors
/// If the batch system is away.
async fn lacks<S: System>(config: &Config) -> anyhow::Result<Vec<Lack>> {
    let pair = S::beside(config);
    let people = people(&pair).await?;
    let missing = pair.scheduler.setup(&mut std::io::sink()).await?;
    Ok(check::lacks(missing, &people, &pair).await)
}

/// Who has jobs in the queue.
async fn people<S: System>(pair: &Pair<S>) -> anyhow::Result<Vec<(String, Option<String>)>> {
    let (jobs, _) = pair.scheduler.queue(false).await?;
    let people = jobs.into_iter().map(|job| (job.user, job.account));
    let people: BTreeSet<_> = people.collect();
    Ok(people.into_iter().collect())
}

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or for a single round the batch system or the node is away.
pub(crate) async fn run<S: System>(args: &SystemArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let pair = S::beside(&Config::load(&args.config)?);
    let is_good = match &args.what {
        What::Sync(sync) => return pair.sync(sync, out).await,
        What::Feed(feed) => return pair.feed(feed, out).await,
        What::Run => return pair.run(true, true).await,
        What::Check(check) => {
            let people = people(&pair).await?;
            check::run(check, &people, &pair, out).await?
        }
        What::Setup => {
            let mut lacks = pair.scheduler.setup(out).await?;
            lacks.extend(silent_sockets(&pair.sockets));
            lacks.extend(check::capacity(&pair).await);
            write_lacks(&lacks, out)?
        }
    };
    Ok(Exit::of(is_good))
}

/// The sockets at which no node answers.
pub(crate) fn silent_sockets(sockets: &Sockets) -> impl Iterator<Item = (String, String)> {
    let sockets = [&sockets.lookup, &sockets.control].into_iter();
    sockets.filter_map(|socket| {
        let error = UnixStream::connect(socket).err()?;
        let problem = fairmesh_client::no_node_at(socket, &error);
        Some((
            problem,
            "under systemd: systemctl start fairmesh".to_owned(),
        ))
    })
}

/// Says what is lacking, each with what to do about it; gives whether nothing is.
pub(crate) fn write_lacks(lacks: &[(String, String)], out: &mut dyn Write) -> io::Result<bool> {
    for (problem, mend) in lacks {
        writeln!(out, "missing: {problem}; {mend}")?;
    }
    if lacks.is_empty() {
        writeln!(out, "nothing is missing")?;
    }
    Ok(lacks.is_empty())
}
