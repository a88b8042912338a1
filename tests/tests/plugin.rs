//! The Slurm plug-in `site_factor/fairmesh` in a real slurmctld, beside a real node.
//!
//! It needs root, Debian's Slurm packages, and Slurm's source (`FAIRMESH_SLURM_SRC`, else below
//! `target/slurm-src`). Where one of them is missing each test says which, and passes.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Plugin, Slurm, await_that, plugin};
use fairmesh_tests::story::{
    CORES_A, CORES_B, both_are_served_alike, queue_at_b, xavier_is_busy_at_a, yvonne_catches_up,
};
use fairmesh_tests::twins::{Make, Side, Twins};
use fairmesh_tests::{Node, Site, Vo, records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Users that every Debian has. They have equal shares of the VO.
const USERS: [&str; 3] = ["daemon", "games", "man"];

/// Points of the highest factor.
const WEIGHT: u64 = 1_000_000;

/// What is measured, is measured alone.
static TURN: RwLock<()> = RwLock::new(());

// ---- What a test is about. ----

#[test]
fn slurm_serves_whoever_used_less_of_the_grid() -> anyhow::Result<()> {
    let Some(plugin) = plugin(PROGRAM)? else {
        return Ok(());
    };
    let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
    let Some(mut twins) = Twins::start(Make {
        program: PROGRAM,
        accounts: Accounts::Filetxt,
        plugin: Some(&plugin),
        cpus: [CORES_A, CORES_B],
        feed_apart: true,
    })?
    else {
        return Ok(());
    };
    the_unit_is_for_the_feed_alone(&twins.b)?;
    let (at_a, one) = xavier_is_busy_at_a(&twins)?;
    let (last, ahead) = both_are_served_alike(&twins, one / 2)?;
    // Healed, it turns.
    queue_at_b(&twins, 5, one)?;
    twins.heal()?;
    yvonne_catches_up(&twins, last, ahead + i64::try_from(at_a)?)
}

/// `setup` sees the plug-in, and leaves priorities to it.
fn the_unit_is_for_the_feed_alone(side: &Side) -> anyhow::Result<()> {
    let folder = side.site.folder().join("slurm-files");
    let output = Command::new(PROGRAM)
        .args(["slurm", "setup", "--write"])
        .arg(&folder)
        .arg("--config")
        .arg(side.site.config())
        .output()?;
    let unit = fs::read_to_string(folder.join("fairmesh-slurm.service"))?;
    ensure!(unit.contains(" slurm feed --config "), "{unit}");
    let words = String::from_utf8_lossy(&output.stdout);
    ensure!(!words.contains("PrioritySiteFactorPlugin"), "{words}");
    Ok(())
}

#[test]
fn jobs_start_by_their_grid_wide_factors_and_a_node_that_is_away_changes_nothing()
-> anyhow::Result<()> {
    let Some(bench) = bench(false)? else {
        return Ok(());
    };
    let (site, node) = bench.node()?;
    let usage = |user, first, count| {
        let records = records("physics", user, first, count);
        let answer = node.http("POST", "/v1/records", &records)?;
        ensure!(answer.status == 200, "{answer:?}");
        anyhow::Ok(())
    };
    // Daemon has used most, games a little, man nothing.
    usage("daemon", 0, 60)?;
    usage("games", 100, 20)?;
    let cluster = bench.slurm(&format!("{},old=3", bench.parameters(&site)))?;
    let slurm = &cluster.slurm;
    let gate = cluster.close_gate()?;
    let users = ["daemon", "games", "man", "daemon", "games", "man"];
    for user in users {
        cluster.queue(user, &format!("echo {user} >> {}", bench.order().display()))?;
    }
    await_that("site factors in the order of the usage", || {
        let factors = slurm.site_factors()?;
        let of = |user| {
            factors
                .iter()
                .filter(move |(who, _)| who == user)
                .map(|it| it.1)
        };
        let ranked = of("man").min() > of("games").max() && of("games").min() > of("daemon").max();
        Ok(ranked && factors.len() == users.len())
    })?;

    // The node goes; its last word stays, and the log says how old it is.
    let before = slurm.site_factors()?;
    node.kill()?;
    slurm.until_logged("DATA IS OLD: the node has not answered for")?;
    assert_eq!(slurm.site_factors()?, before);
    fs::write(gate, "")?;
    await_that("all jobs have run", || {
        Ok(fs::read_to_string(bench.order())?.lines().count() == users.len())
    })?;
    let order = fs::read_to_string(bench.order())?;
    assert_eq!(order, "man\nman\ngames\ngames\ndaemon\ndaemon\n");
    assert_eq!(slurm.log()?.matches("DATA IS OLD").count(), 1, "said once");

    // The node comes back; so does the word.
    let _node = site.start()?;
    slurm.until_logged("the node answers again")
}

#[test]
fn wrong_parameters_disable_it_loudly_and_slurm_schedules_on() -> anyhow::Result<()> {
    let Some(bench) = bench(false)? else {
        return Ok(());
    };
    let cluster = bench.slurm("socket=/nowhere,wait=3")?;
    let slurm = &cluster.slurm;
    slurm.until_logged("site_factor/fairmesh: DISABLED: `wait` is none of socket, weight")?;
    let runs = |word: &str, written: &str| {
        cluster.queue(
            "games",
            &format!("echo {word} >> {}", bench.order().display()),
        )?;
        await_that("a job that has run", || {
            Ok(fs::read_to_string(bench.order())? == written)
        })
    };
    runs("ran", "ran\n")?;

    // Mended without a restart; the site's node is not there yet.
    slurm.configure("wait=3", "weight=3")?;
    slurm.until_logged("NO ANSWER yet from /nowhere")?;
    runs("again", "ran\nagain\n")
}

#[test]
fn a_held_job_keeps_its_hold_and_gets_its_factor_when_it_is_released() -> anyhow::Result<()> {
    let Some(bench) = bench(false)? else {
        return Ok(());
    };
    let (site, _node) = bench.node()?;
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let slurm = &cluster.slurm;
    let _gate = cluster.close_gate()?;
    let held = cluster.submit("man", &["--hold"], "true")?;
    cluster.queue("games", "true")?;
    let has_factor = |user: &str| {
        let factors = slurm.site_factors()?;
        Ok(factors
            .iter()
            .any(|(who, factor)| who == user && *factor > 0))
    };
    await_that("the other job's factor", || has_factor("games"))?;
    assert_eq!(slurm.run("squeue", &["-h", "-o", "%Q", "-j", &held])?, "0");
    slurm.run("scontrol", &["release", &held])?;
    await_that("the released job's factor", || has_factor("man"))
}

/// Nothing is asserted of the figures: they are the machine's. They go to the test's output.
#[test]
fn ten_thousand_pending_jobs_are_changed_in_short_lock_holds() -> anyhow::Result<()> {
    let Some(bench) = bench(true)? else {
        return Ok(());
    };
    let (site, node) = bench.node()?;
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let slurm = &cluster.slurm;
    let _gate = cluster.close_gate()?;
    let mut first = 0;
    for (count, array) in [(1_000, "0-999"), (10_000, "1000-9999")] {
        cluster.queue_tasks(array)?;
        await_that("all jobs have a factor", || {
            let factors = slurm.site_factors()?;
            Ok(factors.len() >= count && factors.iter().all(|(_, factor)| *factor > 0))
        })?;
        println!("{count} pending, in rest: {}", cluster.response(100)?);
        let lines = cluster.changes()?.len();
        let done = AtomicBool::new(false);
        let changing = std::thread::scope(|scope| {
            let asking = scope.spawn(|| cluster.response_until(&done));
            let changed = change_all(&cluster, &node, count, &mut first);
            done.store(true, Ordering::Relaxed);
            let response = asking.join().expect("it does not panic");
            changed.and(response)
        })?;
        println!("{count} pending, while they change: {changing}");
        println!("{}", cluster.changes()?[lines..].join("\n"));
    }
    slurm.configure("site_factor/fairmesh", "site_factor/none")?;
    slurm.restart_slurmctld()?;
    println!(
        "10000 pending, without the plug-in: {}",
        cluster.response(100)?
    );
    by_sync(&cluster, &site)
}

/// Usage is reported three times, and each time all jobs get another factor.
fn change_all(cluster: &Cluster, node: &Node, count: usize, first: &mut u64) -> anyhow::Result<()> {
    for user in ["man", "games", "man"] {
        let known = cluster.changes()?.len();
        let usage = records("physics", user, *first, 50);
        let answer = node.http("POST", "/v1/records", &usage)?;
        ensure!(answer.status == 200, "{answer:?}");
        *first += 50;
        await_that("a pass that has changed them all", || {
            let passes = cluster.changes()?;
            Ok(passes[known..].iter().any(|line| changes(line) >= count))
        })?;
    }
    Ok(())
}

/// The same queue, set from outside: as fast as it goes, and once more with nothing to change.
fn by_sync(cluster: &Cluster, site: &Site) -> anyhow::Result<()> {
    let more = format!(
        "[slurm]\nwith_node = false\nslurm_conf = \"{}\"\nrate = 10000\ngranularity = 0\n",
        cluster.slurm.conf().display()
    );
    let config = site.folder().join("sync.toml");
    fs::write(&config, fs::read_to_string(site.config())? + &more)?;
    for _ in 0..2 {
        let done = AtomicBool::new(false);
        let response = std::thread::scope(|scope| {
            let asking = scope.spawn(|| cluster.response_until(&done));
            let began = Instant::now();
            let output = Command::new(PROGRAM)
                .args(["slurm", "sync", "--once", "--config"])
                .arg(&config)
                .output();
            let took = began.elapsed();
            done.store(true, Ordering::Relaxed);
            let response = asking.join().expect("it does not panic")?;
            let output = output?;
            ensure!(output.status.success(), "{output:?}");
            let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            println!("sync: {words}, in {took:?}");
            Ok(response)
        })?;
        println!("10000 pending, while sync runs: {response}");
    }
    Ok(())
}

// ---- What it is tried on. ----

/// The plug-in, and a folder for what a test needs.
struct Bench {
    _turn: Turn,
    folder: tempfile::TempDir,
    plugin: Plugin,
}

/// Others may go on meanwhile, or not.
#[expect(dead_code, reason = "it is held, and not looked at")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// `None`, and a word on the output, where the machine has not what it takes.
fn bench(alone: bool) -> anyhow::Result<Option<Bench>> {
    let turn = if alone {
        Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
    } else {
        Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner))
    };
    let Some(plugin) = plugin(PROGRAM)? else {
        return Ok(None);
    };
    let folder = tempfile::tempdir()?;
    Ok(Some(Bench {
        _turn: turn,
        folder,
        plugin,
    }))
}

impl Bench {
    /// A node of a VO of its own, in which the users have equal shares.
    fn node(&self) -> anyhow::Result<(Site, Node)> {
        let site = Site::init(PROGRAM, &self.folder.path().join("site"), "site")?;
        let vo = Vo::found("physics", &[(site.id, "site")], &USERS)?;
        site.configure("site", &[], &[("physics", vo.id())])?;
        let node = site.start()?;
        vo.publish(&node)?;
        Ok((site, node))
    }

    fn parameters(&self, site: &Site) -> String {
        let socket = site.data().join("run/lookup.sock");
        format!("socket={},weight={WEIGHT},interval=1", socket.display())
    }

    /// The file that jobs write themselves into as they run.
    fn order(&self) -> PathBuf {
        self.folder.path().join("order")
    }

    /// A cluster of one core, so that jobs start one behind the other.
    fn slurm(&self, parameters: &str) -> anyhow::Result<Cluster> {
        fs::write(self.order(), "")?;
        // The jobs' users are not the one who made the folder.
        let open = Permissions::from_mode(0o777);
        fs::set_permissions(self.folder.path(), open.clone())?;
        fs::set_permissions(self.order(), open)?;
        let conf = self.plugin.conf(parameters) + "MaxArraySize=20001\n";
        let kind = Kind {
            name: "mini",
            cpus: 1,
            accounts: Accounts::None,
            conf: &conf,
            plugins: Some(&self.plugin.folder),
        };
        let slurm = Slurm::start(&self.folder.path().join("slurm"), kind)?;
        Ok(Cluster {
            slurm: slurm.context("a Slurm")?,
            gate: self.folder.path().join("gate"),
        })
    }
}

/// A Slurm with the plug-in, and jobs of many users.
struct Cluster {
    slurm: Slurm,
    gate: PathBuf,
}

impl Cluster {
    /// Gives the job's id.
    fn submit(&self, user: &str, options: &[&str], script: &str) -> anyhow::Result<String> {
        let mut arguments = vec!["--parsable", "--account=physics", "--chdir=/"];
        let (uid, wrap) = (format!("--uid={user}"), format!("--wrap={script}"));
        arguments.extend(["--output=/dev/null", "--ntasks=1", &uid, &wrap]);
        arguments.extend(options);
        self.slurm.run("sbatch", &arguments)
    }

    fn queue(&self, user: &str, script: &str) -> anyhow::Result<()> {
        self.submit(user, &[], script).map(|_| ())
    }

    /// Jobs that are tasks of an array, and each a record of its own.
    fn queue_tasks(&self, array: &str) -> anyhow::Result<()> {
        // They share a record until one of them is named apart.
        let job = self.submit("man", &[&format!("--array={array},19999")], "true")?;
        let tasks = format!("JobId={job}_[{array}]");
        self.slurm.run("scontrol", &["update", &tasks, "Nice=0"])?;
        Ok(())
    }

    /// Keeps the only core busy until somebody makes the file that this gives.
    fn close_gate(&self) -> anyhow::Result<&Path> {
        let wait = format!("until [ -e {} ]; do sleep 0.1; done", self.gate.display());
        let job = self.submit("root", &[], &wait)?;
        await_that("a gate that is closed", || {
            let state = self.slurm.run("squeue", &["-h", "-o", "%T", "-j", &job])?;
            Ok(state == "RUNNING")
        })?;
        Ok(&self.gate)
    }

    /// The plug-in's own lines on what it changed.
    fn changes(&self) -> anyhow::Result<Vec<String>> {
        let log = self.slurm.log()?;
        let of_plugin = |line: &&str| line.contains("site_factor/fairmesh: changed ");
        Ok(log.lines().filter(of_plugin).map(str::to_owned).collect())
    }

    /// How long `scontrol ping` and `sdiag` take, so many times each: the middle and the longest.
    fn response(&self, times: usize) -> anyhow::Result<String> {
        let mut took = Response::default();
        for _ in 0..times {
            took.ask(&self.slurm)?;
        }
        Ok(took.words())
    }

    /// The same, for as long as something is not done.
    fn response_until(&self, done: &AtomicBool) -> anyhow::Result<String> {
        let mut took = Response::default();
        while !done.load(Ordering::Relaxed) {
            took.ask(&self.slurm)?;
        }
        Ok(took.words())
    }
}

/// How long slurmctld took to answer.
#[derive(Default)]
struct Response {
    ping: Vec<Duration>,
    sdiag: Vec<Duration>,
}

impl Response {
    fn ask(&mut self, slurm: &Slurm) -> anyhow::Result<()> {
        let began = Instant::now();
        slurm.run("scontrol", &["ping"])?;
        let pinged = Instant::now();
        slurm.run("sdiag", &[])?;
        self.ping.push(pinged - began);
        self.sdiag.push(pinged.elapsed());
        Ok(())
    }

    fn words(mut self) -> String {
        let mut words = String::new();
        for (program, took) in [
            ("scontrol ping", &mut self.ping),
            ("sdiag", &mut self.sdiag),
        ] {
            took.sort();
            let times = took.len();
            let middle = took.get(times / 2).copied().unwrap_or_default();
            let longest = took.last().copied().unwrap_or_default();
            write!(
                words,
                "{program} {middle:.1?} (longest {longest:.1?} of {times}) "
            )
            .expect("a string takes everything");
        }
        words
    }
}

/// The number of changed jobs in a line of [`Cluster::changes`].
fn changes(line: &str) -> usize {
    let after = line.split_once("changed ").map_or("", |(_, after)| after);
    let number = after.split(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}
