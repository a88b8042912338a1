//! What has ended, by records and queues as real Slurms write them.

use fairmesh_client::Own;
use fairmesh_records::{ChargeRule, WallRule};

use super::*;

const START: u64 = 1_795_238_184;

fn of(records: Vec<BatchRecord>) -> Portion {
    Portion {
        records,
        ..Portion::default()
    }
}

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

pub(crate) fn in_queue(id: u64) -> Job {
    Job {
        label: None,
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
        is_resized: false,
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
    cursor.suspended.insert(mark("2", START - 4), 40);
    let taken = of(vec![of_file(1), of_file(2), of_file(3)]);
    let records = finished(taken, &mut cursor, &[in_queue(1)], "alpha", false);
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
    let mut cursor = Cursor::default();
    let jobs = [in_queue(1), waits];
    let records = finished(Portion::default(), &mut cursor, &jobs, "alpha", true);
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(record.state, JobState::Timeout);
    assert_eq!(record.submit, Some(WallTime::from_unix_secs(START - 4)));
    assert_eq!(record.span(), Some(Millis::from_secs(100)));
    assert_eq!(charged_s(record, WallRule::Held), 70);
    assert_eq!(record.importance.map(Importance::get), Some(150));
}

/// A user can break his job's line by its name, and not its charge.
#[test]
fn a_job_whose_record_cannot_be_read_is_charged_by_the_queue() {
    let unread = Portion {
        unread: vec![1, 7],
        ..Portion::default()
    };
    let mut cursor = Cursor::default();
    // Its line is written while it is on its way out.
    let mut leaving = in_queue(1);
    leaving.state = State::Leaving;
    let records = finished(unread, &mut cursor, &[leaving], "alpha", false);
    assert_eq!(records, []);
    let jobs = [in_queue(1), in_queue(2)];
    let records = finished(of(Vec::new()), &mut cursor, &jobs, "alpha", false);
    assert!(cursor.unread.is_empty(), "once");
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((&*record.key.job, record.key.instance), ("1", START - 4));
    assert_eq!(charged_s(record, WallRule::Held), 70);
}

/// The job of `RESIZED` in `fairmesh-records`: 24 CPUs for 9 s with 3 s of suspension in them, then 16 for 31 s with 5.
mod resized {
    use super::*;

    const SUBMIT: u64 = 1_795_561_375;
    const BEGAN: u64 = SUBMIT + 2;
    const CHANGED: u64 = BEGAN + 9;
    const ENDED: u64 = CHANGED + 31;

    /// Key, begin, seconds and CPUs of each part.
    const PARTS: [(u64, u64, u64, u32); 2] = [(SUBMIT, BEGAN, 6, 24), (CHANGED, CHANGED, 26, 16)];

    fn job(state: State, used: u64) -> Job {
        Job {
            cpus: 16,
            submit: SUBMIT,
            start: Some(BEGAN),
            is_resized: true,
            end: Some(ENDED),
            used,
            state,
            ..in_queue(1)
        }
    }

    fn of_completion(state: JobState, end: u64, cpus: u32) -> BatchRecord {
        let mut record = of_file(1);
        (record.key.instance, record.state, record.cpus) = (SUBMIT, state, Some(cpus));
        let is_part = state == JobState::Resized;
        record.start = (!is_part).then(|| WallTime::from_unix_secs(CHANGED));
        record.end = Some(WallTime::from_unix_secs(end));
        record
    }

    /// As which part each goes on.
    fn next(records: &[BatchRecord]) -> Vec<Option<u64>> {
        let rule = ChargeRule::default();
        let usage = |record: &BatchRecord| rule.usage(record, WallTime(u64::MAX));
        let usages = records.iter().map(|record| usage(record).expect("charged"));
        usages.map(|usage| usage.placement.next_instance).collect()
    }

    fn charges(records: &[BatchRecord]) -> Vec<(u64, u64, u64, u32)> {
        let rule = ChargeRule::default();
        let charge = |record: &BatchRecord| {
            let usage = rule.usage(record, WallTime(u64::MAX)).expect("charged");
            let wall = usage.end.since(usage.start).0 / 1_000;
            let begin = usage.start.0 / 1_000;
            (usage.key.instance, begin, wall, usage.cores)
        };
        records.iter().map(charge).collect()
    }

    #[test]
    fn each_part_is_charged_by_a_file_or_a_hook() {
        let mut cursor = Cursor::default();
        let first = of_completion(JobState::Resized, CHANGED, 24);
        let last = of_completion(JobState::Completed, ENDED, 16);
        // Within the first round the job runs, and has been suspended once.
        let runs = job(State::Running, 6);
        note_suspended(&mut cursor, std::slice::from_ref(&runs), BEGAN + 9);
        let mut records = finished(
            of(vec![first.clone()]),
            &mut cursor,
            &[runs],
            "alpha",
            false,
        );
        let queue = [job(State::Ended, 32)];
        let again = of(vec![first.clone(), last.clone()]);
        records.extend(finished(again, &mut cursor, &queue, "alpha", false));
        assert_eq!(charges(&records), PARTS);
        assert_eq!(next(&records), [Some(CHANGED), None]);
        // All at once, when the queue has forgotten how long it was suspended.
        let mut cursor = Cursor::default();
        cursor.suspended.insert(mark("1", SUBMIT), 8);
        let all = of(vec![first, last]);
        let records = finished(all, &mut cursor, &queue, "alpha", false);
        let sum: u64 = charges(&records).iter().map(|part| part.2).sum();
        assert_eq!((records.len(), sum), (2, 32));
    }

    #[test]
    fn each_part_is_charged_by_sacct_and_what_runs_by_the_queue() {
        let mut cursor = Cursor::default();
        let mut first = of_completion(JobState::Resized, CHANGED, 24);
        first.start = Some(WallTime::from_unix_secs(BEGAN));
        first.wall = Some(Millis::from_secs(6));
        let mut last = of_completion(JobState::Completed, ENDED, 16);
        (last.key.instance, last.wall) = (CHANGED, Some(Millis::from_secs(26)));
        let runs = job(State::Running, 10);
        note_suspended(&mut cursor, &[job(State::Running, 6)], BEGAN + 9);
        let records = finished(
            of(vec![first.clone()]),
            &mut cursor,
            std::slice::from_ref(&runs),
            "alpha",
            false,
        );
        assert_eq!(charges(&records), PARTS[..1]);
        let rule = ChargeRule::default();
        let instalment = |job: &Job, cursor: &Cursor| {
            let record = job.instalment(&rule, "alpha").expect("it runs");
            crate::parts::instalment(record, job, cursor)
        };
        let part = instalment(&runs, &cursor).expect("known");
        assert_eq!((part.key.instance, part.cores), (CHANGED, 16));
        assert_eq!(part.end.since(part.start), Millis::from_secs(4));
        assert_eq!(instalment(&runs, &Cursor::default()), None, "since when?");
        let again = of(vec![first, last]);
        let records = finished(again, &mut cursor, &[job(State::Ended, 32)], "alpha", false);
        assert_eq!(charges(&records), PARTS);
        assert_eq!(next(&records), [Some(CHANGED), None]);
    }

    #[test]
    fn where_only_the_queue_tells_a_part_begins_with_the_look_that_saw_the_one_before() {
        let mut cursor = Cursor::default();
        let ended = job(State::Ended, 40);
        crate::parts::note_resized(&mut cursor, std::slice::from_ref(&ended), Some(CHANGED - 2));
        let records = finished(Portion::default(), &mut cursor, &[ended], "alpha", true);
        assert_eq!(charges(&records), [(CHANGED - 2, CHANGED - 2, 33, 16)]);
    }
}
