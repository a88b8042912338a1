//! `fairmesh slurm prolog`, the program of `PrologSlurmctld`: holds what a starting job may cost, or puts it back.
//!
//! Invariant: no job is stopped because something is broken, unless `on_silence` says so. Deliberately not here: how a
//! job is described and put back (`fairmesh_schedulers::slurm::quota`).

use std::path::Path;

use fairmesh_schedulers::slurm::quota::{Starting, describe, exempted, forget, put_back};

use fairmesh_api::client::Control;
use fairmesh_node::config::slurm::OnSilence;
use serde_json::Value;

use super::Place;
use crate::callout::{Said, hold};
use crate::output::Exit;

/// How a user limits a job's time.
const LIMIT_BY: &str = "sbatch --time";

/// Hold what a starting job may cost.
#[derive(Debug, clap::Args)]
pub(super) struct PrologArgs {
    /// Slurm's number of the job [default: $SLURM_JOB_ID]
    #[arg(long)]
    job: Option<u64>,
    /// What becomes of the job where the configuration, which says that else, cannot be read
    #[arg(long, value_enum, default_value = "run")]
    on_silence: OnSilence,
}

/// Runs the command. 0 lets the job run; after 1 Slurm puts it back into its queue.
///
/// # Errors
/// None: what is broken is said, and the job runs, or not, as `on_silence` wants it.
pub(super) async fn run(args: &PrologArgs, config: &Path) -> anyhow::Result<Exit> {
    let place = match Place::load(config) {
        Ok(place) => place,
        Err(error) => {
            let runs = args.on_silence == OnSilence::Run;
            let what = if runs {
                "runs unasked"
            } else {
                "does not start"
            };
            note!("fairmesh: {error:#}; the job {what}");
            return Ok(Exit::of(runs));
        }
    };
    let Some(starting) = Starting::of(args.job, |name| std::env::var(name).ok()) else {
        note!("fairmesh: neither --job nor SLURM_JOB_ID names a job");
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
            note!("fairmesh: {why}; job {} runs unasked", starting.job);
            return Ok(Exit::Success);
        }
        (Said::Nothing(why), OnSilence::Refuse) => why,
        (Said::Refused(why), _) => {
            if let Some((_, call)) = &described
                && let Err(why) = exempt(&control, call, starting.job).await
            {
                note!("fairmesh: {why}");
            }
            why
        }
    };
    note!("fairmesh: job {}: {why}", starting.job);
    let comment = described.map_or_else(String::new, |(job, _)| job.comment);
    put_back(&starting, &place.pair.scheduler, &comment, &why).await;
    Ok(Exit::Failure)
}

/// Tells the node that a run, which ends now, costs its quota nothing. The error is the line for Slurm's log.
async fn exempt(control: &Control, call: &Value, job: u64) -> Result<(), String> {
    match hold(control, &exempted(call.clone()), LIMIT_BY).await {
        Said::Runs => Ok(()),
        Said::Refused(why) | Said::Nothing(why) => Err(format!(
            "job {job} does not run, and the node does not know that its quota is to be charged nothing for this start: {why}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_configuration_with_a_mistake_lets_no_job_run_that_was_to_be_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("fairmesh.toml");
        std::fs::write(&config, "[slurm]\non_silence = refuse\n").expect("written");
        for (on_silence, exit) in [
            (OnSilence::Run, Exit::Success),
            (OnSilence::Refuse, Exit::Failure),
        ] {
            let args = PrologArgs {
                job: Some(17),
                on_silence,
            };
            assert_eq!(run(&args, &config).await.expect("no error"), exit);
        }
    }

    #[tokio::test]
    async fn a_node_that_is_not_told_of_a_refused_run_is_named_in_the_log_with_the_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control.sock");
        let control = Control::new(socket.clone());
        let call = serde_json::json!({});
        let silent = exempt(&control, &call, 17)
            .await
            .expect_err("nobody listens");
        assert!(
            silent.starts_with("job 17 ") && silent.contains("control.sock"),
            "{silent}"
        );
        let listener = UnixListener::bind(&socket).expect("bound");
        let refuses = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a call");
            let read = stream.read(&mut [0; 4_096]).expect("a request");
            let body = r#"{"error": "the disk is full"}"#;
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 503 Busy\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .expect("sent");
            read
        });
        let refused = exempt(&control, &call, 18)
            .await
            .expect_err("it is refused");
        assert!(refuses.join().expect("no panic") > 0);
        assert!(
            refused.starts_with("job 18 ") && refused.contains("the disk is full"),
            "{refused}"
        );
        assert_eq!(refused.lines().count(), 1);
    }
}
