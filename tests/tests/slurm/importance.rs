//! Jobs that their users call more or less important, in a real slurmctld: one user's own are ordered, users
//! are not, and the plug-in and `fairmesh slurm sync` say the same.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_tests::Site;
use fairmesh_tests::bench::{Bench, Cluster};
use fairmesh_tests::records;
use fairmesh_tests::slurm::await_that;

use crate::PROGRAM;

/// User, options of sbatch, and the job's place where all wait. Daemon has used most, games a little, man
/// nothing.
const JOBS: [(&str, &[&str], usize); 8] = [
    ("daemon", &["--comment=fairmesh:importance=200"], 7),
    ("daemon", &["--nice=-100"], 8),
    ("games", &["--nice"], 6),
    ("games", &[], 4),
    (
        "games",
        &["--comment=fairmesh:importance=50", "--nice=30"],
        5,
    ),
    ("games", &["--comment=ticket 7;fairmesh:importance=150"], 3),
    ("man", &["--comment=fairmesh:importance=0"], 2),
    ("man", &["--nice=-60"], 1),
];

#[test]
fn importance_orders_one_user_s_jobs_and_never_two_users() -> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let (site, node) = bench.node()?;
    for (user, first, count) in [("daemon", 0, 60), ("games", 100, 20)] {
        let usage = records("physics", user, first, count);
        let answer = node.http("POST", "/v1/records", &usage)?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let gate = cluster.close_gate()?;
    let mut ids = Vec::new();
    for (user, options, place) in JOBS {
        let script = format!("echo {place} >> {}", bench.order().display());
        ids.push(cluster.submit(user, options, &script)?);
    }
    // Two of daemon's are as important as can be: the earlier one goes first.
    let placed =
        |wanted: &[usize]| await_that("the places", || Ok(places(&cluster, &ids)? == wanted));
    placed(&[1, 2, 3, 4, 5, 6, 7, 8])?;
    sync_would_change_nothing(&cluster, &site, JOBS.len())?;

    // Games changes his mind about the last of his jobs while it waits.
    let comment = "Comment=fairmesh:importance=120";
    let update = ["update", &format!("JobId={}", ids[2]), comment];
    cluster.slurm.run("scontrol", &update)?;
    placed(&[1, 2, 3, 6, 4, 5, 7, 8])?;
    sync_would_change_nothing(&cluster, &site, JOBS.len())?;

    fs::write(gate, "")?;
    let began = || anyhow::Ok(fs::read_to_string(bench.order())?);
    await_that("all jobs have run", || {
        Ok(began()?.lines().count() == JOBS.len())
    })?;
    ensure!(began()? == "1\n2\n3\n6\n4\n5\n7\n8\n", "{}", began()?);
    Ok(())
}

/// The jobs' names in the order of Slurm's priorities; equal ones by their ids, as Slurm takes them.
fn places(cluster: &Cluster, ids: &[String]) -> anyhow::Result<Vec<usize>> {
    let text = cluster
        .slurm
        .run("squeue", &["-h", "-t", "PENDING", "-o", "%i|%Q"])?;
    let mut rows = Vec::new();
    for line in text.lines() {
        let (id, priority) = line.split_once('|').context("two columns")?;
        let at = ids
            .iter()
            .position(|it| it == id)
            .context("a job of ours")?;
        rows.push((std::cmp::Reverse(priority.parse::<u64>()?), at));
    }
    rows.sort();
    Ok(rows.iter().map(|(_, at)| JOBS[*at].2).collect())
}

/// `fairmesh slurm sync` comes to the same points of the waiting jobs as the plug-in.
pub(crate) fn sync_would_change_nothing(
    cluster: &Cluster,
    site: &Site,
    waiting: usize,
) -> anyhow::Result<()> {
    let more = format!(
        "[slurm]\nwith_node = false\nslurm_conf = \"{}\"\nrange = 1000000\ngranularity = 0\n",
        cluster.slurm.conf().display()
    );
    let config = site.folder().join("sync.toml");
    fs::write(&config, fs::read_to_string(site.config())? + &more)?;
    let mut sync = Command::new(PROGRAM);
    sync.args(["slurm", "sync", "--dry-run", "--config"])
        .arg(&config);
    let output = sync.output()?;
    let words = String::from_utf8_lossy(&output.stdout);
    let expected = format!(
        "{waiting} jobs wait, 0 of them held and 0 of accounts that the node does not know; would update 0\n"
    );
    ensure!(words == expected, "{output:?}");
    Ok(())
}
