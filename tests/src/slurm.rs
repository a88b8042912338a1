//! A throw-away Slurm for a test, made by the script `mini-slurm.sh` of the tools beside this
//! repository, or of the folder that `FAIRMESH_TOOLS` names.
//!
//! Invariant: a Slurm that is dropped is stopped; its ports were free a moment ago. Where the script,
//! the packages or the rights are missing, there is none, and the reason is said.
//! Deliberately not here: nodes (`process`), and what a test is about.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

/// How long a state of Slurm may take to be reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Slurm of one machine.
pub struct Slurm {
    script: PathBuf,
    folder: PathBuf,
}

/// Where a Slurm writes what has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounts<'a> {
    /// Into a database.
    Slurmdbd,
    /// Into a file.
    Filetxt,
    /// To a program.
    Script(&'a Path),
}

/// A job that has started, as `squeue` shows it.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its number.
    pub id: u64,
    /// Its account.
    pub account: String,
    /// When, in seconds since 1970.
    pub start: u64,
    /// For how long it has run, in seconds.
    pub used: u64,
    /// On how many cores.
    pub cores: u64,
    /// Whether it has ended.
    pub ended: bool,
}

impl Slurm {
    /// Starts one, or says what is missing.
    pub fn start(
        folder: &Path,
        name: &str,
        cpus: u32,
        accounts: Accounts<'_>,
    ) -> anyhow::Result<Option<Self>> {
        let with_slurmdbd = accounts == Accounts::Slurmdbd;
        let Some(script) = script(with_slurmdbd) else {
            return Ok(None);
        };
        std::fs::create_dir_all(folder)?;
        let extra = folder.join("extra.conf");
        let mut lines = "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1\n"
            .to_owned();
        match accounts {
            Accounts::Slurmdbd => {}
            Accounts::Filetxt => {
                let log = folder.join("jobcomp.log");
                lines.push_str("JobCompType=jobcomp/filetxt\n");
                lines.push_str(&format!("JobCompLoc={}\n", log.display()));
            }
            Accounts::Script(hook) => {
                lines.push_str("JobCompType=jobcomp/script\n");
                lines.push_str(&format!("JobCompLoc={}\n", hook.display()));
            }
        }
        std::fs::write(&extra, lines)?;
        let slurm = Self {
            script,
            folder: folder.to_owned(),
        };
        let cpus = cpus.to_string();
        let mut complaint = String::new();
        // Somebody may take one of the ports between the look and the start.
        for _ in 0..3 {
            let port = free_ports()?.to_string();
            let mut start = Command::new(&slurm.script);
            start.arg("start").arg(folder).arg("--extra").arg(&extra);
            start.args(["--nodes", "1", "--cluster", name]);
            start.args(["--cpus", &cpus, "--port", &port]);
            if with_slurmdbd {
                start.arg("--dbd");
            }
            let output = start.output()?;
            if output.status.success() {
                return Ok(Some(slurm));
            }
            complaint = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            Command::new(&slurm.script)
                .arg("stop")
                .arg(folder)
                .output()?;
        }
        bail!("mini-slurm: {complaint}")
    }

    /// Its configuration.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("etc/slurm.conf")
    }

    /// Runs a command of Slurm and gives what it printed.
    pub fn run(&self, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(command)
            .args(arguments)
            .env("SLURM_CONF", self.conf())
            .env("SLURM_TIME_FORMAT", "%s")
            .current_dir(&self.folder)
            .output()?;
        ensure!(
            output.status.success(),
            "{command} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Submits a job that sleeps; gives its number.
    pub fn submit(
        &self,
        account: &str,
        cores: u32,
        seconds: u32,
        more: &[&str],
    ) -> anyhow::Result<String> {
        let (cores, sleep) = (cores.to_string(), format!("sleep {seconds}"));
        let mut arguments = vec!["--parsable", "-A", account, "-n", &cores, "-t", "5"];
        arguments.extend(["-o", "/dev/null", "--wrap", &sleep]);
        let at = arguments.len() - 2;
        for (index, word) in more.iter().enumerate() {
            arguments.insert(at + index, word);
        }
        self.run("sbatch", &arguments)
    }

    /// Opens or closes the partition, so that a queue can build up before anything starts.
    pub fn open(&self, open: bool) -> anyhow::Result<()> {
        let state = if open { "State=UP" } else { "State=DOWN" };
        self.run("scontrol", &["update", "PartitionName=main", state])?;
        Ok(())
    }

    /// Stops slurmctld and starts it again.
    pub fn restart_slurmctld(&self) -> anyhow::Result<()> {
        let output = Command::new(&self.script)
            .arg("restart-ctld")
            .arg(&self.folder)
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Jobs that have started, in the order in which they did.
    pub fn started(&self) -> anyhow::Result<Vec<Started>> {
        let text = self.run("squeue", &["-h", "-t", "all", "-o", "%A|%a|%S|%M|%C|%T"])?;
        let mut started = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split('|').collect();
            let [id, account, start, used, cores, state] = words[..] else {
                bail!("squeue said {line}");
            };
            let (minutes, seconds) = used.rsplit_once(':').context("a length of time")?;
            let used = minutes.parse::<u64>().unwrap_or(0) * 60 + seconds.parse::<u64>()?;
            let ended = ["COMPLETED", "CANCELLED"].contains(&state);
            if (ended || state == "RUNNING") && start.parse::<u64>().is_ok() {
                started.push(Started {
                    id: id.parse()?,
                    account: account.to_owned(),
                    start: start.parse()?,
                    used,
                    cores: cores.parse()?,
                    ended,
                });
            }
        }
        started.sort_by_key(|job| (job.start, job.id));
        Ok(started)
    }

    /// Priorities of waiting jobs with their accounts. Nothing but the site factor weighs here; a
    /// job without one has 1.
    pub fn priorities(&self) -> anyhow::Result<Vec<(String, i64)>> {
        let text = self.run("squeue", &["-h", "-t", "PENDING", "-o", "%a|%Q"])?;
        let rows = text.lines().filter_map(|line| line.split_once('|'));
        rows.map(|(account, priority)| Ok((account.to_owned(), priority.parse()?)))
            .collect()
    }

    /// Core-seconds by `sacct`, over all runs of all jobs of an account, when all have ended.
    pub fn accounted(&self, account: &str) -> anyhow::Result<Option<u64>> {
        let columns = "elapsedraw,alloccpus,state";
        let of = format!("--accounts={account}");
        let arguments = [
            "-a",
            "-X",
            "-n",
            "-P",
            "-D",
            "-S",
            "2020-01-01",
            &of,
            "-o",
            columns,
        ];
        let mut sum = 0;
        for line in self.run("sacct", &arguments)?.lines() {
            let mut words = line.split('|');
            let mut number = || {
                words
                    .next()
                    .context("a column")
                    .and_then(|word| Ok(word.parse::<u64>()?))
            };
            sum += number()? * number()?;
            if ["RUNNING", "PENDING", "SUSPENDED"].contains(&words.next().unwrap_or_default()) {
                return Ok(None);
            }
        }
        Ok(Some(sum))
    }

    /// Waits until nothing waits or runs.
    pub fn await_idle(&self) -> anyhow::Result<()> {
        await_that("an empty queue", || {
            Ok(self
                .run("squeue", &["-h", "-t", "PD,R,S,CG", "-o", "%i"])?
                .is_empty())
        })
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // A test that failed has said more than a Slurm that does not stop could.
        let _ = Command::new(&self.script)
            .arg("stop")
            .arg(&self.folder)
            .output();
    }
}

/// Waits until something holds.
pub fn await_that(
    what: &str,
    mut holds: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let held = holds();
        if *held.as_ref().unwrap_or(&false) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            held?;
            bail!("{what}: not within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The script, if everything that it needs is here.
fn script(with_slurmdbd: bool) -> Option<PathBuf> {
    let tools = std::env::var_os("FAIRMESH_TOOLS").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/tools");
    let script = tools.unwrap_or_else(beside).join("mini-slurm.sh");
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    let mut programs = vec!["slurmctld", "slurmd", "squeue", "munged"];
    if with_slurmdbd {
        programs.extend(["slurmdbd", "mariadbd"]);
    }
    let folders = ["/usr/bin", "/usr/sbin"].map(Path::new);
    let missing = programs
        .iter()
        .find(|program| !folders.iter().any(|folder| folder.join(program).exists()));
    let lack = if !script.exists() {
        format!(
            "there is no {}: FAIRMESH_TOOLS may name its folder",
            script.display()
        )
    } else if !is_root {
        "a Slurm needs root".to_owned()
    } else if let Some(program) = missing {
        format!("{program} is not installed")
    } else {
        return Some(script);
    };
    eprintln!("SKIPPED: no Slurm for this test: {lack}");
    None
}

/// Ports that a mini-Slurm takes (P, P + 1 and P + 11), below those that the system hands out to
/// everybody who asks for any, as far as one can see free.
pub fn free_ports() -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..200 {
        let step = std::process::id().wrapping_mul(7) + NEXT.fetch_add(1, Ordering::Relaxed);
        let first = u16::try_from(20_000 + step % 500 * 20)?;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if [first, first + 1, first + 11].into_iter().all(is_free) {
            return Ok(first);
        }
    }
    bail!("no free ports")
}
