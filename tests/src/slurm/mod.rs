//! A throw-away Slurm for a test, made by `mini-slurm.sh` beside this file.
//!
//! Invariant: a Slurm that is dropped is stopped; its ports were free a moment ago, and every wait has
//! a deadline. Where the packages or the rights are missing, there is none, and the reason is said.
//! Deliberately not here: nodes (`process`), two of each (`twins`), and what a test is about.

mod machine;
mod plugin;
mod usage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_needs::Need;

pub(crate) use machine::{absent, is_root};
pub use plugin::{Plugin, plugin};

/// How long a state of Slurm may take to be reached, on a machine that has other work to do, too.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// What is made.
#[derive(Debug, Clone, Copy)]
pub struct Kind<'a> {
    /// What the cluster is called.
    pub name: &'a str,
    /// Its cores, all in one machine.
    pub cpus: u32,
    /// Into how many nodes they are divided: the components of a heterogeneous job share none.
    pub nodes: u32,
    /// Where it writes what has finished.
    pub accounts: Accounts<'a>,
    /// More lines of slurm.conf.
    pub conf: &'a str,
    /// A folder of plug-ins, beside Slurm's own.
    pub plugins: Option<&'a Path>,
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
    /// Nowhere.
    None,
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

impl Started {
    /// What it is charged, in core-seconds.
    pub fn charge(&self) -> u64 {
        self.used * self.cores
    }
}

/// A Slurm of one machine.
#[derive(Debug)]
pub struct Slurm {
    folder: PathBuf,
}

impl Slurm {
    /// Starts one, or says what is missing.
    pub fn start(folder: &Path, kind: Kind<'_>) -> anyhow::Result<Option<Self>> {
        if let Some(lack) = machine::lack(kind.accounts == Accounts::Slurmdbd) {
            fairmesh_needs::lacks(Need::Slurm, &lack);
            return Ok(None);
        }
        fs::create_dir_all(folder)?;
        let extra = folder.join("extra.conf");
        fs::write(&extra, conf(folder, kind))?;
        let slurm = Self {
            folder: folder.to_owned(),
        };
        let mut complaint = None;
        // Somebody may take one of the ports between the look and the start.
        for _ in 0..3 {
            let port = machine::free_ports()?.to_string();
            let mut start = machine::script("start", folder);
            start.arg("--extra").arg(&extra);
            start.args(["--cluster", kind.name, "--port", &port]);
            start.args(["--cpus", &kind.cpus.to_string()]);
            start.args(["--nodes", &kind.nodes.to_string()]);
            if let Some(plugins) = kind.plugins {
                start.arg("--plugin-dir").arg(plugins);
            }
            if kind.accounts == Accounts::Slurmdbd {
                start.arg("--dbd");
            }
            match said(&mut start) {
                Ok(_) => return Ok(Some(slurm)),
                Err(error) => complaint = Some(error),
            }
            // What did not start is mostly not there to be stopped.
            let _ = said(&mut machine::script("stop", folder));
        }
        Err(complaint.context("it was tried")?)
    }

    /// Its configuration.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("etc/slurm.conf")
    }

    /// Runs a command of Slurm and gives what it printed.
    pub fn run(&self, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(command);
        command
            .args(arguments)
            .env("SLURM_CONF", self.conf())
            .env("SLURM_TIME_FORMAT", "%s")
            .current_dir(&self.folder);
        Ok(said(&mut command)?.trim().to_owned())
    }

    /// Submits a job that sleeps; gives its number.
    pub fn submit(
        &self,
        account: &str,
        cores: u32,
        time: Duration,
        more: &[&str],
    ) -> anyhow::Result<String> {
        let (cores, sleep) = (cores.to_string(), format!("sleep {}", time.as_secs_f64()));
        let mut arguments = vec!["--parsable", "-A", account, "-n", &cores, "-t", "5"];
        arguments.extend(["-o", "/dev/null"]);
        arguments.extend(more);
        arguments.extend(["--wrap", &sleep]);
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
        said(&mut machine::script("restart-ctld", &self.folder))?;
        Ok(())
    }

    /// Replaces a text of slurm.conf, and has it read again.
    pub fn configure(&self, before: &str, after: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(self.conf())?;
        ensure!(text.contains(before), "nothing to replace");
        fs::write(self.conf(), text.replace(before, after))?;
        self.run("scontrol", &["reconfigure"])?;
        Ok(())
    }

    /// What slurmctld has logged.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.folder.join("log/slurmctld.log"))?)
    }

    /// Waits until slurmctld has logged these words.
    pub fn until_logged(&self, words: &str) -> anyhow::Result<()> {
        await_that(words, || Ok(self.log()?.contains(words)))
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

    /// User and site factor of each waiting job that is not held, from the table that `sprio -l`
    /// shows to an operator.
    pub fn site_factors(&self) -> anyhow::Result<Vec<(String, i64)>> {
        self.site_factors_by("USER")
    }

    /// The same, with what another column of `sprio -l` says.
    pub fn site_factors_by(&self, column_of: &str) -> anyhow::Result<Vec<(String, i64)>> {
        let text = self.run("sprio", &["-l"])?;
        let mut lines = text.lines();
        let heads: Vec<&str> = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let column = |name: &str| {
            let found = heads.iter().position(|head| *head == name);
            found.with_context(|| format!("sprio -l has no column {name}: {heads:?}"))
        };
        let (who, site) = (column(column_of)?, column("SITE")?);
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let who = words.get(who).context("a name")?;
            let site = words.get(site).context("a site factor")?;
            Ok(((*who).to_owned(), site.parse()?))
        };
        lines.map(row).collect()
    }

    /// Core-seconds by `sacct`, over all runs of all jobs of an account, when all have ended.
    pub fn accounted(&self, account: &str) -> anyhow::Result<Option<u64>> {
        let of = format!("--accounts={account}");
        let mut arguments = vec!["-a", "-X", "-n", "-P", "-D", "-S", "2020-01-01", &of];
        arguments.extend(["-o", "elapsedraw,alloccpus,state"]);
        let mut sum = 0;
        for line in self.run("sacct", &arguments)?.lines() {
            let words: Vec<&str> = line.split('|').collect();
            let [elapsed, cpus, state] = words[..] else {
                bail!("sacct said {line}");
            };
            if ["RUNNING", "PENDING", "SUSPENDED"].contains(&state) {
                return Ok(None);
            }
            sum += elapsed.parse::<u64>()? * cpus.parse::<u64>()?;
        }
        Ok(Some(sum))
    }

    /// Waits until nothing waits or runs.
    pub fn await_idle(&self) -> anyhow::Result<()> {
        await_that("an empty queue", || {
            let left = self.run("squeue", &["-h", "-t", "PD,R,S,CG", "-o", "%i"])?;
            Ok(left.is_empty())
        })
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log().unwrap_or_default());
        }
        // A test that failed has said more than a Slurm that does not stop could.
        let _ = said(&mut machine::script("stop", &self.folder));
    }
}

/// The lines of slurm.conf that are the test's own.
fn conf(folder: &Path, kind: Kind<'_>) -> String {
    let scheduling = "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,\
                      bf_hetjob_immediate";
    let completed = match kind.accounts {
        Accounts::Slurmdbd | Accounts::None => String::new(),
        Accounts::Filetxt => {
            let log = folder.join("jobcomp.log");
            format!(
                "JobCompType=jobcomp/filetxt\nJobCompLoc={}\n",
                log.display()
            )
        }
        Accounts::Script(hook) => {
            format!(
                "JobCompType=jobcomp/script\nJobCompLoc={}\n",
                hook.display()
            )
        }
    };
    format!("SchedulerParameters={scheduling}\n{completed}{}", kind.conf)
}

/// Runs a program to its end and gives what it printed.
pub(crate) fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}{}",
        words(&output.stdout),
        words(&output.stderr)
    );
    Ok(words(&output.stdout))
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
            held.with_context(|| what.to_owned())?;
            bail!("{what}: not within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
