//! A federation: two Slurms with one slurmdbd, each of which shows the jobs of both. A job waits at both and runs at one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fairmesh_tests::beside::{ACCOUNTS, Beside};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::introduce;
use fairmesh_tests::{Site, Vo};

use crate::PROGRAM;

/// Jobs of each user.
const JOBS: usize = 4;

/// Each cluster's commands speak of the whole federation unless they are told not to.
const DISPLAY: &str = "FederationParameters=fed_display\n";

/// Some rounds of a feed.
const ROUNDS: Duration = Duration::from_secs(2);

/// One core, as the other cluster's.
fn start(
    folder: &Path,
    name: &str,
    accounts: Accounts<'_>,
    conf: &str,
) -> anyhow::Result<Option<Slurm>> {
    let kind = Kind {
        name,
        cpus: 1,
        nodes: 1,
        accounts,
        conf,
        plugins: None,
    };
    Slurm::start(&folder.join(name), kind)
}

/// Two clusters that know each other: the first one has the database, and the second one a file beside it.
fn federation(folder: &Path) -> anyhow::Result<Option<[Slurm; 2]>> {
    let Some(a) = start(folder, "a", Accounts::Slurmdbd, DISPLAY)? else {
        return Ok(None);
    };
    let etc = folder.join("b/etc");
    fs::create_dir_all(&etc)?;
    fs::copy(folder.join("a/etc/munge.key"), etc.join("munge.key"))?;
    let of_a = fs::read_to_string(a.conf())?;
    let storage = of_a
        .lines()
        .filter(|line| line.starts_with("AccountingStorage"));
    let storage: Vec<&str> = storage.collect();
    let storage = storage
        .join("\n")
        .replace("/a/run/munge.sock", "/b/run/munge.sock");
    let conf = format!("{storage}\n{DISPLAY}");
    let b = start(folder, "b", Accounts::Filetxt, &conf)?.context("one started")?;
    introduce(&a)?;
    let add = ["-i", "add", "federation", "grid", "clusters=a,b"];
    a.run("sacctmgr", &add)?;
    for cluster in [&a, &b] {
        await_that("a sibling", || {
            let said = cluster.run("scontrol", &["show", "federation"])?;
            Ok(said.contains("Recv:Yes/Yes"))
        })?;
    }
    Ok(Some([a, b]))
}

#[test]
fn a_job_of_a_federation_counts_once_where_it_ran() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some([a, b]) = federation(folder.path())? else {
        return Ok(());
    };
    for cluster in [&a, &b] {
        cluster.open(false)?;
    }
    let sites = ["site-a", "site-b"];
    let [at_a, at_b] = sites.map(|name| Site::init(PROGRAM, &folder.path().join(name), name));
    let (at_a, at_b) = (at_a?, at_b?);
    let vo = Vo::found(
        "physics",
        &[(at_a.id, sites[0]), (at_b.id, sites[1])],
        &ACCOUNTS,
    )?;
    let keys = |slurm: &Slurm| format!("slurm_conf = \"{}\"\n", slurm.conf().display());
    let at_a = Beside::join(at_a, "slurm", &vo, &[], &keys(&a))?;
    let of_file = format!("{}usage = \"filetxt\"\n", keys(&b));
    let peer = (at_a.id(), &*at_a.node.address);
    let at_b = Beside::join(at_b, "slurm", &vo, &[peer], &of_file)?;

    for (cluster, account) in [(&a, ACCOUNTS[0]), (&b, ACCOUNTS[1])] {
        for _ in 0..JOBS {
            cluster.submit(account, 1, Duration::from_secs(2), &[])?;
        }
    }
    await_that("a site factor for each job", || {
        let jobs = a.priorities()?;
        Ok(jobs.len() == 2 * JOBS && jobs.iter().all(|(_, priority)| *priority > 1))
    })?;
    for cluster in [&a, &b] {
        cluster.open(true)?;
    }
    for cluster in [&a, &b] {
        cluster.await_idle()?;
    }

    await_that("equal usage", || is_equal(&a, [&at_a, &at_b]))?;
    std::thread::sleep(ROUNDS);
    ensure!(is_equal(&a, [&at_a, &at_b])?, "and it stays so");
    let mut ran: BTreeMap<String, usize> = BTreeMap::new();
    for side in [&at_a, &at_b] {
        let list = side.node.http("GET", "/v1/accounting", b"")?;
        let records = list.body["records"].as_array().context("records")?;
        // A file has a line of a job for each cluster that gave it away.
        let ran_there = records.iter().filter(|record| record["wall"] != 0);
        let before = ran.len();
        for record in ran_there {
            let job = record["job"].as_str().context("a number")?;
            *ran.entry(job.to_owned()).or_default() += 1;
        }
        ensure!(ran.len() > before, "no job ran there: {list:?}");
    }
    ensure!(
        ran.len() == 2 * JOBS && ran.values().all(|times| *times == 1),
        "{ran:?}"
    );
    Ok(())
}

/// Whether each node knows what the database has of both clusters.
fn is_equal(of_both: &Slurm, sides: [&Beside; 2]) -> anyhow::Result<bool> {
    let (mut accounted, mut known) = (Vec::new(), Vec::new());
    for account in ACCOUNTS {
        let core_s = of_both.accounted(account)?.unwrap_or(0);
        for side in sides {
            accounted.push(core_s * 1_000);
            known.push(side.node.usage("physics", account)?);
        }
    }
    println!("{accounted:?} core-ms in sacct, {known:?} at the nodes");
    Ok(accounted == known && !accounted.contains(&0))
}
