//! The Slurm plug-in `site_factor/fairmesh` in a real slurmctld, beside a real node.
//!
//! It needs root, Debian's Slurm packages, Slurm's source (`FAIRMESH_SLURM_SRC`, else below
//! `target/slurm-src`) and the script `mini-slurm.sh` (in the folder `FAIRMESH_TOOLS`, else beside
//! the repository). Where one of them is missing each test says which, and passes.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::{Node, Site, Vo, records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Users that every Debian has. They have equal shares of the VO.
const USERS: [&str; 3] = ["daemon", "games", "man"];

/// Points of the highest factor.
const WEIGHT: u64 = 1_000_000;

/// A mini-Slurm takes a range of ports, and two cores are few: one cluster at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

// ---- What a test is about. ----

#[test]
fn jobs_start_by_their_grid_wide_factors_and_a_node_that_is_away_changes_nothing()
-> anyhow::Result<()> {
    let Some(bench) = bench() else { return Ok(()) };
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
    let slurm = bench.slurm(&format!("{},old=3", bench.parameters(&site)))?;
    let gate = slurm.close_gate()?;
    let users = ["daemon", "games", "man", "daemon", "games", "man"];
    for user in users {
        slurm.queue(user, &format!("echo {user} >> {}", slurm.order().display()))?;
    }
    slurm.until("the site factors are in the order of the usage", || {
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
    println!("{}", slurm.ask("sprio", &["-l"])?);

    // The node goes; its last word stays, and the log says how old it is.
    let before = slurm.site_factors()?;
    node.kill()?;
    slurm.until_logged("DATA IS OLD: the node has not answered for")?;
    assert_eq!(slurm.site_factors()?, before);
    fs::write(gate, "")?;
    slurm.until("all jobs have run", || {
        Ok(fs::read_to_string(slurm.order())?.lines().count() == users.len())
    })?;
    let order = fs::read_to_string(slurm.order())?;
    assert_eq!(order, "man\nman\ngames\ngames\ndaemon\ndaemon\n");
    assert_eq!(slurm.log()?.matches("DATA IS OLD").count(), 1, "said once");

    // The node comes back; so does the word.
    let _node = site.start()?;
    slurm.until_logged("the node answers again")
}

#[test]
fn wrong_parameters_disable_it_loudly_and_slurm_schedules_on() -> anyhow::Result<()> {
    let Some(bench) = bench() else { return Ok(()) };
    let slurm = bench.slurm("socket=/nowhere,wait=3")?;
    slurm.until_logged("site_factor/fairmesh: DISABLED: `wait` is none of socket, weight")?;
    slurm.queue("games", &format!("echo ran >> {}", slurm.order().display()))?;
    slurm.until("the job has run", || {
        Ok(fs::read_to_string(slurm.order())? == "ran\n")
    })?;

    // Mended without a restart; the site's node is not there yet.
    slurm.configure("wait=3", "weight=3")?;
    slurm.until_logged("NO ANSWER yet from /nowhere")?;
    slurm.queue(
        "games",
        &format!("echo again >> {}", slurm.order().display()),
    )?;
    slurm.until("the job has run", || {
        Ok(fs::read_to_string(slurm.order())? == "ran\nagain\n")
    })
}

#[test]
fn a_held_job_keeps_its_hold_and_gets_its_factor_when_it_is_released() -> anyhow::Result<()> {
    let Some(bench) = bench() else { return Ok(()) };
    let (site, _node) = bench.node()?;
    let slurm = bench.slurm(&bench.parameters(&site))?;
    let _gate = slurm.close_gate()?;
    let held = slurm.submit("man", &["--hold"], "true")?;
    slurm.queue("games", "true")?;
    slurm.until("the other job has its factor", || {
        Ok(slurm
            .site_factors()?
            .iter()
            .any(|(who, factor)| who == "games" && *factor > 0))
    })?;
    let priority = || slurm.ask("squeue", &["-h", "-o", "%Q", "-j", &held]);
    assert_eq!(priority()?.trim(), "0");
    slurm.ask("scontrol", &["release", &held])?;
    slurm.until("the released job has its factor", || {
        Ok(slurm
            .site_factors()?
            .iter()
            .any(|(who, factor)| who == "man" && *factor > 0))
    })
}

/// Nothing is asserted of the figures: they are the machine's. They go to the test's output.
#[test]
fn ten_thousand_pending_jobs_are_changed_in_short_lock_holds() -> anyhow::Result<()> {
    let Some(bench) = bench() else { return Ok(()) };
    let (site, node) = bench.node()?;
    let slurm = bench.slurm(&bench.parameters(&site))?;
    let _gate = slurm.close_gate()?;
    let mut first = 0;
    for (count, array) in [(1_000, "0-999"), (10_000, "1000-9999")] {
        // Tasks of an array share a record until one of them is named apart.
        let task = format!("--array={array},19999");
        let job = slurm.submit("man", &[&task], "true")?;
        slurm.ask(
            "scontrol",
            &["update", &format!("JobId={job}_[{array}]"), "Nice=0"],
        )?;
        slurm.until("all jobs have a factor", || {
            let factors = slurm.site_factors()?;
            Ok(factors.len() >= count && factors.iter().all(|(_, factor)| *factor > 0))
        })?;
        println!("{count} pending, in rest: {}", slurm.response(20)?);
        let lines = slurm.changes()?.len();
        let changing = std::thread::scope(|scope| {
            let asking = scope.spawn(|| slurm.response(600));
            for user in ["man", "games", "man"] {
                let known = slurm.changes()?.len();
                let usage = records("physics", user, first, 50);
                let answer = node.http("POST", "/v1/records", &usage)?;
                ensure!(answer.status == 200, "{answer:?}");
                first += 50;
                slurm.until("a pass has changed them all", || {
                    let passes = slurm.changes()?;
                    Ok(passes[known..].iter().any(|line| changes(line) >= count))
                })?;
            }
            asking.join().expect("it does not panic")
        })?;
        println!("{count} pending, while they change: {changing}");
        println!("{}", slurm.changes()?[lines..].join("\n"));
    }
    slurm.configure("site_factor/fairmesh", "site_factor/none")?;
    slurm.script("restart-ctld", &[])?;
    println!("without the plug-in: {}", slurm.response(20)?);
    Ok(())
}

// ---- What it is tried on. ----

/// Everything that a test needs from the machine, and a folder for it.
struct Bench {
    _turn: std::sync::MutexGuard<'static, ()>,
    folder: tempfile::TempDir,
    script: PathBuf,
    plugin: PathBuf,
}

/// `None`, and a word on the output, where the machine has not what it takes.
fn bench() -> Option<Bench> {
    let turn = ONE_AT_A_TIME.lock();
    let turn = turn.unwrap_or_else(std::sync::PoisonError::into_inner);
    let (script, source) = match (script(), source(), missing()) {
        (Some(script), Some(source), None) => (script, source),
        (script, source, missing) => {
            let script = script.map_or("no mini-slurm.sh: set FAIRMESH_TOOLS; ", |_| "");
            let source = source.map_or("no source of Slurm: set FAIRMESH_SLURM_SRC; ", |_| "");
            let missing = missing.unwrap_or_default();
            println!("SKIPPED, the plug-in was not tried: {script}{source}{missing}");
            return None;
        }
    };
    Some(Bench {
        _turn: turn,
        folder: tempfile::tempdir().expect("a folder"),
        script,
        plugin: built(&source),
    })
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("it lies below the root").to_owned()
}

/// The folder that cargo builds into.
fn target() -> PathBuf {
    let program = Path::new(PROGRAM);
    program
        .ancestors()
        .nth(2)
        .expect("target/PROFILE/PROGRAM")
        .to_owned()
}

fn script() -> Option<PathBuf> {
    let named = std::env::var_os("FAIRMESH_TOOLS").map(PathBuf::from);
    let tools = named.unwrap_or_else(|| root().join("../shared/tools"));
    Some(tools.join("mini-slurm.sh")).filter(|script| script.exists())
}

fn source() -> Option<PathBuf> {
    let is_source = |folder: &PathBuf| folder.join("src/slurmctld/slurmctld.h").exists();
    if let Some(named) = std::env::var_os("FAIRMESH_SLURM_SRC") {
        return Some(PathBuf::from(named)).filter(is_source);
    }
    let unpacked = fs::read_dir(root().join("target/slurm-src"))
        .ok()?
        .flatten();
    unpacked.map(|entry| entry.path()).find(is_source)
}

fn missing() -> Option<String> {
    let programs = ["slurmctld", "slurmd", "sbatch", "munged", "cc", "make"];
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Path::new);
    let is_there = |program: &&str| !folders.iter().any(|folder| folder.join(program).exists());
    let absent: Vec<_> = programs.into_iter().filter(is_there).collect();
    if !absent.is_empty() {
        return Some(format!("no {}", absent.join(", ")));
    }
    if !Path::new("/usr/include/slurm/slurm_version.h").exists() {
        return Some("no headers of Slurm (Debian: libslurm-dev)".to_owned());
    }
    let id = Command::new("id").arg("-u").output().ok()?;
    (id.stdout != b"0\n").then(|| "not root".to_owned())
}

/// The folder of the plug-in, built as an administrator builds it, but with the library of the
/// profile that the tests are built with.
fn built(source: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let library = target().join("debug/libfairmesh_client_ffi.a");
    let folder = target().join("slurm-plugin");
    let mut steps = [Command::new(cargo), Command::new("make")];
    steps[0]
        .args(["build", "--quiet", "--package", "fairmesh-client-ffi"])
        .arg("--target-dir")
        .arg(target());
    let value = |name: &str, path: &Path| format!("{name}={}", path.display());
    steps[1]
        .args(["--silent", "--directory", "crates/client-ffi/slurm"])
        .arg(value("SLURM_SRC", source))
        .arg(value("FAIRMESH_LIB", &library))
        .arg(value("BUILD", &folder));
    for mut step in steps {
        let output = step
            .current_dir(root())
            .output()
            .expect("it can be started");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{step:?}: {words}");
    }
    folder
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

    /// A cluster of one core, so that jobs start one behind the other.
    fn slurm(&self, parameters: &str) -> anyhow::Result<Slurm> {
        let folder = self.folder.path().join("slurm");
        let extra = self.folder.path().join("extra.conf");
        let mut text = format!(
            "PrioritySiteFactorPlugin=site_factor/fairmesh\nPrioritySiteFactorParameters={parameters}\n"
        );
        writeln!(text, "SlurmctldDebug=debug\nMaxArraySize=20001")?;
        writeln!(
            text,
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1"
        )?;
        fs::write(&extra, text)?;
        fs::write(self.folder.path().join("order"), "")?;
        // The jobs' users are not the one who made the folder.
        let open = Permissions::from_mode(0o777);
        fs::set_permissions(self.folder.path(), open.clone())?;
        fs::set_permissions(self.folder.path().join("order"), open)?;
        let slurm = Slurm {
            script: self.script.clone(),
            folder,
        };
        let port = fairmesh_tests::free_ports()?.to_string();
        let extra = extra.to_str().context("UTF-8")?;
        let plugin = self.plugin.to_str().context("UTF-8")?;
        let mut options = vec!["--cpus", "1", "--nodes", "1", "--port", &port];
        options.extend(["--plugin-dir", plugin, "--extra", extra]);
        slurm.script("start", &options)?;
        Ok(slurm)
    }
}

/// A running mini-Slurm. Stopped when dropped.
struct Slurm {
    script: PathBuf,
    folder: PathBuf,
}

impl Slurm {
    fn script(&self, verb: &str, options: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.script);
        run(command.arg(verb).arg(&self.folder).args(options))
    }

    /// One of Slurm's commands.
    fn ask(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let conf = self.folder.join("etc/slurm.conf");
        run(Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", conf))
    }

    /// The file that jobs write themselves into as they run.
    fn order(&self) -> PathBuf {
        self.folder.with_file_name("order")
    }

    /// Gives the job's id.
    fn submit(&self, user: &str, options: &[&str], script: &str) -> anyhow::Result<String> {
        let mut arguments = vec!["--parsable", "--account=physics", "--chdir=/"];
        let (uid, wrap) = (format!("--uid={user}"), format!("--wrap={script}"));
        arguments.extend(["--output=/dev/null", "--ntasks=1", &uid, &wrap]);
        arguments.extend(options);
        Ok(self.ask("sbatch", &arguments)?.trim().to_owned())
    }

    fn queue(&self, user: &str, script: &str) -> anyhow::Result<()> {
        self.submit(user, &[], script).map(|_| ())
    }

    /// Keeps the only core busy until somebody makes the file that this gives.
    fn close_gate(&self) -> anyhow::Result<PathBuf> {
        let gate = self.folder.with_file_name("gate");
        let wait = format!("until [ -e {} ]; do sleep 0.1; done", gate.display());
        let job = self.submit("root", &[], &wait)?;
        self.until("the gate is closed", || {
            Ok(self.ask("squeue", &["-h", "-o", "%T", "-j", &job])?.trim() == "RUNNING")
        })?;
        Ok(gate)
    }

    /// User and site factor of each pending job that is not held, by job.
    fn site_factors(&self) -> anyhow::Result<Vec<(String, i64)>> {
        let text = self.ask("sprio", &["-h", "-o", "%u %S"])?;
        let parse = |line: &str| {
            let (user, factor) = line.trim().split_once(' ').context("two columns")?;
            Ok((user.to_owned(), factor.trim().parse()?))
        };
        text.lines().map(parse).collect()
    }

    /// Replaces a text of slurm.conf, and has it read again.
    fn configure(&self, before: &str, after: &str) -> anyhow::Result<()> {
        let conf = self.folder.join("etc/slurm.conf");
        let text = fs::read_to_string(&conf)?;
        ensure!(text.contains(before), "nothing to replace");
        fs::write(&conf, text.replace(before, after))?;
        self.ask("scontrol", &["reconfigure"]).map(|_| ())
    }

    fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.folder.join("log/slurmctld.log"))?)
    }

    fn until_logged(&self, words: &str) -> anyhow::Result<()> {
        self.until(words, || Ok(self.log()?.contains(words)))
    }

    /// The plug-in's own lines on what it changed.
    fn changes(&self) -> anyhow::Result<Vec<String>> {
        let log = self.log()?;
        let of_plugin = |line: &&str| line.contains("site_factor/fairmesh: changed ");
        Ok(log.lines().filter(of_plugin).map(str::to_owned).collect())
    }

    /// How long `scontrol ping` and `sdiag` take, so many times each: the middle and the longest.
    fn response(&self, times: usize) -> anyhow::Result<String> {
        let mut words = String::new();
        for (program, arguments) in [("scontrol", &["ping"][..]), ("sdiag", &[])] {
            let mut took = Vec::new();
            for _ in 0..times {
                let began = Instant::now();
                self.ask(program, arguments)?;
                took.push(began.elapsed());
            }
            took.sort();
            let (middle, longest) = (took[times / 2], took[times - 1]);
            write!(words, "{program} {middle:?} (at most {longest:?}) ")?;
        }
        Ok(words)
    }

    fn until(&self, what: &str, is: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is()? {
            if began.elapsed() > PATIENCE {
                let log = self.log()?;
                let lines: Vec<_> = log
                    .lines()
                    .filter(|it| it.contains("site_factor"))
                    .collect();
                bail!("never: {what}\n{}", lines.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log().unwrap_or_default());
        }
        let _ = self.script("stop", &[]);
    }
}

/// The number of changed jobs in a line of [`Slurm::changes`].
fn changes(line: &str) -> usize {
    let after = line.split_once("changed ").map_or("", |(_, after)| after);
    let number = after.split(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {words}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
