//! What has ended, as the node is to log and charge it.
//!
//! A source's records are passed on as they are, under the cluster's name. Where one does not say for
//! how long the job ran (job completion files know nothing of suspension), the queue says it, or what
//! was seen of it while the job ran.
//!
//! A record that cannot be read (a user can write a line end into a job's name, and so break the line of a job
//! completion file) does not make its job free: the queue shows the job for a while, and says all that is charged.
//!
//! Invariant: the wall-clock time of a record is what `sacct` would call elapsed, as far as anybody
//! knows. Deliberately not here: whether a job is charged, and for how long; parts of jobs that were resized (`parts`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Importance, JobKey, Millis, WallTime};
use fairmesh_records::{BatchRecord, Format, JobState};

use crate::cursor::{Cursor, Portion, bound};
use crate::job::{Job, State};
use crate::parts::{mark, mark_of, settle};

/// Most stopped jobs that are remembered: bounds the cursor's file.
const SUSPENDED_MAX: usize = 10_000;

/// What has ended: from the source, or, where the cluster has none, from the queue.
pub(crate) fn finished(
    taken: Portion,
    cursor: &mut Cursor,
    jobs: &[Job],
    cluster: &str,
    without_source: bool,
) -> Vec<BatchRecord> {
    let ended = jobs.iter().filter(|job| job.state == State::Ended);
    let ended: BTreeMap<String, &Job> = ended.map(|job| (mark_of(job), job)).collect();
    let shown: BTreeMap<String, &Job> = jobs.iter().map(|job| (mark_of(job), job)).collect();
    let mut records = Vec::new();
    for mut record in taken.records {
        let run = mark(&record.key.job, record.key.instance);
        cluster.clone_into(&mut record.key.cluster);
        let queued = match record.state {
            JobState::Resized => shown.get(&run),
            _ => ended.get(&run),
        };
        let queued = queued.copied();
        record.importance = record.importance.or(queued.and_then(importance));
        if record.state.has_ended() && settle(&mut record, cursor, queued) {
            records.push(record);
        }
    }
    // A job may be on its way out still when its line is read. What the queue does not show is no job of ours.
    let is_shown: BTreeSet<u64> = jobs.iter().map(|job| job.id).collect();
    cursor.unread.extend(taken.unread);
    cursor.unread.retain(|id| is_shown.contains(id));
    for job in ended.values() {
        if cursor.unread.remove(&job.id) || without_source {
            let mut record = of_queue(job, cluster);
            if settle(&mut record, cursor, Some(job)) {
                records.push(record);
            }
        }
    }
    records
}

/// How important its user called it; none where he did not.
fn importance(job: &Job) -> Option<Importance> {
    Some(job.own.importance).filter(|it| *it != Importance::default())
}

/// All that the queue says of a job that has ended.
fn of_queue(job: &Job, cluster: &str) -> BatchRecord {
    let key = JobKey {
        cluster: cluster.to_owned(),
        job: job.record_name(),
        instance: job.submit,
    };
    let state = job.word.filter(|word| word.has_ended());
    let state = state.unwrap_or(JobState::Failed);
    let mut record = BatchRecord::new(Format::SlurmSqueue, key, state);
    record.label = Some(job.target.clone()).filter(|label| *label != record.key.job);
    record.origin = job.origin();
    (record.queue, record.qos) = (job.partition.clone(), job.qos.clone());
    record.submit = Some(WallTime::from_unix_secs(job.submit));
    record.start = job.start.map(WallTime::from_unix_secs);
    record.end = job.end.map(WallTime::from_unix_secs);
    record.wall = Some(Millis::from_secs(job.used));
    record.requested_wall = job.limit.map(Millis::from_secs);
    record.cpus = Some(job.cpus);
    record.nodes = Some(job.nodes).filter(|nodes| *nodes > 0);
    record.gpus = Some(job.gpus).filter(|gpus| *gpus > 0);
    record.memory_mib = Some(job.mem_mib).filter(|memory| *memory > 0);
    record.hosts.clone_from(&job.host);
    record.importance = importance(job);
    record
}

/// Remembers for how long running jobs have been stopped, and forgets those that are gone for good.
pub(crate) fn note_suspended(cursor: &mut Cursor, jobs: &[Job], now_s: u64) {
    for job in jobs.iter().filter(|job| job.state == State::Running) {
        let Some(start) = job.start else { continue };
        let stopped = now_s.saturating_sub(start.saturating_add(job.used));
        // A second is lost in rounding and in asking.
        if stopped > 1 {
            cursor.suspended.insert(mark_of(job), stopped);
        }
    }
    bound(&mut cursor.suspended, SUSPENDED_MAX);
}

#[cfg(test)]
pub(crate) mod tests;
