//! The parts of a job that was resized while it ran, each charged for what it held.
//!
//! Slurm's sources name parts in ways of their own. `sacct` has a row for each, whose submit time is that of the
//! change before it (`fairmesh-records` reads it so). Job completion files and scripts have a record for each under
//! the key of the run; that of a part which ended by a change says that it began when it ended, and the queue shows
//! the newest part under the run's start.
//!
//! Invariant: from every source the first part has the run's key, its job's number and submit time, and a later one
//! has the second at which it began in the place of that; a part begins when the one before it ended, and its
//! wall-clock time is without that for which it was suspended.
//! Deliberately not here: where records come from, and what is charged.

use fairmesh_model::{Millis, UsageRecord, WallTime};
use fairmesh_records::{BatchRecord, JobState};

use crate::cursor::{Cursor, Resized, bound};
use crate::job::Job;

/// Most resized runs that are remembered: bounds the cursor's file.
const RESIZED_MAX: usize = 10_000;

/// How a run is named in the cursor.
pub(crate) fn mark(job: &str, submit: u64) -> String {
    format!("{job}-{submit}")
}

pub(crate) fn mark_of(job: &Job) -> String {
    mark(&job.record_name(), job.submit)
}

/// Makes a record of a source that of its part. `queued` is its job, if the queue still shows it. Gives false for a
/// part that the cursor has passed.
pub(crate) fn settle(record: &mut BatchRecord, cursor: &mut Cursor, queued: Option<&Job>) -> bool {
    let run = mark(&record.key.job, record.key.instance);
    let last = cursor.resized.get(&run).copied();
    if record.state == JobState::Resized {
        return ended_by_a_change(record, cursor, (&run, last), queued);
    }
    if let Some(last) = last {
        record.key.instance = last.at;
        record.start = Some(WallTime::from_unix_secs(last.at));
    }
    if record.wall.is_none() || last.is_some() {
        let stopped = stopped_since(cursor, &run, last);
        record.wall = match queued.filter(|job| is_that_part(record, job, last)) {
            Some(job) => record.span().map(|span| span.min(used(job, last))),
            None => record.span().map(|span| less(span, stopped)),
        };
    }
    true
}

fn ended_by_a_change(
    record: &mut BatchRecord,
    cursor: &mut Cursor,
    (run, last): (&str, Option<Resized>),
    queued: Option<&Job>,
) -> bool {
    let Some(at) = record.end.map(|end| end.0 / 1_000) else {
        return true;
    };
    if record.start.is_some() {
        // Of a row the submit time is where its part began, so the run is the one that was changed then.
        let of_run = |(mark, last): &(&String, &Resized)| {
            last.at == record.key.instance && mark.starts_with(&format!("{}-", record.key.job))
        };
        let changed = cursor.resized.iter().find(of_run);
        let run = changed.map_or_else(|| run.to_owned(), |(mark, _)| mark.clone());
        let stopped = cursor.suspended.get(&run).copied().unwrap_or(0);
        note(cursor, run, Resized { at, stopped });
        return true;
    }
    if last.is_some_and(|last| last.at >= at) {
        return false;
    }
    let started = queued.and_then(|job| job.start);
    record.start = last
        .map(|last| last.at)
        .or(started)
        .map(WallTime::from_unix_secs);
    let stopped = stopped_since(cursor, run, last);
    record.wall = record.span().map(|span| less(span, stopped));
    if let Some(last) = last {
        record.key.instance = last.at;
    }
    let stopped = cursor.suspended.get(run).copied().unwrap_or(0);
    note(cursor, run.to_owned(), Resized { at, stopped });
    true
}

/// Makes an instalment that of the part that runs now; none where it is not known since when that does.
pub(crate) fn instalment(record: UsageRecord, job: &Job, cursor: &Cursor) -> Option<UsageRecord> {
    if !job.is_resized {
        return Some(record);
    }
    let last = cursor.resized.get(&mark_of(job)).copied()?;
    let mut record = record;
    record.key.instance = last.at;
    record.start = WallTime::from_unix_secs(last.at);
    record.end = record.start.after(used(job, Some(last)));
    Some(record)
}

/// Where only the queue tells of changes, one is taken to have been when it was last looked at.
pub(crate) fn note_resized(cursor: &mut Cursor, jobs: &[Job], looked_s: Option<u64>) {
    for job in jobs.iter().filter(|job| job.is_resized) {
        let (run, Some(start)) = (mark_of(job), job.start) else {
            continue;
        };
        if !cursor.resized.contains_key(&run) {
            let at = looked_s.unwrap_or(start).max(start);
            let stopped = cursor.suspended.get(&run).copied().unwrap_or(0);
            note(cursor, run, Resized { at, stopped });
        }
    }
}

fn note(cursor: &mut Cursor, run: String, last: Resized) {
    let known = cursor.resized.entry(run).or_insert(last);
    if known.at < last.at {
        *known = last;
    }
    bound(&mut cursor.resized, RESIZED_MAX);
}

/// Whether what the queue says of a job's time is said of this part of it.
fn is_that_part(record: &BatchRecord, job: &Job, last: Option<Resized>) -> bool {
    let start = job.start.map(WallTime::from_unix_secs);
    last.is_some() == job.is_resized && (last.is_some() || start == record.start)
}

/// For how long the part that began with the last change has run, or the run.
fn used(job: &Job, last: Option<Resized>) -> Millis {
    let Some(last) = last else {
        return Millis::from_secs(job.used);
    };
    let before = last.at.saturating_sub(job.start.unwrap_or(last.at));
    let used = job.used.saturating_add(last.stopped).saturating_sub(before);
    Millis::from_secs(used)
}

fn stopped_since(cursor: &Cursor, run: &str, last: Option<Resized>) -> u64 {
    let stopped = cursor.suspended.get(run).copied().unwrap_or(0);
    stopped.saturating_sub(last.map_or(0, |last| last.stopped))
}

fn less(span: Millis, seconds: u64) -> Millis {
    Millis(span.0.saturating_sub(seconds.saturating_mul(1_000)))
}
