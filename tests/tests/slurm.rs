//! Fairmesh is real when an unchanged Slurm schedules by it: real slurmctlds with a node each, one VO,
//! and no server between them.
//!
//! Jobs belong to the accounts `xavier` and `yvonne`, who have equal shares of the Grid. Where there is
//! no Slurm, or no root to start one, each test says so and passes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_model::SiteId;
use fairmesh_tests::{Accounts, Node, Site, Slurm, Started, Vo, await_that};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Cores of a job at B, which is all of B.
const CORES: u32 = 2;

/// How long a job at B sleeps.
const SECONDS: u32 = 2;

/// Most core-seconds that one job at B is charged: starting and ending take up to a second.
const JOB_MAX: i64 = (CORES as i64) * (SECONDS as i64 + 1);

struct Grid {
    a: Slurm,
    b: Slurm,
    a_node: Option<Node>,
    b_node: Node,
    a_site: Site,
    b_site: Site,
    vo: Vo,
    _folder: tempfile::TempDir,
}

/// Two Slurms, and two nodes that do not know each other's address yet: a mesh that is cut.
fn grid(accounts: Accounts<'_>) -> anyhow::Result<Option<Grid>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    let Some(a) = Slurm::start(&path.join("slurm-a"), "alpha", 8, accounts)? else {
        return Ok(None);
    };
    let Some(b) = Slurm::start(&path.join("slurm-b"), "beta", CORES, accounts)? else {
        return Ok(None);
    };
    if accounts == Accounts::Slurmdbd {
        introduce(&a)?;
        introduce(&b)?;
    }
    let a_site = Site::init(PROGRAM, &path.join("a"), "a")?;
    let b_site = Site::init(PROGRAM, &path.join("b"), "b")?;
    let vo = Vo::found(
        "physics",
        &[(a_site.id, "a"), (b_site.id, "b")],
        &["xavier", "yvonne"],
    )?;
    configure(&a_site, "a", &[], &vo, Some(&a))?;
    configure(&b_site, "b", &[], &vo, Some(&b))?;
    let (a_node, b_node) = (a_site.start()?, b_site.start()?);
    vo.publish(&a_node)?;
    vo.publish(&b_node)?;
    Ok(Some(Grid {
        a,
        b,
        a_node: Some(a_node),
        b_node,
        a_site,
        b_site,
        vo,
        _folder: folder,
    }))
}

/// slurmdbd has to know an account before a job may name it.
fn introduce(slurm: &Slurm) -> anyhow::Result<()> {
    slurm.run("sacctmgr", &["-i", "add", "account", "xavier,yvonne"])?;
    slurm.run(
        "sacctmgr",
        &["-i", "add", "user", "root", "account=xavier,yvonne"],
    )?;
    Ok(())
}

/// A node beside a Slurm: every account of the cluster is an entry of the VO.
fn configure(
    site: &Site,
    name: &str,
    peers: &[(SiteId, &str)],
    vo: &Vo,
    slurm: Option<&Slurm>,
) -> anyhow::Result<()> {
    let peers: Vec<String> = peers
        .iter()
        .map(|(id, at)| format!("\"{id}@{at}\""))
        .collect();
    let slurm = slurm.map_or_else(String::new, |slurm| {
        format!(
            "[slurm]\nslurm_conf = \"{}\"\ninterval = \"300ms\"\nfeed_interval = \"300ms\"\n",
            slurm.conf().display()
        )
    });
    let text = format!(
        "[site]\nname = \"{name}\"\n\
         [network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\npeers = [{}]\n\
         [timing]\npublish = \"100ms\"\nsync = \"300ms\"\nheartbeat = \"2s\"\n\
         [vos]\nphysics = \"{}\"\n\
         [[identity]]\naccount = \"*\"\nvo = \"physics\"\npath = \"/{{account}}\"\n\
         [shares]\n\"/physics\" = {{ share = 100, mount = \"physics\" }}\n{slurm}",
        peers.join(", "),
        vo.id()
    );
    std::fs::write(site.folder().join("fairmesh.toml"), text)?;
    Ok(())
}

impl Grid {
    /// A comes back with B's address; B, where jobs wait, just goes on.
    fn heal(&mut self) -> anyhow::Result<()> {
        if let Some(node) = self.a_node.take() {
            ensure!(node.stop()?.success());
        }
        let b = (self.b_site.id, self.b_node.address.as_str());
        configure(&self.a_site, "a", &[b], &self.vo, Some(&self.a))?;
        self.a_node = Some(self.a_site.start()?);
        Ok(())
    }

    /// xavier is busy at A alone; gives his core-seconds once A's node has counted them.
    fn xavier_is_busy_at_a(&self) -> anyhow::Result<u64> {
        self.a.submit("xavier", 8, 2, &[])?;
        self.a.await_idle()?;
        let jobs = self.a.started()?;
        let used: u64 = jobs.iter().map(|job| job.used * job.cores).sum();
        let node = self.a_node.as_ref().context("A runs")?;
        node.await_usage("physics", "xavier", used * 1_000)?;
        Ok(used)
    }

    /// Queues as many equal jobs of each at B, in turn, while nothing may start.
    fn queue_at_b(&self, each: u32) -> anyhow::Result<()> {
        self.b.open(false)?;
        for _ in 0..each {
            self.b.submit("xavier", CORES, SECONDS, &[])?;
            self.b.submit("yvonne", CORES, SECONDS, &[])?;
        }
        let all = usize::try_from(each * 2)?;
        await_that("site factors", || {
            let priorities = self.b.priorities()?;
            Ok(priorities
                .iter()
                .filter(|(_, priority)| *priority > 1)
                .count()
                == all)
        })
    }

    /// Waits until `count` jobs have ended at B since `after`, and gives them.
    fn ended_at_b(&self, after: u64, count: usize) -> anyhow::Result<Vec<Started>> {
        let mut jobs = Vec::new();
        await_that("jobs that end", || {
            jobs = self.b.started()?;
            jobs.retain(|job| job.id > after && job.ended);
            Ok(jobs.len() >= count)
        })?;
        Ok(jobs)
    }
}

/// Core-seconds by which xavier is ahead of yvonne, before each job and after the last.
fn lead(jobs: &[Started], at_first: u64) -> Vec<i64> {
    let mut lead = vec![i64::try_from(at_first).unwrap_or(i64::MAX)];
    for job in jobs {
        let used = i64::try_from(job.used * job.cores).unwrap_or(i64::MAX);
        let sign = if job.account == "xavier" { 1 } else { -1 };
        lead.push(lead[lead.len() - 1] + sign * used);
    }
    lead
}

/// yvonne's jobs start while she is behind by more than a job; then both stay even within one.
fn yvonne_catches_up(grid: &Grid, after: u64, at_first: u64) -> anyhow::Result<()> {
    await_that("yvonne before xavier", || {
        let priorities = grid.b.priorities()?;
        let of = |account: &str| {
            let rows = priorities.iter().filter(move |(who, _)| who == account);
            rows.map(|(_, priority)| *priority).collect::<Vec<_>>()
        };
        let (xavier, yvonne) = (of("xavier"), of("yvonne"));
        Ok(yvonne.iter().min() > xavier.iter().max() && !xavier.is_empty())
    })
    .with_context(|| {
        let usage = grid.b_node.usage("physics", "xavier");
        let log = std::fs::read_to_string(grid.b_site.folder().join("log"));
        format!(
            "{:?}, xavier's usage {usage:?}, {}",
            grid.b.priorities(),
            log.unwrap_or_default()
        )
    })?;
    grid.b.open(true)?;
    let enough = usize::try_from(at_first)? / usize::try_from(CORES * SECONDS)? + 2;
    let jobs = grid.ended_at_b(after, enough)?;
    let lead = lead(&jobs, at_first);
    for (job, lead) in jobs.iter().zip(&lead) {
        ensure!(
            *lead <= JOB_MAX || job.account == "yvonne",
            "xavier was ahead by {lead} core-seconds and was served: {jobs:?}"
        );
    }
    let even = lead.iter().position(|lead| lead.abs() <= JOB_MAX);
    let even = even.unwrap_or(lead.len());
    ensure!(even < lead.len(), "never even: {lead:?}");
    for lead in &lead[even..] {
        ensure!(lead.abs() <= 2 * JOB_MAX, "even, and then apart: {lead}");
    }
    Ok(())
}

#[test]
fn slurm_serves_whoever_used_less_of_the_grid() -> anyhow::Result<()> {
    let Some(mut grid) = grid(Accounts::Filetxt)? else {
        return Ok(());
    };
    let at_a = grid.xavier_is_busy_at_a()?;
    // The mesh is cut: B knows nothing of A, and serves both alike.
    grid.queue_at_b(2)?;
    grid.b.open(true)?;
    let jobs = grid.ended_at_b(0, 4)?;
    for lead in lead(&jobs, 0) {
        ensure!(lead.abs() <= 2 * JOB_MAX, "not alike while cut: {jobs:?}");
    }
    let (last, ahead) = (jobs.iter().map(|job| job.id).max(), lead(&jobs, at_a));
    // Healed, it turns.
    grid.queue_at_b(8)?;
    grid.heal()?;
    let ahead = u64::try_from(ahead[jobs.len()])?;
    yvonne_catches_up(&grid, last.unwrap_or(0), ahead)
}

#[test]
fn with_slurmdbd_it_is_the_same() -> anyhow::Result<()> {
    let Some(mut grid) = grid(Accounts::Slurmdbd)? else {
        return Ok(());
    };
    let at_a = grid.xavier_is_busy_at_a()?;
    grid.heal()?;
    grid.queue_at_b(8)?;
    yvonne_catches_up(&grid, 0, at_a)
}

/// Waits until a node's usage is what slurmdbd has accounted, when that has heard of everything.
fn await_equal(slurm: &Slurm, node: &Node, account: &str) -> anyhow::Result<()> {
    let (mut accounted, mut counted) = (0, 0);
    let equal = await_that("equal usage", || {
        accounted = slurm.accounted(account)?.unwrap_or(0) * 1_000;
        counted = node.usage("physics", account)?;
        Ok(accounted > 0 && accounted == counted)
    });
    equal.with_context(|| format!("{account}: {accounted} in sacct, {counted} in the mesh"))
}

#[test]
fn the_mesh_counts_what_slurm_accounts_to_the_core_second() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    let Some(slurm) = Slurm::start(&path.join("slurm"), "alpha", 8, Accounts::Slurmdbd)? else {
        return Ok(());
    };
    introduce(&slurm)?;
    let (a_site, b_site) = (
        Site::init(PROGRAM, &path.join("a"), "a")?,
        Site::init(PROGRAM, &path.join("b"), "b")?,
    );
    let vo = Vo::found(
        "physics",
        &[(a_site.id, "a"), (b_site.id, "b")],
        &["xavier", "yvonne"],
    )?;
    configure(&b_site, "b", &[], &vo, None)?;
    let b_node = b_site.start()?;
    configure(
        &a_site,
        "a",
        &[(b_site.id, &b_node.address)],
        &vo,
        Some(&slurm),
    )?;
    let a_node = a_site.start()?;
    vo.publish(&a_node)?;
    vo.publish(&b_node)?;

    let array = slurm.submit("yvonne", 1, 1, &["--array=1-5%2"])?;
    let requeued = slurm.submit("xavier", 2, 60, &["--requeue"])?;
    let cancelled = slurm.submit("xavier", 2, 60, &[])?;
    let stopped = slurm.submit("yvonne", 1, 4, &[])?;
    let never = slurm.submit("yvonne", 1, 1, &["-H"])?;
    await_that("jobs that run", || {
        Ok(slurm.started()?.iter().filter(|job| job.used >= 1).count() >= 4)
    })?;
    // kill -9 of the node, and with it of the feed, while jobs run and end.
    a_node.kill()?;
    slurm.run("scontrol", &["suspend", &stopped])?;
    slurm.run("scontrol", &["requeue", &requeued])?;
    slurm.restart_slurmctld()?;
    let a_node = a_site.start()?;
    slurm.run("scancel", &[&cancelled, &never, &requeued])?;
    slurm.run("scontrol", &["resume", &stopped])?;
    slurm.await_idle()?;
    ensure!(array.parse::<u64>().is_ok());
    for account in ["xavier", "yvonne"] {
        for node in [&a_node, &b_node] {
            await_equal(&slurm, node, account)?;
        }
    }
    // The feed begins anew without its cursor: everything is reported once more, and nothing counts.
    let before = (
        a_node.usage("physics", "xavier")?,
        a_node.usage("physics", "yvonne")?,
    );
    ensure!(a_node.stop()?.success());
    std::fs::remove_file(a_site.data().join("slurm-feed.json"))?;
    let a_node = a_site.start()?;
    await_that("a new cursor", || {
        Ok(Path::new(&a_site.data()).join("slurm-feed.json").exists())
    })?;
    let after = (
        a_node.usage("physics", "xavier")?,
        a_node.usage("physics", "yvonne")?,
    );
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// Without slurmdbd: what Slurm shows of its jobs is what the node counts, and a reset leaves nothing.
fn without_slurmdbd(slurm: &Slurm, folder: &Path, more: &str) -> anyhow::Result<()> {
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["xavier", "yvonne"])?;
    configure(&site, "a", &[], &vo, Some(slurm))?;
    let file = site.folder().join("fairmesh.toml");
    std::fs::write(&file, std::fs::read_to_string(&file)? + more)?;
    let node = site.start()?;
    vo.publish(&node)?;
    slurm.submit("yvonne", 1, 1, &["--array=1-3%2"])?;
    let cancelled = slurm.submit("xavier", 2, 60, &[])?;
    let stopped = slurm.submit("yvonne", 2, 3, &[])?;
    await_that("jobs that run", || {
        Ok(slurm.started()?.iter().filter(|job| job.used >= 1).count() >= 4)
    })?;
    slurm.run("scontrol", &["suspend", &stopped])?;
    // The last jobs end while the node is away.
    node.kill()?;
    slurm.run("scancel", &[&cancelled])?;
    await_that("a job that has stood still for two seconds", || {
        let row = slurm.run("squeue", &["-h", "-j", &stopped, "-o", "%S|%M"])?;
        let (start, used) = row.split_once("|0:").context("a start and a time")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(now >= start.parse::<u64>()? + used.parse::<u64>()? + 2)
    })?;
    slurm.run("scontrol", &["resume", &stopped])?;
    slurm.await_idle()?;
    let node = site.start()?;
    for account in ["xavier", "yvonne"] {
        let jobs = slurm.started()?;
        let jobs = jobs.iter().filter(|job| job.account == account);
        let used: u64 = jobs.map(|job| job.used * job.cores).sum();
        ensure!(used > 0, "{account} has used nothing");
        node.await_usage("physics", account, used * 1_000)?;
    }
    reset_leaves_nothing(slurm, &site, node)
}

fn reset_leaves_nothing(slurm: &Slurm, site: &Site, node: Node) -> anyhow::Result<()> {
    slurm.open(false)?;
    let held = slurm.submit("yvonne", 1, 1, &["-H"])?;
    slurm.submit("xavier", 1, 1, &[])?;
    slurm.submit("yvonne", 1, 1, &["--array=1-3"])?;
    let set = |wanted: usize| {
        let priorities = slurm.priorities()?;
        Ok(priorities
            .iter()
            .filter(|(_, priority)| *priority > 1)
            .count()
            == wanted)
    };
    await_that("site factors", || set(2))?;
    node.kill()?;
    let output = std::process::Command::new(PROGRAM)
        .args(["slurm", "sync", "--reset", "--config"])
        .arg(site.folder().join("fairmesh.toml"))
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(set(0)?, "{:?}", slurm.priorities()?);
    let reason = slurm.run("squeue", &["-h", "-j", &held, "-o", "%r"])?;
    ensure!(reason == "JobHeldUser", "the held job is {reason}");
    Ok(())
}

#[test]
fn finished_jobs_come_from_the_file_of_jobcomp() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    match Slurm::start(&folder.path().join("slurm"), "alpha", 8, Accounts::Filetxt)? {
        Some(slurm) => without_slurmdbd(&slurm, folder.path(), ""),
        None => Ok(()),
    }
}

#[test]
fn finished_jobs_come_from_the_hook() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (hook, spool) = (folder.path().join("hook"), folder.path().join("spool"));
    std::fs::create_dir(&spool)?;
    let text = format!(
        "#!/bin/sh\nexec {PROGRAM} slurm hook --spool {}\n",
        spool.display()
    );
    std::fs::write(&hook, text)?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    let accounts = Accounts::Script(&hook);
    let Some(slurm) = Slurm::start(&folder.path().join("slurm"), "alpha", 8, accounts)? else {
        return Ok(());
    };
    without_slurmdbd(
        &slurm,
        folder.path(),
        &format!("spool = \"{}\"\n", spool.display()),
    )?;
    ensure!(
        std::fs::read_dir(&spool)?.count() == 0,
        "records are left in the spool"
    );
    Ok(())
}
