//! How fast a queue is put into another order, and what it costs the batch system: for each one that is here,
//! `cargo bench -p fairmesh-tests --bench reorder -- 1000` lets so many jobs of a hundred accounts wait, turns the order of the
//! accounts round, and times one `fairmesh SYSTEM sync --once` with the highest `rate` of updates. Names of systems behind the
//! number choose some.
//!
//! What the batch system's own order is afterwards is read from itself. CPU is that of its daemons (all threads, to 10 ms), and
//! of what `sync` and the commands that it runs take. It needs root; a system that is absent is named and not measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::gridengine;
use fairmesh_tests::beside::Beside;
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::{Site, Vo, condor, gridengine as ge};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Accounts that wait, each with as many jobs.
const ACCOUNTS: usize = 100;

/// Ticks of a process' times in `/proc`, a second.
const TICKS: u64 = 100;

/// A batch system in which nothing starts.
trait Queue {
    /// What it says of its version.
    fn version(&self) -> anyhow::Result<String>;

    /// Has so many jobs of an account wait.
    fn gather(&mut self, account: &str, jobs: usize) -> anyhow::Result<()>;

    /// For each account the place that the system gives its jobs: the higher, the sooner.
    fn places(&self) -> anyhow::Result<BTreeMap<String, i64>>;
}

/// One that is measured.
struct System<'a> {
    name: &'static str,
    /// Its table's own keys.
    keys: String,
    /// Its daemons, as `/proc` has their names.
    daemons: &'a [&'a str],
    queue: Box<dyn Queue>,
}

/// Starts one, or finds that it is not here.
type Start = fn(&Path) -> anyhow::Result<Option<System<'static>>>;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let jobs: Option<usize> = words.iter().find_map(|word| word.parse().ok());
    let each = jobs.unwrap_or(1_000).div_ceil(ACCOUNTS);
    let all: [(&str, Start); 3] = [
        ("slurm", of_slurm),
        ("gridengine", of_grid_engine),
        ("condor", of_condor),
    ];
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let is_any_named = all.iter().any(|(name, _)| is_named(name));
    for (_, start) in all
        .iter()
        .filter(|(name, _)| !is_any_named || is_named(name))
    {
        let folder = tempfile::tempdir()?;
        let others = processes()?.into_keys().collect();
        if let Some(system) = start(folder.path())? {
            measure(folder.path(), system, each, &others)?;
        }
    }
    Ok(())
}

/// Turns round the order of the accounts, each of which has so many jobs. The processes of others are not counted.
fn measure(
    folder: &Path,
    mut system: System<'_>,
    each: usize,
    others: &BTreeSet<u32>,
) -> anyhow::Result<()> {
    let names: Vec<String> = (0..ACCOUNTS).map(|at| format!("a{at:03}")).collect();
    let users: Vec<&str> = names.iter().map(String::as_str).collect();
    let site = Site::init(PROGRAM, &folder.join("site"), system.name)?;
    let vo = Vo::found("physics", &[(site.id, system.name)], &users)?;
    let keys = format!("with_node = false\nrate = 10000\n{}", system.keys);
    let beside = Beside::join(site, system.name, &vo, &[], &keys)?;
    for name in &names {
        system.queue.gather(name, each)?;
    }
    // The later in the alphabet, the more used.
    report(&beside, names.iter().zip(1..))?;
    until_news(&beside)?;
    sync(&beside)?;
    ordered(&system, names.iter().rev())?;
    report(&beside, names.iter().rev().zip((2..).step_by(2)))?;
    until_news(&beside)?;

    let before = [cpu(system.daemons, others)?, cpu_of_children()?];
    let began = Instant::now();
    let said = sync(&beside)?;
    let took = began.elapsed().as_secs_f64();
    let after = [cpu(system.daemons, others)?, cpu_of_children()?];
    ordered(&system, names.iter())?;
    let jobs = each * ACCOUNTS;
    let [daemons, commands] = [0, 1].map(|at| (after[at] - before[at]).as_secs_f64());
    println!(
        "{} {}: {jobs} jobs in another order after {took:.2} s, {:.0} jobs a second; CPU of {} {daemons:.2} s, of sync and its \
         commands {commands:.2} s; {said}",
        system.name,
        system.queue.version()?,
        jobs as f64 / took,
        system.daemons.join(", "),
    );
    Ok(())
}

/// Core-seconds that accounts have used since.
fn report<'a>(
    beside: &Beside,
    used: impl Iterator<Item = (&'a String, usize)>,
) -> anyhow::Result<()> {
    let end = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let end = end.as_millis();
    let line = |(account, used): (&String, usize)| {
        format!(
            "{{\"cluster\":\"bench\",\"job\":\"{account} {used} {end}\",\"account\":\"{account}\",\"start_ms\":{},\
             \"end_ms\":{end},\"cores\":{used}}}\n",
            end - 1_000
        )
    };
    let lines: String = used.map(line).collect();
    let answer = beside.node.http("POST", "/v1/records", lines.as_bytes())?;
    ensure!(answer.body["counted"] == ACCOUNTS, "{answer:?}");
    Ok(())
}

/// Waits until the node has made its next order.
fn until_news(beside: &Beside) -> anyhow::Result<()> {
    await_that("another order", || {
        let (_, words) = beside.run(&["sync", "--once", "--dry-run"])?;
        Ok(!words.contains("would update 0"))
    })
}

fn sync(beside: &Beside) -> anyhow::Result<String> {
    let (is_content, words) = beside.run(&["sync", "--once"])?;
    ensure!(is_content, "{words}");
    Ok(words.trim().to_owned())
}

/// Whether the system serves the accounts in this order, the last one first.
fn ordered<'a>(
    system: &System<'_>,
    wanted: impl Iterator<Item = &'a String>,
) -> anyhow::Result<()> {
    let places = system.queue.places()?;
    let mut accounts: Vec<(&i64, &String)> =
        places.iter().map(|(name, place)| (place, name)).collect();
    accounts.sort_unstable();
    let is_strict = accounts.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let accounts = accounts.into_iter().map(|(_, name)| name);
    ensure!(is_strict && accounts.eq(wanted), "{places:?}");
    Ok(())
}

/// What all processes of these names but the others have taken so far, here and in any network of their own.
fn cpu(names: &[&str], others: &BTreeSet<u32>) -> anyhow::Result<Duration> {
    let mut all = Duration::ZERO;
    for (id, stat) in processes()? {
        let (name, [own, _]) = times(&stat)?;
        if names.contains(&name) && !others.contains(&id) {
            all += own;
        }
    }
    Ok(all)
}

/// All processes, by number, with what `/proc/PID/stat` says.
fn processes() -> anyhow::Result<BTreeMap<u32, String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        // A process may end while its neighbours are read.
        if let Some(id) = entry.file_name().to_str().and_then(|it| it.parse().ok())
            && let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
        {
            all.insert(id, stat);
        }
    }
    Ok(all)
}

/// What the children of this process that have ended took, and their own.
fn cpu_of_children() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, [_, children]) = times(&stat)?;
    Ok(children)
}

/// A process' name, what it has taken, and what its children did that have ended (proc(5), `/proc/PID/stat`).
fn times(stat: &str) -> anyhow::Result<(&str, [Duration; 2])> {
    let named = stat
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(')'));
    let (name, rest) = named.context("a name")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let taken = |at: usize| -> anyhow::Result<Duration> {
        let ticks = words[at].parse::<u64>()? + words[at + 1].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 1_000 / TICKS))
    };
    Ok((name, [taken(11)?, taken(13)?]))
}

struct OfSlurm(Slurm);

fn of_slurm(folder: &Path) -> anyhow::Result<Option<System<'static>>> {
    let kind = Kind {
        name: "bench",
        cpus: 1,
        nodes: 1,
        accounts: Accounts::None,
        conf: "MaxJobCount=100000\n",
        plugins: None,
    };
    let Some(slurm) = Slurm::start(&folder.join("slurm"), kind)? else {
        return Ok(None);
    };
    slurm.open(false)?;
    Ok(Some(System {
        name: "slurm",
        keys: format!("slurm_conf = \"{}\"\n", slurm.conf().display()),
        daemons: &["slurmctld"],
        queue: Box::new(OfSlurm(slurm)),
    }))
}

impl Queue for OfSlurm {
    fn version(&self) -> anyhow::Result<String> {
        let said = self.0.run("sinfo", &["--version"])?;
        Ok(said.trim_start_matches("slurm-wlm ").to_owned())
    }

    fn gather(&mut self, account: &str, jobs: usize) -> anyhow::Result<()> {
        for _ in 0..jobs {
            self.0.submit(account, 1, Duration::from_secs(1), &[])?;
        }
        Ok(())
    }

    fn places(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        apart(self.0.priorities()?)
    }
}

struct OfGridEngine {
    pool: ge::Pool,
    accounts: BTreeMap<u64, String>,
}

fn of_grid_engine(folder: &Path) -> anyhow::Result<Option<System<'static>>> {
    let Some(pool) = ge::Pool::start(&folder.join("pool"), 1)? else {
        return Ok(None);
    };
    pool.schedule_by(&gridengine::WANTED)?;
    pool.open(false)?;
    let (root, commands) = (pool.root(), pool.commands());
    let (root, commands) = (root.display(), commands.display());
    Ok(Some(System {
        name: "gridengine",
        keys: format!("root = \"{root}\"\nbin_dir = \"{commands}\"\n"),
        daemons: &["sge_qmaster"],
        queue: Box::new(OfGridEngine {
            pool,
            accounts: BTreeMap::new(),
        }),
    }))
}

impl Queue for OfGridEngine {
    fn version(&self) -> anyhow::Result<String> {
        // The first line of what it says to those who need help.
        let said = self.pool.run("qstat", &["-help"])?;
        Ok(said.lines().next().unwrap_or_default().to_owned())
    }

    fn gather(&mut self, account: &str, jobs: usize) -> anyhow::Result<()> {
        self.pool.add_project(account)?;
        for _ in 0..jobs {
            let job = self.pool.submit(account, 1, 1)?;
            self.accounts.insert(job, account.to_owned());
        }
        Ok(())
    }

    fn places(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let of = |(job, tickets): (u64, u64)| {
            let account = self.accounts.get(&job).context("a job of ours")?;
            Ok((account.clone(), i64::try_from(tickets)?))
        };
        let tickets = self.pool.tickets()?.into_iter().map(of);
        apart(tickets.collect::<anyhow::Result<_>>()?)
    }
}

struct OfCondor(condor::Pool);

fn of_condor(folder: &Path) -> anyhow::Result<Option<System<'static>>> {
    let Some(pool) = condor::Pool::start(&folder.join("pool"), 1)? else {
        return Ok(None);
    };
    pool.open(false)?;
    let (history, commands) = (pool.history(), pool.commands());
    let (history, commands) = (history.display(), commands.display());
    Ok(Some(System {
        name: "condor",
        keys: format!("history = \"{history}\"\nbin_dir = \"{commands}\"\n"),
        daemons: &["condor_schedd", "condor_negotiat", "condor_collecto"],
        queue: Box::new(OfCondor(pool)),
    }))
}

impl Queue for OfCondor {
    fn version(&self) -> anyhow::Result<String> {
        let said = self.0.run("", "condor_version", &[])?;
        Ok(said
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned())
    }

    fn gather(&mut self, account: &str, jobs: usize) -> anyhow::Result<()> {
        self.0.submit_many("games", account, 1, 1, jobs).map(|_| ())
    }

    fn places(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let priorities = self.0.priorities()?.into_iter();
        let places = priorities.filter_map(|(submitter, priority)| {
            let (account, _) = submitter.split_once(".games@")?;
            // The smallest is served first; what is not negative has the order of its bits.
            Some((account.to_owned(), -priority.to_bits().cast_signed()))
        });
        Ok(places.collect())
    }
}

/// One place for each account, which all of its jobs have.
fn apart(jobs: Vec<(String, i64)>) -> anyhow::Result<BTreeMap<String, i64>> {
    let mut places = BTreeMap::new();
    for (account, place) in jobs {
        let other = places.insert(account.clone(), place);
        ensure!(
            other.is_none_or(|other| other == place),
            "jobs of {account} are not alike"
        );
    }
    Ok(places)
}
