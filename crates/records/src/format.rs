//! The formats, by name and by their looks.
//!
//! Invariant: [`Format::detect`] answers only where the beginning of a file fits one format, and
//! `None` is an answer: a file that is read as what it is not charges somebody for nothing.

mod why_not;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
pub use why_not::why_not;

/// How much of a file is looked at: a job ad of HTCondor may have hundreds of attributes before its ids, or 64 KiB of
/// environment.
pub const DETECT_BYTES_MAX: usize = 1 << 20;

/// A format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Slurm, `sacct -P` (`--parsable2`) with any list of fields.
    SlurmSacct,
    /// Slurm, `sacct --json`.
    SlurmSacctJson,
    /// Slurm, the file of `jobcomp/filetxt`.
    SlurmJobcomp,
    /// Slurm, the documents of `jobcomp/elasticsearch` and `jobcomp/kafka`.
    SlurmJobcompJson,
    /// Slurm, the environment that `jobcomp/script` hands to its script, one `KEY=value` a line and
    /// a blank or `--` line after each job.
    SlurmScript,
    /// Slurm, `squeue -h -o` with [`crate::slurm::SQUEUE_FORMAT`].
    SlurmSqueue,
    /// Slurm, `scontrol show jobs`, with or without `-o`.
    SlurmScontrol,
    /// PBS, Torque and OpenPBS accounting logs.
    Pbs,
    /// Grid Engine's `accounting` file, times in seconds or milliseconds.
    GridEngine,
    /// LSF's `lsb.acct`.
    Lsf,
    /// HTCondor, `condor_history -json` or `-jsonl`.
    HtcondorJson,
    /// HTCondor, `condor_history -long`, or a history file itself.
    HtcondorAds,
    /// HTCondor, `condor_history -xml`.
    HtcondorXml,
    /// HTCondor, the lines of 10 or 11 fields by `|` that APEL's parser is fed with.
    HtcondorFields,
    /// OGF Usage Records in XML.
    OgfUsageRecord,
    /// APEL individual-job messages.
    ApelJob,
    /// Flux, `flux jobs --json`.
    Flux,
    /// ClusterCockpit's job archive, `meta.json`.
    ClusterCockpit,
    /// AUDITOR's records.
    Auditor,
    /// Fairmesh's own: JSON lines of [`fairmesh_model::UsageRecord`] or of [`crate::BatchRecord`].
    Json,
}

/// Each format and its name on a command line.
const NAMES: [(Format, &str); 20] = [
    (Format::SlurmSacct, "slurm-sacct"),
    (Format::SlurmSacctJson, "slurm-sacct-json"),
    (Format::SlurmJobcomp, "slurm-jobcomp"),
    (Format::SlurmJobcompJson, "slurm-jobcomp-json"),
    (Format::SlurmScript, "slurm-script"),
    (Format::SlurmSqueue, "slurm-squeue"),
    (Format::SlurmScontrol, "slurm-scontrol"),
    (Format::Pbs, "pbs"),
    (Format::GridEngine, "grid-engine"),
    (Format::Lsf, "lsf"),
    (Format::HtcondorJson, "htcondor-json"),
    (Format::HtcondorAds, "htcondor-ads"),
    (Format::HtcondorXml, "htcondor-xml"),
    (Format::HtcondorFields, "htcondor-fields"),
    (Format::OgfUsageRecord, "ogf-usage-record"),
    (Format::ApelJob, "apel-job"),
    (Format::Flux, "flux"),
    (Format::ClusterCockpit, "cluster-cockpit"),
    (Format::Auditor, "auditor"),
    (Format::Json, "jsonl"),
];

impl Format {
    /// Every format, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(format, _)| *format)
    }

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(format, _)| *format == self);
        named.map_or("", |(_, name)| name)
    }

    /// Whether the wall-clock time it states leaves out the time in which a job held nothing
    /// (suspended, or between two runs), so that it says more than start and end do.
    pub const fn states_held_time(self) -> bool {
        match self {
            Self::SlurmSacct | Self::SlurmSacctJson => true,
            Self::SlurmSqueue | Self::SlurmScontrol => true,
            // Slurm states none here: who adds one has it from the queue, by Slurm's own clock.
            Self::SlurmJobcomp | Self::SlurmJobcompJson | Self::SlurmScript => true,
            Self::HtcondorJson | Self::HtcondorAds => true,
            Self::HtcondorXml | Self::HtcondorFields => true,
            Self::OgfUsageRecord | Self::ApelJob => true,
            Self::Flux | Self::ClusterCockpit | Self::Auditor | Self::Json => false,
            // Their wall-clock times lag behind by an interval of polling.
            Self::Pbs | Self::GridEngine | Self::Lsf => false,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No format has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such format; there are {}", NAMES.map(|(_, name)| name).join(", "))]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let named = NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(format, _)| *format).ok_or(UnknownFormat)
    }
}
