//! `fairmesh queue`: a queue of jobs on a submit host, which keeps the limits of a VO and its groups over many
//! sites and sends jobs that fail elsewhere.
//!
//! What it decides is in `fairmesh-broker`; here are its files, its commands and its clock.
//!
//! Invariant: an effect is carried out behind the journal's sync of all records before it, so that the journal
//! and the files of attempts are all that a start needs.
//! Deliberately not here: batch systems. They are behind the user's commands.

mod jobs;
mod journal;
mod run;
mod sites;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};

use fairmesh_broker::{Engine, Selector};

use crate::ask::NodeArgs;
use crate::output::{Exit, OutputArgs};

/// Run a queue of jobs on many sites, within the limits of a VO and its groups
#[derive(Debug, Clone, clap::Args)]
pub struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum QueueCommand {
    Run(Box<RunArgs>),
    Status(StatusArgs),
}

/// Place, submit and watch all jobs of a file until each has ended or was given up
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
JOBS.jsonl has a job a line:
    {\"key\": \"j1\", \"account\": \"/group-1\", \"cpus\": 1, \"wall_s\": 3600, \"disk_mib\": 0, \"run\": \"anything for CMD\"}

CMD is run by sh for each attempt, with its job's line on standard input and in its environment
    FAIRMESH_NAME (key and attempt: j1.1), FAIRMESH_JOB, FAIRMESH_ATTEMPT, FAIRMESH_SITE, FAIRMESH_VO,
    FAIRMESH_CPUS, FAIRMESH_WALL_S.
Without --ask it runs the job to its end, and fails if the job does.
With --ask it submits the job under FAIRMESH_NAME, prints the batch system's id of it, and ends; then
ASK is run with the same variables and FAIRMESH_ID, and prints one of the words nowhere, waiting,
running, ended, failed.

Killed at any moment and started again it goes on, and runs no job twice. The journal is beside
JOBS.jsonl, in a folder with its name and `.queue`.

It ends with 1 if jobs were given up.")]
pub struct RunArgs {
    /// The jobs
    #[arg(value_name = "JOBS.jsonl")]
    pub jobs: PathBuf,
    /// How the sites stand (see `fairmesh place --help`), read again when it changes [default: by what the node
    /// beside this host knows]
    #[arg(long, value_name = "GRID.json", conflicts_with = "socket")]
    pub grid: Option<PathBuf>,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Whose jobs they are
    #[arg(long, value_name = "NAME")]
    pub vo: String,
    /// Limits of the VO and its groups: a file of SLAs with at_most and shares behind a `+`
    #[arg(long, value_name = "SLA.toml")]
    pub sla: Option<PathBuf>,
    /// Let a group have at each site only its part of what the VO may have there: for several queues of one VO, which
    /// do not see what the others send
    #[arg(long, requires = "sla")]
    pub by_site: bool,
    /// Runs or submits a job
    #[arg(long, value_name = "CMD")]
    pub submit: String,
    /// Says how a submitted job is
    #[arg(long, value_name = "CMD")]
    pub ask: Option<String>,
    /// Takes a submitted job back; without it jobs that start late are waited for
    #[arg(long, value_name = "CMD", requires = "ask")]
    pub withdraw: Option<String>,
    /// How long ASK and the command that takes back may take; one that is killed then is run again later
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub ask_max: u64,
    /// Who decides what is available: published, prose or sound
    #[arg(long, default_value = "sound")]
    pub engine: Engine,
    /// How sites are ordered: ra, rr, lru, lu, lu-own, obs, s-ra, fair or eta
    #[arg(long, default_value = "lu", value_parser = crate::place::parse_selector)]
    pub selector: Selector,
    /// What chance goes by
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Leave out sites from which nothing was received for so long [default: as long as the node believes them]
    #[arg(long, value_name = "SECONDS")]
    pub silence: Option<u64>,
    /// How often jobs are asked for
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub poll_ms: u64,
}

/// Say how far the jobs of a file have come
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// The jobs
    #[arg(value_name = "JOBS.jsonl")]
    pub jobs: PathBuf,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &QueueArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        QueueCommand::Run(args) => run::run(args, out),
        QueueCommand::Status(args) => status::status(args, out),
    }
}

/// The folder of a queue's journal and of its attempts.
fn folder(jobs: &Path) -> PathBuf {
    let mut name = jobs.as_os_str().to_owned();
    name.push(".queue");
    name.into()
}

#[cfg(test)]
mod tests;
