//! What the commands of all batch systems share: words, flags, and how their loops run, in a process of their own or
//! within `fairmesh run`.
//!
//! The loops speak to the node over its sockets even there, so that one way is tested and a node that is away looks
//! the same everywhere. Deliberately not here: the loops (`fairmesh-schedulers`).

pub(crate) mod check;
pub(crate) mod command;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use fairmesh_api::client::Control;
use fairmesh_model::Millis;
use fairmesh_node::config::Config;
use fairmesh_node::config::slurm::SlurmTable;
use fairmesh_schedulers::feed::Feed;
use fairmesh_schedulers::loops::LoopSet;
use fairmesh_schedulers::slurm::Slurm;
use fairmesh_schedulers::sync::{Round, Sync};
use fairmesh_schedulers::{LoopSettings, Scheduler};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Exit;
use command::{KNOWN, Known};

/// Flags of `sync`.
#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// Only show what one round would do
    #[arg(long)]
    dry_run: bool,
    /// Set all priorities back to 0 and end
    #[arg(long)]
    reset: bool,
}

impl SyncArgs {
    /// Whether nothing is set.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run
    }
}

/// Flags of `feed`.
#[derive(Debug, Args)]
pub(crate) struct FeedArgs {
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// Only show what one round would report, as JSON lines
    #[arg(long)]
    dry_run: bool,
}

/// The node's sockets.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    pub(crate) lookup: PathBuf,
    pub(crate) control: PathBuf,
}

impl Sockets {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            lookup: config.sockets.lookup.clone(),
            control: config.sockets.control.clone(),
        }
    }

    pub(crate) fn control(&self) -> Control {
        Control::new(self.control.clone())
    }
}

/// A batch system beside a node.
#[derive(Debug)]
pub(crate) struct Pair<S> {
    pub(crate) scheduler: S,
    pub(crate) settings: LoopSettings,
    pub(crate) sockets: Sockets,
}

impl<S: Scheduler + Clone> Pair<S> {
    fn sync_loop(&self) -> Sync<S> {
        let (scheduler, settings) = (self.scheduler.clone(), self.settings.clone());
        let (lookup, control) = (self.sockets.lookup.clone(), self.sockets.control());
        Sync::new(scheduler, settings, lookup, control)
    }

    fn feed_loop(&self) -> Feed<S> {
        let (scheduler, settings) = (self.scheduler.clone(), self.settings.clone());
        Feed::new(scheduler, settings, self.sockets.control())
    }

    /// Starts the loops.
    pub(crate) fn start(&self, sync: bool, feed: bool, loops: &mut LoopSet) {
        if sync {
            loops.start(self.sync_loop());
        }
        if feed {
            loops.start(self.feed_loop());
        }
    }

    /// The loops, until SIGTERM or SIGINT.
    pub(crate) async fn run(&self, sync: bool, feed: bool) -> anyhow::Result<Exit> {
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
        let mut loops = LoopSet::default();
        self.start(sync, feed, &mut loops);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        loops.end().await;
        Ok(Exit::Success)
    }

    /// `sync`.
    pub(crate) async fn sync(&self, args: &SyncArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
        let mut sync = self.sync_loop();
        let round = match (args.reset, args.once || args.dry_run) {
            (true, _) => sync.reset(args.dry_run).await?,
            (false, true) => sync.once(args.dry_run).await?,
            (false, false) => return self.run(true, false).await,
        };
        show::<S>(&round, args.dry_run, out)?;
        Ok(Exit::of(round.refused.is_empty()))
    }

    /// `feed`.
    pub(crate) async fn feed(&self, args: &FeedArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
        if args.dry_run {
            let (finished, running) = self.feed_loop().look().await?;
            for record in finished {
                writeln!(out, "{}", serde_json::to_string(&record)?)?;
            }
            for job in running {
                writeln!(out, "{}", serde_json::to_string(&job)?)?;
            }
            return Ok(Exit::Success);
        }
        if !args.once {
            return self.run(false, true).await;
        }
        let done = self.feed_loop().once().await?;
        writeln!(
            out,
            "{} finished jobs reported, {} of them news, {} not charged; {} running; {} refused",
            done.finished, done.counted, done.skipped, done.running, done.refused
        )?;
        Ok(match done.refused {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }
}

fn show<S: Scheduler>(round: &Round, dry: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    for update in round.updates.iter().filter(|_| dry) {
        let from = update.from.map(|from| from.to_string());
        let (from, to) = (from.as_deref().unwrap_or("?"), update.to);
        writeln!(
            out,
            "{} {}: {} {from} -> {to}",
            S::WAITING.trim_end_matches('s'),
            update.target,
            S::NUMBER
        )?;
    }
    let told = if dry { "would update" } else { "updated" };
    writeln!(
        out,
        "{} {} wait, {} of them held and {} of accounts that the node does not know; {told} {}",
        round.waiting,
        S::WAITING,
        round.held,
        round.unknown,
        round.updates.len().saturating_sub(round.refused.len()),
    )?;
    if round.left > 0 && !dry {
        let (left, name) = (round.left, S::NAME);
        writeln!(
            out,
            "{left} more have to wait for the next round ({name}.rate)"
        )?;
    }
    for refused in &round.refused {
        note!("{}: {refused}", S::NAME);
    }
    Ok(())
}

/// Slurm beside the node of a configuration.
pub(crate) fn slurm_pair(table: &SlurmTable, config: &Config) -> Pair<Slurm> {
    Pair {
        scheduler: Slurm::new(table.slurm.clone()),
        settings: table.slurm.common.clone(),
        sockets: Sockets::of(config),
    }
}

/// Starts the loops that the configuration of a node asks for.
pub fn loops(config: &Config) -> LoopSet {
    let mut loops = LoopSet::default();
    if let Some(table) = config.slurm.as_ref().filter(|table| table.with_node) {
        slurm_pair(table, config).start(true, true, &mut loops);
    }
    let with_node = |system: &&Known| (system.with_node)(config) == Some(true);
    for system in KNOWN.iter().filter(with_node) {
        (system.start)(config, &mut loops);
    }
    loops
}

/// The feeds that a configuration names, by batch system, with the pause between their rounds.
pub(crate) fn feeds(config: &Config) -> BTreeMap<&'static str, Millis> {
    let slurm = config.slurm.as_ref();
    let slurm = slurm.map(|table| (Slurm::NAME, table.slurm.common.feed_interval));
    let named = |system: &&Known| (system.with_node)(config).is_some();
    let others = KNOWN
        .iter()
        .filter(named)
        .map(|system| (system.feed)(config));
    others.chain(slurm).collect()
}
