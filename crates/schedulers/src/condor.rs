//! HTCondor: who waits by `condor_q`, priority factors by `condor_userprio`, and the schedd's history file.
//!
//! The negotiator serves *submitters* in the order of their effective priorities, the smallest first: what HTCondor has
//! seen of somebody's use (his *real* priority), times his factor. Fairmesh has seen the use of the whole Grid, so
//! HTCondor's own count is held at its least value, the same for everybody, and the factor alone orders.
//!
//! Invariant: a factor is set for a submitter as a whole and for nobody of whom the queue does not speak; the submitter
//! named after the owner of a job is his, whoever else submits under the name. Deliberately not here: the order of
//! one submitter's jobs, which is his own (`JobPrio`).

mod factor;
mod queue;

pub use factor::is_as_wanted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use fairmesh_model::clean;
use fairmesh_records::{Format, Options};
use futures::future::try_join_all;

use crate::command::{CommandError, Commands, Output};
use crate::feed::{Cursor, Portion};
use crate::job::Job;
use crate::plan::Update;
use crate::{About, LoopSettings, Refusal, Scheduler, Settings, capacity};

/// What HTCondor has to be told, so that nothing but factors orders submitters (its own count of their use stands
/// still, and whoever has no factor yet is behind all others), and that users cannot edit what their jobs are charged
/// for.
pub const WANTED: [(&str, &str); 9] = [
    ("PRIORITY_HALFLIFE", "1e15"),
    ("DEFAULT_PRIO_FACTOR", factor::WORST),
    ("NICE_USER_PRIO_FACTOR", factor::WORST),
    ("REMOTE_PRIO_FACTOR", factor::WORST),
    (
        "SYSTEM_JOB_MACHINE_ATTRS",
        "$(SYSTEM_JOB_MACHINE_ATTRS) GPUs Memory Disk",
    ),
    (
        "PROTECTED_JOB_ATTRS",
        "$(PROTECTED_JOB_ATTRS) AccountingGroup AcctGroup AcctGroupUser QDate JobStartDate ShadowBday \
         EnteredCurrentStatus RemoteWallClockTime RequestCpus MachineAttrCpus0 MachineAttrGPUs0 MachineAttrMemory0 \
         MachineAttrDisk0 QueueName MachineAttrMachineType0",
    ),
    (
        "SUBMIT_REQUIREMENT_NAMES",
        "$(SUBMIT_REQUIREMENT_NAMES) Fairmesh",
    ),
    (
        "SUBMIT_REQUIREMENT_Fairmesh",
        "(AcctGroupUser =?= undefined || AcctGroupUser == Owner) && JobStartDate =?= undefined && \
         RemoteWallClockTime =?= 0.0",
    ),
    (
        "SUBMIT_REQUIREMENT_Fairmesh_REASON",
        "\"accounting_group_user must be yourself, and a new job has not run\"",
    ),
];

/// Factors that are set at the same time: HTCondor has no call for more than one, and each is a process that waits
/// for the negotiator most of its time.
const AT_ONCE: usize = 8;

/// The least real priority, which is that of a submitter of whom HTCondor has not seen any use.
const REAL: &str = "0.5";

/// How a node and an HTCondor work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondorSettings {
    /// As with every batch system.
    pub common: LoopSettings,
    /// `CONDOR_CONFIG`, where the commands do not find it by themselves.
    pub config: Option<PathBuf>,
    /// The schedd's file of what has ended; what `condor_config_val HISTORY` says if not given.
    pub history: Option<PathBuf>,
}

impl Settings for CondorSettings {
    fn defaults(data_dir: &Path) -> Self {
        let mut common = LoopSettings::defaults(data_dir.join("condor-feed.json"));
        // Jobs have no numbers of their own here.
        common.scale.importance = 0;
        Self {
            common,
            config: None,
            history: None,
        }
    }

    fn common(&mut self) -> &mut LoopSettings {
        &mut self.common
    }
}

/// The commands of an HTCondor pool.
#[derive(Debug, Clone)]
pub struct Condor {
    /// How it is asked.
    pub commands: Commands,
    /// What is to be done with it.
    pub settings: CondorSettings,
    /// The history file, once it is known.
    history: PathBuf,
}

impl Condor {
    /// The HTCondor of these settings.
    pub fn new(settings: CondorSettings) -> Self {
        let config = settings.config.as_ref();
        let config = config.map(|file| ("CONDOR_CONFIG", Some(file.to_string_lossy().into())));
        Self {
            commands: Commands {
                system: Self::NAME,
                bin_dir: settings.common.bin_dir.clone(),
                environment: config.into_iter().collect(),
            },
            history: settings.history.clone().unwrap_or_default(),
            settings,
        }
    }

    /// A value of the configuration on this machine; none where nothing is configured.
    ///
    /// # Errors
    /// If HTCondor is not installed.
    pub async fn configured(&self, name: &str) -> Result<Option<String>, CommandError> {
        let output = self.commands.try_ask("condor_config_val", &[name]).await?;
        let value = output.stdout.trim();
        Ok((output.good && !value.is_empty()).then(|| value.to_owned()))
    }

    /// Where the schedd writes down what has ended.
    ///
    /// # Errors
    /// If nothing says it.
    pub async fn history(&self) -> anyhow::Result<PathBuf> {
        match &self.settings.history {
            Some(file) => Ok(file.clone()),
            None => Ok(self
                .configured("HISTORY")
                .await?
                .context("`condor_config_val HISTORY` says nothing: give condor.history")?
                .into()),
        }
    }
}

impl Scheduler for Condor {
    const NAME: &'static str = "condor";
    const NUMBER: &'static str = "place";
    const WAITING: &'static str = "submitters";
    const SHOWS_CPUS: &'static str =
        "condor_status -constraint 'SlotType =!= \"Dynamic\"' -af TotalSlotCpus";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        let arguments = [
            "-constraint",
            "SlotType =!= \"Dynamic\"",
            "-af",
            "TotalSlotCpus",
        ];
        let text = self.commands.ask("condor_status", &arguments).await?;
        Ok(capacity::of_condor_status(&text))
    }

    /// The submitters of the whole pool; with `all`, the jobs of the schedd whose history is read.
    async fn queue(&self, all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        Ok(match all {
            true => queue::jobs(&self.commands).await?,
            false => queue::submitters(&self.commands).await?,
        })
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        let attributes = ["-allusers", "-af:t", "Name", "PriorityFactor", "Priority"];
        let text = self.commands.ask("condor_userprio", &attributes).await?;
        Ok(text
            .lines()
            .filter_map(|line| number(line, self.range()))
            .collect())
    }

    async fn set(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        let factor = |update: &Update| factor::of(update.to, self.range());
        self.set_factors(updates, factor).await
    }

    async fn reset(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        let usual = self.configured("DEFAULT_PRIO_FACTOR").await?;
        let usual = usual.context("`condor_config_val DEFAULT_PRIO_FACTOR` says nothing")?;
        self.set_factors(updates, |_| usual.clone()).await
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        self.history = self.history().await?;
        let common = &self.settings.common;
        Ok(About::of_file(common, Self::NAME, &self.history))
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let options = Options {
            cluster: Self::NAME.to_owned(),
            noted_slots: true,
            ..Options::default()
        };
        Portion::read(&self.history, cursor, Format::HtcondorAds, options)
    }
}

impl Condor {
    fn range(&self) -> i64 {
        self.settings.common.scale.range.into()
    }

    /// HTCondor's command sets one factor and waits for the negotiator's answer.
    async fn set_factors(
        &self,
        updates: &[Update],
        factor: impl Fn(&Update) -> String + Send + Sync,
    ) -> anyhow::Result<Vec<Refusal>> {
        let (mut refused, mut is_away) = (Vec::new(), true);
        for (index, some) in updates.chunks(AT_ONCE).enumerate() {
            if index > 0 {
                self.settings.common.pause(AT_ONCE).await;
            }
            let set = some.iter().map(|one| self.set_one(one, factor(one)));
            let outputs = try_join_all(set).await?;
            for (update, output) in some.iter().zip(outputs) {
                if output.good {
                    is_away = false;
                    continue;
                }
                let words = clean(output.stderr.trim());
                if is_away {
                    // Nothing has been set since the last failure: this is no matter of one submitter.
                    bail!("`condor_userprio` failed for {}: {words}", update.target);
                }
                is_away = true;
                refused.push(Refusal {
                    job: Some(update.id),
                    words: format!("submitter {}: {words}", update.target),
                    is_gone: false,
                });
            }
        }
        Ok(refused)
    }

    async fn set_one(&self, update: &Update, factor: String) -> Result<Output, CommandError> {
        let set = |what: &'static str, value: String| async move {
            let arguments = [what, &update.target, &value];
            self.commands.try_ask("condor_userprio", &arguments).await
        };
        if update.from.is_none() {
            let output = set("-setprio", REAL.to_owned()).await?;
            if !output.good {
                return Ok(output);
            }
        }
        set("-setfactor", factor).await
    }
}

/// The number of a submitter, by what `condor_userprio` says of him; none while his real priority is not what it is
/// held at, for then no factor says where he stands.
fn number(line: &str, range: i64) -> Option<(u64, i64)> {
    let mut fields = line.split('\t');
    let (name, factor, effective) = (fields.next()?, fields.next()?, fields.next()?);
    let is_submitter = name.contains('@');
    let number = factor::number(factor, range).filter(|_| factor::is_half(effective, factor))?;
    is_submitter.then(|| (queue::id_of(name), number))
}

#[cfg(test)]
mod tests;
