//! Quotas at a Slurm: how a starting job is described to the node (`fairmesh slurm prolog`, the program of
//! `PrologSlurmctld`, holds what it may cost), how it is put back for want of credit, and how the feed lets it go again.
//!
//! A job is named and described as the feed does it, by the same row of `squeue`, so what is held for a run is
//! what its last record charges. A job that may not run goes back into the queue, held, with the reason behind
//! what its comment says already. The moment for which it had its nodes is not charged to its quota.
//!
//! Invariant: no job is stopped because something is broken, unless `on_silence` says so; only jobs that this put
//! back are let go, which files in the spool name until Slurm has let them go: comments are the users'. Deliberately
//! not here: the look at submission, which is Lua within slurmctld (`setup/fairmesh-quota.lua`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_api::client::Control;
use fairmesh_model::record::RUN_MAX;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Slurm, queue};
use crate::job::{Job, State};
use crate::now_ms;

/// What stands before the reason in the comment of a job that was put back.
const MARK: &str = "fairmesh quota: ";

/// How the name of a file ends that says that a job was put back.
const SUFFIX: &str = "put-back";

/// How it ends while the job is let go: Slurm may not have heard of it.
const RELEASING: &str = "releasing";

/// What stands for "without a limit", in seconds: a year, which is to be more than anybody's credit.
pub const UNLIMITED_S: u64 = 366 * 86_400;

/// For how long the node is asked, in seconds, of a job that may run for `limit_s`: it hears of no longer run than of ten
/// years.
pub fn wall_s(limit_s: Option<u64>) -> u64 {
    limit_s.unwrap_or(UNLIMITED_S).clamp(1, RUN_MAX.0 / 1_000)
}

/// A job that was put back waits so long for rights that others have, but may need themselves.
const WAITS_AGAIN: Duration = Duration::from_secs(60);

/// Jobs that are let go in one round, at most.
const RELEASED_MAX: usize = 1_000;

/// For how long a round goes on that could not let a job go: Slurm is away if others fail, too, and may take long to say so.
const TROUBLE_MAX: Duration = Duration::from_secs(10);

/// What the node says of a job that is asked for.
#[derive(Deserialize)]
struct Checked {
    verdict: String,
    runs: bool,
    needs_core_ms: Option<String>,
}

/// A job that starts, as the environment of its prolog names it.
#[derive(Debug)]
pub struct Starting {
    /// Slurm's number of it.
    pub job: u64,
    /// What Slurm's commands call this job alone: an array's last task has the number of the array.
    target: String,
    /// What they call all of it that can go back into the queue at once.
    whole: String,
    cluster: Option<String>,
}

impl Starting {
    /// The job of this number, or else of the environment; none where neither names one.
    pub fn of(given: Option<u64>, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.parse::<u64>().ok();
        let job = given.or_else(|| number("SLURM_JOB_ID"))?;
        let task = number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID"));
        let task = task.filter(|_| given.is_none());
        let target = task.map_or_else(
            || job.to_string(),
            |(array, task)| format!("{array}_{task}"),
        );
        let leader = number("SLURM_HET_JOB_ID").filter(|_| given.is_none());
        Some(Self {
            job,
            whole: leader.map_or_else(|| target.clone(), |leader| leader.to_string()),
            target,
            cluster: variable("SLURM_CLUSTER_NAME"),
        })
    }
}

/// Asks Slurm about a job that starts: the job, and how the node is asked about it.
///
/// # Errors
/// If Slurm is away, or does not know the job.
pub async fn describe(starting: &Starting, slurm: &Slurm) -> anyhow::Result<(Job, Value)> {
    let (id, target) = (starting.job, &starting.target);
    let job = queue::one(&slurm.commands, id, target).await?;
    let job = job.with_context(|| format!("squeue shows no job {id}"))?;
    let cluster = slurm.settings.common.cluster.as_ref();
    let cluster = cluster.or(starting.cluster.as_ref());
    let cluster = cluster.map_or("slurm", String::as_str);
    let call = asking(slurm, &job, cluster).context("a job without a start")?;
    Ok((job, call))
}

/// Forgets that a job was put back, which somebody has let go.
pub fn forget(starting: &Starting, slurm: &Slurm) {
    for suffix in [SUFFIX, RELEASING] {
        let _ = fs::remove_file(file(&slurm.settings.spool, starting.job, suffix));
    }
}

/// A job as the node is asked about it.
fn asking(slurm: &Slurm, job: &Job, cluster: &str) -> Option<Value> {
    let start = job.start.or(Some(now_ms() / 1_000));
    let job = Job {
        start,
        ..job.clone()
    };
    let record = job.instalment(&slurm.settings.common.charge_rule, cluster)?;
    let mut call = serde_json::to_value(record).ok()?;
    let fields = call.as_object_mut()?;
    for gone in ["start_ms", "end_ms", "running"] {
        fields.remove(gone);
    }
    fields.insert("wall_s".to_owned(), json!(wall_s(job.limit)));
    fields.insert("importance".to_owned(), json!(job.own.importance));
    Some(call)
}

/// The same call for a run that ends now, is known, and costs its quota nothing.
pub fn exempted(mut call: Value) -> Value {
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

/// Back into the queue, held, with the reason behind what its user's comment says. What is no batch job cannot go
/// back: Slurm ends it, and it is told why.
pub async fn put_back(starting: &Starting, slurm: &Slurm, users_comment: &str, why: &str) {
    let comment = format!("{}{MARK}{why}", users_part(users_comment));
    let (of_job, whole) = (format!("JobId={}", starting.target), &starting.whole);
    let spool = &slurm.settings.spool;
    forget(starting, slurm);
    // Without it nobody lets the job go again but an administrator.
    if let Err(error) = fs::write(file(spool, starting.job, SUFFIX), &comment) {
        let folder = spool.display();
        let _ = writeln!(
            io::stderr(),
            "fairmesh: cannot write into {folder}: {error}"
        );
    }
    let comment = format!("Comment={comment}");
    let commands = &slurm.commands;
    let update = ["update", &of_job, &comment];
    let said = [
        commands.ask("scontrol", &update).await,
        commands.ask("scontrol", &["requeuehold", whole]).await,
    ];
    if said.iter().any(Result::is_err) {
        for error in said.into_iter().filter_map(Result::err) {
            let _ = writeln!(io::stderr(), "fairmesh: {error}");
        }
        // It may be a shell that somebody waits for.
        let notify = ["notify", whole, &comment];
        let _ = commands.ask("scontrol", &notify).await;
    }
}

fn file(spool: &Path, job: u64, suffix: &str) -> PathBuf {
    spool.join(format!("{job}.{suffix}"))
}

/// Removes a file, unless its job has started meanwhile and its prolog has.
fn remove(spool: &Path, job: u64, suffix: &str) -> anyhow::Result<()> {
    let file = file(spool, job, suffix);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// For how long a job has been put back.
fn age(spool: &Path, job: u64) -> Duration {
    let since = fs::metadata(file(spool, job, SUFFIX)).and_then(|file| file.modified());
    let age = since.ok().and_then(|since| since.elapsed().ok());
    age.unwrap_or(Duration::MAX)
}

/// Lets jobs go that were put back, as far as the node would hold for them now; how many. Of one user and account
/// those that are no smaller than one that is refused are not asked for.
///
/// # Errors
/// If the node is away, or Slurm did not let one of them go: the others were tried all the same.
pub(super) async fn release(
    slurm: &Slurm,
    jobs: &[Job],
    cluster: &str,
    node: &Control,
) -> anyhow::Result<usize> {
    let spool = &slurm.settings.spool;
    let mut ahead: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    let mut refused: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    let (mut released, began, mut trouble) = (0, Instant::now(), None);
    for job in put_back_jobs(spool, jobs, RELEASING)? {
        released += went(let_go(slurm, job).await, began, &mut trouble)?;
    }
    for job in put_back_jobs(spool, jobs, SUFFIX)? {
        let whose = (job.user.as_str(), job.account.as_deref());
        let size = u64::from(job.cpus).saturating_mul(job.limit.unwrap_or(UNLIMITED_S));
        if refused.get(&whose).is_some_and(|least| size >= *least) || released == RELEASED_MAX {
            continue;
        }
        let Some(mut call) = asking(slurm, job, cluster) else {
            continue;
        };
        let before = ahead.get(&whose).copied().unwrap_or(0);
        call["ahead_core_ms"] = json!(before);
        let call = serde_json::to_vec(&call)?;
        let said: Checked = match node.post("/v1/quota/check", call).await {
            // What makes no sense says nothing of what others of its user need.
            Err(error) if error.fault_of_call().is_some() => continue,
            said => said?,
        };
        let could_come = || said.verdict == "waiting" && age(spool, job.id) > WAITS_AGAIN;
        if !said.runs && !could_come() {
            refused.insert(whose, size);
            continue;
        }
        let needs = said.needs_core_ms.and_then(|needs| needs.parse().ok());
        ahead.insert(whose, before.saturating_add(needs.unwrap_or(0)));
        released += went(set_off(slurm, job).await, began, &mut trouble)?;
    }
    trouble.map_or(Ok(released), Err)
}

/// How many jobs went. What went wrong with one is kept, as it is not in the way of the others.
fn went(
    done: anyhow::Result<()>,
    began: Instant,
    trouble: &mut Option<anyhow::Error>,
) -> anyhow::Result<usize> {
    let Err(error) = done else { return Ok(1) };
    if began.elapsed() > TROUBLE_MAX {
        return Err(error);
    }
    trouble.get_or_insert(error);
    Ok(0)
}

/// Takes our words out of a job's comment, and lets it go.
async fn set_off(slurm: &Slurm, job: &Job) -> anyhow::Result<()> {
    let own = users_part(&job.comment);
    let comment = format!("Comment={}", own.trim_end_matches(" | "));
    let of_job = format!("JobId={}", target_of(job));
    // Slurm lets nothing that was put back start for two minutes.
    let update = ["update", &of_job, &comment, "StartTime=now"];
    slurm.commands.ask("scontrol", &update).await?;
    // First the file, so that a hold that somebody else sets behind this is his.
    let spool = &slurm.settings.spool;
    fs::rename(file(spool, job.id, SUFFIX), file(spool, job.id, RELEASING))?;
    let_go(slurm, job).await
}

/// Lets a job go whose file says that it is about to. What fails or is killed here the next round does again.
async fn let_go(slurm: &Slurm, job: &Job) -> anyhow::Result<()> {
    let release = ["release", &target_of(job)];
    slurm.commands.ask("scontrol", &release).await?;
    remove(&slurm.settings.spool, job.id, RELEASING)
}

/// A component of a heterogeneous job has a number of its own, which an array's last task has not.
fn target_of(job: &Job) -> String {
    match job.target.contains('+') {
        true => job.id.to_string(),
        false => job.target.clone(),
    }
}

/// Jobs that have such a file and are held, in the order of their numbers. Files of jobs that are gone, or that
/// somebody else has let go, are removed.
fn put_back_jobs<'a>(spool: &Path, jobs: &'a [Job], suffix: &str) -> anyhow::Result<Vec<&'a Job>> {
    let mut numbers: Vec<u64> = Vec::new();
    let entries =
        fs::read_dir(spool).with_context(|| format!("cannot read {}", spool.display()))?;
    for entry in entries {
        let path = entry?.path();
        let number: Option<u64> = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        let ours = path.extension().is_some_and(|is| is == suffix);
        numbers.extend(number.filter(|_| ours));
    }
    numbers.sort_unstable();
    let is_waiting = suffix == SUFFIX;
    let by_id: BTreeMap<u64, &Job> = jobs.iter().map(|job| (job.id, job)).collect();
    let mut found = Vec::new();
    for number in numbers {
        match by_id.get(&number) {
            Some(job) if job.state == State::Pending && job.held => found.push(*job),
            // Its prolog may be about to put it back, or has while the queue was read.
            Some(job) if is_waiting && !matches!(job.state, State::Pending | State::Ended) => {}
            _ if is_waiting && age(spool, number) < WAITS_AGAIN => {}
            _ => remove(spool, number, suffix)?,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::slurm::SlurmSettings;

    /// A node that says that any job may run, but for those of no nodes at all, which make no sense.
    fn consents(folder: &Path) -> anyhow::Result<Control> {
        let socket = folder.join("control.sock");
        let listener = UnixListener::bind(&socket)?;
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut asked = Vec::new();
                while !asked.ends_with(b"}") {
                    let mut some = [0; 65_536];
                    let length = stream.read(&mut some).unwrap_or(0);
                    asked.extend_from_slice(&some[..length]);
                }
                let has_nodes = String::from_utf8_lossy(&asked).contains("\"nodes\":");
                let (status, words) = match has_nodes {
                    true => (
                        "200 OK",
                        r#"{"verdict":"held","runs":true,"needs_core_ms":"1"}"#,
                    ),
                    false => ("400 Bad Request", r#"{"error":"no call"}"#),
                };
                let length = words.len();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all((head + words).as_bytes());
            }
        });
        Ok(Control::new(socket))
    }

    /// A Slurm whose `scontrol` notes what it is told and does this, and which has put this job back.
    fn putting_back(folder: &Path, script: &str, job: u64) -> anyhow::Result<Slurm> {
        let (program, notes) = (folder.join("scontrol"), r#"echo "$1 $2" >> ${0%/*}/said"#);
        fs::write(&program, format!("#!/bin/sh\n{notes}\n{script}\n"))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let mut settings = SlurmSettings::defaults(folder);
        settings.common.bin_dir = Some(folder.to_owned());
        settings.spool = folder.join("spool");
        fs::create_dir(&settings.spool)?;
        fs::write(file(&settings.spool, job, SUFFIX), "")?;
        Ok(Slurm::new(settings))
    }

    fn held(id: u64) -> Job {
        Job {
            state: State::Pending,
            held: true,
            word: None,
            ..crate::ended::tests::in_queue(id)
        }
    }

    #[tokio::test]
    async fn a_job_whose_release_failed_is_let_go_by_the_next_round() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let script = "[ $1 = release ] || exit 0\n\
            [ -e ${0%/*}/well ] || { touch ${0%/*}/well; echo 'Unable to contact slurm controller' >&2; exit 1; }";
        let (slurm, node) = (putting_back(folder, script, 7)?, consents(folder)?);
        let mut jobs = vec![held(7)];
        let error = release(&slurm, &jobs, "alpha", &node)
            .await
            .expect_err("away");
        assert!(error.to_string().contains("Unable to contact"), "{error:#}");
        assert_eq!(release(&slurm, &jobs, "alpha", &node).await?, 1);
        let said = fs::read_to_string(folder.join("said"))?;
        assert_eq!(said, "update JobId=7\nrelease 7\nrelease 7\n");
        // It is held again, by somebody else.
        assert_eq!(release(&slurm, &jobs, "alpha", &node).await?, 0);
        fs::write(file(&slurm.settings.spool, 7, RELEASING), "")?;
        jobs[0].held = false;
        assert_eq!(release(&slurm, &jobs, "alpha", &node).await?, 0);
        assert_eq!(fs::read_dir(&slurm.settings.spool)?.count(), 0);
        Ok(())
    }

    #[tokio::test]
    async fn a_job_that_is_refused_or_does_not_go_is_not_in_the_way_of_others() -> anyhow::Result<()>
    {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let script = "case $2 in 9|JobId=8) echo 'Job is no more' >&2; exit 1;; esac";
        let (slurm, node) = (putting_back(folder, script, 7)?, consents(folder)?);
        for (job, suffix) in [(8, SUFFIX), (9, RELEASING), (10, RELEASING), (11, SUFFIX)] {
            fs::write(file(&slurm.settings.spool, job, suffix), "")?;
        }
        let without_sense = Job {
            nodes: 0,
            ..held(7)
        };
        let jobs = [without_sense, held(8), held(9), held(10), held(11)];
        let error = release(&slurm, &jobs, "alpha", &node)
            .await
            .expect_err("two did not go");
        assert!(error.to_string().contains("no more"), "{error:#}");
        let said = fs::read_to_string(folder.join("said"))?;
        assert_eq!(
            said,
            "release 9\nrelease 10\nupdate JobId=8\nupdate JobId=11\nrelease 11\n"
        );
        let left = fs::read_dir(&slurm.settings.spool)?.count();
        assert_eq!(left, 3, "of 7, 8 and 9");
        Ok(())
    }

    fn starting(variables: &[(&str, &str)]) -> Option<(String, String)> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(is, _)| *is == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let starting = Starting::of(None, variable)?;
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
