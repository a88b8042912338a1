//! PBS (OpenPBS, PBS Professional): its jobs by `qstat -F dsv`, a resource of its own by `qalter -l`, and the logs in
//! `server_priv/accounting`.
//!
//! A job has one number that only operators may set: a resource of the type `long` with the flag `r`. The server's
//! `job_sort_formula` is that resource alone, so the scheduler's order is that of the numbers, of which a `double`
//! holds every one. A priority (`qalter -p`) has 2,048 values, and belongs to the job's user.
//!
//! Not tried on a real PBS: commands and formats are those of OpenPBS' source, from 18.1 to 23.06 (`src/cmds/qstat.c`,
//! `src/cmds/qalter.c`, `src/server/accounting.c`). Invariant: a job that is held, or on its way from one server to
//! another, is never touched. Deliberately not here: Torque, whose `qstat` and scheduler are others.

mod queue;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_model::clean;
use fairmesh_records::{Format, Options, Zone};
use jiff::tz::TimeZone;

use crate::command::Commands;
use crate::feed::{Cursor, Portion};
use crate::follow::{Listing, Reader, is_day};
use crate::job::Job;
use crate::plan::{Update, batches};
use crate::{About, LoopSettings, Refusal, Scheduler, Settings, capacity, now};

/// Jobs of one `qalter`, which asks the server about each: more would keep a loop from ending when it should.
const JOBS_MAX: usize = 100;

/// What refuses jobs by whose words the accounting log would say something else: PBS writes them there as they are.
/// With Python 2 and 3, either of which a PBS may have.
pub const HOOK: &str = r#"import re
import pbs

job = pbs.event().job
words = [job.Job_Name, job.Account_Name, job.project]
words += [job.Resource_List[name] for name in job.Resource_List.keys()]
for word in words:
    if word is not None and re.search("[^!-~]", str(word)):
        pbs.event().reject("blanks and control characters are not allowed in: %r" % str(word))
"#;

/// How a node and a PBS work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PbsSettings {
    /// As with every batch system.
    pub common: LoopSettings,
    /// `PBS_HOME`.
    pub home: PathBuf,
    /// The resource that holds the numbers.
    pub resource: String,
}

impl Settings for PbsSettings {
    fn defaults(data_dir: &Path) -> Self {
        Self {
            common: LoopSettings::defaults(data_dir.join("pbs-feed.json")),
            home: PathBuf::from("/var/spool/pbs"),
            resource: "fairmesh".to_owned(),
        }
    }

    fn common(&mut self) -> &mut LoopSettings {
        &mut self.common
    }
}

impl PbsSettings {
    /// The folder of the logs of what has ended, one a day.
    pub fn accounting(&self) -> PathBuf {
        self.home.join("server_priv/accounting")
    }

    /// What `qmgr` is told so that the numbers order the queue; the hook is in this file.
    pub fn wanted(&self, hook: &str) -> Vec<String> {
        let resource = &self.resource;
        vec![
            format!("create resource {resource} type = long, flag = r"),
            format!("set server job_sort_formula = {resource}"),
            "create hook fairmesh".to_owned(),
            "set hook fairmesh event = \"queuejob,modifyjob\"".to_owned(),
            format!("import hook fairmesh application/x-python default {hook}"),
        ]
    }
}

/// The commands of a PBS server.
#[derive(Debug, Clone)]
pub struct Pbs {
    /// How it is asked.
    pub commands: Commands,
    /// What is to be done with it.
    pub settings: PbsSettings,
}

impl Pbs {
    /// The PBS of these settings.
    pub fn new(settings: PbsSettings) -> Self {
        Self {
            commands: Commands {
                system: Self::NAME,
                bin_dir: settings.common.bin_dir.clone(),
                environment: Vec::new(),
            },
            settings,
        }
    }

    /// What `qmgr` says of an object, attribute by attribute; nothing where there is no such object.
    ///
    /// # Errors
    /// If `qmgr` cannot be run.
    pub async fn configured(&self, object: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let request = format!("list {object}");
        let output = self.commands.try_ask("qmgr", &["-c", &request]).await?;
        let pairs = output
            .stdout
            .lines()
            .filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        Ok(pairs.collect())
    }
}

impl Scheduler for Pbs {
    const NAME: &'static str = "pbs";
    const NUMBER: &'static str = "number";
    const SHOWS_CPUS: &'static str = "pbsnodes -a";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        let arguments = ["-a"];
        let text = self.commands.ask("pbsnodes", &arguments).await?;
        Ok(capacity::of_pbsnodes(&text))
    }

    /// What waits; with `all`, also what runs, each task of an array by itself.
    async fn queue(&self, all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        let (rows, bad) = queue::read(&self.commands, &self.settings, all).await?;
        Ok((rows.into_iter().map(|row| row.job).collect(), bad))
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        let (rows, _) = queue::read(&self.commands, &self.settings, false).await?;
        let number = |row: queue::Row| (row.job.id, row.number);
        Ok(rows.into_iter().map(number).collect())
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
        let (common, folder) = (&self.settings.common, self.settings.accounting());
        Ok(About::of_file(common, Self::NAME, &folder))
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let options = Options {
            cluster: Self::NAME.to_owned(),
            // The server writes local times, and runs where its logs can be read.
            zone: Zone::new(TimeZone::system()),
            growing: true,
            ..Options::default()
        };
        let (folder, from) = (self.settings.accounting(), cursor.file.as_ref());
        let cannot = || format!("cannot read {}", folder.display());
        let mut listing = Listing::new(&folder, now()).with_context(cannot)?;
        listing.logs.retain(|name| is_day(name));
        let read = Reader::new(Format::Pbs, &options).read_folder(&folder, &listing, from);
        let read = read.with_context(cannot)?;
        Ok(Portion::of_file(read, cursor))
    }
}

impl Pbs {
    /// Gives some jobs this number. `qalter` goes through them one by one. It ends at a job that may not have it, such
    /// as one that has started meanwhile, and leaves those behind it alone; so it is called again with them. Those that
    /// are gone it passes over.
    async fn alter(&self, number: i64, jobs: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        let limit = format!("{}={number}", self.settings.resource);
        let (mut refused, mut left, mut was_strange) = (Vec::new(), jobs, false);
        while !left.is_empty() {
            let mut arguments = vec!["-l", &limit];
            arguments.extend(left.iter().map(|job| &*job.target));
            let output = self.commands.try_ask("qalter", &arguments).await?;
            let said = || clean(output.stderr.trim());
            let complaints = refusals(left, &output.stderr);
            let last = complaints.iter().filter_map(|(at, _)| *at).max();
            anyhow::ensure!(
                output.good || !complaints.is_empty(),
                "`qalter` failed: {}",
                said()
            );
            // Two in a row that are refused for something else: this is no matter of one job.
            let strange = |(_, refusal): &&(Option<usize>, Refusal)| !refusal.is_gone;
            let is_strange = complaints.iter().filter(strange).count() > 0;
            let is_first = last == Some(0);
            anyhow::ensure!(
                !(is_strange && was_strange && is_first),
                "`qalter` failed: {}",
                said()
            );
            was_strange = is_strange;
            left = last.map_or(&[], |last| &left[last + 1..]);
            refused.extend(complaints.into_iter().map(|(_, refusal)| refusal));
        }
        Ok(refused)
    }
}

/// What `qalter` complained of, line by line, each with its job's place among `jobs`, if it names one of them. Of one
/// whose end the server remembers it says nothing but that it has ended.
fn refusals(jobs: &[Update], said: &str) -> Vec<(Option<usize>, Refusal)> {
    let gone = ["Unknown Job Id", "has finished", "while job running"];
    let complaints = said
        .lines()
        .filter_map(|line| line.strip_prefix("qalter: "));
    let refusal = |line: &str| {
        let is_its = |job: &Update| line.split_whitespace().any(|word| word == job.target);
        let at = jobs.iter().position(is_its);
        let is_gone = gone.iter().any(|words| line.contains(words));
        let refusal = Refusal {
            job: at.map(|at| jobs[at].id),
            words: clean(line.trim()),
            is_gone,
        };
        (at.is_some() || is_gone).then_some((at, refusal))
    };
    complaints.filter_map(refusal).collect()
}

#[cfg(test)]
mod tests;
