//! Quotas at a Slurm: `fairmesh slurm prolog`, the program of `PrologSlurmctld`, holds what a starting job may
//! cost; the feed lets jobs go again that were put back for want of credit.
//!
//! A job is named and described as the feed does it, by the same row of `squeue`, so what is held for a run is
//! what its last record charges. A job that may not run goes back into the queue, held, with the reason behind
//! what its comment says already. The moment for which it had its nodes is not charged to its quota.
//!
//! Invariant: no job is stopped because something is broken, unless `on_silence` says so; only jobs that this put
//! back are let go, which files in the spool name: comments are the users'. Deliberately not here: the look at
//! submission, which is Lua within slurmctld (`setup/fairmesh-quota.lua`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Place;
use super::feed::instalment;
use super::queue::{self, Job, State};
use super::runner::Runner;
use super::settings::SlurmSettings;
use super::tell::now_ms;
use crate::ask::Control;
use crate::control::answer::HoldBody;
use crate::output::Exit;
use crate::quota_cmd::callout::{OnSilence, Said, UNLIMITED_S, hold};

/// What stands before the reason in the comment of a job that was put back.
const MARK: &str = "fairmesh quota: ";

/// How the name of a file ends that says that a job was put back.
const SUFFIX: &str = "put-back";

/// How a user limits a job's time.
const LIMIT_BY: &str = "sbatch --time";

/// A job that was put back waits so long for rights that others have, but may need themselves.
const WAITS_AGAIN: Duration = Duration::from_secs(60);

/// Jobs that are let go in one round, at most.
const RELEASED_MAX: usize = 1_000;

/// Hold what a starting job may cost.
#[derive(Debug, clap::Args)]
pub(super) struct PrologArgs {
    /// Slurm's number of the job [default: $SLURM_JOB_ID]
    #[arg(long)]
    job: Option<u64>,
}

/// A job that starts, as the environment of its prolog names it.
struct Starting {
    job: u64,
    /// What Slurm's commands call this job alone: an array's last task has the number of the array.
    target: String,
    /// What they call all of it that can go back into the queue at once.
    whole: String,
    cluster: Option<String>,
}

impl Starting {
    fn of(args: &PrologArgs, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.parse::<u64>().ok();
        let job = args.job.or_else(|| number("SLURM_JOB_ID"))?;
        let task = number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID"));
        let task = task.filter(|_| args.job.is_none());
        let target = task.map_or_else(
            || job.to_string(),
            |(array, task)| format!("{array}_{task}"),
        );
        let leader = number("SLURM_HET_JOB_ID").filter(|_| args.job.is_none());
        Some(Self {
            job,
            whole: leader.map_or_else(|| target.clone(), |leader| leader.to_string()),
            target,
            cluster: variable("SLURM_CLUSTER_NAME"),
        })
    }
}

/// Runs the command. 0 lets the job run; after 1 Slurm puts it back into its queue.
///
/// # Errors
/// None: what is broken is said, and the job runs, or not, as `on_silence` wants it.
pub(super) async fn prolog(args: &PrologArgs, config: &Path) -> anyhow::Result<Exit> {
    let place = match Place::load(config) {
        Ok(place) => place,
        Err(error) => {
            eprintln!("fairmesh: {error:#}; the job runs unasked");
            return Ok(Exit::Success);
        }
    };
    let Some(starting) = Starting::of(args, |name| std::env::var(name).ok()) else {
        eprintln!("fairmesh: neither --job nor SLURM_JOB_ID names a job");
        return Ok(Exit::Success);
    };
    let runner = Runner::new(&place.settings);
    let control = Control::new(place.control.clone());
    let (described, said) = match describe(&starting, &place.settings, &runner) {
        Ok((job, call)) => {
            let said = hold(&control, &call, LIMIT_BY).await;
            (Some((job, call)), said)
        }
        Err(error) => (None, Said::Nothing(format!("{error:#}"))),
    };
    let why = match (said, place.settings.on_silence) {
        (Said::Runs, _) => {
            // If it was put back before, somebody has let it go.
            let _ = fs::remove_file(file(&place.settings.spool, starting.job));
            return Ok(Exit::Success);
        }
        (Said::Nothing(why), OnSilence::Run) => {
            eprintln!("fairmesh: {why}; job {} runs unasked", starting.job);
            return Ok(Exit::Success);
        }
        (Said::Nothing(why), OnSilence::Refuse) => why,
        (Said::Refused(why), _) => {
            if let Some((_, call)) = &described {
                // The run that ends now is known and costs its quota nothing. Where this fails, it does.
                let _ = hold(&control, &exempted(call.clone()), LIMIT_BY).await;
            }
            why
        }
    };
    eprintln!("fairmesh: job {}: {why}", starting.job);
    let comment = described.map_or_else(String::new, |(job, _)| job.comment);
    let comment = format!("{}{MARK}{why}", users_part(&comment));
    tokio::task::block_in_place(|| put_back(&starting, &runner, &place.settings.spool, &comment));
    Ok(Exit::Failure)
}

fn describe(
    starting: &Starting,
    settings: &SlurmSettings,
    runner: &Runner,
) -> anyhow::Result<(Job, Value)> {
    let (id, target) = (starting.job, &starting.target);
    let job = tokio::task::block_in_place(|| queue::one(runner, id, target))?;
    let job = job.with_context(|| format!("squeue shows no job {id}"))?;
    let cluster = settings.cluster.as_ref().or(starting.cluster.as_ref());
    let cluster = cluster.map_or("slurm", String::as_str);
    let call = asking(settings, &job, cluster).context("a job without a start")?;
    Ok((job, call))
}

/// A job as the node is asked about it.
fn asking(settings: &SlurmSettings, job: &Job, cluster: &str) -> Option<Value> {
    let start = job.start.or(Some(now_ms() / 1_000));
    let job = Job {
        start,
        ..job.clone()
    };
    let record = instalment(&settings.charge_rule, &job, cluster)?;
    let mut call = serde_json::to_value(record).ok()?;
    let fields = call.as_object_mut()?;
    for gone in ["start_ms", "end_ms", "running"] {
        fields.remove(gone);
    }
    let wall_s = job.limit.unwrap_or(UNLIMITED_S).max(1);
    fields.insert("wall_s".to_owned(), json!(wall_s));
    fields.insert("importance".to_owned(), json!(job.own.importance));
    Some(call)
}

fn exempted(mut call: Value) -> Value {
    if let Some(fields) = call.as_object_mut() {
        fields.insert("exempt".to_owned(), json!(true));
    }
    call
}

/// What a comment says before our words, with what parts them.
fn users_part(comment: &str) -> String {
    let own = comment.split(MARK).next().unwrap_or_default();
    let own = own.trim_end_matches(['|', ' ']);
    match own {
        "" => String::new(),
        own => format!("{own} | "),
    }
}

/// Back into the queue, held. What is no batch job cannot go back: Slurm ends it, and it is told why.
fn put_back(starting: &Starting, runner: &Runner, spool: &Path, comment: &str) {
    let (of_job, whole) = (format!("JobId={}", starting.target), &starting.whole);
    // Without it nobody lets the job go again but an administrator.
    if let Err(error) = fs::write(file(spool, starting.job), comment) {
        eprintln!("fairmesh: cannot write into {}: {error}", spool.display());
    }
    let comment = format!("Comment={comment}");
    let said = [
        runner.ask("scontrol", &["update", &of_job, &comment]),
        runner.ask("scontrol", &["requeuehold", whole]),
    ];
    if said.iter().any(Result::is_err) {
        for error in said.into_iter().filter_map(Result::err) {
            eprintln!("fairmesh: {error}");
        }
        // It may be a shell that somebody waits for.
        let _ = runner.ask("scontrol", &["notify", whole, &comment]);
    }
}

fn file(spool: &Path, job: u64) -> PathBuf {
    spool.join(format!("{job}.{SUFFIX}"))
}

/// For how long a job has been put back.
fn age(spool: &Path, job: u64) -> Duration {
    let since = fs::metadata(file(spool, job)).and_then(|file| file.modified());
    let age = since.ok().and_then(|since| since.elapsed().ok());
    age.unwrap_or(Duration::MAX)
}

/// Lets jobs go that were put back, as far as the node would hold for them now; how many. Of one user and account
/// those that are no smaller than one that is refused are not asked for.
pub(super) fn release(
    runner: &Runner,
    settings: &SlurmSettings,
    jobs: &[Job],
    cluster: &str,
    mut check: impl FnMut(Value) -> anyhow::Result<HoldBody>,
) -> anyhow::Result<usize> {
    let mut ahead: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    let mut refused: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    let mut released = 0;
    for job in put_back_jobs(&settings.spool, jobs)? {
        let whose = (job.user.as_str(), job.account.as_deref());
        let size = u64::from(job.cpus).saturating_mul(job.limit.unwrap_or(UNLIMITED_S));
        if refused.get(&whose).is_some_and(|least| size >= *least) || released == RELEASED_MAX {
            continue;
        }
        let Some(mut call) = asking(settings, job, cluster) else {
            continue;
        };
        let before = ahead.get(&whose).copied().unwrap_or(0);
        call["ahead_core_ms"] = json!(before);
        let said = check(call)?;
        let could_come = || said.verdict == "waiting" && age(&settings.spool, job.id) > WAITS_AGAIN;
        if !said.runs && !could_come() {
            refused.insert(whose, size);
            continue;
        }
        let needs = said.needs_core_ms.and_then(|needs| needs.parse().ok());
        ahead.insert(whose, before.saturating_add(needs.unwrap_or(0)));
        let own = users_part(&job.comment);
        let comment = format!("Comment={}", own.trim_end_matches(" | "));
        // A component of a heterogeneous job has a number of its own, which an array's last task has not.
        let target = match job.target.contains('+') {
            true => job.id.to_string(),
            false => job.target.clone(),
        };
        let of_job = format!("JobId={target}");
        // Slurm lets nothing that was put back start for two minutes.
        let update = ["update", &of_job, &comment, "StartTime=now"];
        runner.ask("scontrol", &update)?;
        // First the file, so that a hold that somebody else sets behind this is his.
        fs::remove_file(file(&settings.spool, job.id))?;
        runner.ask("scontrol", &["release", &target])?;
        released += 1;
    }
    Ok(released)
}

/// Jobs that were put back and are held, in the order of their numbers. Files of jobs that are gone, or that
/// somebody else has let go, are removed.
fn put_back_jobs<'a>(spool: &Path, jobs: &'a [Job]) -> anyhow::Result<Vec<&'a Job>> {
    let mut numbers: Vec<u64> = Vec::new();
    let entries =
        fs::read_dir(spool).with_context(|| format!("cannot read {}", spool.display()))?;
    for entry in entries {
        let path = entry?.path();
        let number: Option<u64> = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        let ours = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        numbers.extend(number.filter(|_| ours));
    }
    numbers.sort_unstable();
    let by_id: BTreeMap<u64, &Job> = jobs.iter().map(|job| (job.id, job)).collect();
    let mut found = Vec::new();
    for number in numbers {
        match by_id.get(&number) {
            Some(job) if job.state == State::Pending && job.held => found.push(*job),
            // Its prolog may be about to put it back, or has while the queue was read.
            Some(job) if !matches!(job.state, State::Pending | State::Ended) => {}
            _ if age(spool, number) < WAITS_AGAIN => {}
            _ => fs::remove_file(file(spool, number))?,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starting(variables: &[(&str, &str)]) -> Option<(String, String)> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(is, _)| *is == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let starting = Starting::of(&PrologArgs { job: None }, variable)?;
        Some((starting.target, starting.whole))
    }

    #[test]
    fn a_task_is_not_its_array_and_a_component_goes_back_with_all() {
        let id = ("SLURM_JOB_ID", "13");
        let is = |one: &str, whole: &str| Some((one.to_owned(), whole.to_owned()));
        assert_eq!(starting(&[id]), is("13", "13"));
        let task = [
            id,
            ("SLURM_ARRAY_JOB_ID", "13"),
            ("SLURM_ARRAY_TASK_ID", "3"),
        ];
        assert_eq!(starting(&task), is("13_3", "13_3"));
        assert_eq!(starting(&[id, ("SLURM_HET_JOB_ID", "12")]), is("13", "12"));
        assert_eq!(starting(&[]), None);
    }

    #[test]
    fn what_its_user_said_of_a_job_stays() {
        for (comment, own) in [
            ("", ""),
            ("fairmesh:importance=150", "fairmesh:importance=150 | "),
            ("a b | fairmesh quota: x: 0.0", "a b | "),
            ("fairmesh quota: x: 0.0", ""),
        ] {
            assert_eq!(users_part(comment), own, "{comment}");
        }
    }
}
