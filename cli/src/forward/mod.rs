//! `fairmesh forward`: jobs that members of a VO pass on to each other. `run` hands those that were taken here to
//! the batch system, `status` says where jobs are, `withdraw` takes one back.
//!
//! `run` stands beside the node, as a user who may submit, and sees the node over its socket only: what the network
//! brings in is never run by the node.
//!
//! Deliberately not here: where jobs go (`fairmesh-site`), and handing them in (`place --submit`).

mod run;
mod status;
mod withdraw;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairmesh_api::client::Control;
use fairmesh_api::{Answer, ForwardBody, ForwardedBody, TriedBody};
use fairmesh_model::clean;

use crate::ask::{AskArgs, NodeArgs};
use crate::output::Exit;

/// How often a node is asked where a job is.
const POLL: Duration = Duration::from_millis(250);

/// Hand jobs that members passed on to the batch system, and say where jobs are
#[derive(Debug, Clone, clap::Args)]
pub struct ForwardArgs {
    #[command(subcommand)]
    command: ForwardCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum ForwardCommand {
    Run(RunArgs),
    Status(StatusArgs),
    Withdraw(WithdrawArgs),
}

/// Hand each job that was taken here to the batch system, once
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
CMD is run by sh for each job, submits it, prints the batch system's id of it, and ends. Its standard input is the
job as a line of JSON, with what its user wrote as `run`; its environment has
    FAIRMESH_NAME (a name that no other submission has: use it as the job's), FAIRMESH_JOB, FAIRMESH_KEY,
    FAIRMESH_VO, FAIRMESH_PATH (who pays, in the VO), FAIRMESH_USER and FAIRMESH_ORIGIN (whose it is, by the word of
    which member), FAIRMESH_CLASS, FAIRMESH_CPUS, FAIRMESH_WALL_S.
These are words of others: quote them, and expect options and paths in those of the JSON. If CMD fails, the job goes
elsewhere.

With --ask, ASK is run with the same variables before a job is submitted, and where CMD failed or was killed; it
prints one of the words nowhere, waiting, running, ended, failed. Then a job is submitted once whatever is killed or
forgotten. With --withdraw, a job that its user takes back when the batch system has it is withdrawn there: the command is
run with FAIRMESH_NAME, FAIRMESH_JOB, FAIRMESH_KEY, FAIRMESH_USER and FAIRMESH_BATCH (what CMD has printed), and ends with
0 only where the job will not run to its end. Without --ask a job whose CMD was killed is given up as in doubt, and a machine that loses power while CMD runs
may submit a job twice, under one name.")]
pub struct RunArgs {
    /// Submits a job
    #[arg(long, value_name = "CMD")]
    pub submit: String,
    /// Says whether the batch system knows a job by its name
    #[arg(long, value_name = "CMD")]
    pub ask: Option<String>,
    /// Withdraws a job that its user takes back; without it the batch system keeps what it has
    #[arg(long, value_name = "CMD")]
    pub withdraw: Option<String>,
    /// How long ASK and the command that withdraws may take; ASK is run again later when it is killed then
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub ask_max: u64,
    /// Where it is noted which command has begun and ended
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// How often the node is asked
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub poll_ms: u64,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Say where jobs are that were handed in or taken here
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// One of them, by its name in the mesh
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Take back a job that was handed in here: exit 0 where it runs nowhere, 1 where a batch system keeps it
#[derive(Debug, Clone, clap::Args)]
pub struct WithdrawArgs {
    /// Its name in the mesh or 8 digits of it or more, or its key
    #[arg(value_name = "JOB")]
    pub job: String,
    /// How long to wait for what comes of it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u64,
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Runs a subcommand of `fairmesh forward`; ends with its exit code.
pub async fn run(args: &ForwardArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.command {
        ForwardCommand::Run(args) => run::run(args, out).await,
        ForwardCommand::Status(args) => status::run(args, out).await,
        ForwardCommand::Withdraw(args) => withdraw::run(args, out).await,
    }
}

/// Asks for a job again until enough is known of it, or for so many seconds.
pub(crate) async fn follow(
    control: &Control,
    mut answer: Answer<ForwardBody>,
    seconds: u64,
    is_enough: impl Fn(&ForwardedBody) -> bool,
) -> anyhow::Result<Answer<ForwardBody>> {
    let began = Instant::now();
    while let Some(job) = answer.body.jobs.first() {
        if is_enough(job) || began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        tokio::time::sleep(POLL).await;
        let parameters = [("job", Some(&*job.job))];
        (answer, _) = control.get("/v1/forward", &parameters).await?;
    }
    Ok(answer)
}

/// What was tried, in words.
pub(crate) fn tried(tried: &[TriedBody]) -> String {
    let words = tried.iter().map(|of| match &of.said {
        Some(said) => format!("; {}: {}", clean(&of.site), clean(said)),
        None => format!("; {} sent it on", clean(&of.site)),
    });
    words.collect()
}
