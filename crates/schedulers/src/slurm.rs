//! Slurm: its queue by `squeue`, site factors by `scontrol`, and what has ended by `sacct`, a file or a hook's spool.
//!
//! Invariant: what users choose (names, comments, accounts) adds no row to a list and no job to another's account, as
//! far as Slurm's own output lets it be told. Deliberately not here: the plug-in for large sites, which does the work
//! of `sync` within slurmctld.

pub mod cluster;
pub mod quota;
pub mod spool;
pub mod standing;

mod frame;
mod people;
mod queue;
mod sacct;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fairmesh_model::Millis;
use fairmesh_records::{Format, Options, Zone};
use serde::Deserialize;

use crate::command::{CommandError, Commands};
use crate::feed::{BATCH_RECORDS, Cursor, Portion};
use crate::follow::Reader;
use crate::job::Job;
use crate::plan::Update;
use crate::{About, LoopSettings, Refusal, Scheduler, capacity, now_ms};
use cluster::{Cluster, Finished};
use fairmesh_api::client::Control;

/// Why the loop sets no site factors beside the plug-in.
pub const PLUGIN_SETS_FACTORS: &str = "the plug-in site_factor/fairmesh sets the site factors of this cluster, and two \
     of them would undo each other's: run `fairmesh slurm feed` alone, with `with_node = false` under [slurm], or take \
     PrioritySiteFactorPlugin out of slurm.conf and restart slurmctld";

/// Where the hook leaves records, unless told otherwise.
pub const SPOOL_DEFAULT: &str = "/var/spool/fairmesh";

/// Where finished jobs are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageSource {
    /// Whatever the cluster is set up for: slurmdbd, else what `JobCompType` writes.
    Auto,
    /// `sacct`, which needs slurmdbd.
    Sacct,
    /// The file of `jobcomp/filetxt`.
    Filetxt,
    /// The spool of `fairmesh slurm hook`.
    Hook,
}

/// How a node and a Slurm work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmSettings {
    /// As with every batch system.
    pub common: LoopSettings,
    /// Slurm's configuration, if it is not at the usual place.
    pub slurm_conf: Option<PathBuf>,
    /// Where finished jobs are read from.
    pub usage: UsageSource,
    /// How far behind the newest known end `sacct` is asked again.
    pub overlap: Millis,
    /// The file of `jobcomp/filetxt`; what Slurm says if not given.
    pub jobcomp_file: Option<PathBuf>,
    /// The folder of the hook's records.
    pub spool: PathBuf,
    /// Whether jobs are held to quotas: at submission, and before they start.
    pub quota: bool,
}

impl SlurmSettings {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            common: LoopSettings::defaults(data_dir.join("slurm-feed.json")),
            slurm_conf: None,
            usage: UsageSource::Auto,
            overlap: Millis::from_secs(3_600),
            jobcomp_file: None,
            spool: PathBuf::from(SPOOL_DEFAULT),
            quota: false,
        }
    }
}

/// The commands of a Slurm cluster.
#[derive(Debug, Clone)]
pub struct Slurm {
    /// How it is asked.
    pub commands: Commands,
    /// What is to be done with it.
    pub settings: SlurmSettings,
    /// Where it says what has ended, once it was asked.
    source: Option<Finished>,
}

impl Slurm {
    /// The Slurm of these settings. Times are asked for in seconds since 1970 and words in no language, so that what
    /// comes back does not depend on the host; the operator's own habits would change the columns. The other clusters
    /// of a federation have nodes of their own.
    pub fn new(settings: SlurmSettings) -> Self {
        let set = |name, value: &str| (name, Some(value.to_owned()));
        let mut environment = vec![
            set("SLURM_TIME_FORMAT", "%s"),
            set("SLURM_BITSTR_LEN", "0"),
            ("SQUEUE_FORMAT", None),
            ("SQUEUE_FORMAT2", None),
            ("SQUEUE_STATES", None),
            ("SACCT_FORMAT", None),
            ("SINFO_FORMAT", None),
            ("SINFO_PARTITION", None),
            set("SINFO_LOCAL", "1"),
            set("SQUEUE_LOCAL", "1"),
            set("SPRIO_LOCAL", "1"),
            set("SACCT_LOCAL", "1"),
            set("SCONTROL_LOCAL", "1"),
            ("SLURM_CLUSTERS", None),
            ("SQUEUE_FEDERATION", None),
            ("SQUEUE_SIBLING", None),
            ("SPRIO_FEDERATION", None),
            ("SPRIO_SIBLING", None),
            ("SACCT_FEDERATION", None),
            ("SCONTROL_FEDERATION", None),
            ("SCONTROL_SIBLING", None),
        ];
        if let Some(path) = &settings.slurm_conf {
            environment.push(set("SLURM_CONF", &path.to_string_lossy()));
        }
        Self {
            commands: Commands {
                system: Self::NAME,
                bin_dir: settings.common.bin_dir.clone(),
                environment,
            },
            settings,
            source: None,
        }
    }
}

impl Scheduler for Slurm {
    const NAME: &'static str = "slurm";
    const NUMBER: &'static str = "site factor";
    const SHOWS_CPUS: &'static str = "sinfo -a -h -o %C";

    async fn cpus(&self) -> anyhow::Result<Option<u64>> {
        let arguments = ["-a", "-h", "-o", "%C"];
        let text = self.commands.ask("sinfo", &arguments).await?;
        Ok(capacity::of_sinfo(&text))
    }

    async fn queue(&self, all: bool) -> anyhow::Result<(Vec<Job>, Vec<String>)> {
        Ok(queue::read(&self.commands, all).await?)
    }

    async fn numbers(&self) -> anyhow::Result<BTreeMap<u64, i64>> {
        let text = self.commands.ask("sprio", &["-h", "-o", "%i|%S"]).await?;
        let rows = text.lines().filter_map(|line| line.split_once('|'));
        let number = |(id, factor): (&str, &str)| {
            Some((id.trim().parse().ok()?, factor.trim().parse().ok()?))
        };
        Ok(rows.filter_map(number).collect())
    }

    async fn set(&self, updates: &[Update]) -> anyhow::Result<Vec<Refusal>> {
        // The plug-in may have been put in use since the loop started.
        let cluster = Cluster::ask(&self.commands).await?;
        anyhow::ensure!(!cluster.has_our_plugin(), PLUGIN_SETS_FACTORS);
        let line = |it: &Update| format!("update JobId={} SiteFactor={}", it.target, it.to);
        let lines: Vec<String> = updates.iter().map(line).collect();
        let rate = self.settings.common.rate;
        let complaints = self.commands.feed("scontrol", &lines, rate).await?;
        let ids: BTreeMap<&str, u64> = updates.iter().map(|it| (&*it.target, it.id)).collect();
        let refusal = |words: String| {
            let (job, why) = blamed(&words).unzip();
            let why = why.unwrap_or(&words);
            Refusal {
                job: job.and_then(|job| ids.get(job).copied()),
                is_gone: why.starts_with("Invalid job id") || why.contains("already finished"),
                words,
            }
        };
        Ok(complaints.into_iter().map(refusal).collect())
    }

    async fn about(&mut self) -> anyhow::Result<About> {
        let cluster = Cluster::ask(&self.commands).await?;
        let finished = cluster.finished(&self.settings);
        let lack = finished.as_ref().err().cloned();
        self.source = finished.ok();
        Ok(About {
            cluster: cluster.name(&self.settings),
            lack,
        })
    }

    async fn ended(&self, cursor: &Cursor) -> anyhow::Result<Portion> {
        let options = Options {
            // slurmctld writes local times, and runs where its file can be read.
            zone: Zone::new(jiff::tz::TimeZone::system()),
            growing: matches!(self.source, Some(Finished::File(_))),
            ..Options::default()
        };
        Ok(match &self.source {
            None => Portion {
                cursor: cursor.clone(),
                ..Portion::default()
            },
            Some(Finished::Sacct) => {
                let overlap_s = self.settings.overlap.0 / 1_000;
                let now_s = now_ms() / 1_000;
                let read = sacct::read(&self.commands, cursor, overlap_s, now_s, &options).await;
                read.map_err(of_slurmdbd)?
            }
            Some(Finished::File(path)) => of_file(path, cursor, &options)?,
            Some(Finished::Spool(path)) => spool::read(path, cursor, BATCH_RECORDS)
                .with_context(|| format!("cannot read the spool {}", path.display()))?,
        })
    }

    async fn tend(&self, jobs: &[Job], cluster: &str, node: &Control) -> anyhow::Result<()> {
        if self.settings.quota {
            let released = quota::release(self, jobs, cluster, node).await?;
            if released > 0 {
                tracing::info!(released, "slurm feed: jobs that had no credit go again");
            }
        }
        Ok(())
    }
}

/// The daemon of Slurm that failed; slurmctld may run.
#[derive(Debug, thiserror::Error)]
#[error("slurmdbd does not answer")]
pub struct SlurmdbdAway;

/// The failure of a command that asks slurmdbd.
fn of_slurmdbd(error: CommandError) -> anyhow::Error {
    match error {
        CommandError::Failed { .. } | CommandError::Slow { .. } => {
            anyhow::Error::new(error).context(SlurmdbdAway)
        }
        _ => error.into(),
    }
}

/// What the file of `jobcomp/filetxt` has behind the cursor.
fn of_file(path: &Path, cursor: &Cursor, options: &Options) -> anyhow::Result<Portion> {
    let from = cursor.file.as_ref();
    let read = Reader::new(Format::SlurmJobcomp, options).read(path, from);
    let read = read.with_context(|| format!("cannot read {}", path.display()))?;
    let unread = read.bad.iter().filter_map(|bad| job_of(&bad.text));
    Ok(Portion {
        unread: unread.collect(),
        ..Portion::of_file(read, cursor)
    })
}

/// The job with which a line begins.
fn job_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"JobId=")?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The job and the reason of a complaint: `Invalid job id specified for job 12`, or
/// `12_1-5: Job has already finished`.
fn blamed(line: &str) -> Option<(&str, &str)> {
    if let Some((why, job)) = line.rsplit_once(" for job ") {
        return Some((job.trim(), why));
    }
    let (job, why) = line.split_once(": ")?;
    let is_job = job.starts_with(|c: char| c.is_ascii_digit());
    is_job.then_some((job, why.trim()))
}

#[cfg(test)]
mod tests;
