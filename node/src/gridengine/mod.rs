//! The commands that work with a Grid Engine beside the node, and set it up.
//!
//! Deliberately not here: the loops (`fairmesh_schedulers::gridengine`).

pub mod settings;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fairmesh_schedulers::Scheduler as _;
use fairmesh_schedulers::gridengine::{GridEngine, WANTED};

use crate::config::Config;
use crate::output::Exit;
use crate::schedulers::check::{self, CheckArgs};
use crate::schedulers::{FeedArgs, Pair, Sockets, SyncArgs};
use settings::GridEngineTable;

/// Work with a Grid Engine beside the node: priorities into it, usage out of it
#[derive(Debug, Args)]
pub struct GridEngineArgs {
    /// The node's configuration, with its table [gridengine].
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
    /// Keep the override tickets of pending jobs equal to the node's factors
    Sync(SyncArgs),
    /// Report finished jobs to the node
    Feed(FeedArgs),
    /// Do both, until SIGTERM
    Run,
    /// Say which users and projects of the queue map where, and which map nowhere
    Check(CheckArgs),
    /// Print what the scheduler's configuration needs, and say what a running pool lacks
    Setup,
}

/// Grid Engine beside the node of a configuration.
pub(crate) fn pair(table: &GridEngineTable, config: &Config) -> Pair<GridEngine> {
    Pair {
        scheduler: GridEngine::new(table.gridengine.clone()),
        settings: table.gridengine.common.clone(),
        sockets: Sockets::of(config),
    }
}

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or for a single round Grid Engine or the node is away.
pub async fn run(args: &GridEngineArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = Config::load(&args.config)?;
    let table = config.gridengine.clone();
    let table = table.unwrap_or_else(|| GridEngineTable::defaults(&config.data_dir));
    let pair = pair(&table, &config);
    match &args.what {
        What::Sync(sync) => pair.sync(sync, out).await,
        What::Feed(feed) => pair.feed(feed, out).await,
        What::Run => pair.run(true, true).await,
        What::Check(check) => {
            let (jobs, _) = pair.scheduler.queue(false).await?;
            let people = jobs.into_iter().map(|job| (job.user, job.account));
            let people: std::collections::BTreeSet<_> = people.collect();
            let people: Vec<_> = people.into_iter().collect();
            let all_map = check::run(check, &people, &pair, out).await?;
            Ok(match all_map {
                true => Exit::Success,
                false => Exit::Failure,
            })
        }
        What::Setup => setup(&pair, out).await,
    }
}

/// Prints what is wanted, and what is missing. Exit 1 if something is, so that a configuration manager can ask.
async fn setup(pair: &Pair<GridEngine>, out: &mut dyn Write) -> anyhow::Result<Exit> {
    writeln!(
        out,
        "==> the scheduler's configuration: set these with `qconf -msconf` <=="
    )?;
    for (key, value) in WANTED {
        writeln!(out, "{key:<33} {value}")?;
    }
    let mut lacks = match pair.scheduler.scheduler().await {
        Ok(scheduler) => lacks(&scheduler),
        Err(error) => vec![format!(
            "{error:#}; start sge_qmaster, or name gridengine.root and gridengine.cell"
        )],
    };
    let accounting = pair.scheduler.settings.accounting();
    if let Err(error) = File::open(&accounting) {
        let file = accounting.display();
        lacks.push(format!(
            "{file} cannot be read ({error}); it comes with the first job that ends"
        ));
    }
    for socket in [&pair.sockets.lookup, &pair.sockets.control] {
        if let Err(error) = UnixStream::connect(socket) {
            let problem = fairmesh_client::no_node_at(socket, &error);
            lacks.push(format!(
                "{problem}; under systemd: systemctl start fairmesh"
            ));
        }
    }
    for lack in &lacks {
        writeln!(out, "missing: {lack}")?;
    }
    if lacks.is_empty() {
        writeln!(out, "nothing is missing")?;
        return Ok(Exit::Success);
    }
    Ok(Exit::Failure)
}

fn lacks(scheduler: &BTreeMap<String, String>) -> Vec<String> {
    let is = |key: &str| scheduler.get(key).map_or("", String::as_str);
    let wrong = WANTED
        .iter()
        .filter(|(key, value)| !is(key).eq_ignore_ascii_case(value));
    wrong
        .map(|(key, value)| format!("{key} is {}; write {value} with `qconf -msconf`", is(key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_of_the_scheduler_is_found() {
        let good = WANTED.map(|(key, value)| (key.to_owned(), value.to_lowercase()));
        let mut scheduler = BTreeMap::from(good);
        assert!(lacks(&scheduler).is_empty());
        scheduler.insert("weight_urgency".to_owned(), "0.500000".to_owned());
        let found = lacks(&scheduler);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("weight_urgency is 0.5"), "{found:?}");
    }
}
