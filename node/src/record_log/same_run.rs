//! One key for a run that two sources name differently.
//!
//! Slurm's and HTCondor's own sources tell the runs of a job apart by its submit time. A source that has no submit time
//! (APEL's messages, old job completion files) goes by the start, and some write an id in a form of their own. The log
//! knows the runs of a job, so that a record takes the key under which its run came first.
//!
//! Invariant: a record whose own key is in the log keeps it; of two instances one at least is the run's start.

use std::collections::HashMap;

use fairmesh_model::{JobKey, WallTime};
use rusqlite::{CachedStatement, Connection, ToSql, params};

use super::LogError;

const RUNS: &str = "SELECT job, instance, started FROM records WHERE cluster = ?1 AND job = ?2";

/// Runs that ended in a second and whose own source names the job so, too: that index has few rows of one second.
const LABELLED: &str = "
    SELECT job, instance, started FROM records INDEXED BY records_by_moment
    WHERE moment BETWEEN ?3 AND ?3 + 999 AND cluster = ?1 AND record ->> 'label' = ?2
";

/// The run that a record is of.
#[derive(Debug)]
pub struct Run<'a> {
    /// Its key, by the record.
    pub key: &'a mut JobKey,
    /// The job as the source wrote it, if that is not the key's.
    pub label: Option<&'a str>,
    /// The beginning of the run.
    pub start: WallTime,
    /// When it ended, if it has.
    pub end: Option<WallTime>,
}

/// Gives runs the keys that they have in the log, or else as they come one behind the other.
///
/// # Errors
/// If the log cannot be read.
pub fn settle_keys<'a>(
    connection: &Connection,
    runs: impl Iterator<Item = Run<'a>>,
) -> Result<(), LogError> {
    let mut query = connection.prepare_cached(RUNS)?;
    let mut by_label = connection.prepare_cached(LABELLED)?;
    let mut here: Runs = HashMap::new();
    for run in runs {
        let cluster = run.key.cluster.clone();
        let names = std::iter::once(run.key.job.clone()).chain(run.label.map(str::to_owned));
        let names: Vec<String> = names.collect();
        let mut known = None;
        for job in &names {
            let of_job = here.get(&(cluster.clone(), job.clone()));
            let of_log = logged(&mut query, &cluster, params![cluster, job])?;
            let runs = of_log
                .into_iter()
                .chain(of_job.into_iter().flatten().cloned());
            known = same(&run, runs);
            if known.is_some() {
                break;
            }
        }
        let start_s = run.start.0 / 1_000;
        // APEL names the task of an array as Slurm shows it, where Slurm's own key is another number.
        if let Some(end) = run.end.filter(|_| known.is_none() && is_task(&names[0])) {
            let end_ms = (end.0 / 1_000 * 1_000).cast_signed();
            let of_log = logged(&mut by_label, &cluster, params![cluster, names[0], end_ms])?;
            known = same(&run, of_log.into_iter());
        }
        if let Some(known) = known {
            *run.key = known;
        }
        for job in names {
            let runs = here.entry((cluster.clone(), job)).or_default();
            runs.push((run.key.clone(), Some(start_s)));
        }
    }
    Ok(())
}

/// Runs by cluster and any name of the job, each with its start in seconds since 1970.
type Runs = HashMap<(String, String), Vec<(JobKey, Option<u64>)>>;

fn logged(
    query: &mut CachedStatement<'_>,
    cluster: &str,
    of: &[&dyn ToSql],
) -> Result<Vec<(JobKey, Option<u64>)>, LogError> {
    let rows = query.query_map(of, |row| {
        let key = JobKey {
            cluster: cluster.to_owned(),
            job: row.get(0)?,
            instance: row.get::<_, i64>(1)?.cast_unsigned(),
        };
        let started: Option<i64> = row.get(2)?;
        Ok((key, started.map(|at| at.cast_unsigned() / 1_000)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether an id is of an array's task, as in `12_3`.
fn is_task(job: &str) -> bool {
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    job.split_once('_')
        .is_some_and(|(array, task)| is_number(array) && is_number(task))
}

/// The key of the run that this one is: its own, or one of two of which one is known by its start.
fn same(run: &Run<'_>, known: impl Iterator<Item = (JobKey, Option<u64>)>) -> Option<JobKey> {
    let start_s = run.start.0 / 1_000;
    let mut same = None;
    for (key, started) in known {
        if key.instance == run.key.instance {
            return Some(key);
        }
        let is_by_start = key.instance == start_s || run.key.instance == start_s;
        if started == Some(start_s) && is_by_start {
            same = same.or(Some(key));
        }
    }
    same
}
