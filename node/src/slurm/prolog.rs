//! `fairmesh slurm prolog`, the program of `PrologSlurmctld`: holds what a starting job may cost, or puts it back.
//!
//! Invariant: no job is stopped because something is broken, unless `on_silence` says so. Deliberately not here: how a
//! job is described and put back (`fairmesh_schedulers::slurm::quota`).

use std::path::Path;

use fairmesh_schedulers::slurm::quota::{Starting, describe, exempted, forget, put_back};

use super::Place;
use crate::output::Exit;
use crate::quota_cmd::callout::{OnSilence, Said, hold};

/// How a user limits a job's time.
const LIMIT_BY: &str = "sbatch --time";

/// Hold what a starting job may cost.
#[derive(Debug, clap::Args)]
pub(super) struct PrologArgs {
    /// Slurm's number of the job [default: $SLURM_JOB_ID]
    #[arg(long)]
    job: Option<u64>,
}

/// Runs the command. 0 lets the job run; after 1 Slurm puts it back into its queue.
///
/// # Errors
/// None: what is broken is said, and the job runs, or not, as `on_silence` wants it.
pub(super) async fn run(args: &PrologArgs, config: &Path) -> anyhow::Result<Exit> {
    let place = match Place::load(config) {
        Ok(place) => place,
        Err(error) => {
            eprintln!("fairmesh: {error:#}; the job runs unasked");
            return Ok(Exit::Success);
        }
    };
    let Some(starting) = Starting::of(args.job, |name| std::env::var(name).ok()) else {
        eprintln!("fairmesh: neither --job nor SLURM_JOB_ID names a job");
        return Ok(Exit::Success);
    };
    let control = place.pair.sockets.control();
    let (described, said) = match describe(&starting, &place.pair.scheduler).await {
        Ok((job, call)) => {
            let said = hold(&control, &call, LIMIT_BY).await;
            (Some((job, call)), said)
        }
        Err(error) => (None, Said::Nothing(format!("{error:#}"))),
    };
    let why = match (said, place.table.on_silence) {
        (Said::Runs, _) => {
            forget(&starting, &place.pair.scheduler);
            return Ok(Exit::Success);
        }
        (Said::Nothing(why), OnSilence::Run) => {
            eprintln!("fairmesh: {why}; job {} runs unasked", starting.job);
            return Ok(Exit::Success);
        }
        (Said::Nothing(why), OnSilence::Refuse) => why,
        (Said::Refused(why), _) => {
            if let Some((_, call)) = &described {
                // Where this fails, the run that ends now costs its quota what it held.
                let _ = hold(&control, &exempted(call.clone()), LIMIT_BY).await;
            }
            why
        }
    };
    eprintln!("fairmesh: job {}: {why}", starting.job);
    let comment = described.map_or_else(String::new, |(job, _)| job.comment);
    put_back(&starting, &place.pair.scheduler, &comment, &why).await;
    Ok(Exit::Failure)
}
