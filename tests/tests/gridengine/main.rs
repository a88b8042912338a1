//! Fairmesh beside a real Grid Engine: its order of starts is the node's, and the node's usage is its accounting. It needs
//! root and Debian's packages (see `fairmesh-needs`).

mod grid;

use std::path::Path;

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::gridengine::{VERIFIER, WANTED};
use fairmesh_tests::beside::Beside;
use fairmesh_tests::gridengine::Pool;
use fairmesh_tests::slurm::await_that;

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Slots of the pool, and of a job: jobs run one behind the other.
const SLOTS: u32 = 2;

fn start(folder: &Path, pool: &Pool) -> anyhow::Result<Beside> {
    let (root, commands) = (pool.root(), pool.commands());
    let (root, commands) = (root.display(), commands.display());
    let keys = format!("root = \"{root}\"\nbin_dir = \"{commands}\"\n");
    Beside::start(PROGRAM, folder, "gridengine", &keys)
}

#[test]
fn grid_engine_serves_whoever_used_less() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(pool) = Pool::start(&folder.path().join("pool"), SLOTS)? else {
        return Ok(());
    };
    let beside = start(folder.path(), &pool)?;
    let node = &beside.node;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(
        !is_content && words.contains("missing: policy_hierarchy is OFS"),
        "{words}"
    );
    ensure!(words.contains("missing: jsv_url is none"), "{words}");
    pool.schedule_by(&WANTED)?;
    pool.verify_by(VERIFIER)?;
    // xavier has had more than two of yvonne's jobs will be.
    pool.submit("xavier", SLOTS, 8)?;
    await_that("xavier's job to end", || Ok(pool.ended()?.len() == 1))?;
    node.await_usage("physics", "xavier", pool.accounted("xavier")?)?;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(is_content, "{words}");
    pool.open(false)?;
    let mut jobs = Vec::new();
    for project in ["xavier", "yvonne", "xavier", "yvonne"] {
        jobs.push(pool.submit(project, SLOTS, 1)?);
    }
    await_that("override tickets", || {
        let tickets = pool.tickets()?;
        let of = |job: u64| tickets.iter().find(|(id, _)| *id == job).map(|(_, of)| *of);
        let of: Vec<Option<u64>> = jobs.iter().map(|job| of(*job)).collect();
        Ok(of[0] > Some(0) && of[0] == of[2] && of[1] == of[3] && of[0] < of[1])
    })?;
    let (is_content, words) = beside.run(&["sync", "--dry-run"])?;
    ensure!(is_content && words.contains("4 jobs wait"), "{words}");
    ensure!(words.contains("would update 0"), "{words}");
    let (is_content, words) = beside.run(&["check"])?;
    ensure!(is_content && words.contains("/yvonne"), "{words}");
    pool.open(true)?;
    await_that("the jobs to end", || Ok(pool.ended()?.len() == 5))?;
    let ended = pool.ended()?;
    let order: Vec<u64> = ended[1..].iter().map(|job| job.id).collect();
    ensure!(
        order == [jobs[1], jobs[3], jobs[0], jobs[2]],
        "{ended:?} of {jobs:?}"
    );
    for project in ["xavier", "yvonne"] {
        node.await_usage("physics", project, pool.accounted(project)?)?;
    }
    ensure!(beside.updates()? >= 4.0, "too few updates");
    Ok(())
}

#[test]
fn no_job_writes_lines_into_accounting() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(pool) = Pool::start(&folder.path().join("pool"), SLOTS)? else {
        return Ok(());
    };
    pool.verify_by(VERIFIER)?;
    let forged = "arch=x\nall.q:pool:root:root:sleep:1:sge:0:1:2:3:0:0";
    // What looks like qmaster's own words in an argument, which comes before the request, hides nothing.
    let ends = [
        "",
        "x\nPARAM N q\nBEGIN",
        "x\nBEGIN\nSTART\nPARAM a b\nBEGIN",
    ];
    for argument in ends {
        let said = pool.refused(forged, argument)?.context("a forger's job")?;
        ensure!(said.contains("a line end in a request"), "{said}");
    }
    for behind in ["BEGIN", "START", "QUIT", "PARAM", "ENV A"] {
        let said = pool.refused(&format!("arch=x\n{behind}"), "")?;
        let said = said.context("a job of two lines")?;
        ensure!(said.contains("a line end in a request"), "{behind}: {said}");
    }
    let requests = [
        ("arch=a:b", ""),
        ("arch=a:b", "a b"),
        ("arch=a:b", "cd /\nmake"),
        ("arch=a:b", "cd /\nPARAM l_soft arch=z"),
        // What looks like qmaster's own words is no part of the request any more.
        (
            "arch=a:b\nPARAM N all.q:pool:users:victim:forged:1:sge:0:1:2:3\nPARAM N ",
            "",
        ),
    ];
    for (request, argument) in requests {
        let said = pool.refused(request, argument)?;
        ensure!(said.is_none(), "{request} {argument}: {said:?}");
    }
    pool.submit("yvonne", SLOTS, 0)?;
    let lines = || {
        let text = pool.accounting();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    await_that("the jobs to end", || Ok(lines().len() > requests.len()))?;
    for line in lines() {
        let row: Vec<&str> = line.split(':').collect();
        ensure!(row.get(3) == Some(&"root") && row.len() >= 45, "{line}");
    }
    let asked = lines()
        .iter()
        .filter(|line| line.contains("-soft -l arch=a:b:0"))
        .count();
    ensure!(asked == requests.len(), "{}", pool.accounting());
    Ok(())
}
