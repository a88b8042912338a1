//! Fairmesh is real when an unchanged Slurm schedules by it: real slurmctlds with a node each, one VO,
//! and no server between them.
//!
//! Jobs belong to the accounts `xavier` and `yvonne`, who have equal shares of the Grid.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::story::{
    CORES_A, CORES_B, both_are_served_alike, queue_at_b, xavier_is_busy_at_a, yvonne_catches_up,
};
use fairmesh_tests::twins::{Make, Side, Twins, configure};
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;

const ACCOUNTS: [&str; 2] = ["xavier", "yvonne"];

const SECOND: Duration = Duration::from_secs(1);

/// Two clusters whose priorities the nodes set.
fn twins(accounts: Accounts<'_>) -> anyhow::Result<Option<Twins>> {
    Twins::start(Make {
        program: PROGRAM,
        accounts,
        plugin: None,
        cpus: [CORES_A, CORES_B],
        feed_apart: false,
        quota: false,
    })
}

#[test]
fn slurm_serves_whoever_used_less_of_the_grid() -> anyhow::Result<()> {
    let Some(mut twins) = twins(Accounts::Filetxt)? else {
        return Ok(());
    };
    let (at_a, one) = xavier_is_busy_at_a(&twins)?;
    let (last, ahead) = both_are_served_alike(&twins, one / 2)?;
    // Healed, it turns.
    queue_at_b(&twins, 5, one)?;
    twins.heal()?;
    yvonne_catches_up(&twins, last, ahead + i64::try_from(at_a)?)
}

#[test]
fn with_slurmdbd_it_is_the_same() -> anyhow::Result<()> {
    let Some(mut twins) = twins(Accounts::Slurmdbd)? else {
        return Ok(());
    };
    let (at_a, one) = xavier_is_busy_at_a(&twins)?;
    twins.heal()?;
    queue_at_b(&twins, 5, one)?;
    yvonne_catches_up(&twins, 0, i64::try_from(at_a)?)?;
    // Between two jobs there are none that run.
    await_that("loops that are watched", || {
        the_loops_are_watched(&twins.b).map(|()| true)
    })
}

/// The node's metrics hold those of its loops.
fn the_loops_are_watched(side: &Side) -> anyhow::Result<()> {
    let text = side.node()?.http("GET", "/v1/metrics", b"")?.text;
    let value = |name: &str| -> anyhow::Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("no {name} in {text}"))?;
        Ok(value.trim().parse()?)
    };
    for above_zero in [
        "fairmesh_slurm_rounds_total{loop=\"sync\"}",
        "fairmesh_slurm_rounds_total{loop=\"feed\"}",
        "fairmesh_slurm_updates_total{outcome=\"set\"}",
        "fairmesh_slurm_jobs{state=\"waiting\"}",
        "fairmesh_slurm_records_total{outcome=\"counted\"}",
        "fairmesh_slurm_running_jobs",
    ] {
        ensure!(value(above_zero)? > 0.0, "{above_zero} is 0: {text}");
    }
    for age in [
        "fairmesh_slurm_factors_age_seconds",
        "fairmesh_slurm_cursor_lag_seconds",
    ] {
        ensure!(value(age)? < 60.0, "{age}: {text}");
    }
    Ok(())
}

/// Waits until every node's usage is what the slurmdbds of both clusters have accounted, in sum.
fn await_equal(twins: &Twins) -> anyhow::Result<()> {
    for account in ACCOUNTS {
        let (mut accounted, mut counted) = (Vec::new(), Vec::new());
        let equal = await_that("equal usage", || {
            accounted.clear();
            counted.clear();
            for side in [&twins.a, &twins.b] {
                accounted.push(side.slurm.accounted(account)?.unwrap_or(0) * 1_000);
                counted.push(side.node()?.usage("physics", account)?);
            }
            let sum = accounted.iter().sum::<u64>();
            Ok(accounted.iter().all(|of| *of > 0) && counted.iter().all(|known| *known == sum))
        });
        equal.with_context(|| format!("{account}: {accounted:?} in sacct, nodes: {counted:?}"))?;
        println!("{account}: {accounted:?} core-ms in sacct at A and B, {counted:?} at the nodes");
    }
    Ok(())
}

/// What `sacct` and the record log say of a run of a job: number, submission, start and end in seconds,
/// state, partition, quality of service, cores, and the seconds for which it held them.
type Run = [String; 9];

fn in_sacct(slurm: &Slurm) -> anyhow::Result<Vec<Run>> {
    let fields = "jobidraw,submit,start,end,state,partition,qos,alloccpus,elapsedraw";
    let arguments = ["-a", "-X", "-n", "-P", "-D", "-S", "2020-01-01"];
    let text = slurm.run("sacct", &[&arguments[..], &["-o", fields]].concat())?;
    let run = |line: &str| -> anyhow::Result<Run> {
        let words = line.split('|').map(|word| match word {
            // What never started; who cancelled it.
            "None" | "Unknown" => String::new(),
            word => word.split(' ').next().unwrap_or_default().to_owned(),
        });
        let words: Vec<String> = words.collect();
        words.try_into().map_err(|_| anyhow!("sacct said {line}"))
    };
    let mut runs = text.lines().map(run).collect::<anyhow::Result<Vec<_>>>()?;
    runs.sort();
    Ok(runs)
}

/// What the node's record log holds, every job once.
fn in_the_log(node: &Node) -> anyhow::Result<Vec<Run>> {
    let list = node.http("GET", "/v1/accounting", b"")?;
    ensure!(list.status == 200, "{list:?}");
    let records = list.body["records"].as_array().context("records")?;
    let word = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let seconds = |record: &Value, name: &str| match record[name].as_u64() {
        Some(ms) => (ms / 1_000).to_string(),
        None => String::new(),
    };
    let run = |record: &Value| {
        [
            word(record, "job"),
            seconds(record, "submit"),
            seconds(record, "start"),
            seconds(record, "end"),
            word(record, "state").to_uppercase(),
            word(record, "queue"),
            word(record, "qos"),
            record["cpus"].as_u64().unwrap_or(0).to_string(),
            seconds(record, "wall"),
        ]
    };
    let mut runs: Vec<Run> = records.iter().map(run).collect();
    runs.sort();
    Ok(runs)
}

/// Every run of a job that `sacct` lists is in the log of its node, once and as `sacct` says.
fn logs_are_what_sacct_says(twins: &Twins) -> anyhow::Result<()> {
    for side in [&twins.a, &twins.b] {
        let (mut accounted, mut logged) = (Vec::new(), Vec::new());
        // Of a job that has stood still the node knew all that it will be charged before it ended.
        let equal = await_that("a log as sacct's list", || {
            accounted = in_sacct(&side.slurm)?;
            logged = in_the_log(side.node()?)?;
            Ok(accounted == logged)
        });
        equal.with_context(|| format!("sacct: {accounted:#?}, log: {logged:#?}"))?;
        let states: BTreeSet<&str> = logged.iter().map(|run| run[4].as_str()).collect();
        println!("{} runs are logged as in sacct: {states:?}", logged.len());
    }
    Ok(())
}

/// Jobs of all kinds, some of which run for as long as nobody ends them.
struct Jobs {
    requeued: String,
    cancelled: String,
    stopped: String,
    held: String,
}

/// A job's name that would be a line of its own in a list of `sacct`'s: a job of xavier's with 64 cores.
fn forged_name() -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (submit, start, end) = (now - 400, now - 300, now - 100);
    Ok(format!(
        "x\n777|777|alpha|xavier|root|0|root|0|main|normal|COMPLETED|0:0|{submit}|{submit}|{start}|{end}|\
         200|5|1|64|64|0|cpu=64|cpu=64|n1|1|y"
    ))
}

impl Jobs {
    fn submit(slurm: &Slurm) -> anyhow::Result<Self> {
        slurm.submit("yvonne", 1, SECOND, &["--array=1-5%2"])?;
        slurm.submit("yvonne", 1, SECOND, &["-J", &forged_name()?])?;
        Ok(Self {
            requeued: slurm.submit("xavier", 2, 120 * SECOND, &["--requeue"])?,
            cancelled: slurm.submit("xavier", 2, 120 * SECOND, &[])?,
            stopped: slurm.submit("yvonne", 1, 6 * SECOND, &[])?,
            held: slurm.submit("yvonne", 1, SECOND, &["-H"])?,
        })
    }

    /// Waits until all that can run have been seen to.
    fn run(slurm: &Slurm) -> anyhow::Result<()> {
        await_that("jobs that run", || {
            let jobs = slurm.started()?;
            Ok(jobs.iter().filter(|job| job.used >= 1).count() >= 4)
        })
    }

    fn disturb(&self, slurm: &Slurm) -> anyhow::Result<()> {
        slurm.run("scontrol", &["suspend", &self.stopped])?;
        slurm.run("scontrol", &["requeue", &self.requeued])?;
        slurm.restart_slurmctld()
    }

    fn end(&self, slurm: &Slurm) -> anyhow::Result<()> {
        slurm.run("scancel", &[&self.cancelled, &self.held, &self.requeued])?;
        slurm.run("scontrol", &["resume", &self.stopped])?;
        slurm.await_idle()
    }
}

/// The feed of a side begins anew without its cursor, and has read everything once more.
fn read_all_again(side: &mut Side) -> anyhow::Result<()> {
    match side.feed.take() {
        Some(feed) => drop(feed),
        None => side.stop_node()?,
    }
    let until = |side: &Side| {
        let cursor: serde_json::Value = serde_json::from_slice(&std::fs::read(side.cursor())?)?;
        cursor["sacct_until"]
            .as_u64()
            .context("how far it has come")
    };
    let before = until(side)?;
    std::fs::remove_file(side.cursor())?;
    if side.node().is_err() {
        side.start_node()?;
    } else {
        side.start_feed()?;
    }
    await_that("a cursor as far as the old one", || {
        Ok(until(side)? >= before)
    })
}

#[test]
fn the_mesh_counts_what_both_slurms_account_to_the_core_second() -> anyhow::Result<()> {
    let made = Twins::start(Make {
        program: PROGRAM,
        accounts: Accounts::Slurmdbd,
        plugin: None,
        cpus: [8, 8],
        feed_apart: true,
        quota: false,
    })?;
    let Some(mut twins) = made else {
        return Ok(());
    };
    twins.heal()?;
    let at_a = Jobs::submit(&twins.a.slurm)?;
    let at_b = Jobs::submit(&twins.b.slurm)?;
    Jobs::run(&twins.a.slurm)?;
    Jobs::run(&twins.b.slurm)?;
    // kill -9 of A's node, and with it of its feed, and of B's feed, while jobs run and end.
    twins.a.kill_node()?;
    drop(twins.b.feed.take());
    at_a.disturb(&twins.a.slurm)?;
    at_b.disturb(&twins.b.slurm)?;
    twins.a.start_node()?;
    at_a.end(&twins.a.slurm)?;
    twins.b.start_feed()?;
    at_b.end(&twins.b.slurm)?;
    await_equal(&twins)?;
    logs_are_what_sacct_says(&twins)?;
    // Everything is reported once more, and nothing counts.
    read_all_again(&mut twins.a)?;
    read_all_again(&mut twins.b)?;
    await_equal(&twins)?;
    logs_are_what_sacct_says(&twins)?;
    // The data folder of A is lost, and in it the feed's cursor, what each job was charged, and the log. B gives the
    // counters back; the feed tells of all jobs again, which fills the log, and none of them counts once more.
    twins.a.stop_node()?;
    std::fs::remove_dir_all(twins.a.site.data())?;
    twins.a.start_node()?;
    logs_are_what_sacct_says(&twins)?;
    await_equal(&twins)?;
    twins.a.slurm.submit("xavier", 2, SECOND, &[])?;
    twins.a.slurm.await_idle()?;
    await_equal(&twins)?;
    logs_are_what_sacct_says(&twins)
}

/// One cluster of eight cores without slurmdbd.
fn alone(folder: &Path, accounts: Accounts<'_>) -> anyhow::Result<Option<Slurm>> {
    let kind = Kind {
        name: "alpha",
        cpus: 8,
        nodes: 1,
        accounts,
        conf: "",
        plugins: None,
    };
    Slurm::start(&folder.join("slurm"), kind)
}

/// Without slurmdbd: what Slurm shows of its jobs is what the node counts, and a reset leaves nothing.
fn without_slurmdbd(slurm: &Slurm, folder: &Path, more: &str) -> anyhow::Result<()> {
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &ACCOUNTS)?;
    configure(&site, "a", &[], &vo, slurm, more)?;
    let node = site.start()?;
    vo.publish(&node)?;
    slurm.submit("yvonne", 1, SECOND, &["--array=1-3%2"])?;
    let cancelled = slurm.submit("xavier", 2, 60 * SECOND, &[])?;
    let stopped = slurm.submit("yvonne", 2, 5 * SECOND, &[])?;
    await_that("jobs that run", || {
        let jobs = slurm.started()?;
        Ok(jobs.iter().filter(|job| job.used >= 1).count() >= 4)
    })?;
    slurm.run("scontrol", &["suspend", &stopped])?;
    // The last jobs end while the node is away.
    node.kill()?;
    slurm.run("scancel", &[&cancelled])?;
    await_that("a job that has stood still for two seconds", || {
        let row = slurm.run("squeue", &["-h", "-j", &stopped, "-o", "%S|%M"])?;
        let (start, used) = row.split_once("|0:").context("a start and a time")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(now >= start.parse::<u64>()? + used.parse::<u64>()? + 2)
    })?;
    slurm.run("scontrol", &["resume", &stopped])?;
    slurm.await_idle()?;
    let node = site.start()?;
    for account in ACCOUNTS {
        let jobs = slurm.started()?;
        let jobs = jobs.iter().filter(|job| job.account == account);
        let used: u64 = jobs.map(|job| job.charge()).sum();
        ensure!(used > 0, "{account} has used nothing");
        node.await_usage("physics", account, used * 1_000)?;
    }
    the_log_is_what_squeue_says(slurm, &node)?;
    reset_leaves_nothing(slurm, &site, node)
}

/// Every job that has ended is in the log, once, as the queue still shows it; so are the core-hours.
fn the_log_is_what_squeue_says(slurm: &Slurm, node: &Node) -> anyhow::Result<()> {
    let shown = slurm.run("squeue", &["-h", "-t", "all", "-o", "%A|%V|%S|%e|%T|%P|%C"])?;
    let mut shown: Vec<String> = shown.lines().map(str::to_owned).collect();
    shown.sort();
    let logged = in_the_log(node)?;
    let rows = logged.iter().map(|run| {
        let [job, submit, start, end, state, queue, _, cpus, _] = run;
        format!("{job}|{submit}|{start}|{end}|{state}|{queue}|{cpus}")
    });
    let logged: Vec<String> = rows.collect();
    ensure!(shown == logged, "squeue: {shown:#?}, log: {logged:#?}");
    let used: u64 = slurm.started()?.iter().map(|job| job.charge()).sum();
    let sums = node.http("GET", "/v1/accounting?totals=true", b"")?.body;
    let hours = used * 10_000;
    let hours = (hours + 1_800) / 3_600;
    let hours = format!("{}.{:04}", hours / 10_000, hours % 10_000);
    ensure!(
        sums["totals"]["cpu_hours"] == hours.as_str(),
        "{sums}, not {hours}"
    );
    println!(
        "{} jobs are logged as in squeue, {hours} core-hours",
        logged.len()
    );
    Ok(())
}

fn reset_leaves_nothing(slurm: &Slurm, site: &Site, node: Node) -> anyhow::Result<()> {
    slurm.open(false)?;
    let held = slurm.submit("yvonne", 1, SECOND, &["-H"])?;
    slurm.submit("xavier", 1, SECOND, &[])?;
    slurm.submit("yvonne", 1, SECOND, &["--array=1-3"])?;
    let set = |wanted: usize| {
        let priorities = slurm.priorities()?;
        let set = priorities.iter().filter(|(_, priority)| *priority > 1);
        Ok(set.count() == wanted)
    };
    await_that("site factors", || set(2))?;
    await_that("both in what an operator sees", || {
        let shown = slurm.site_factors()?;
        Ok(shown.iter().filter(|(_, factor)| *factor > 0).count() == 2)
    })
    .with_context(|| format!("{:?}", slurm.run("sprio", &["-l"])))?;
    node.kill()?;
    let output = std::process::Command::new(PROGRAM)
        .args(["slurm", "sync", "--reset", "--config"])
        .arg(site.config())
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(set(0)?, "{:?}", slurm.priorities()?);
    let reason = slurm.run("squeue", &["-h", "-j", &held, "-o", "%r"])?;
    ensure!(reason == "JobHeldUser", "the held job is {reason}");
    Ok(())
}

#[test]
fn finished_jobs_come_from_the_file_of_jobcomp() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    match alone(folder.path(), Accounts::Filetxt)? {
        Some(slurm) => without_slurmdbd(&slurm, folder.path(), ""),
        None => Ok(()),
    }
}

#[test]
fn finished_jobs_come_from_the_hook() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (hook, spool) = (folder.path().join("hook"), folder.path().join("spool"));
    std::fs::create_dir(&spool)?;
    let text = format!(
        "#!/bin/sh\nexec {PROGRAM} slurm hook --spool {}\n",
        spool.display()
    );
    std::fs::write(&hook, text)?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    let Some(slurm) = alone(folder.path(), Accounts::Script(&hook))? else {
        return Ok(());
    };
    let more = format!("spool = \"{}\"\n", spool.display());
    without_slurmdbd(&slurm, folder.path(), &more)?;
    ensure!(
        std::fs::read_dir(&spool)?.count() == 0,
        "records are left in the spool"
    );
    Ok(())
}
