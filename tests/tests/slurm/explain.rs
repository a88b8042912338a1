//! What `fairmesh explain --job` says of Slurm's queue in ten mixed situations is what a real Slurm then does: the order in
//! which jobs start, and the one that `squeue --start` plans.
//!
//! All of `high` and `batch` compete for one core on n1, `side` has another one on n2, and `shut` is closed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::configure;
use fairmesh_tests::{Node, Site, Vo};

use crate::PROGRAM;

const CONF: &str = "\
PartitionName=high Nodes=n1 PriorityTier=10 MaxTime=INFINITE State=UP
PartitionName=batch Nodes=n1 MaxTime=INFINITE State=UP
PartitionName=side Nodes=n2 MaxTime=INFINITE State=UP
PartitionName=shut Nodes=n1 MaxTime=INFINITE State=DOWN
";

/// A job that waits: what it is called here, its account, options of sbatch, and its site factor, or the priority that an
/// administrator sets.
type Situation = (&'static str, &'static str, &'static [&'static str], Set);

#[derive(Clone, Copy)]
enum Set {
    Site(u32),
    Priority(u32),
}

const SITUATIONS: [Situation; 12] = [
    // 1 A job that could begin in ten hours only, however high its priority.
    (
        "later",
        "yvonne",
        &["-p", "batch", "--begin=now+10hours"],
        Set::Site(9_000),
    ),
    // 2 A partition of a higher tier on the same node, however low the priority.
    ("tier", "yvonne", &["-p", "high"], Set::Site(10)),
    // 3 A partition that shares no node.
    ("aside", "yvonne", &["-p", "side"], Set::Site(8_000)),
    // 4 An array, of which each task is a job.
    (
        "array",
        "xavier",
        &["-p", "batch", "--array=1-4"],
        Set::Site(500),
    ),
    // 5 An array of which two tasks run at a time.
    (
        "slow",
        "yvonne",
        &["-p", "batch", "--array=1-3%2"],
        Set::Site(400),
    ),
    // 6 A priority that an administrator has set by hand.
    ("fixed", "xavier", &["-p", "batch"], Set::Priority(7_000)),
    // 7 A job that is held.
    ("held", "yvonne", &["-p", "batch", "-H"], Set::Site(6_000)),
    // 8 A partition that is closed.
    ("closed", "yvonne", &["-p", "shut"], Set::Site(5_000)),
    // 9 Two jobs of one number, of which the older goes first.
    ("older", "xavier", &["-p", "batch"], Set::Site(300)),
    ("younger", "yvonne", &["-p", "batch"], Set::Site(300)),
    // 10 A job of two partitions, which goes where it comes first.
    ("either", "xavier", &["-p", "batch,high"], Set::Site(5)),
    ("last", "yvonne", &["-p", "batch"], Set::Site(1)),
];

/// Those that start on n1, in order, and how many jobs go before each.
const ORDER: [(&str, u64); 8] = [
    ("tier", 0),
    ("either", 1),
    ("fixed", 2),
    ("array", 3),
    ("slow", 7),
    ("older", 10),
    ("younger", 11),
    ("last", 12),
];

struct World {
    slurm: Slurm,
    site: Site,
    _node: Node,
    ids: BTreeMap<&'static str, String>,
}

impl World {
    fn start(folder: &Path) -> anyhow::Result<Option<Self>> {
        let kind = Kind {
            name: "alpha",
            cpus: 2,
            nodes: 2,
            accounts: Accounts::None,
            conf: CONF,
            plugins: None,
        };
        let Some(slurm) = Slurm::start(&folder.join("slurm"), kind)? else {
            return Ok(None);
        };
        let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
        let vo = Vo::found("physics", &[(site.id, "a")], &["xavier", "yvonne"])?;
        // The loops would set other site factors.
        configure(&site, "a", &[], &vo, &slurm, "with_node = false\n")?;
        let node = site.start()?;
        vo.publish(&node)?;
        Ok(Some(Self {
            slurm,
            site,
            _node: node,
            ids: BTreeMap::new(),
        }))
    }

    /// Submits a job that runs a script.
    fn submit(&self, account: &str, options: &[&str], script: &str) -> anyhow::Result<String> {
        let wrap = format!("--wrap={script}");
        let common = [
            "--parsable",
            "-A",
            account,
            "-n1",
            "-t",
            "1",
            "-o",
            "/dev/null",
        ];
        let arguments = [&common[..], options, &[&wrap]].concat();
        self.slurm.run("sbatch", &arguments)
    }

    /// Keeps both cores busy until the gate is there; gives one of the jobs that do so.
    fn close(&self, gate: &Path) -> anyhow::Result<String> {
        let wait = format!("until [ -e {} ]; do sleep 0.1; done", gate.display());
        let jobs = ["batch", "side"].map(|part| self.submit("xavier", &["-p", part], &wait));
        let [first, second] = jobs;
        let (first, second) = (first?, second?);
        await_that("two closed gates", || {
            let running = self.slurm.run("squeue", &["-h", "-t", "R", "-o", "%i"])?;
            Ok(running.contains(&*first) && running.contains(&*second))
        })?;
        Ok(first)
    }

    /// All situations wait; each job writes its number into `order` when it starts.
    fn queue(&mut self, order: &Path) -> anyhow::Result<()> {
        let script = format!(
            "echo ${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}} >> {}",
            order.display()
        );
        for (name, account, options, set) in SITUATIONS {
            let id = self.submit(account, options, &script)?;
            let set = match set {
                Set::Site(number) => format!("SiteFactor={number}"),
                Set::Priority(number) => format!("Priority={number}"),
            };
            let job = format!("JobId={id}");
            self.slurm.run("scontrol", &["update", &job, &set])?;
            self.ids.insert(name, id);
        }
        let depends = format!("afterok:{}", self.ids["last"]);
        let options = ["-p", "batch", "-d", &depends];
        let id = self.submit("yvonne", &options, &script)?;
        self.slurm.run(
            "scontrol",
            &["update", &format!("JobId={id}"), "SiteFactor=9500"],
        )?;
        self.ids.insert("dependent", id);
        Ok(())
    }

    /// What `fairmesh explain` says of a job, which may be named in the place of a user.
    fn explain(&self, job: &str) -> anyhow::Result<String> {
        let mut explain = Command::new(PROGRAM);
        explain
            .args(["explain", job, "--config"])
            .arg(self.site.config());
        let output = explain.output()?;
        ensure!(output.status.success(), "{output:?}");
        let words = String::from_utf8(output.stdout)?;
        ensure!(!words.contains("Unable to find"), "{words}");
        Ok(words)
    }

    /// How many jobs stand before one.
    fn before(&self, name: &str) -> anyhow::Result<u64> {
        let words = self.explain(&self.ids[name])?;
        let line = words
            .lines()
            .find(|line| line.contains(" stand before it;"));
        let line = line.with_context(|| format!("{name}: no place in {words}"))?;
        Ok(line.split(' ').next().unwrap_or_default().parse()?)
    }

    /// When Slurm plans to start each job, in seconds; none where it has no plan yet.
    fn planned(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self
            .slurm
            .run("squeue", &["-h", "-a", "--start", "-o", "%F|%S"])?;
        let rows = text.lines().filter_map(|line| line.split_once('|'));
        let rows = rows.filter_map(|(id, at)| Some((id.to_owned(), at.parse().ok()?)));
        Ok(rows.collect())
    }
}

/// Each word, in the place that `explain` gives it.
fn says(world: &World, name: &str, parts: &[&str]) -> anyhow::Result<()> {
    let words = world.explain(&world.ids[name])?;
    for part in parts {
        ensure!(words.contains(part), "{name}: no `{part}` in {words}");
    }
    Ok(())
}

fn the_words_fit(world: &World, running: &str) -> anyhow::Result<()> {
    for (name, expected) in ORDER {
        let before = world.before(name)?;
        ensure!(
            before == expected,
            "{name}: {before} before it, not {expected}"
        );
    }
    ensure!(world.before("aside")? == 0, "nobody else waits for n2");
    let cannot = "It cannot start now, whatever its priority";
    says(world, "later", &["the reason given is BeginTime", cannot])?;
    says(
        world,
        "dependent",
        &["the reason given is Dependency", cannot],
    )?;
    says(
        world,
        "closed",
        &["the reason given is PartitionDown", cannot],
    )?;
    says(world, "held", &["is held (JobHeldUser)"])?;
    says(
        world,
        "fixed",
        &["Its priority is 7000: an administrator has set this priority by hand"],
    )?;
    says(
        world,
        "last",
        &[
            "2 of them are in a partition of a higher PriorityTier",
            "3 of them are tasks of ",
            "which runs at most 2 at once",
            "(1 BeginTime, 1 Dependency, 1 JobHeldUser, 1 PartitionDown)",
            "/physics/yvonne",
        ],
    )?;
    let words = world.explain(running)?;
    ensure!(words.contains("is RUNNING: no priority matters"), "{words}");
    Ok(())
}

/// `squeue --start` plans no job after one that stands behind it.
fn the_plan_fits(world: &World) -> anyhow::Result<()> {
    let mut plan = BTreeMap::new();
    await_that("a plan for all that can start", || {
        plan = world.planned()?;
        Ok(ORDER
            .iter()
            .all(|(name, _)| plan.contains_key(&world.ids[name])))
    })?;
    let at = |name: &str| plan[&world.ids[name]];
    for pair in ORDER.windows(2) {
        let (first, second) = (pair[0].0, pair[1].0);
        ensure!(
            at(first) <= at(second),
            "{second} is planned before {first}: {plan:?}"
        );
    }
    for name in ["held", "dependent", "closed"] {
        ensure!(
            !plan.contains_key(&world.ids[name]),
            "{name} is planned: {plan:?}"
        );
    }
    ensure!(at("later") > at("last"), "{plan:?}");
    Ok(())
}

#[test]
fn a_real_slurm_starts_jobs_in_the_order_that_explain_says() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(mut world) = World::start(folder.path())? else {
        return Ok(());
    };
    let (gate, order) = (folder.path().join("gate"), folder.path().join("order"));
    fs::write(&order, "")?;
    let running = world.close(&gate)?;
    world.queue(&order)?;
    // Slurm gives the reason of a job when it has tried it.
    await_that("jobs that Slurm has tried", || {
        let reasons = ["-h", "-a", "-t", "PENDING", "-o", "%r"];
        let reasons = world.slurm.run("squeue", &reasons)?;
        Ok(reasons.lines().all(|reason| reason != "None"))
    })?;
    the_words_fit(&world, &running)?;
    the_plan_fits(&world)?;

    fs::write(&gate, "")?;
    // The one that depends on the last may start when that has ended.
    let started = || anyhow::Ok(fs::read_to_string(&order)?);
    await_that("all jobs have started", || {
        Ok(started()?.lines().count() == 15)
    })?;
    let started = started()?;
    let aside = &world.ids["aside"];
    let on_n1: Vec<&str> = started.lines().filter(|id| id != aside).collect();
    for (name, before) in ORDER {
        let first = on_n1.iter().position(|id| *id == world.ids[name]);
        let first = first.with_context(|| format!("{name} has not started: {on_n1:?}"))?;
        ensure!(
            u64::try_from(first)? == before,
            "{name}: {on_n1:?}, {:?}",
            world.ids
        );
    }
    ensure!(
        on_n1.last().copied() == Some(&*world.ids["dependent"]),
        "{on_n1:?}"
    );
    Ok(())
}
