//! The loop: what to release, what has come of it, again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_api::Grid;
use fairmesh_broker::Sla;
use fairmesh_broker::queue::{
    Effect, Limits, Manager, Phase, Planning, QueuedJob, Status, attempt_name,
};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_node::driver::wall_now;

use super::journal::Journal;
use super::sites::Sites;
use super::{RunArgs, folder, jobs};
use crate::attempt::{Asking, Attempt, Life, answer, make_private, status};
use crate::emulate::read_as;
use crate::output::Exit;

/// A queue and all that it holds open.
pub(super) struct Runner<'a> {
    args: &'a RunArgs,
    life: Life,
    lines: BTreeMap<String, String>,
    manager: Manager,
    journal: Journal,
    attempts: PathBuf,
    children: Vec<Child>,
    stream: Stream,
    sites: Sites<'a>,
}

/// Runs a queue until nothing is left of it.
pub(super) fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut runner = Runner::start(args, Life::default())?;
    let mut told = String::new();
    while !runner.round()? {
        let now = runner.summary();
        if now != told {
            writeln!(out, "{now}")?;
            told = now;
        }
        std::thread::sleep(Duration::from_millis(args.poll_ms));
    }
    writeln!(out, "{}", runner.summary())?;
    let mut given_up = false;
    for entry in runner.manager.entries() {
        if let Phase::GivenUp(why) = &entry.phase {
            given_up = true;
            writeln!(
                out,
                "{}: given up after {} attempts: {why}",
                entry.job.key, entry.attempt
            )?;
        }
    }
    Ok(if given_up {
        Exit::Failure
    } else {
        Exit::Success
    })
}

impl<'a> Runner<'a> {
    /// Opens the journal and takes the jobs of the file that are not in it yet.
    pub(super) fn start(args: &'a RunArgs, life: Life) -> anyhow::Result<Self> {
        let file = args.jobs.display().to_string();
        let jobs = read_as(&args.jobs, jobs::parse)?;
        let sites = Sites::open(args)?;
        let limits = limits(args, sites.grid())?;
        let folder = folder(&args.jobs);
        let attempts = folder.join("attempts");
        make_private(&attempts)?;
        let (journal, records) = Journal::open(&folder.join("journal"), &args.vo)?;
        let (manager, effects) = Manager::restore(limits, args.selector, records);
        let mut runner = Self {
            args,
            life,
            lines: jobs
                .iter()
                .map(|of| (of.job.key.clone(), of.line.clone()))
                .collect(),
            manager,
            journal,
            attempts,
            children: Vec::new(),
            stream: Seed(args.seed).stream("queue"),
            sites,
        };
        let lost = runner
            .manager
            .entries()
            .find(|entry| !runner.lines.contains_key(&entry.job.key));
        if let Some(lost) = lost {
            anyhow::bail!(
                "{file}: job `{}` is in the queue, and not in the file any more",
                lost.job.key
            );
        }
        for job in jobs {
            let effects = runner.manager.add(job.job).with_context(|| file.clone())?;
            runner.carry_out(effects)?;
        }
        runner.carry_out(effects)?;
        Ok(runner)
    }

    /// One round; whether nothing is left to do.
    pub(super) fn round(&mut self) -> anyhow::Result<bool> {
        self.children
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let asks = self.manager.asks();
        self.carry_out(asks)?;
        // Without a way to take jobs back, those that start late are waited for.
        if self.args.withdraw.is_some() {
            let late = self.manager.tick(wall_now());
            self.carry_out(late)?;
        }
        let sites = self.sites.now()?;
        let planning = Planning {
            now: wall_now(),
            vo: &self.args.vo,
            engine: self.args.engine,
            silence: self.sites.silence(),
            sites: &sites,
        };
        let stream = &mut self.stream;
        let effects = self
            .manager
            .plan(planning, &mut |bound| stream.below(bound));
        self.carry_out(effects)?;
        Ok(self.manager.is_done())
    }

    /// Carries effects out in order, and what comes of them.
    fn carry_out(&mut self, effects: Vec<Effect>) -> anyhow::Result<()> {
        for effect in effects {
            match effect {
                Effect::Write(record) => self.journal.write(&record, &mut self.life)?,
                Effect::Submit { job, attempt, site } => self.submit(&job, attempt, &site)?,
                Effect::Ask { job, attempt, site } => {
                    if let Some(status) = self.ask(&job, attempt, &site)? {
                        self.tell(&job, attempt, status)?;
                    }
                }
                Effect::Withdraw { job, attempt, site } => {
                    if let Some(command) = &self.args.withdraw {
                        answer(command, &self.env(&job, attempt, &site), self.args.ask_max)?;
                    }
                    if let Some(status) = self.ask(&job, attempt, &site)? {
                        self.tell(&job, attempt, status)?;
                    }
                }
            }
        }
        self.journal.sync()
    }

    fn tell(&mut self, job: &str, attempt: u32, status: Status) -> anyhow::Result<()> {
        let effects = self.manager.told(wall_now(), job, attempt, status);
        self.carry_out(effects)
    }

    fn submit(&mut self, job: &QueuedJob, attempt: u32, site: &str) -> anyhow::Result<()> {
        self.journal.sync()?;
        let env = self.env(&job.key, attempt, site);
        let files = self.files(&job.key, attempt);
        let line = &self.lines[&job.key];
        self.children
            .push(files.start(&self.args.submit, line, &env, &mut self.life)?);
        Ok(())
    }

    /// What is known of an attempt; `None` where that is not known at the moment.
    fn ask(&self, job: &str, attempt: u32, site: &str) -> anyhow::Result<Option<Status>> {
        let is_new = self
            .manager
            .entry(job)
            .is_some_and(|entry| entry.phase == Phase::Assigned);
        let ask = self.args.ask.as_ref().map(|command| Asking {
            command,
            env: self.env(job, attempt, site),
            seconds_max: self.args.ask_max,
        });
        status(&self.files(job, attempt), is_new, ask)
    }

    fn files(&self, job: &str, attempt: u32) -> Attempt {
        Attempt::new(&self.attempts, &attempt_name(job, attempt))
    }

    fn env(&self, job: &str, attempt: u32, site: &str) -> Vec<(&'static str, String)> {
        let asked = self
            .manager
            .entry(job)
            .map(|entry| (entry.job.cpus, entry.job.wall));
        let (cpus, wall) = asked.unwrap_or_default();
        vec![
            ("FAIRMESH_NAME", attempt_name(job, attempt)),
            ("FAIRMESH_JOB", job.to_owned()),
            ("FAIRMESH_ATTEMPT", attempt.to_string()),
            ("FAIRMESH_SITE", site.to_owned()),
            ("FAIRMESH_VO", self.args.vo.clone()),
            ("FAIRMESH_CPUS", cpus.to_string()),
            ("FAIRMESH_WALL_S", (wall.0 / 1_000).to_string()),
        ]
    }

    fn summary(&self) -> String {
        let mut counts = [0_usize; 4];
        for entry in self.manager.entries() {
            let kind = match entry.phase {
                Phase::Queued => 0,
                Phase::Ended => 2,
                Phase::GivenUp(_) => 3,
                _ => 1,
            };
            counts[kind] += 1;
        }
        let [waiting, in_flight, ended, given_up] = counts;
        format!(
            "{waiting} jobs wait, {in_flight} are at sites, {ended} have ended, {given_up} were given up"
        )
    }
}

/// The limits of the VO and its groups: those of its document, of what the sites of the Grid let it have.
fn limits(args: &RunArgs, grid: &Grid) -> anyhow::Result<Limits> {
    let Some(file) = &args.sla else {
        return Ok(Limits::default());
    };
    let sla = read_as(file, Sla::parse)?;
    let sites = grid.sites.iter();
    let may_hold = sites.filter_map(|site| site.may_hold(&args.vo));
    let contributed = may_hold.fold(0, u64::saturating_add);
    Ok(Limits {
        by_site: args.by_site.then(|| sla.clone()),
        ..Limits::of(&sla, contributed)
    })
}
