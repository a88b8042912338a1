//! Fairmesh beside a real HTCondor: its order of starts is the node's, and the node's usage is its history. It needs root and
//! HTCondor's programs (see `fairmesh-needs`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::condor::WANTED;
use fairmesh_tests::condor::Pool;
use fairmesh_tests::slurm::await_that;
use fairmesh_tests::{Node, Site, Vo, records};

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// CPUs of the pool, and of a job: jobs run one behind the other.
const CPUS: u32 = 2;

/// Each with the account that his jobs are of.
const USERS: [(&str, &str); 2] = [("games", "xavier"), ("news", "yvonne")];

fn configure(site: &Site, vo: &Vo, pool: &Pool) -> anyhow::Result<()> {
    let text = format!(
        "[site]\nname = \"c\"\n\
         [network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
         [vos]\nphysics = \"{}\"\n\
         [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}\"\n\
         [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n\
         [condor]\nhistory = \"{}\"\nbin_dir = \"{}\"\ninterval = \"300ms\"\nfeed_interval = \"300ms\"\n",
        vo.id(),
        pool.history().display(),
        pool.commands().display(),
    );
    std::fs::write(site.config(), text)?;
    Ok(())
}

/// A command of `fairmesh condor`: whether it was content, and its words.
fn condor(site: &Site, what: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(PROGRAM);
    command.arg("condor").args(what);
    let output = command.arg("--config").arg(site.config()).output()?;
    let words = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(words)?))
}

fn start(folder: &Path, pool: &Pool) -> anyhow::Result<(Site, Node)> {
    let site = Site::init(PROGRAM, &folder.join("site"), "c")?;
    let vo = Vo::found("physics", &[(site.id, "c")], &["xavier", "yvonne"])?;
    configure(&site, &vo, pool)?;
    let node = site.start()?;
    vo.publish(&node)?;
    Ok((site, node))
}

/// Opens or closes the slot, so that jobs can gather before anything starts.
fn open(pool: &Pool, open: bool) -> anyhow::Result<()> {
    let start = ("START", if open { "True" } else { "False" });
    pool.configure(&[&WANTED[..], &[start]].concat())
}

/// Two jobs of each, the last user's first, start once `first` is ahead, and all of his start first.
fn gather(pool: &Pool, first: usize) -> anyhow::Result<()> {
    let before = pool.ended()?.len();
    let [ahead, behind] = [USERS[first], USERS[1 - first]];
    open(pool, false)?;
    let mut jobs = Vec::new();
    for (user, account) in [behind, ahead, behind, ahead] {
        jobs.push(pool.submit(user, account, CPUS, 1)?);
    }
    await_that("priority factors", || {
        let priority = |(user, account)| pool.priority(&format!("{account}.{user}@pool"));
        let [ahead, behind] = [priority(ahead)?, priority(behind)?];
        Ok(matches!((ahead, behind), (Some(ahead), Some(behind)) if 2.0 * ahead < behind))
    })?;
    open(pool, true)?;
    await_that("the jobs to end", || Ok(pool.ended()?.len() == before + 4))?;
    let ended = pool.ended()?;
    let order: Vec<u64> = ended[before..].iter().map(|job| job.id).collect();
    let wanted = [jobs[1], jobs[3], jobs[0], jobs[2]];
    ensure!(order == wanted, "{ended:?} of {jobs:?}");
    Ok(())
}

#[test]
fn htcondor_serves_whoever_used_less_in_the_whole_grid() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(pool) = Pool::start(&folder.path().join("pool"), CPUS)? else {
        return Ok(());
    };
    let (site, node) = start(folder.path(), &pool)?;
    let (is_content, words) = condor(&site, &["setup"])?;
    ensure!(
        !is_content && words.contains("missing: PRIORITY_HALFLIFE is 86400"),
        "{words}"
    );
    open(&pool, true)?;
    // xavier has had more than two of yvonne's jobs will be.
    let job = pool.submit("games", "xavier", CPUS, 8)?;
    let edits = |name, value| pool.edit("games", job, name, value);
    ensure!(
        edits("CpusProvisioned", "1")?,
        "the shadow writes it as the user"
    );
    for kept in ["RemoteWallClockTime", "MachineAttrCpus0", "QDate"] {
        ensure!(!edits(kept, "-9")?, "a user can edit {kept}");
    }
    await_that("xavier's job to end", || Ok(pool.ended()?.len() == 1))?;
    node.await_usage("physics", "xavier", pool.accounted("xavier")?)?;
    let (is_content, words) = condor(&site, &["setup"])?;
    ensure!(is_content, "{words}");
    gather(&pool, 1)?;
    for (_, account) in USERS {
        node.await_usage("physics", account, pool.accounted(account)?)?;
    }
    // What yvonne uses elsewhere puts her behind, here.
    let elsewhere = node.http("POST", "/v1/records", &records("yvonne", "news", 1, 100))?;
    ensure!(elsewhere.status == 200, "{elsewhere:?}");
    gather(&pool, 0)?;
    node.await_usage("physics", "xavier", pool.accounted("xavier")?)?;
    node.await_usage("physics", "yvonne", pool.accounted("yvonne")? + 100_000)?;
    check_words(&site, &node)
}

fn check_words(site: &Site, node: &Node) -> anyhow::Result<()> {
    let (is_content, words) = condor(site, &["sync", "--dry-run"])?;
    ensure!(is_content && words.contains("0 submitters wait"), "{words}");
    let (is_content, words) = condor(site, &["feed", "--once"])?;
    ensure!(is_content && words.contains("0 of them news"), "{words}");
    let text = node.http("GET", "/v1/metrics", b"")?.text;
    let line = text
        .lines()
        .find(|line| line.starts_with("fairmesh_condor_updates_total{outcome=\"set\"}"));
    let set = line.and_then(|line| line.split(' ').next_back());
    let set: f64 = set.context("a number of updates")?.parse()?;
    ensure!(set >= 2.0, "{text}");
    Ok(())
}
