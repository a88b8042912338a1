//! The table `[slurm]` of the configuration: as it is written, and as it is valid.
//!
//! Deliberately not here: whether Slurm is there, and what it says of itself.

use std::path::Path;

use fairmesh_schedulers::slurm::{SlurmSettings, UsageSource};
use serde::Deserialize;

use crate::config::FileError;
use crate::config::quantity::RawDuration;
use crate::config::schedulers::{Place, raw_table};

/// What becomes of jobs while the node does not say whether their quota covers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnSilence {
    /// They run; what they cost is charged afterwards.
    #[default]
    Run,
    /// They are refused at submission, and do not start.
    Refuse,
}

raw_table! {
    /// `[slurm]` as it is written.
    RawSlurm of "slurm" {
        slurm_conf: String,
        usage: UsageSource,
        overlap: RawDuration,
        jobcomp_file: String,
        spool: String,
        quota: bool,
        on_silence: OnSilence,
    }
}

/// `[slurm]` as it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmTable {
    /// Whether `fairmesh run` does the work of `fairmesh slurm run`.
    pub with_node: bool,
    /// What becomes of jobs with quotas while the node does not answer.
    pub on_silence: OnSilence,
    /// How the node and Slurm work together.
    pub slurm: SlurmSettings,
}

impl SlurmTable {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            on_silence: OnSilence::default(),
            slurm: SlurmSettings::defaults(data_dir),
        }
    }
}

/// Checks the table.
pub(crate) fn checked(place: Place<'_>, raw: &RawSlurm) -> Result<SlurmTable, FileError> {
    let default = SlurmSettings::defaults(place.data_dir);
    let given = raw.given();
    Ok(SlurmTable {
        with_node: raw.with_node.unwrap_or(true),
        on_silence: raw.on_silence.unwrap_or_default(),
        slurm: SlurmSettings {
            common: given.checked(place, default.common)?,
            slurm_conf: place.path(&raw.slurm_conf),
            usage: raw.usage.unwrap_or(default.usage),
            overlap: given.length(place.source, "overlap", &raw.overlap, default.overlap)?,
            jobcomp_file: place.path(&raw.jobcomp_file),
            spool: place.path(&raw.spool).unwrap_or(default.spool),
            quota: raw.quota.unwrap_or(default.quota),
        },
    })
}
