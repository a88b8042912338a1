//! LSF (IBM Spectrum LSF): its waiting jobs by `bjobs -o`, system values of absolute priority scheduling by `bmod
//! -aps`, and `lsb.acct`.
//!
//! In a queue with `APS_PRIORITY` a job that has a *system* value goes before all that have none, and the higher
//! value before the lower; only administrators set it (IBM Spectrum LSF 10.1, "Modify the system APS value"). A job's
//! priority (`bmod -sp`) is its user's as well, and goes from 1 to `MAX_USER_PRIORITY`. The manuals do not say what
//! holds a value: up to 2^24 any floating point does, so the range ends below.
//!
//! Not tried on a real LSF: commands and formats are those of IBM's manuals, 9.1 and 10.1. Invariant: a job that is
//! held is never touched. Deliberately not here: running jobs as instalments, as `bjobs` prints no start to the
//! second, by which `lsb.acct` tells runs apart; parts of resized jobs.

mod queue;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fairmesh_model::clean;
use fairmesh_records::{Format, Options};

use crate::command::Commands;
use crate::feed::{Cursor, Portion};
use crate::job::Job;
use crate::plan::Update;
use crate::{About, LoopSettings, Refusal, Scheduler, Settings, capacity};

/// The best possible factor's number.
const RANGE_DEFAULT: u32 = 10_000_000;

/// How a node and an LSF work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LsfSettings {
    /// As with every batch system.
    pub common: LoopSettings,
    /// `LSF_ENVDIR`, where the commands do not find it by themselves.
    pub envdir: Option<PathBuf>,
    /// The file of what has ended.
    pub accounting: PathBuf,
}

impl Settings for LsfSettings {
    /// Where the owner does not say which cluster's file it is, one of that name is looked for beside the cursor.
    fn defaults(data_dir: &Path) -> Self {
        let mut common = LoopSettings::defaults(data_dir.join("lsf-feed.json"));
        common.scale.range = RANGE_DEFAULT;
        common.granularity = RANGE_DEFAULT;
        common.scale.importance = 0;
        Self {
            common,
            envdir: None,
            accounting: data_dir.join("lsb.acct"),
        }
    }

    fn common(&mut self) -> &mut LoopSettings {
        &mut self.common
    }
}

/// The commands of an LSF cluster.
#[derive(Debug, Clone)]
pub struct Lsf {
    /// How it is asked.
    pub commands: Commands,
    /// What is to be done with it.
    pub settings: LsfSettings,
}

impl Lsf {
    /// The LSF of these settings; the operator's own habits would change the columns.
    pub fn new(settings: LsfSettings) -> Self {
        let mut environment = vec![("LSB_BJOBS_FORMAT", None)];
        if let Some(folder) = &settings.envdir {
            environment.push(("LSF_ENVDIR", Some(folder.to_string_lossy().into_owned())));
        }
        Self {
            commands: Commands {
                system: Self::NAME,
                bin_dir: settings.common.bin_dir.clone(),
                environment,
            },
            settings,
        }
    }

    /// Whether a queue is scheduled by absolute priorities.
    ///
    /// # Errors
    /// If LSF is away.
    pub async fn has_priorities(&self) -> anyhow::Result<bool> {
        let text = self.commands.ask("bqueues", &["-l"]).await?;
        let policies = text.lines().map(str::trim);
        let mut policies = policies.filter_map(|line| line.strip_prefix("SCHEDULING POLICIES:"));
        Ok(policies.any(|line| line.split_whitespace().any(|word| word == "APS_PRIORITY")))
    }
}

impl Scheduler for Lsf {
    const NAME: &'static str = "lsf";
    const NUMBER: &'static str = "system value";
    const SHOWS_CPUS: &'static str = "bhosts -w";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        let arguments = ["-w"];
        let text = self.commands.ask("bhosts", &arguments).await?;
        Ok(capacity::of_bhosts(&text))
    }

    async fn queue(&self, _all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        queue::read(&self.commands).await
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        queue::numbers(&self.commands).await
    }

    async fn set(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        // 0 is no system value.
        let value = |update: &Update| format!("system={}", update.to.max(1));
        self.modify(updates, |update| vec!["-aps".to_owned(), value(update)])
            .await
    }

    async fn reset(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        self.modify(updates, |_| vec!["-apsn".to_owned()]).await
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        let (common, file) = (&self.settings.common, &self.settings.accounting);
        Ok(About::of_file(common, Self::NAME, file))
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let options = Options {
            cluster: Self::NAME.to_owned(),
            ..Options::default()
        };
        Portion::read(&self.settings.accounting, cursor, Format::Lsf, options)
    }
}

impl Lsf {
    /// LSF's command changes one job, and says that it does.
    async fn modify(
        &self,
        updates: &[Update],
        how: impl Fn(&Update) -> Vec<String> + Send + Sync,
    ) -> anyhow::Result<Vec<Refusal>> {
        let (mut refused, mut is_away) = (Vec::new(), true);
        for (index, update) in updates.iter().enumerate() {
            if index > 0 {
                self.settings.common.pause(1).await;
            }
            let how = how(update);
            let mut arguments: Vec<&str> = how.iter().map(String::as_str).collect();
            arguments.push(&update.target);
            let output = self.commands.try_ask("bmod", &arguments).await?;
            let said = clean(format!("{} {}", output.stdout, output.stderr).trim());
            if said.contains("are being changed") {
                is_away = false;
                continue;
            }
            let gone = [
                "is not found",
                "No matching job",
                "already started",
                "already finished",
            ];
            let is_gone = gone.iter().any(|words| said.contains(words));
            // Nothing has been set since the last failure: this is no matter of one job.
            anyhow::ensure!(
                is_gone || !is_away,
                "`bmod` failed for job {}: {said}",
                update.target
            );
            is_away |= !is_gone;
            refused.push(Refusal {
                job: Some(update.id),
                words: format!("job {}: {said}", update.target),
                is_gone,
            });
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests;
