//! Grid Engine: its pending jobs by `qstat -xml`, override tickets by `qalter -ot`, and its `accounting` file.
//!
//! Override tickets are a job's own number, of 32 bits, so they keep apart whom the node keeps apart: POSIX priorities
//! (`qalter -p`) have 2,048 values, and a user may lower his. With the override policy alone (`setup` says how) Grid
//! Engine's order is that of the tickets, seen on 8.1.9 down to one ticket of 10^9.
//!
//! Invariant: a job that is held, or in error, is never touched. Deliberately not here: running jobs as instalments.
//! `qstat` says when qmaster sent a job, the file when its host began it; no key would join the two for certain, so a
//! job counts when it has ended.

mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fairmesh_model::clean;
use fairmesh_records::{Format, Options};

use crate::command::Commands;
use crate::feed::{Cursor, Portion};
use crate::job::Job;
use crate::plan::{Update, batches};
use crate::{About, LoopSettings, Refusal, Scheduler, Settings, capacity};

/// Jobs of one `qalter`: more would keep qmaster from its other callers.
const JOBS_MAX: usize = 100;

/// What the scheduler has to be told, so that nothing but override tickets orders jobs.
pub const WANTED: [(&str, &str); 8] = [
    ("policy_hierarchy", "O"),
    ("share_override_tickets", "FALSE"),
    ("weight_ticket", "1.000000"),
    ("weight_waiting_time", "0.000000"),
    ("weight_deadline", "0.000000"),
    ("weight_urgency", "0.000000"),
    ("weight_priority", "0.000000"),
    ("report_pjob_tickets", "TRUE"),
];

/// The verifier by which qmaster refuses jobs that would write lines of `accounting`: a script for `jsv_url`.
pub const VERIFIER: &str = include_str!("gridengine/fairmesh-jsv");

/// How a node and a Grid Engine work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridEngineSettings {
    /// As with every batch system.
    pub common: LoopSettings,
    /// `SGE_ROOT`.
    pub root: PathBuf,
    /// `SGE_CELL`.
    pub cell: String,
}

impl Settings for GridEngineSettings {
    /// Where Debian has it.
    fn defaults(data_dir: &Path) -> Self {
        Self {
            common: LoopSettings::defaults(data_dir.join("gridengine-feed.json")),
            root: PathBuf::from("/var/lib/gridengine"),
            cell: "default".to_owned(),
        }
    }

    fn common(&mut self) -> &mut LoopSettings {
        &mut self.common
    }
}

impl GridEngineSettings {
    /// The file of what has ended.
    pub fn accounting(&self) -> PathBuf {
        self.root.join(&self.cell).join("common/accounting")
    }
}

/// The commands of a Grid Engine.
#[derive(Debug, Clone)]
pub struct GridEngine {
    /// How it is asked.
    pub commands: Commands,
    /// What is to be done with it.
    pub settings: GridEngineSettings,
}

impl GridEngine {
    /// The Grid Engine of these settings.
    pub fn new(settings: GridEngineSettings) -> Self {
        let root = settings.root.to_string_lossy().into_owned();
        Self {
            commands: Commands {
                system: Self::NAME,
                bin_dir: settings.common.bin_dir.clone(),
                environment: vec![
                    ("SGE_ROOT", Some(root)),
                    ("SGE_CELL", Some(settings.cell.clone())),
                ],
            },
            settings,
        }
    }

    /// The scheduler's configuration and that of the cell, key by key.
    ///
    /// # Errors
    /// If qmaster is away.
    pub async fn configured(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut pairs = BTreeMap::new();
        for shown in ["-ssconf", "-sconf"] {
            let text = self.commands.ask("qconf", &[shown]).await?;
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            pairs.extend(lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())));
        }
        Ok(pairs)
    }
}

impl Scheduler for GridEngine {
    const NAME: &'static str = "gridengine";
    const NUMBER: &'static str = "override ticket";
    const SHOWS_CPUS: &'static str = "qhost -q";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        let arguments = ["-q"];
        let text = self.commands.ask("qhost", &arguments).await?;
        Ok(capacity::of_qhost(&text))
    }

    async fn queue(&self, _all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        let (rows, bad) = queue::read(&self.commands).await?;
        Ok((rows.into_iter().map(|row| row.job).collect(), bad))
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        let (rows, _) = queue::read(&self.commands).await?;
        Ok(rows
            .into_iter()
            .map(|row| (row.job.id, row.tickets))
            .collect())
    }

    async fn set(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        let mut refused = Vec::new();
        for jobs in batches(updates, JOBS_MAX) {
            refused.extend(self.alter(jobs[0].to, jobs).await?);
            self.settings.common.pause(jobs.len()).await;
        }
        Ok(refused)
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        let (common, file) = (&self.settings.common, self.settings.accounting());
        Ok(About::of_file(common, Self::NAME, &file))
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let options = Options {
            cluster: Self::NAME.to_owned(),
            ..Options::default()
        };
        let accounting = self.settings.accounting();
        Portion::read(&accounting, cursor, Format::GridEngine, options)
    }
}

impl GridEngine {
    /// Gives some jobs these tickets.
    async fn alter(&self, tickets: i64, jobs: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        let ids: Vec<&str> = jobs.iter().map(|job| &*job.target).collect();
        let tickets = u32::try_from(tickets.max(0))
            .unwrap_or(u32::MAX)
            .to_string();
        let arguments = ["-ot", &tickets, &ids.join(",")];
        let output = self.commands.try_ask("qalter", &arguments).await?;
        let said = format!("{}\n{}", output.stdout, output.stderr);
        let refused = refusals(jobs, &said);
        // Where it has altered no job, and speaks of none, qmaster is away.
        let speaks = said.contains("job ");
        anyhow::ensure!(
            output.good || speaks,
            "`qalter` failed: {}",
            clean(said.trim())
        );
        Ok(refused)
    }
}

/// The jobs that were not altered, by what `qalter` said: a line for each.
fn refusals(jobs: &[Update], said: &str) -> Vec<Refusal> {
    let altered = |line: &str| -> Option<u64> {
        let rest = line.split_once("sets override tickets of job ")?.1;
        rest.split(' ').next()?.parse().ok()
    };
    let altered: BTreeSet<u64> = said.lines().filter_map(altered).collect();
    let left = jobs.iter().filter(|job| !altered.contains(&job.id));
    left.map(|job| {
        let is_its = |line: &&str| line.split(['"', ' ']).any(|word| word == job.target);
        let line = said.lines().find(is_its).unwrap_or("not altered");
        Refusal {
            job: Some(job.id),
            is_gone: line.contains("does not exist"),
            words: format!("job {}: {}", job.target, clean(line)),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_were_not_altered_are_told_from_those_that_were() {
        let said = "root@pool sets override tickets of job 10 to 7\n\
                    denied: job \"12\" does not exist\n\
                    root@pool sets override tickets of job 120 to 7\n";
        let job = |id: u64| Update {
            id,
            target: id.to_string(),
            from: None,
            to: 7,
        };
        let refused = refusals(&[job(10), job(12), job(120), job(13)], said);
        let told: Vec<_> = refused.iter().map(|it| (it.job, it.is_gone)).collect();
        assert_eq!(told, [(Some(12), true), (Some(13), false)]);
    }
}
