//! A throw-away HTCondor for a test, made by `mini-condor.sh` beside this file: one slot, and the users `games` and `news`
//! that every Debian has.
//!
//! Invariant: a pool that is dropped is stopped with all that it started, and every wait has a deadline. It listens in a
//! network of its own, so it takes no port. Where the programs or the rights are missing, there is none, and the reason is
//! said. Deliberately not here: nodes (`process`), and what a test is about.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use fairmesh_needs::Need;
use fairmesh_schedulers::condor::WANTED;

use crate::slurm::{absent, await_that, is_root, said};

/// A job that has ended, as `condor_history` tells it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its cluster's number.
    pub id: u64,
    /// Its accounting group.
    pub group: String,
    /// When it started, in seconds since 1970.
    pub start: u64,
    /// What it held, in core-seconds.
    pub core_s: u64,
}

/// A pool of one machine.
#[derive(Debug)]
pub struct Pool {
    folder: PathBuf,
}

impl Pool {
    /// Starts one, or says what is missing.
    pub fn start(folder: &Path, cpus: u32) -> anyhow::Result<Option<Self>> {
        let programs = [
            "condor_master",
            "condor_userprio",
            "nsenter",
            "unshare",
            "ip",
        ];
        let lack =
            absent(&programs).or_else(|| (!is_root()).then(|| "a pool needs root".to_owned()));
        if let Some(lack) = lack {
            fairmesh_needs::lacks(Need::Condor, &lack);
            return Ok(None);
        }
        fs::create_dir_all(folder)?;
        let pool = Self {
            folder: folder.to_owned(),
        };
        said(script("start", folder).args(["--slots", &cpus.to_string()]))?;
        Ok(Some(pool))
    }

    /// The schedd's file of what has ended.
    pub fn history(&self) -> PathBuf {
        self.folder.join("spool/history")
    }

    /// The folder of its commands.
    pub fn commands(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Runs one of its commands, as the user if one is given, and gives what it printed.
    pub fn run(&self, user: &str, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.commands().join(command));
        said(command.args(arguments).env("POOL_USER", user))
    }

    /// Opens or closes the slot, so that jobs can gather before anything starts, with what Fairmesh wants of a pool.
    pub fn open(&self, open: bool) -> anyhow::Result<()> {
        let start = ("START", if open { "True" } else { "False" });
        let pairs = WANTED.iter().chain([&start]);
        let lines = pairs.map(|(key, value)| format!("{key} = {value}\n"));
        fs::write(self.folder.join("fairmesh.conf"), lines.collect::<String>())?;
        self.run("", "condor_reconfig", &[])?;
        // A startd that was given a job while it closed has died of it (23.9.6), and the job was not matched again.
        await_that("a slot that says so", || {
            let said = self.run("", "condor_status", &["-af", "Start"])?;
            Ok(said.trim() == open.to_string())
        })
    }

    /// Submits a user's job in an accounting group that sleeps; gives its cluster's number.
    pub fn submit(&self, user: &str, group: &str, cpus: u32, seconds: u32) -> anyhow::Result<u64> {
        self.submit_many(user, group, cpus, seconds, 1)
    }

    /// The same for a cluster of so many jobs.
    pub fn submit_many(
        &self,
        user: &str,
        group: &str,
        cpus: u32,
        seconds: u32,
        count: usize,
    ) -> anyhow::Result<u64> {
        let description = [
            "executable=/bin/sleep".to_owned(),
            format!("arguments={seconds}"),
            format!("request_cpus={cpus}"),
            format!("accounting_group={group}"),
            "request_memory=1".to_owned(),
            "request_disk=1".to_owned(),
            "initialdir=/tmp".to_owned(),
            "transfer_executable=false".to_owned(),
        ];
        let mut arguments = vec!["-terse"];
        arguments.extend(description.iter().map(String::as_str));
        let count = count.to_string();
        arguments.extend(["-queue", &count]);
        let text = self.run(user, "condor_submit", &arguments)?;
        let id = text.split('.').next().unwrap_or_default();
        id.trim().parse().with_context(|| text.clone())
    }

    /// Edits an attribute of a user's job, once it runs; gives whether HTCondor let him.
    pub fn edit(&self, user: &str, job: u64, name: &str, value: &str) -> anyhow::Result<bool> {
        let job = job.to_string();
        await_that("the job to run", || {
            let state = self.run("", "condor_q", &["-allusers", &job, "-af", "JobStatus"])?;
            Ok(state.trim() == "2")
        })?;
        let mut command = Command::new(self.commands().join("condor_qedit"));
        let command = command.args([&job, name, value]).env("POOL_USER", user);
        Ok(command.output()?.status.success())
    }

    /// Effective priorities by submitter: the smallest one is served first.
    pub fn priorities(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let text = self.run(
            "",
            "condor_userprio",
            &["-allusers", "-af:t", "Name", "Priority"],
        )?;
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        rows.map(|(name, priority)| Ok((name.to_owned(), priority.trim().parse()?)))
            .collect()
    }

    /// That of one submitter. None where nobody has set any.
    pub fn priority(&self, submitter: &str) -> anyhow::Result<Option<f64>> {
        Ok(self.priorities()?.get(submitter).copied())
    }

    /// What has ended, in the order of the starts.
    pub fn ended(&self) -> anyhow::Result<Vec<Ended>> {
        let attributes = ["ClusterId", "AcctGroup", "JobStartDate", "MachineAttrCpus0"];
        let mut arguments = vec!["-af"];
        arguments.extend(attributes);
        arguments.push("RemoteWallClockTime");
        let text = self.run("", "condor_history", &arguments)?;
        let mut ended = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [id, group, start, cpus, wall] = words[..] else {
                anyhow::bail!("condor_history says {line}");
            };
            let wall = wall.trim_end_matches(".0").parse::<u64>()?;
            ended.push(Ended {
                id: id.parse()?,
                group: group.to_owned(),
                start: start.parse()?,
                core_s: cpus.parse::<u64>()? * wall,
            });
        }
        ended.sort_by_key(|job| job.start);
        Ok(ended)
    }

    /// What a group has been accounted, in core-milliseconds.
    pub fn accounted(&self, group: &str) -> anyhow::Result<u64> {
        let ended = self.ended()?;
        let its = ended.iter().filter(|job| job.group == group);
        Ok(its.map(|job| job.core_s * 1_000).sum())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = said(&mut script("stop", &self.folder)) {
            eprintln!("{error:#}");
        }
    }
}

fn script(verb: &str, folder: &Path) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/condor/mini-condor.sh");
    let mut command = Command::new(script);
    command.arg(verb).arg(folder);
    command
}
