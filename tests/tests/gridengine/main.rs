//! Fairmesh beside a real Grid Engine: its order of starts is the node's, and the node's usage is its accounting. It needs
//! root and Debian's packages (see `fairmesh-needs`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::gridengine::WANTED;
use fairmesh_tests::gridengine::Pool;
use fairmesh_tests::slurm::await_that;
use fairmesh_tests::{Node, Site, Vo};

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Slots of the pool, and of a job: jobs run one behind the other.
const SLOTS: u32 = 2;

fn configure(site: &Site, vo: &Vo, pool: &Pool) -> anyhow::Result<()> {
    let text = format!(
        "[site]\nname = \"g\"\n\
         [network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
         [vos]\nphysics = \"{}\"\n\
         [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}\"\n\
         [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n\
         [gridengine]\nroot = \"{}\"\nbin_dir = \"{}\"\ninterval = \"300ms\"\nfeed_interval = \"300ms\"\n",
        vo.id(),
        pool.root().display(),
        pool.commands().display(),
    );
    std::fs::write(site.config(), text)?;
    Ok(())
}

/// A command of `fairmesh gridengine`: whether it was content, and its words.
fn gridengine(site: &Site, what: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(PROGRAM);
    command.arg("gridengine").args(what);
    let output = command.arg("--config").arg(site.config()).output()?;
    let words = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(words)?))
}

fn start(folder: &Path, pool: &Pool) -> anyhow::Result<(Site, Node)> {
    let site = Site::init(PROGRAM, &folder.join("site"), "g")?;
    let vo = Vo::found("physics", &[(site.id, "g")], &["xavier", "yvonne"])?;
    configure(&site, &vo, pool)?;
    let node = site.start()?;
    vo.publish(&node)?;
    Ok((site, node))
}

#[test]
fn grid_engine_serves_whoever_used_less() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(pool) = Pool::start(&folder.path().join("pool"), SLOTS)? else {
        return Ok(());
    };
    let (site, node) = start(folder.path(), &pool)?;
    let (is_content, words) = gridengine(&site, &["setup"])?;
    ensure!(
        !is_content && words.contains("missing: policy_hierarchy is OFS"),
        "{words}"
    );
    pool.schedule_by(&WANTED)?;
    // xavier has had more than two of yvonne's jobs will be.
    pool.submit("xavier", SLOTS, 8)?;
    await_that("xavier's job to end", || Ok(pool.ended()?.len() == 1))?;
    node.await_usage("physics", "xavier", pool.accounted("xavier")?)?;
    let (is_content, words) = gridengine(&site, &["setup"])?;
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
    let (is_content, words) = gridengine(&site, &["sync", "--dry-run"])?;
    ensure!(is_content && words.contains("4 jobs wait"), "{words}");
    ensure!(words.contains("would update 0"), "{words}");
    let (is_content, words) = gridengine(&site, &["check"])?;
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
    let text = node.http("GET", "/v1/metrics", b"")?.text;
    let line = text
        .lines()
        .find(|line| line.starts_with("fairmesh_gridengine_updates_total{outcome=\"set\"}"));
    let set = line.and_then(|line| line.split(' ').next_back());
    let set: f64 = set.context("a number of updates")?.parse()?;
    ensure!(set >= 4.0, "{text}");
    Ok(())
}
