//! The commands that work with a Slurm beside the node, and set it up.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::slurm`), and the plug-in for large sites, which does the
//! work of `sync` within slurmctld.

mod billing;
mod import;
mod prolog;
mod quotas;
mod setup;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fairmesh_node::config::Config;
use fairmesh_node::config::slurm::SlurmTable;
use fairmesh_schedulers::slurm::cluster::Cluster;
use fairmesh_schedulers::slurm::{PLUGIN_SETS_FACTORS, SPOOL_DEFAULT, Slurm, spool};

use crate::output::Exit;
use crate::schedulers::check::{self, CheckArgs, Lack};
use crate::schedulers::{FeedArgs, Pair, SyncArgs, slurm_pair};

/// Where a node's configuration is unless told otherwise.
const CONFIG_DEFAULT: &str = "/etc/fairmesh/fairmesh.toml";

/// Work with a Slurm beside the node: priorities into it, usage out of it
#[derive(Debug, Args)]
pub struct SlurmArgs {
    /// The node's configuration, with its table [slurm].
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = CONFIG_DEFAULT
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
    Hook(HookArgs),
    /// Hold what a starting job may cost: the program of PrologSlurmctld
    Prolog(prolog::PrologArgs),
    /// Make a share tree and identity rules of Slurm's accounts
    Import(import::ImportArgs),
    /// Say which users and accounts of the cluster map where, and which map nowhere
    Check(CheckArgs),
    /// Print what Slurm's configuration needs, and say what a running cluster lacks
    Setup(setup::SetupArgs),
}

/// Leave a finished job for the feed.
#[derive(Debug, Args)]
struct HookArgs {
    /// The folder to leave it in [default: slurm.spool of the configuration, or /var/spool/fairmesh]
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
}

/// What the commands work with.
struct Place {
    table: SlurmTable,
    pair: Pair<Slurm>,
}

/// Finished jobs that `check` reads where no database knows the accounts.
const FINISHED_MAX: usize = 100_000;

impl Place {
    fn load(file: &Path) -> anyhow::Result<Self> {
        Ok(Self::of(&Config::load(file)?))
    }

    fn of(config: &Config) -> Self {
        let table = config.slurm.clone();
        let table = table.unwrap_or_else(|| SlurmTable::defaults(&config.data_dir));
        let pair = slurm_pair(&table, config);
        Self { table, pair }
    }
}

/// The Slurm beside the node of this configuration.
pub(crate) fn beside(file: &Path) -> anyhow::Result<Slurm> {
    Ok(Place::load(file)?.pair.scheduler)
}

/// The Slurm of a configuration; the one at its usual place where there is no node yet.
fn slurm_of(file: &Path) -> anyhow::Result<Slurm> {
    if file == Path::new(CONFIG_DEFAULT) && !file.exists() {
        return Ok(Slurm::new(SlurmTable::defaults(Path::new("")).slurm));
    }
    beside(file)
}

/// All that `setup` and `check` would say is missing.
///
/// # Errors
/// If Slurm is away.
pub(crate) async fn lacks(config: &Config) -> anyhow::Result<Vec<Lack>> {
    let place = Place::of(config);
    let cluster = Cluster::ask(&place.pair.scheduler.commands).await?;
    let missing = setup::lacks(&place, cluster, &config.file)?;
    let people = place.pair.scheduler.people(FINISHED_MAX).await?;
    Ok(check::lacks(missing, &people, &place.pair).await)
}

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or for a single round Slurm or the node is away.
pub async fn run(args: &SlurmArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let What::Hook(args_of_hook) = &args.what {
        // It runs for each job that ends, and needs no more of the configuration than the spool, which slurmctld's
        // user need not be able to read.
        let spool = args_of_hook.spool.clone().unwrap_or_else(|| {
            let configured = Config::load(&args.config).ok();
            let table = configured.and_then(|config| config.slurm);
            table.map_or_else(|| SPOOL_DEFAULT.into(), |table| table.slurm.spool)
        });
        spool::leave_job(&spool, |name| std::env::var(name).ok())?;
        return Ok(Exit::Success);
    }
    if let What::Prolog(prolog) = &args.what {
        return prolog::run(prolog, &args.config).await;
    }
    if let What::Import(import) = &args.what {
        return import::run(import, || slurm_of(&args.config), out).await;
    }
    let place = Place::load(&args.config)?;
    let pair = &place.pair;
    match &args.what {
        What::Sync(sync) if sync.is_dry() => pair.sync(sync, out).await,
        What::Sync(sync) => {
            refuse_beside_plugin(&place).await?;
            pair.sync(sync, out).await
        }
        What::Feed(feed) => pair.feed(feed, out).await,
        What::Check(args_of_check) => {
            let people = pair.scheduler.people(FINISHED_MAX).await?;
            let all_map = check::run(args_of_check, &people, pair, out).await?;
            let (words, is_held) = quotas::quotas(&place, &args.config).await?;
            let notices = billing::notices(&pair.scheduler.commands).await?;
            words
                .iter()
                .chain(&notices)
                .for_each(|words| note!("{words}"));
            Ok(Exit::of(all_map && is_held))
        }
        What::Setup(setup) => setup::run(setup, &place, &args.config, out).await,
        _ => {
            refuse_beside_plugin(&place).await?;
            pair.run(true, true).await
        }
    }
}

/// Both would set the site factors, each in its own range. If Slurm is away, the loop itself finds out.
async fn refuse_beside_plugin(place: &Place) -> anyhow::Result<()> {
    let cluster = Cluster::ask(&place.pair.scheduler.commands).await;
    let has_plugin = cluster.is_ok_and(|cluster| cluster.has_our_plugin());
    anyhow::ensure!(!has_plugin, PLUGIN_SETS_FACTORS);
    Ok(())
}
