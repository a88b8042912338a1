//! Fairshare of the Grid as Slurm's own order of starts: xavier was busy at A, and at B yvonne is
//! served first, until both have had as much of the Grid.
//!
//! Jobs at B take all of B, so they start one behind the other. When one ends, the next one starts at
//! once, by what B knew just before. So a job is long in proportion to the second or two that usage
//! takes to become a priority; and A's usage is made two and a half jobs of B, so that "even" is half a
//! job this way or that, and not a coin that every rounded second turns.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::slurm::{Started, await_that};
use crate::twins::Twins;

/// Cores of A, and of a job there.
pub const CORES_A: u32 = 8;

/// Cores of B, and of a job there.
pub const CORES_B: u32 = 2;

/// For so long what a job has used is no priority yet: by then the next one may have started.
const LATE: Duration = Duration::from_secs(2);

/// How long xavier's job at A sleeps.
const BUSY: Duration = Duration::from_secs(6);

/// xavier is busy at A alone. Gives his core-seconds there once A's node has counted them, and how
/// long a job at B has to sleep of which he has had two and a half.
pub fn xavier_is_busy_at_a(twins: &Twins) -> anyhow::Result<(u64, Duration)> {
    let a = &twins.a;
    a.slurm.submit("xavier", CORES_A, BUSY, &[])?;
    a.slurm.await_idle()?;
    let used: u64 = a.slurm.started()?.iter().map(Started::charge).sum();
    a.node()?.await_usage("physics", "xavier", used * 1_000)?;
    // What Slurm takes to start and end a job is charged, too, and B's jobs have it once each.
    let beside = Duration::from_secs(used / u64::from(CORES_A)).saturating_sub(BUSY);
    let one = Duration::from_secs(used) * 2 / (5 * CORES_B);
    Ok((used, one.saturating_sub(beside)))
}

/// Queues as many equal jobs of each at B, in turn, while nothing may start, and waits until all have
/// a priority.
pub fn queue_at_b(twins: &Twins, each: u32, time: Duration) -> anyhow::Result<()> {
    let slurm = &twins.b.slurm;
    slurm.open(false)?;
    for _ in 0..each {
        slurm.submit("xavier", CORES_B, time, &[])?;
        slurm.submit("yvonne", CORES_B, time, &[])?;
    }
    let all = usize::try_from(each * 2)?;
    await_that("site factors", || {
        let priorities = slurm.priorities()?;
        let set = priorities.iter().filter(|(_, priority)| *priority > 1);
        Ok(set.count() == all)
    })
}

/// The mesh is cut: B knows nothing of A, and serves both in turn. Gives the last job's number, and
/// the core-seconds by which xavier is ahead at B.
pub fn both_are_served_alike(twins: &Twins, time: Duration) -> anyhow::Result<(u64, i64)> {
    queue_at_b(twins, 2, time)?;
    twins.b.slurm.open(true)?;
    let jobs = ended_at_b(twins, 0, 4)?;
    let mut ahead = 0_i64;
    for job in &jobs {
        ahead += if job.account == "xavier" { 1 } else { -1 };
        ensure!(
            ahead.abs() <= 1,
            "not in turn while the mesh was cut: {jobs:?}"
        );
    }
    let last = jobs.iter().map(|job| job.id).max().unwrap_or(0);
    Ok((last, leads(&jobs, 0)[jobs.len()]))
}

/// yvonne's jobs start while she is behind by more than a job; from then on both stay even within one, and what B did not
/// know yet: whoever is behind by less than that by what it knew may be ahead, and is served once more.
/// `at_first` is by how many core-seconds she is behind before the jobs after `after`.
pub fn yvonne_catches_up(twins: &Twins, after: u64, at_first: i64) -> anyhow::Result<()> {
    let slurm = &twins.b.slurm;
    // Before B knows of A she may be before him, too, for the last of his jobs was counted and not yet of hers.
    let mut before = slurm.started()?;
    before.retain(|job| job.id <= after && job.account == "yvonne");
    let hers: u64 = before.iter().map(Started::charge).sum();
    let his = hers.saturating_add_signed(at_first);
    for (user, used) in [("xavier", his), ("yvonne", hers)] {
        twins.b.node()?.await_usage("physics", user, used * 1_000)?;
    }
    await_that("yvonne before xavier", || {
        let priorities = slurm.priorities()?;
        let of = |account: &str| {
            let rows = priorities.iter().filter(move |(who, _)| who == account);
            rows.map(|(_, priority)| *priority).collect::<Vec<_>>()
        };
        let (xavier, yvonne) = (of("xavier"), of("yvonne"));
        Ok(yvonne.iter().min() > xavier.iter().max() && !xavier.is_empty())
    })
    .with_context(|| {
        let log = std::fs::read_to_string(twins.b.site.folder().join("log"));
        format!("{:?}, {}", slurm.priorities(), log.unwrap_or_default())
    })?;
    explained(twins)?;
    slurm.open(true)?;
    let jobs = ended_at_b(twins, after, 6)?;
    let one = jobs.iter().map(Started::charge).max().unwrap_or(0);
    let one = i64::try_from(one)?;
    let leads = leads(&jobs, at_first);
    ensure!(2 * at_first > 3 * one, "xavier was hardly ahead: {leads:?}");
    for (job, lead) in jobs.iter().zip(&leads) {
        ensure!(
            *lead <= one || job.account == "yvonne",
            "xavier was ahead by {lead} core-seconds and was served: {jobs:?}"
        );
    }
    let even = leads.iter().position(|lead| lead.abs() <= one);
    let even = even.with_context(|| format!("never even: {leads:?}"))?;
    let unknown = i64::try_from(LATE.as_secs())? * i64::from(CORES_B);
    ensure!(
        leads[even..].iter().all(|lead| lead.abs() <= one + unknown),
        "even within a job of {one} core-seconds, and then apart: {leads:?}, {jobs:?}"
    );
    ensure!(leads.len() > even + 3, "nothing came after: {leads:?}");
    println!("core-seconds by which xavier is ahead, job by job: {leads:?}; one job: {one}");
    Ok(())
}

/// A job of xavier's that waits is explained in words.
fn explained(twins: &Twins) -> anyhow::Result<()> {
    let b = &twins.b;
    let waiting = ["-h", "-t", "PENDING", "-A", "xavier", "-o", "%i"];
    let jobs = b.slurm.run("squeue", &waiting)?;
    let job = jobs.lines().next().context("a job that waits")?;
    let output = std::process::Command::new(b.site.program())
        .args(["explain", "--job", job, "--config"])
        .arg(b.site.config())
        .output()?;
    let words = String::from_utf8_lossy(&output.stdout);
    let expected = [
        &format!("In Slurm, job {job} of root (account xavier) waits in main"),
        "It cannot start now, whatever its priority",
        "/physics/xavier: should have 50",
        "above its target, so it waits",
        "  a: ",
    ];
    for part in expected {
        ensure!(words.contains(part), "no `{part}`: {words}{output:?}");
    }
    let output = std::process::Command::new(b.site.program())
        .args(["explain", "/physics/xavier", "--vs", "/physics/yvonne"])
        .arg("--socket")
        .arg(b.site.socket()?)
        .output()?;
    let against = String::from_utf8_lossy(&output.stdout);
    let first = "/physics/yvonne is served first.";
    ensure!(against.contains(first), "{against}{output:?}");
    println!("{words}");
    Ok(())
}

/// Waits until `count` jobs have ended at B since `after`, and gives them in the order of their starts.
fn ended_at_b(twins: &Twins, after: u64, count: usize) -> anyhow::Result<Vec<Started>> {
    let mut jobs = Vec::new();
    await_that("jobs that end", || {
        jobs = twins.b.slurm.started()?;
        jobs.retain(|job| job.id > after && job.ended);
        Ok(jobs.len() >= count)
    })?;
    Ok(jobs)
}

/// Core-seconds by which xavier is ahead of yvonne, before each job and after the last.
fn leads(jobs: &[Started], at_first: i64) -> Vec<i64> {
    let mut leads = vec![at_first];
    let mut lead = at_first;
    for job in jobs {
        let charge = i64::try_from(job.charge()).unwrap_or(i64::MAX);
        lead += if job.account == "xavier" {
            charge
        } else {
            -charge
        };
        leads.push(lead);
    }
    leads
}
