//! Fairmesh beside a real HTCondor: its order of starts is the node's, and the node's usage is its history. It needs root and
//! HTCondor's programs (see `fairmesh-needs`).

use std::path::Path;

use anyhow::ensure;
use fairmesh_tests::beside::Beside;
use fairmesh_tests::condor::Pool;
use fairmesh_tests::records;
use fairmesh_tests::slurm::await_that;

/// A program that is the node, built with these tests.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// CPUs of the pool, and of a job: jobs run one behind the other.
const CPUS: u32 = 2;

/// Each with the account that his jobs are of.
const USERS: [(&str, &str); 2] = [("games", "xavier"), ("news", "yvonne")];

fn start(folder: &Path, pool: &Pool) -> anyhow::Result<Beside> {
    let (history, commands) = (pool.history(), pool.commands());
    let (history, commands) = (history.display(), commands.display());
    let keys = format!("history = \"{history}\"\nbin_dir = \"{commands}\"\n");
    Beside::start(PROGRAM, folder, "condor", &keys)
}

/// Two jobs of each, the last user's first, start once `first` is ahead, and all of his start first.
fn gather(pool: &Pool, first: usize) -> anyhow::Result<()> {
    let before = pool.ended()?.len();
    let [ahead, behind] = [USERS[first], USERS[1 - first]];
    pool.open(false)?;
    let mut jobs = Vec::new();
    for (user, account) in [behind, ahead, behind, ahead] {
        jobs.push(pool.submit(user, account, CPUS, 1)?);
    }
    await_that("priority factors", || {
        let priority = |(user, account)| pool.priority(&format!("{account}.{user}@pool"));
        let [ahead, behind] = [priority(ahead)?, priority(behind)?];
        Ok(matches!((ahead, behind), (Some(ahead), Some(behind)) if 2.0 * ahead < behind))
    })?;
    pool.open(true)?;
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
    let beside = start(folder.path(), &pool)?;
    let node = &beside.node;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(
        !is_content && words.contains("missing: PRIORITY_HALFLIFE is 86400"),
        "{words}"
    );
    pool.open(true)?;
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
    let (is_content, words) = beside.run(&["setup"])?;
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
    check_words(&beside)
}

fn check_words(beside: &Beside) -> anyhow::Result<()> {
    let (is_content, words) = beside.run(&["sync", "--dry-run"])?;
    ensure!(is_content && words.contains("0 submitters wait"), "{words}");
    // A job of a second may have been counted while it ran, and its end be news: once.
    await_that("a feed without news", || {
        let (is_content, words) = beside.run(&["feed", "--once"])?;
        Ok(is_content && words.contains("0 of them news"))
    })?;
    ensure!(beside.updates()? >= 2.0, "too few updates");
    Ok(())
}
