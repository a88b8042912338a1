//! What the plug-in `site_factor/fairmesh` costs a slurmctld with 10,000 waiting jobs: how long it takes
//! to answer while all of them change, in rest, without the plug-in, and while `slurm sync` sets as many
//! from outside, in one run.
//!
//! It needs what the plug-in's tests need; where that is absent it says so and measures nothing.

use std::fmt;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::bench::{Bench, Cluster};
use fairmesh_tests::slurm::{Slurm, await_that};
use fairmesh_tests::{Node, Site, records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Answers that are timed where nothing else ends the timing.
const TIMES: usize = 100;

fn main() -> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let (site, node) = bench.node()?;
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let slurm = &cluster.slurm;
    let _gate = cluster.close_gate()?;
    let mut first = 0;
    for (count, array) in [(1_000, "0-999"), (10_000, "1000-9999")] {
        queue_tasks(&cluster, array)?;
        await_that("all jobs have a factor", || {
            let factors = slurm.site_factors()?;
            Ok(factors.len() >= count && factors.iter().all(|(_, factor)| *factor > 0))
        })?;
        println!("{count} pending, in rest: {}", Response::of(slurm, TIMES)?);
        let lines = changes(slurm)?.len();
        let (changed, response) =
            Response::meanwhile(slurm, || change_all(&cluster, &node, count, &mut first))?;
        changed?;
        println!("{count} pending, while they change: {response}");
        println!("{}", changes(slurm)?[lines..].join("\n"));
    }
    slurm.configure("site_factor/fairmesh", "site_factor/none")?;
    slurm.restart_slurmctld()?;
    println!(
        "10000 pending, without the plug-in: {}",
        Response::of(slurm, TIMES)?
    );
    by_sync(slurm, &site)
}

/// Jobs that are tasks of an array, and each a record of its own.
fn queue_tasks(cluster: &Cluster, array: &str) -> anyhow::Result<()> {
    // They share a record until one of them is named apart.
    let job = cluster.submit("man", &[&format!("--array={array},19999")], "true")?;
    let tasks = format!("JobId={job}_[{array}]");
    cluster
        .slurm
        .run("scontrol", &["update", &tasks, "Nice=0"])?;
    Ok(())
}

/// Usage is reported three times, and each time all jobs get another factor.
fn change_all(cluster: &Cluster, node: &Node, count: usize, first: &mut u64) -> anyhow::Result<()> {
    for user in ["man", "games", "man"] {
        let known = changes(&cluster.slurm)?.len();
        let usage = records("physics", user, *first, 50);
        let answer = node.http("POST", "/v1/records", &usage)?;
        ensure!(answer.status == 200, "{answer:?}");
        *first += 50;
        await_that("a pass that has changed them all", || {
            let passes = changes(&cluster.slurm)?;
            Ok(passes[known..].iter().any(|line| changed(line) >= count))
        })?;
    }
    Ok(())
}

/// The same queue, set from outside: as fast as it goes, and once more with nothing to change.
fn by_sync(slurm: &Slurm, site: &Site) -> anyhow::Result<()> {
    let more = format!(
        "[slurm]\nwith_node = false\nslurm_conf = \"{}\"\nrate = 10000\ngranularity = 0\n",
        slurm.conf().display()
    );
    let config = site.folder().join("sync.toml");
    fs::write(&config, fs::read_to_string(site.config())? + &more)?;
    let mut sync = Command::new(PROGRAM);
    sync.args(["slurm", "sync", "--once", "--config"])
        .arg(&config);
    for _ in 0..2 {
        let began = Instant::now();
        let (output, response) = Response::meanwhile(slurm, || sync.output())?;
        let (took, output) = (began.elapsed(), output?);
        ensure!(output.status.success(), "{output:?}");
        let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        println!("sync: {words}, in {took:?}");
        println!("10000 pending, while sync runs: {response}");
    }
    Ok(())
}

/// The plug-in's own lines on what it changed.
fn changes(slurm: &Slurm) -> anyhow::Result<Vec<String>> {
    let log = slurm.log()?;
    let of_plugin = |line: &&str| line.contains("site_factor/fairmesh: changed ");
    Ok(log.lines().filter(of_plugin).map(str::to_owned).collect())
}

/// The number of changed jobs in such a line.
fn changed(line: &str) -> usize {
    let after = line.split_once("changed ").map_or("", |(_, after)| after);
    let number = after.split(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

/// How long `scontrol ping` and `sdiag` took: the middle and the longest.
#[derive(Default)]
struct Response {
    ping: Vec<Duration>,
    sdiag: Vec<Duration>,
}

impl Response {
    /// So many answers of each.
    fn of(slurm: &Slurm, times: usize) -> anyhow::Result<Self> {
        let mut took = Self::default();
        for _ in 0..times {
            took.ask(slurm)?;
        }
        Ok(took)
    }

    /// Answers for as long as something else goes on, and what came of that.
    fn meanwhile<T>(slurm: &Slurm, work: impl FnOnce() -> T) -> anyhow::Result<(T, Self)> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut took = Self::default();
                while !done.load(Ordering::Relaxed) {
                    took.ask(slurm)?;
                }
                anyhow::Ok(took)
            });
            let worked = work();
            done.store(true, Ordering::Relaxed);
            Ok((worked, asking.join().expect("it does not panic")?))
        })
    }

    fn ask(&mut self, slurm: &Slurm) -> anyhow::Result<()> {
        let began = Instant::now();
        slurm.run("scontrol", &["ping"])?;
        let pinged = Instant::now();
        slurm.run("sdiag", &[])?;
        self.ping.push(pinged - began);
        self.sdiag.push(pinged.elapsed());
        Ok(())
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (program, took) in [("scontrol ping", &self.ping), ("sdiag", &self.sdiag)] {
            let mut took = took.clone();
            took.sort();
            let times = took.len();
            let middle = took.get(times / 2).copied().unwrap_or_default();
            let longest = took.last().copied().unwrap_or_default();
            write!(
                f,
                "{program} {middle:.1?} (longest {longest:.1?} of {times}) "
            )?;
        }
        Ok(())
    }
}
