//! One key for a run that two sources name differently.
//!
//! Slurm's and HTCondor's own sources tell the runs of a job apart by its submit time. A source that has no submit time
//! (APEL's messages, old job completion files) goes by the start, and some write an id in a form of their own. The log
//! knows the runs of a job, so that a record takes the key under which its run came first.
//!
//! Invariant: a record whose own key is in the log keeps it; of two instances one at least is the run's start.

use fairmesh_model::{JobKey, WallTime};
use rusqlite::{CachedStatement, Connection, params};

use super::{LogError, signed};

const RUNS: &str = "SELECT instance, started FROM records WHERE cluster = ?1 AND job = ?2";

/// The run that a record is of.
#[derive(Debug)]
pub struct Run<'a> {
    /// Its key, by the record.
    pub key: &'a mut JobKey,
    /// The job as the source wrote it, if that is not the key's.
    pub label: Option<&'a str>,
    /// When it began.
    pub start: WallTime,
}

/// Gives runs the keys that they have in the log.
///
/// # Errors
/// If the log cannot be read.
pub fn settle_keys<'a>(
    connection: &Connection,
    runs: impl Iterator<Item = Run<'a>>,
) -> Result<(), LogError> {
    let mut query = connection.prepare_cached(RUNS)?;
    for run in runs {
        let names = std::iter::once(run.key.job.clone()).chain(run.label.map(str::to_owned));
        for job in names.collect::<Vec<_>>() {
            if let Some(instance) = known(&mut query, &run, &job)? {
                (run.key.job, run.key.instance) = (job, instance);
                break;
            }
        }
    }
    Ok(())
}

/// The instance under which the log has a run of a job.
fn known(
    query: &mut CachedStatement<'_>,
    run: &Run<'_>,
    job: &str,
) -> Result<Option<u64>, LogError> {
    let start_s = run.start.0 / 1_000;
    let mut rows = query.query(params![run.key.cluster, job])?;
    let mut same = None;
    while let Some(row) = rows.next()? {
        let instance = row.get::<_, i64>(0)?.cast_unsigned();
        let started: Option<i64> = row.get(1)?;
        if instance == run.key.instance {
            return Ok(Some(instance));
        }
        let starts = started.is_some_and(|at| at / 1_000 == signed(start_s));
        if starts && (instance == start_s || run.key.instance == start_s) {
            same = Some(instance);
        }
    }
    Ok(same)
}
