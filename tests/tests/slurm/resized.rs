//! A job that its user shrinks while it runs is charged part by part, for what each held, whichever source of Slurm says
//! so; and a job whose name breaks its line in a job completion file is charged all the same.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::configure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

/// Two nodes of four cores, with a node of ours beside them; none where the machine has no Slurm.
fn start(
    folder: &Path,
    accounts: Accounts<'_>,
    more: &str,
) -> anyhow::Result<Option<(Slurm, Node)>> {
    let kind = Kind {
        name: "alpha",
        cpus: 8,
        nodes: 2,
        accounts,
        conf: "",
        plugins: None,
    };
    let Some(slurm) = Slurm::start(&folder.join("slurm"), kind)? else {
        return Ok(None);
    };
    if accounts == Accounts::Slurmdbd {
        slurm.run("sacctmgr", &["-i", "add", "account", "xavier"])?;
        slurm.run("sacctmgr", &["-i", "add", "user", "root", "account=xavier"])?;
    }
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["xavier", "yvonne"])?;
    configure(&site, "a", &[], &vo, &slurm, more)?;
    let node = site.start()?;
    vo.publish(&node)?;
    Ok(Some((slurm, node)))
}

/// What `scontrol` says of a job's times, in seconds since 1970.
fn time(slurm: &Slurm, job: &str, name: &str) -> anyhow::Result<u64> {
    let shown = slurm.run("scontrol", &["show", "job", job])?;
    let words = shown.split_whitespace();
    let mut found = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(found
        .next()
        .with_context(|| format!("no {name} in {shown}"))?
        .parse()?)
}

/// xavier's job gives one of its two nodes back, and both parts are counted and logged for what they held.
fn is_charged_part_by_part(slurm: &Slurm, node: &Node) -> anyhow::Result<()> {
    let job = slurm.submit("xavier", 8, Duration::from_secs(9), &["-N", "2"])?;
    await_that("a job that has run for three seconds", || {
        Ok(slurm.started()?.iter().any(|job| job.used >= 3))
    })?;
    // Slurm refuses while it waits for its database.
    await_that("a change of size", || {
        Ok(slurm
            .run(
                "scontrol",
                &["update", &format!("JobId={job}"), "NumNodes=1"],
            )
            .is_ok())
    })?;
    slurm.await_idle()?;
    let [start, changed, end] =
        ["StartTime", "ResizeTime", "EndTime"].map(|name| time(slurm, &job, name));
    let (start, changed, end) = (start?, changed?, end?);
    let used = (changed - start) * 8 + (end - changed) * 4;
    ensure!(changed > start && end > changed, "{start} {changed} {end}");
    node.await_usage("physics", "xavier", used * 1_000)?;
    let hours = (used * 10_000 + 1_800) / 3_600;
    let hours = format!("{}.{:04}", hours / 10_000, hours % 10_000);
    await_that("both parts in the log", || {
        let sums = node
            .http("GET", "/v1/accounting?totals=true&account=xavier", b"")?
            .body;
        ensure!(
            sums["totals"]["cpu_hours"] == hours.as_str(),
            "{sums}, not {hours}"
        );
        Ok(sums["totals"]["jobs"] == 2)
    })?;
    // It stays at that, however often the queue and the source say it again.
    node.await_usage("physics", "xavier", used * 1_000)
}

#[test]
fn a_resized_job_is_charged_by_slurmdbd_part_by_part() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    match start(folder.path(), Accounts::Slurmdbd, "")? {
        Some((slurm, node)) => is_charged_part_by_part(&slurm, &node),
        None => Ok(()),
    }
}

#[test]
fn a_resized_job_is_charged_by_the_file_of_jobcomp_part_by_part() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some((slurm, node)) = start(folder.path(), Accounts::Filetxt, "")? else {
        return Ok(());
    };
    is_charged_part_by_part(&slurm, &node)?;
    // What stands behind the line end is no key of Slurm's, and what stands before it is half a line.
    let second = Duration::from_secs(1);
    slurm.submit("yvonne", 2, second, &["-J", "x\nJobState=COMPLETED y"])?;
    await_that("a short job", || Ok(slurm.started()?.len() == 2))?;
    slurm.await_idle()?;
    let jobs = slurm.started()?;
    let hers = jobs.iter().filter(|job| job.account == "yvonne");
    let used: u64 = hers.map(|job| job.charge()).sum();
    ensure!(used > 0, "{jobs:?}");
    node.await_usage("physics", "yvonne", used * 1_000)
}

#[test]
fn a_resized_job_is_charged_by_the_hook_part_by_part() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (hook, spool) = (folder.path().join("hook"), folder.path().join("spool"));
    std::fs::create_dir(&spool)?;
    let spool = spool.display();
    std::fs::write(
        &hook,
        format!("#!/bin/sh\nexec {PROGRAM} slurm hook --spool {spool}\n"),
    )?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    let more = format!("spool = \"{spool}\"\n");
    match start(folder.path(), Accounts::Script(&hook), &more)? {
        Some((slurm, node)) => is_charged_part_by_part(&slurm, &node),
        None => Ok(()),
    }
}
