//! A computing element of NorduGrid ARC: `fairmesh arc hold`, the program of A-REX's `statecallout` at `ACCEPTED`.
//!
//! A-REX calls it twice for a job: within the request that submits it, where a refusal is the answer that the user
//! gets and no job comes to be, and once more when it takes the job up. The node gives the same answer twice.
//!
//! Invariant: no job is refused because something is broken, unless `--on-silence` says so. Deliberately not here:
//! what a job is charged, which `fairmesh report` reads from A-REX's accounting archive under the same name.

mod job;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fairmesh_node::config::slurm::OnSilence;

use crate::ask::NodeArgs;
use crate::callout::{Said, hold};
use crate::output::Exit;
use crate::quota_cmd::seconds;

/// How a user limits a job's time.
const LIMIT_BY: &str = "give it a (walltime=...)";

/// Work with an ARC computing element beside the node
#[derive(Debug, Args)]
pub struct ArcArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Hold what a job may cost, exit 0 if it may run, 1 if not: the program of A-REX's statecallout at ACCEPTED
    Hold(HoldArgs),
}

/// Options of `hold`.
#[derive(Debug, Args)]
struct HoldArgs {
    /// A-REX's id of the job: %I in arc.conf
    #[arg(value_name = "JOB")]
    job: String,
    /// A-REX's control folder: %C
    #[arg(long, value_name = "DIR")]
    control: PathBuf,
    /// The local user that the job's owner is mapped to: %U
    #[arg(long, value_name = "NAME")]
    user: String,
    /// The name of the computing element, as `fairmesh report --cluster` has it
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// How long a job may run that asks for no time, such as 24h [default: without a limit, so it is refused]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    time: Option<u64>,
    /// What becomes of jobs while the node does not answer
    #[arg(long, value_name = "WHAT", default_value = "run")]
    on_silence: OnSilence,
    /// Whom to ask.
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs the command. What it prints on standard error A-REX hands to the user whose job is refused.
///
/// # Errors
/// None: what is broken is said, and the job runs, or not, as `--on-silence` wants it.
pub async fn run(args: &ArcArgs) -> anyhow::Result<Exit> {
    let What::Hold(args) = &args.what;
    let said = match job::read(args) {
        Err(error) => Said::Nothing(format!("{error:#}")),
        Ok(files) => match job::asking(&files, args) {
            Ok(call) => hold(&args.node.control(), &call, LIMIT_BY).await,
            // What its user wrote must not be a way around.
            Err(error) => Said::Refused(format!("{error:#}")),
        },
    };
    Ok(match (said, args.on_silence) {
        (Said::Runs, _) => Exit::Success,
        (Said::Refused(why), _) => {
            note!("{why}");
            Exit::Failure
        }
        (Said::Nothing(why), OnSilence::Run) => {
            note!("fairmesh: {why}; the job runs unasked");
            Exit::Success
        }
        (Said::Nothing(why), OnSilence::Refuse) => {
            note!("whether this job has credit is not known, try again later ({why})");
            Exit::Failure
        }
    })
}
