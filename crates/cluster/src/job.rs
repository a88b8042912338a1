//! A job as a scheduler sees it, and the account that pays for it.
//!
//! Invariant: a job's true run time is known to the cluster that pretends to run it, never to its
//! scheduler, which plans with the requested time alone.
//!
//! Deliberately not here: memory, GPUs and the charging rule; a pretended job holds cores only.

use std::fmt;

use fairmesh_model::{AccountPath, CoreMillis, Millis};

/// Number of a job, unique among the jobs that are queued or running on one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Who pays: a VO, by its index in the caller's list, and a path within that VO.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// Index in the list of VOs that came with the workload or the trace.
    pub vo: usize,
    /// Path within the VO, such as `/P-B1/U-B11`.
    pub path: AccountPath,
}

/// A job to be run once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number, unique in one simulation.
    pub id: JobId,
    /// The account that pays for it.
    pub account: AccountKey,
    /// Cores that it holds from start to end.
    pub cores: u32,
    /// How long it will truly run.
    pub run: Millis,
    /// How long its user said it would run: all that backfill may know. Not enforced: a job that
    /// runs longer is not killed.
    pub requested: Millis,
}

impl Job {
    /// Cores times true run time.
    pub fn core_ms(&self) -> CoreMillis {
        core_ms(self.cores, self.run)
    }
}

/// `cores` held for `time`, saturating.
pub(crate) fn core_ms(cores: u32, time: Millis) -> CoreMillis {
    CoreMillis(time.0.saturating_mul(u64::from(cores)))
}
