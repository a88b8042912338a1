//! One row a job, found and summed, bounded, and set aside when it cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairmesh_api::record_log::{LogLoss, LogPlace};
use fairmesh_model::{JobKey, Origin};
use fairmesh_records::{Dimension, Format, JobState};

use super::*;
use crate::driver::wall_now;

const HOUR: u64 = 3_600_000;

fn entry(job: u64, state: JobState, full: bool) -> Entry {
    let key = JobKey {
        cluster: "c".to_owned(),
        job: job.to_string(),
        instance: 7,
    };
    let mut record = BatchRecord::new(Format::SlurmSacct, key, state);
    record.origin = Origin {
        user: Some(if job.is_multiple_of(2) { "ann" } else { "bob" }.to_owned()),
        ..Origin::default()
    };
    record.start = Some(WallTime(job * HOUR));
    record.end = Some(WallTime((job + 1) * HOUR)).filter(|_| state.has_ended());
    record.cpus = Some(2);
    Entry {
        record,
        vo: Some("physics".to_owned()),
        path: Some("/cms".to_owned()),
        full,
        replaces: false,
    }
}

fn all() -> Keep {
    Keep {
        age: Millis(u64::MAX),
        ..Keep::default()
    }
}

fn found(log: &RecordLog, filter: &Filter, most: u32) -> (Vec<String>, bool) {
    let mut jobs = Vec::new();
    let reader = log.reader().expect("a reader");
    let more = find(&reader, filter, most, |found| {
        let record = row::record(&found).expect("a record");
        jobs.push(format!("{} {}", record.key.job, record.state.name()));
        true
    });
    (jobs, more.expect("found"))
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_refuses_records_until_it_can_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(FILE);
    std::fs::create_dir(&file).expect("a folder in its place");
    let log = RecordLog::open(folder.path(), all()).expect("it begins");
    let batch = || vec![entry(1, JobState::Failed, true)];
    assert!(log.append(batch()).await.is_err());
    assert!(log.reader().is_err());
    std::fs::remove_dir(&file).expect("away");
    log.append(batch()).await.expect("written");
    assert_eq!(found(&log, &Filter::default(), 10).0, ["1 FAILED"]);
    assert_eq!((log.stats().refused, log.stats().rows), (1, 1));
}

/// Feeds notice by it that a data folder was restored from a backup.
#[tokio::test]
async fn a_copy_of_the_file_lacks_what_was_acknowledged_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, copy) = (folder.path().join(FILE), folder.path().join("copy"));
    let open = || RecordLog::open(folder.path(), all()).expect("opens");
    let batch = |job| vec![entry(job, JobState::Failed, true)];
    let log = open();
    log.append(batch(1)).await.expect("written");
    drop(log);
    std::fs::copy(&file, &copy).expect("copied");
    let log = open();
    log.append(batch(2)).await.expect("written");
    let place = LogPlace::default().at(&log.state());
    assert_eq!(place.loss(&log.state()), None);
    drop(log);
    let log = open();
    assert_eq!(place.loss(&log.state()), None, "it was only stopped");
    drop(log);
    std::fs::copy(&copy, &file).expect("restored");
    let log = open();
    assert_eq!(place.loss(&log.state()), Some(LogLoss::Restored));
    log.append(batch(3)).await.expect("written");
    log.append(batch(4)).await.expect("written");
    assert_eq!(place.loss(&log.state()), Some(LogLoss::Restored));
    drop(log);
    for job in 0..20 {
        open().append(batch(job)).await.expect("written");
    }
    assert_eq!(open().state().starts.len(), 16);
}

#[tokio::test]
async fn the_fullest_word_on_a_job_is_kept_whatever_comes_when() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let running = || entry(1, JobState::Running, true);
    let ended = || entry(1, JobState::Failed, true);
    let charged = || entry(1, JobState::Completed, false);
    for batch in [vec![running(), ended(), charged()], vec![running()]] {
        log.append(batch).await.expect("written");
        let (jobs, more) = found(&log, &Filter::default(), 10);
        assert_eq!((jobs, more), (vec!["1 FAILED".to_owned()], false));
    }
    // A later record corrects an earlier one, and what only the earlier one knew stays.
    let mut fuller = ended();
    fuller.record.cpu_time = Some(Millis(5));
    fuller.record.queue = Some("long".to_owned());
    let mut corrected = fuller.clone();
    corrected.record.state = JobState::Timeout;
    let mut other = ended();
    other.record.qos = Some("high".to_owned());
    for (batch, state) in [
        (vec![fuller, other, ended(), charged()], "1 FAILED"),
        (vec![corrected, charged()], "1 TIMEOUT"),
    ] {
        log.append(batch).await.expect("written");
        assert_eq!(found(&log, &Filter::default(), 10).0, [state]);
    }
    drop(log);
    let metadata = std::fs::metadata(folder.path().join(FILE)).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    assert_eq!(mode & 0o777, 0o600, "job records are about people");
    let again = RecordLog::open(folder.path(), all()).expect("opens");
    assert_eq!(found(&again, &Filter::default(), 10).0, ["1 TIMEOUT"]);
    let reader = again.reader().expect("a reader");
    find(&reader, &Filter::default(), 1, |found| {
        let record = row::record(&found).expect("a record");
        assert_eq!(record.cpu_time, Some(Millis(5)));
        assert_eq!(
            (record.queue.as_deref(), record.qos.as_deref()),
            (Some("long"), Some("high"))
        );
        true
    })
    .expect("found");
}

/// A job that has ended is charged once, by its first record; a log that took a later end would say otherwise for good.
#[tokio::test]
async fn what_a_job_was_charged_for_stays_whatever_is_said_of_it_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let first = entry(1, JobState::Completed, true);
    let mut lost = entry(1, JobState::NodeFail, true);
    lost.record.end = Some(WallTime(9 * HOUR));
    lost.record.nodes = Some(3);
    for batch in [vec![first.clone()], vec![lost.clone()], vec![first, lost]] {
        log.append(batch).await.expect("written");
    }
    let reader = log.reader().expect("a reader");
    find(&reader, &Filter::default(), 1, |found| {
        let record = row::record(&found).expect("a record");
        assert_eq!(record.held(), Some(Millis(HOUR)));
        assert_eq!((record.state, record.nodes), (JobState::NodeFail, Some(3)));
        true
    })
    .expect("found");
    let held: i64 = reader
        .query_row("SELECT held FROM records", [], |row| row.get(0))
        .expect("a row");
    assert_eq!(held, HOUR.cast_signed(), "and so do the sums");
}

#[tokio::test]
async fn records_are_found_by_name_and_period_the_newest_first_to_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let jobs = (1..=6).map(|job| entry(job, JobState::Completed, true));
    log.append(jobs.collect()).await.expect("written");
    let ann = Filter {
        user: Some("ann".to_owned()),
        ..Filter::default()
    };
    assert_eq!(found(&log, &ann, 2).0, ["4 COMPLETED", "6 COMPLETED"]);
    assert!(found(&log, &ann, 2).1);
    let period = Filter {
        since: Some(WallTime(3 * HOUR + 1)),
        until: Some(WallTime(4 * HOUR)),
        ..Filter::default()
    };
    assert_eq!(
        found(&log, &period, 10),
        (vec!["3 COMPLETED".to_owned()], false)
    );
    let reader = log.reader().expect("a reader");
    let sums = summarise(&reader, &Filter::default(), &[Dimension::User]).expect("sums");
    let users: Vec<_> = sums
        .groups()
        .map(|(names, sum)| (&names[0], sum.cpu_ms))
        .collect();
    let six = u128::from(6 * HOUR);
    assert_eq!(users, [(&"ann".to_owned(), six), (&"bob".to_owned(), six)]);
    let mut text = String::new();
    find(&reader, &ann, 1, |found| {
        text = found;
        true
    })
    .expect("found");
    let json: serde_json::Value = serde_json::from_str(&text).expect("an object");
    assert_eq!(
        (&json["vo"], &json["path"]),
        (&"physics".into(), &"/cms".into())
    );
}

#[tokio::test]
async fn what_is_too_old_or_too_much_goes_in_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let jobs = (1..=3_000).map(|job| entry(job, JobState::Completed, true));
    log.append(jobs.collect()).await.expect("written");
    drop(log);
    let mut connection = schema::open_or_set_aside(&folder.path().join(FILE)).expect("opens");
    let count = |connection: &Connection| -> i64 {
        let query = "SELECT count(*) FROM records";
        connection
            .query_row(query, [], |row| row.get(0))
            .expect("a count")
    };
    let small = Keep { bytes: 1, ..all() };
    let step = writer::step(&mut connection, small, wall_now()).expect("a step");
    assert!(step.more && step.forgotten == 1_000);
    assert_eq!(count(&connection), 2_000);
    // Every job ended in 1970.
    let young = Keep::default();
    while writer::step(&mut connection, young, wall_now())
        .expect("a step")
        .more
    {}
    assert_eq!(count(&connection), 0);
}

#[tokio::test]
async fn records_go_by_the_time_that_the_site_believes_and_not_by_a_clock_that_is_ahead() {
    let folder = tempfile::tempdir().expect("a folder");
    let keep = Keep {
        age: Millis(1_000 * HOUR),
        ..Keep::default()
    };
    let (believes, believed) = watch::channel(WallTime(0));
    let log = RecordLog::open_by(folder.path(), keep, believed).expect("opens");
    // Of the first thousand hours of 1970: by this machine's clock all are too old.
    let jobs = (1..=1_000).map(|job| entry(job, JobState::Completed, true));
    log.append(jobs.collect()).await.expect("written");
    believes.send_replace(WallTime(1_003 * HOUR));
    for job in 1_001..1_501 {
        let batch = vec![entry(job, JobState::Completed, true)];
        log.append(batch).await.expect("written");
    }
    // Read behind the step that the last one was followed by.
    log.append(Vec::new()).await.expect("written");
    assert_eq!((log.stats().rows, log.stats().pruned), (1_499, 1));
}

#[tokio::test]
async fn sums_that_overlap_do_not_keep_the_write_ahead_log_from_starting_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let jobs = (1..=5_000).map(|job| entry(job, JobState::Completed, true));
    log.append(jobs.collect()).await.expect("written");
    let path = folder.path().join(FILE);
    let mut connection = schema::open_or_set_aside(&path).expect("opens");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let sum = |pause: u64| {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let slowly = move || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            true
        };
        while !is_over.load(Ordering::Relaxed) {
            let reader = log.reader_while(slowly).expect("a reader");
            match summarise(&reader, &Filter::default(), &[Dimension::User]) {
                Ok(_) | Err(LogError::GaveWay) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let mut most = 0;
    std::thread::scope(|scope| {
        for pause in [0, 300] {
            scope.spawn(move || sum(pause));
        }
        std::thread::sleep(std::time::Duration::from_millis(400));
        for batch in 10..40 {
            let jobs =
                (batch * 500..(batch + 1) * 500).map(|job| entry(job, JobState::Failed, true));
            let jobs: Vec<Entry> = jobs.collect();
            let transaction = connection.transaction().expect("begun");
            row::write(&transaction, &jobs, WallTime(0)).expect("written");
            transaction.commit().expect("written");
            writer::checkpoint(&connection, 256, &log.gives_way).expect("done");
            let length = std::fs::metadata(folder.path().join(format!("{FILE}-wal")));
            most = most.max(length.expect("there").len());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(most < 4 << 20, "{most} bytes");
}

#[tokio::test]
async fn a_feed_without_pause_does_not_outgrow_the_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = 1 << 20;
    let log = RecordLog::open(folder.path(), Keep { bytes, ..all() }).expect("opens");
    let mut most = 0;
    for batch in 0..40 {
        let jobs = (batch * 500..(batch + 1) * 500).map(|job| entry(job, JobState::Failed, true));
        log.append(jobs.collect()).await.expect("written");
        most = most.max(log.stats().bytes);
    }
    // Two batches may be in it that no step has seen yet.
    assert!(most < 2 * bytes, "{most} bytes");
    log.keep(all());
    log.append(vec![entry(19_999, JobState::Failed, true)])
        .await
        .expect("written");
    let stats = log.stats();
    assert_eq!((stats.inserted, stats.refused), (20_000, 0));
    assert_eq!(stats.rows, stats.inserted - stats.pruned);
    assert!(stats.pruned > 15_000, "{stats:?}");
    drop(log);
    let again = RecordLog::open(folder.path(), all()).expect("opens");
    let newest = entry(20_000, JobState::Failed, true);
    again.append(vec![newest]).await.expect("written");
    assert_eq!(
        again.stats().rows,
        stats.rows + 1,
        "what was there is counted"
    );
}

#[tokio::test]
async fn a_file_that_is_no_log_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE);
    std::fs::write(&path, "no database, and longer than nothing".repeat(100)).expect("written");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    log.append(vec![entry(1, JobState::Completed, true)])
        .await
        .expect("written");
    assert_eq!(found(&log, &Filter::default(), 10).0.len(), 1);
    let names = std::fs::read_dir(folder.path())
        .expect("a folder")
        .flatten();
    let kept = names.filter(|entry| entry.file_name().to_string_lossy().contains("unreadable"));
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn a_file_whose_end_is_missing_is_set_aside() {
    let whole = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(whole.path(), all()).expect("opens");
    for first in [0, 1_000] {
        let entries = (first..first + 1_000).map(|job| entry(job, JobState::Completed, true));
        log.append(entries.collect()).await.expect("written");
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let connection = Connection::open(whole.path().join(FILE)).expect("opens");
        connection
            .query_row(checkpoint, [], |_| Ok(()))
            .expect("done");
    }
    // What comes last is in the write-ahead log, as after a process that was killed.
    log.append(vec![entry(9_000, JobState::Completed, true)])
        .await
        .expect("written");
    for (cut, kept) in [(None, 2_001), (Some(2), 0), (Some(100), 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        for end in ["", "-wal"] {
            let name = format!("{FILE}{end}");
            std::fs::copy(whole.path().join(&name), folder.path().join(&name)).expect("copied");
        }
        if let Some(part) = cut {
            let file = std::fs::File::options()
                .write(true)
                .open(folder.path().join(FILE));
            let file = file.expect("there");
            let length = file.metadata().expect("there").len();
            file.set_len(length / part).expect("cut");
        }
        let log = RecordLog::open(folder.path(), all()).expect("opens");
        assert_eq!(
            found(&log, &Filter::default(), 5_000).0.len(),
            kept,
            "{cut:?}"
        );
        let names = std::fs::read_dir(folder.path())
            .expect("a folder")
            .flatten();
        let aside = names.filter(|entry| entry.file_name().to_string_lossy().ends_with("-wal"));
        let unreadable =
            aside.filter(|entry| entry.file_name().to_string_lossy().contains("unreadable"));
        assert_eq!(unreadable.count(), usize::from(cut.is_some()), "{cut:?}");
    }
}

#[tokio::test]
async fn what_filters_ask_for_is_found_by_an_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let reader = log.reader().expect("a reader");
    let since = Filter {
        since: Some(WallTime(HOUR)),
        ..Filter::default()
    };
    let of_user = Filter {
        user: Some("ann".to_owned()),
        ..Filter::default()
    };
    for (filter, indexes) in [
        (since, ["records_by_moment", "records_not_over"].as_slice()),
        (of_user, &["records_by_user"]),
    ] {
        let (query, values) = filter.query("id, moment", "1");
        let query = format!("EXPLAIN QUERY PLAN {query} ORDER BY moment DESC, id DESC LIMIT 9");
        let mut statement = reader.prepare(&query).expect("a query");
        let values = rusqlite::params_from_iter(&values);
        let steps = statement.query_map(values, |row| row.get::<_, String>(3));
        let steps: Vec<String> = steps.expect("asks").flatten().collect();
        for index in indexes {
            assert!(
                steps.iter().any(|step| step.contains(index)),
                "{index}: {steps:?}"
            );
        }
        let is_all = |step: &String| step.starts_with("SCAN records") && !step.contains("INDEX");
        assert!(!steps.iter().any(is_all), "{steps:?}");
    }
}

#[tokio::test]
async fn reading_ends_when_nobody_wants_it_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let jobs = (1..=5_000).map(|job| entry(job, JobState::Completed, true));
    log.append(jobs.collect()).await.expect("written");
    for most in [usize::MAX, 1, 0] {
        let looked = Arc::new(AtomicUsize::new(0));
        let looks = Arc::clone(&looked);
        let is_wanted = move || looks.fetch_add(1, Ordering::Relaxed) < most;
        let reader = log.reader_while(is_wanted).expect("a reader");
        let summed = summarise(&reader, &Filter::default(), &[Dimension::User]);
        assert_eq!(summed.is_ok(), most == usize::MAX, "{most}");
        // It ends at the first look that says so.
        let looked = looked.load(Ordering::Relaxed);
        assert!(looked > 2 || looked == most + 1, "{looked} of {most}");
    }
}

#[tokio::test]
async fn a_run_that_was_logged_by_its_start_or_its_submit_time_keeps_that_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let with = |job: u64, instance: u64| {
        let mut entry = entry(job, JobState::Completed, true);
        entry.record.key.instance = instance;
        entry
    };
    let start_s = |job: u64| job * HOUR / 1_000;
    // Job 1 by its submit time, job 2 by its start; job 3 ran twice, the second time as it was submitted.
    let entries = vec![with(1, 5), with(2, start_s(2)), with(3, 5), with(3, 6)];
    log.append(entries).await.expect("written");
    let key = |job: &str, label: Option<&str>, instance: u64, start_s: u64| {
        let mut key = JobKey {
            job: job.to_owned(),
            ..with(1, instance).record.key
        };
        let connection = log.reader().expect("a reader");
        let run = Run {
            key: &mut key,
            label,
            start: WallTime(start_s * 1_000),
            end: Some(WallTime((start_s + 3_600) * 1_000)),
        };
        settle_keys(&connection, [run].into_iter()).expect("read");
        (key.job, key.instance)
    };
    let is = |job: &str, instance| (job.to_owned(), instance);
    assert_eq!(key("1", None, start_s(1), start_s(1)), is("1", 5));
    assert_eq!(key("2", None, 9, start_s(2)), is("2", start_s(2)));
    let own = key("3", None, 6, start_s(3));
    assert_eq!(own, is("3", 6), "its own key is there");
    // Another run, another job, and two submit times.
    assert_eq!(key("1", None, 8_000, 8_000), is("1", 8_000));
    assert_eq!(key("4", None, start_s(1), start_s(1)), is("4", start_s(1)));
    assert_eq!(key("1", None, 6, start_s(1)), is("1", 6));
    // One behind the other, in one file.
    let mut keys: Vec<JobKey> = [start_s(9), 4, start_s(9)]
        .into_iter()
        .map(|instance| with(9, instance).record.key)
        .collect();
    let runs = keys.iter_mut().map(|key| Run {
        key,
        label: None,
        start: WallTime(9 * HOUR),
        end: None,
    });
    settle_keys(&log.reader().expect("a reader"), runs).expect("read");
    assert!(
        keys.iter().all(|key| key.instance == start_s(9)),
        "{keys:?}"
    );
    // The task of an array, under the name that Slurm shows.
    let mut task = with(15, 5);
    task.record.label = Some("12_3".to_owned());
    log.append(vec![task]).await.expect("written");
    assert_eq!(key("12_3", None, start_s(15), start_s(15)), is("15", 5));
    let others = [("12_3", start_s(16)), ("12_4", start_s(15))];
    for (job, start_s) in others {
        assert_eq!(key(job, None, start_s, start_s), is(job, start_s));
    }
    // As an earlier release had named it.
    assert_eq!(
        key("1.0", Some("2"), start_s(2), start_s(2)),
        is("2", start_s(2))
    );
}

#[tokio::test]
async fn the_account_that_a_job_is_charged_to_stays_if_another_source_says_less_or_something_else()
{
    let folder = tempfile::tempdir().expect("a folder");
    let log = RecordLog::open(folder.path(), all()).expect("opens");
    let first = entry(1, JobState::Completed, true);
    let mut other = first.clone();
    other.record.origin.user = Some("zoe".to_owned());
    other.record.name = Some("more".to_owned());
    other.path = Some("/elsewhere".to_owned());
    let mut less = first.clone();
    (less.record.origin.user, less.path) = (None, None);
    let mut moved = first.clone();
    moved.path = Some("/moved".to_owned());
    let reader = || log.reader().expect("a reader");
    let row = || {
        let columns = "SELECT user, path FROM records";
        let row = reader().query_row(columns, [], |row| Ok((row.get(0)?, row.get(1)?)));
        row.expect("a row")
    };
    let is = |path: &str| (Some("bob".to_owned()), Some(path.to_owned()));
    log.append(vec![first]).await.expect("written");
    log.append(vec![other, less]).await.expect("written");
    assert_eq!(row(), is("/cms"));
    log.append(vec![moved]).await.expect("written");
    assert_eq!(row(), is("/moved"), "the same record, by other rules");
}
