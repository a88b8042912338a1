//! The loop with Slurm: priorities into it, usage out of it, and the commands that set it up.
//!
//! `sync` and `feed` are two loops that know nothing of each other; `fairmesh slurm run` is both, and
//! so is `fairmesh run` where the configuration says so. They speak to the node over its sockets even
//! then, so that one way is tested and a node that is away looks the same everywhere.
//!
//! Invariant: neither loop ever ends because Slurm or the node is away. Deliberately not here: the
//! plug-in for large sites, which does the work of `sync` within slurmctld.

pub mod plan;
pub mod settings;

mod check;
mod cluster;
mod cursor;
mod ended;
mod feed;
mod follow;
mod frame;
mod hook;
mod queue;
mod quota;
mod runner;
mod sacct;
mod setup;
pub(crate) mod standing;
mod stop;
mod sync;
mod tell;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::ask::Control;
use crate::config::Config;
use crate::output::Exit;
use feed::Feed;
use settings::SlurmSettings;
use stop::Stop;
use sync::{Round, Sync};

/// Work with a Slurm beside the node: priorities into it, usage out of it
#[derive(Debug, Args)]
pub struct SlurmArgs {
    /// The node's configuration, with its table [slurm].
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
    /// Keep the site factors of waiting jobs equal to the node's factors
    Sync(SyncArgs),
    /// Report running and finished jobs to the node
    Feed(FeedArgs),
    /// Do both, until SIGTERM
    Run,
    /// Leave a finished job for the feed: the program of JobCompType=jobcomp/script
    Hook(hook::HookArgs),
    /// Hold what a starting job may cost: the program of PrologSlurmctld
    Prolog(quota::PrologArgs),
    /// Say which users and accounts of the cluster map where, and which map nowhere
    Check(check::CheckArgs),
    /// Print what Slurm's configuration needs, and say what a running cluster lacks
    Setup(setup::SetupArgs),
}

#[derive(Debug, Args)]
struct SyncArgs {
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// Only show what one round would do
    #[arg(long)]
    dry_run: bool,
    /// Set all site factors back to 0 and end
    #[arg(long)]
    reset: bool,
}

#[derive(Debug, Args)]
struct FeedArgs {
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// Only show what one round would report, as JSON lines
    #[arg(long)]
    dry_run: bool,
}

/// What the commands work with.
struct Place {
    settings: SlurmSettings,
    lookup: PathBuf,
    control: PathBuf,
}

impl Place {
    fn load(file: &Path) -> anyhow::Result<Self> {
        Ok(Self::of(&Config::load(file)?))
    }

    fn of(config: &Config) -> Self {
        let settings = config.slurm.clone();
        Self {
            settings: settings.unwrap_or_else(|| SlurmSettings::defaults(&config.data_dir)),
            lookup: config.sockets.lookup.clone(),
            control: config.sockets.control.clone(),
        }
    }

    fn sync(&self) -> Sync {
        let control = Control::new(self.control.clone());
        Sync::new(self.settings.clone(), self.lookup.clone(), control)
    }

    fn feed(&self) -> Feed {
        Feed::new(self.settings.clone(), Control::new(self.control.clone()))
    }
}

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or for a single round Slurm or the node is away.
pub async fn run(args: &SlurmArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let What::Hook(hook) = &args.what {
        // It runs for each job that ends, and needs no more of the configuration than the spool.
        return hook::run(hook, &args.config);
    }
    if let What::Setup(setup) = &args.what {
        return tokio::task::block_in_place(|| setup::run(setup, &args.config, out));
    }
    if let What::Prolog(prolog) = &args.what {
        return quota::prolog(prolog, &args.config).await;
    }
    let place = Place::load(&args.config)?;
    match &args.what {
        What::Sync(sync) if sync.once || sync.dry_run || sync.reset => {
            tokio::task::block_in_place(|| one_sync(&place, sync, out))
        }
        What::Feed(feed) if feed.once || feed.dry_run => {
            tokio::task::block_in_place(|| place.feed().once(feed.dry_run, out))
        }
        What::Check(check) => check::run(check, &place, &args.config, out).await,
        what => {
            let (sync, feed) = match what {
                What::Sync(_) => (true, false),
                What::Feed(_) => (false, true),
                _ => (true, true),
            };
            until_signal(Beside::start(&place, sync, feed)).await
        }
    }
}

fn one_sync(place: &Place, args: &SyncArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (mut sync, stop) = (place.sync(), Stop::default());
    let round = match args.reset {
        true => sync.reset(args.dry_run, &stop)?,
        false => sync.round(args.dry_run, &stop)?,
    };
    show(&round, args, out)?;
    Ok(match round.refused.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn show(round: &Round, args: &SyncArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.dry_run {
        for update in &round.updates {
            let from = update
                .from
                .map_or_else(|| "?".to_owned(), |from| from.to_string());
            writeln!(
                out,
                "job {}: site factor {from} -> {}",
                update.target, update.to
            )?;
        }
    }
    let told = if args.dry_run {
        "would update"
    } else {
        "updated"
    };
    writeln!(
        out,
        "{} jobs wait, {} of them held and {} of accounts that the node does not know; {told} {}",
        round.waiting,
        round.held,
        round.unknown,
        round.updates.len().saturating_sub(round.refused.len()),
    )?;
    if round.left > 0 && !args.dry_run {
        writeln!(
            out,
            "{} more have to wait for the next round (slurm.rate)",
            round.left
        )?;
    }
    for refused in &round.refused {
        eprintln!("scontrol: {refused}");
    }
    Ok(())
}

/// The loops beside a node, or alone in a process.
#[derive(Debug)]
pub struct Beside {
    stop: Stop,
    loops: Vec<JoinHandle<()>>,
}

/// Starts the loops if the configuration of a node asks for them.
pub fn beside(config: &Config) -> Beside {
    let wanted = config.slurm.as_ref().is_some_and(|slurm| slurm.with_node);
    Beside::start(&Place::of(config), wanted, wanted)
}

impl Beside {
    fn start(place: &Place, sync: bool, feed: bool) -> Self {
        let (stop, mut loops) = (Stop::default(), Vec::new());
        if sync {
            let (mut sync, stop) = (place.sync(), stop.clone());
            loops.push(tokio::task::spawn_blocking(move || sync.run(&stop)));
        }
        if feed {
            let (mut feed, stop) = (place.feed(), stop.clone());
            loops.push(tokio::task::spawn_blocking(move || feed.run(&stop)));
        }
        Self { stop, loops }
    }

    /// Ends the loops; what they are at is finished first, but for commands of Slurm that hang.
    pub async fn end(self) {
        self.stop.now();
        for one in self.loops {
            if let Err(error) = one.await {
                tracing::error!(%error, "a loop with Slurm ended badly");
            }
        }
    }
}

async fn until_signal(beside: Beside) -> anyhow::Result<Exit> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    beside.end().await;
    Ok(Exit::Success)
}
