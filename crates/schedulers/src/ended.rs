//! What has ended, as the node is to log and charge it.
//!
//! A source's records are passed on as they are, under the cluster's name. Where one does not say for
//! how long the job ran (job completion files know nothing of suspension), the queue says it, or what
//! was seen of it while the job ran.
//!
//! Invariant: the wall-clock time of a record is what `sacct` would call elapsed, as far as anybody
//! knows. Deliberately not here: whether a job is charged, and for how long.

use std::collections::BTreeMap;

use fairmesh_model::{Importance, JobKey, Millis, Origin, WallTime};
use fairmesh_records::{BatchRecord, Format, JobState};

use super::cursor::Cursor;
use super::queue::{Job, State};
use super::tell::now_ms;

/// Most stopped jobs that are remembered: bounds the cursor's file.
const SUSPENDED_MAX: usize = 10_000;

/// What has ended: from the source, or, where the cluster has none, from the queue.
pub(super) fn finished(
    taken: &[BatchRecord],
    cursor: &Cursor,
    jobs: &[Job],
    cluster: &str,
    without_source: bool,
) -> Vec<BatchRecord> {
    let ended = jobs.iter().filter(|job| job.state == State::Ended);
    let ended: BTreeMap<String, &Job> = ended.map(|job| (mark(job.id, job.submit), job)).collect();
    if without_source {
        return ended.values().map(|job| of_queue(job, cluster)).collect();
    }
    let taken = taken.iter().filter(|record| record.state.has_ended());
    let whole = |record: &BatchRecord| {
        let mut record = record.clone();
        cluster.clone_into(&mut record.key.cluster);
        let name = format!("{}-{}", record.key.job, record.key.instance);
        let queued = ended.get(&name).copied();
        record.importance = record.importance.or(queued.and_then(importance));
        if record.wall.is_none() {
            let stopped = cursor.suspended.get(&name).copied().unwrap_or(0);
            record.wall = without_suspension(&record, queued, stopped);
        }
        record
    };
    taken.map(whole).collect()
}

/// How important its user called it; none where he did not.
fn importance(job: &Job) -> Option<Importance> {
    Some(job.own.importance).filter(|it| *it != Importance::default())
}

/// From start to end without the time for which the job was stopped, as far as the queue shows it or
/// has shown it (`stopped_s`).
fn without_suspension(record: &BatchRecord, ended: Option<&Job>, stopped_s: u64) -> Option<Millis> {
    let span = record.span()?;
    Some(match ended {
        Some(job) if job.start.map(WallTime::from_unix_secs) == record.start => {
            span.min(Millis::from_secs(job.used))
        }
        _ => Millis(span.0.saturating_sub(stopped_s.saturating_mul(1_000))),
    })
}

/// All that the queue says of a job that has ended.
fn of_queue(job: &Job, cluster: &str) -> BatchRecord {
    let key = JobKey {
        cluster: cluster.to_owned(),
        job: job.id.to_string(),
        instance: job.submit,
    };
    let state = job.word.filter(|word| word.has_ended());
    let state = state.unwrap_or(JobState::Failed);
    let mut record = BatchRecord::new(Format::SlurmSqueue, key, state);
    record.label = Some(job.target.clone()).filter(|label| *label != record.key.job);
    record.origin = Origin {
        user: Some(job.user.clone()),
        account: job.account.clone(),
        group: job.group.clone(),
        subject: None,
    };
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
pub(super) fn note_suspended(cursor: &mut Cursor, jobs: &[Job]) {
    let now_s = now_ms() / 1_000;
    for job in jobs.iter().filter(|job| job.state == State::Running) {
        let Some(start) = job.start else { continue };
        let stopped = now_s.saturating_sub(start.saturating_add(job.used));
        // A second is lost in rounding and in asking.
        if stopped > 1 {
            cursor.suspended.insert(mark(job.id, job.submit), stopped);
        }
    }
    while cursor.suspended.len() > SUSPENDED_MAX {
        let oldest = cursor.suspended.keys().min_by_key(|name| submitted(name));
        let oldest = oldest.cloned().unwrap_or_default();
        cursor.suspended.remove(&oldest);
    }
}

/// When the job of a mark was submitted.
fn submitted(mark: &str) -> Option<u64> {
    mark.rsplit_once('-')?.1.parse().ok()
}

fn mark(job: u64, submit: u64) -> String {
    format!("{job}-{submit}")
}

#[cfg(test)]
mod tests {
    use fairmesh_client::Own;
    use fairmesh_records::{ChargeRule, WallRule};

    use super::*;

    const START: u64 = 1_795_238_184;

    fn of_file(job: u64) -> BatchRecord {
        let key = JobKey {
            cluster: "unknown".to_owned(),
            job: job.to_string(),
            instance: START - 4,
        };
        let mut record = BatchRecord::new(Format::SlurmJobcomp, key, JobState::Completed);
        record.origin.user = Some("ann".to_owned());
        record.start = Some(WallTime::from_unix_secs(START));
        record.end = Some(WallTime::from_unix_secs(START + 100));
        record.cpus = Some(2);
        record
    }

    fn in_queue(id: u64) -> Job {
        Job {
            id,
            target: id.to_string(),
            state: State::Ended,
            word: Some(JobState::Timeout),
            held: false,
            cpus: 2,
            gpus: 0,
            mem_mib: 0,
            submit: START - 4,
            start: Some(START),
            end: Some(START + 100),
            used: 70,
            limit: Some(60),
            nodes: 1,
            partition: Some("long".to_owned()),
            qos: Some("normal".to_owned()),
            host: Some("n7".to_owned()),
            account: Some("cms".to_owned()),
            group: None,
            user: "ann".to_owned(),
            own: Own::of(0, "fairmesh:importance=150"),
            comment: String::new(),
        }
    }

    fn charged_s(record: &BatchRecord, wall: WallRule) -> u64 {
        let rule = ChargeRule {
            wall,
            ..ChargeRule::default()
        };
        let usage = rule.usage(record, WallTime(u64::MAX)).expect("charged");
        usage.end.since(usage.start).0 / 1_000
    }

    #[test]
    fn a_job_of_a_file_is_charged_without_the_time_for_which_it_stood_still() {
        let mut cursor = Cursor::default();
        cursor.suspended.insert(mark(2, START - 4), 40);
        let taken = [of_file(1), of_file(2), of_file(3)];
        let records = finished(&taken, &cursor, &[in_queue(1)], "alpha", false);
        let held: Vec<u64> = records
            .iter()
            .map(|record| charged_s(record, WallRule::Held))
            .collect();
        assert_eq!(held, [70, 60, 100], "by the queue, by memory, by the file");
        let said = records.iter().map(|it| it.importance.map(Importance::get));
        let said: Vec<_> = said.collect();
        assert_eq!(said, [Some(150), None, None], "the queue alone knows it");
        assert_eq!(charged_s(&records[0], WallRule::Span), 100);
        assert!(records.iter().all(|record| record.key.cluster == "alpha"));
    }

    #[test]
    fn without_a_source_the_queue_says_all_that_it_knows() {
        let mut waits = in_queue(2);
        waits.state = State::Pending;
        let records = finished(
            &[],
            &Cursor::default(),
            &[in_queue(1), waits],
            "alpha",
            true,
        );
        let [record] = &records[..] else {
            panic!("{records:?}")
        };
        assert_eq!(record.state, JobState::Timeout);
        assert_eq!(record.submit, Some(WallTime::from_unix_secs(START - 4)));
        assert_eq!(record.span(), Some(Millis::from_secs(100)));
        assert_eq!(charged_s(record, WallRule::Held), 70);
        assert_eq!(record.importance.map(Importance::get), Some(150));
    }
}
