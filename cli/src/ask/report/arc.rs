//! Jobs of the accounting archive of NorduGrid ARC's A-REX: a SQLite database in its control folder.
//!
//! Invariant: the key is A-REX's id of the job, under which it is held before it runs (`fairmesh arc hold`); a job
//! that has ended and never ran is a record without a start. The archive is only read.
//! Deliberately not here: jobs that still run; what JURA makes of the archive for others, which are formats of
//! their own.
//!
//! Source: `arex_accounting_db_schema_v1.sql` of ARC 6.4 to 7.0. ARC 7 gave the file another name.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairmesh_model::{JobKey, Millis, Origin, WallTime};
use fairmesh_records::{BatchRecord, Exit, Format, JobState};
use fairmesh_schedulers::feed::BATCH_RECORDS;
use rusqlite::{Connection, OpenFlags, Row};

use super::item::{Bad, Entry, Item};

/// How a SQLite database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What A-REX calls the archive in its folder, the newest name first.
const NAMES: [&str; 2] = ["accounting_v2.db", "accounting.db"];

/// How long A-REX may be writing.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Jobs that have ended, the one that ended first at the front. Of its events, of which the archive keeps local
/// times without their zone, only how long they were before the last one.
const ENDED: &str = "
    SELECT a.RecordID, a.JobID, a.LocalJobID, q.Name, u.Name, a.ExitCode, a.SubmitTime, a.EndTime, a.NodeCount,
        a.CPUCount, a.UsedWalltime, a.UsedCPUUserTime + a.UsedCPUKernelTime, a.UsedMemory, a.UsedVirtMem,
        (SELECT InfoValue FROM JobExtraInfo i WHERE i.RecordID = a.RecordID AND InfoKey = 'localuser'),
        (SELECT InfoValue FROM JobExtraInfo i WHERE i.RecordID = a.RecordID AND InfoKey = 'projectname'),
        (SELECT InfoValue FROM JobExtraInfo i WHERE i.RecordID = a.RecordID AND InfoKey = 'jobname'),
        (SELECT InfoValue FROM JobExtraInfo i WHERE i.RecordID = a.RecordID AND InfoKey = 'nodenames'),
        e.last - e.lrmsstart, e.last - e.lrmsend, e.last - e.inlrms, e.last - e.finishing
    FROM AAR a JOIN Status s ON s.ID = a.StatusID JOIN Queues q ON q.ID = a.QueueID JOIN Users u ON u.ID = a.UserID
    LEFT JOIN (
        SELECT RecordID,
            max(CASE EventKey WHEN 'FINISHED' THEN strftime('%s', EventTime) END) AS last,
            max(CASE EventKey WHEN 'LRMSSTART' THEN strftime('%s', EventTime) END) AS lrmsstart,
            max(CASE EventKey WHEN 'LRMSEND' THEN strftime('%s', EventTime) END) AS lrmsend,
            max(CASE EventKey WHEN 'INLRMS' THEN strftime('%s', EventTime) END) AS inlrms,
            max(CASE EventKey WHEN 'FINISHING' THEN strftime('%s', EventTime) END) AS finishing
        FROM JobEvents WHERE RecordID IN (SELECT RecordID FROM AAR WHERE EndTime >= ?1) GROUP BY RecordID
    ) e ON e.RecordID = a.RecordID
    WHERE s.Name <> 'in-progress' AND (a.EndTime, a.RecordID) > (?1, ?2)
    ORDER BY a.EndTime, a.RecordID LIMIT ?3";

/// When a job ended, seconds since 1970, and its number.
pub(super) type Place = (i64, i64);

/// Before every job that ended at this second or later.
pub(super) fn before(second: i64) -> Place {
    (second, i64::MIN)
}

/// Whether a file is a database, by its beginning.
pub(super) fn is_archive(beginning: &[u8]) -> bool {
    beginning.starts_with(MAGIC)
}

/// The same of a file that may not be there yet.
pub(super) fn is_archive_at(path: &Path) -> bool {
    let mut beginning = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && is_archive(&beginning)
}

/// An archive that is open.
pub(super) struct Archive {
    archive: Connection,
    cluster: String,
}

impl Archive {
    /// `cluster` is what the jobs' cluster is called: the archive does not know. Of a folder, what an A-REX writes
    /// there.
    pub(super) fn open(path: &Path, cluster: &str) -> rusqlite::Result<Self> {
        let in_folder = NAMES.map(|name| path.join(name));
        let path = in_folder
            .iter()
            .find(|file| file.exists())
            .map_or(path, PathBuf::as_path);
        let archive = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        archive.busy_timeout(BUSY_MAX)?;
        Ok(Self {
            archive,
            cluster: cluster.to_owned(),
        })
    }

    /// The next jobs behind a place: a batch of them.
    pub(super) fn behind(&self, place: Place) -> rusqlite::Result<Vec<(Place, BatchRecord)>> {
        let mut rows = self.archive.prepare_cached(ENDED)?;
        let most = i64::try_from(BATCH_RECORDS).unwrap_or(i64::MAX);
        let rows = rows.query_map([place.0, place.1, most], |row| {
            Ok(((row.get(7)?, row.get(0)?), record(row, &self.cluster)?))
        })?;
        rows.collect()
    }
}

/// All jobs of an archive, read a batch at a time. One that cannot be read is the last.
pub(super) fn all_jobs(archive: Archive) -> impl Iterator<Item = Item> {
    let mut from = Some(before(0));
    let batches = std::iter::from_fn(move || {
        let place = from?;
        let batch = archive.behind(place);
        from = batch.as_ref().ok().and_then(|batch| Some(batch.last()?.0));
        Some(match batch {
            Ok(batch) => {
                let jobs = batch.into_iter();
                let items = jobs.map(|(place, record)| (number(place), Ok(entry(record))));
                items.collect::<Vec<Item>>()
            }
            Err(error) => {
                let bad = Bad {
                    why: error.to_string(),
                    text: Vec::new(),
                    is_end: true,
                };
                vec![(number(place), Err(bad))]
            }
        })
    });
    batches.flatten()
}

/// A job's number, which stands for its line.
pub(super) fn number(place: Place) -> u64 {
    u64::try_from(place.1).unwrap_or(0)
}

pub(super) fn entry(record: BatchRecord) -> Box<Entry> {
    Box::new(Entry {
        record,
        usage: None,
        text: Vec::new(),
    })
}

fn record(row: &Row<'_>, cluster: &str) -> rusqlite::Result<BatchRecord> {
    let text = |at: usize| -> rusqlite::Result<Option<String>> {
        let value: Option<String> = row.get(at)?;
        Ok(value.filter(|value| !value.is_empty()))
    };
    // What is not known, and what came out below zero, is none.
    let number = |at: usize| -> rusqlite::Result<Option<u64>> {
        let value: Option<i64> = row.get(at)?;
        Ok(value.and_then(|value| u64::try_from(value).ok()))
    };
    let positive =
        |at: usize| -> rusqlite::Result<Option<u64>> { Ok(number(at)?.filter(|value| *value > 0)) };
    let count = |at: usize| -> rusqlite::Result<Option<u32>> {
        Ok(positive(at)?.and_then(|value| u32::try_from(value).ok()))
    };
    let last = number(7)?.unwrap_or(0);
    let before_last = |at: usize| -> rusqlite::Result<Option<u64>> {
        Ok(number(at)?.map(|before| last.saturating_sub(before)))
    };
    let end = before_last(19)?.or(before_last(21)?).unwrap_or(last);
    let wall = positive(10)?.map(|wall| end.saturating_sub(wall));
    let hosts = text(17)?;
    // A job that was killed has no times of its own with every batch system. If it says where it ran, then it was
    // there from when it was handed over.
    let killed = before_last(20)?.filter(|_| hosts.is_some());
    let start = before_last(18)?
        .or(wall)
        .or(killed)
        .map(|start| start.min(end));
    let exit: i64 = row.get(5)?;
    let state = match (start, exit) {
        (None, _) => JobState::Cancelled,
        (_, 0) => JobState::Completed,
        _ => JobState::Failed,
    };
    let key = JobKey {
        cluster: cluster.to_owned(),
        job: row.get(1)?,
        instance: 0,
    };
    let mut record = BatchRecord::new(Format::Json, key, state);
    let user = text(14)?.and_then(|user| Some(user.split(':').next()?.to_owned()));
    record.origin = Origin {
        user,
        account: text(15)?,
        subject: text(4)?,
        ..Origin::default()
    };
    record.label = text(2)?;
    record.name = text(16)?;
    record.queue = text(3)?;
    record.submit = number(6)?.map(WallTime::from_unix_secs);
    record.start = start.map(WallTime::from_unix_secs);
    record.end = Some(WallTime::from_unix_secs(end));
    record.nodes = count(8)?;
    record.cpus = count(9)?;
    record.cpu_time = positive(11)?.map(Millis::from_secs);
    let bytes = |kib: Option<u64>| kib.map(|kib| kib.saturating_mul(1 << 10));
    record.memory_peak_bytes = bytes(positive(12)?);
    record.virtual_peak_bytes = bytes(positive(13)?);
    record.exit = Some(Exit {
        code: exit,
        signal: 0,
    });
    record.hosts = hosts.map(|hosts| hosts.replace(':', ","));
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with what of A-REX's tables is read.
    fn archive(path: &Path) -> Connection {
        let archive = Connection::open(path).expect("made");
        let tables = "
            CREATE TABLE AAR (RecordID INTEGER PRIMARY KEY, JobID TEXT, LocalJobID TEXT, QueueID INTEGER, UserID INTEGER,
                StatusID INTEGER, ExitCode INTEGER, SubmitTime INTEGER, EndTime INTEGER, NodeCount INTEGER,
                CPUCount INTEGER, UsedMemory INTEGER, UsedVirtMem INTEGER, UsedWalltime INTEGER,
                UsedCPUUserTime INTEGER, UsedCPUKernelTime INTEGER);
            CREATE TABLE Status (ID INTEGER, Name TEXT);
            CREATE TABLE Queues (ID INTEGER, Name TEXT);
            CREATE TABLE Users (ID INTEGER, Name TEXT);
            CREATE TABLE JobEvents (RecordID INTEGER, EventKey TEXT, EventTime TEXT);
            CREATE TABLE JobExtraInfo (RecordID INTEGER, InfoKey TEXT, InfoValue TEXT);
            INSERT INTO Status VALUES (1, 'in-progress'), (2, 'completed'), (3, 'failed');
            INSERT INTO Queues VALUES (1, 'fork');
            INSERT INTO Users VALUES (1, '/CN=ann');
            INSERT INTO AAR VALUES (1, 'ran', '15480', 1, 1, 2, 0, 90, 109, 1, 2, 1708, 1709, 3, 4, 1);
            INSERT INTO AAR VALUES (2, 'killed', '15481', 1, 1, 3, 1, 100, 144, 1, 2, 0, 0, 0, 0, 0);
            INSERT INTO AAR VALUES (3, 'never ran', '', 1, 1, 3, 1, 110, 150, 1, 1, 0, 0, 0, 0, 0);
            INSERT INTO AAR VALUES (4, 'runs', '', 1, 1, 1, 1, 120, 0, 1, 1, 0, 0, 0, 0, 0);
            INSERT INTO JobEvents VALUES
                (1, 'INLRMS', '2026-11-23 14:38:58'), (1, 'FINISHING', '2026-11-23 14:39:03'),
                (1, 'FINISHED', '2026-11-23 14:39:04'), (1, 'LRMSSTART', '2026-11-23 14:38:57'),
                (1, 'LRMSEND', '2026-11-23 14:39:00'), (2, 'INLRMS', '2026-11-23 14:43:45'),
                (2, 'FINISHING', '2026-11-23 14:44:03'), (2, 'FINISHED', '2026-11-23 14:44:04'),
                (3, 'INLRMS', '2026-11-23 14:43:45'), (3, 'FINISHED', '2026-11-23 14:44:04');
            INSERT INTO JobExtraInfo VALUES (1, 'localuser', 'grid:grid'), (1, 'nodenames', 'n1:n1'),
                (1, 'jobname', 'test'), (2, 'localuser', 'grid:grid'), (2, 'nodenames', 'n1');";
        archive.execute_batch(tables).expect("filled");
        archive
    }

    #[test]
    fn jobs_that_have_ended_are_records_with_times_of_one_clock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("accounting.db");
        let _open = archive(&path);
        assert!(is_archive_at(&path));
        let open = || Archive::open(&path, "ce1").expect("open");
        let jobs: Vec<_> = all_jobs(open())
            .map(|(_, item)| item.expect("a job").record)
            .collect();
        let seconds = |of: Option<WallTime>| of.map(|at| at.0 / 1_000);
        let told: Vec<_> = jobs
            .iter()
            .map(|job| {
                (
                    &*job.key.job,
                    job.state,
                    seconds(job.start),
                    seconds(job.end),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("ran", JobState::Completed, Some(102), Some(105)),
                ("killed", JobState::Failed, Some(125), Some(143)),
                ("never ran", JobState::Cancelled, None, Some(150)),
            ]
        );
        let ran = &jobs[0];
        assert_eq!((ran.cpus, ran.cpu_time), (Some(2), Some(Millis(5_000))));
        assert_eq!(ran.origin.user.as_deref(), Some("grid"));
        assert_eq!(ran.origin.subject.as_deref(), Some("/CN=ann"));
        assert_eq!(ran.hosts.as_deref(), Some("n1,n1"));
        assert_eq!(ran.key.cluster, "ce1");
        let behind = |place| open().behind(place).expect("read").len();
        assert_eq!([before(144), (144, 2), (150, 3)].map(behind), [2, 1, 0]);
        // Of a folder it is the archive that is there, and after an upgrade the new one.
        let count = || all_jobs(Archive::open(folder.path(), "ce1").expect("open")).count();
        assert_eq!(count(), 3);
        let newer = archive(&folder.path().join("accounting_v2.db"));
        newer
            .execute("DELETE FROM AAR WHERE RecordID > 1", [])
            .expect("emptied");
        assert_eq!(count(), 1);
    }

    #[test]
    fn another_database_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("other.db");
        let other = Connection::open(&path).expect("made");
        other.execute_batch("CREATE TABLE t (x)").expect("made");
        let archive = Archive::open(&path, "ce1").expect("open");
        let mut items = all_jobs(archive);
        let (_, item) = items.next().expect("an item");
        let bad = item.expect_err("refused");
        assert!(bad.is_end && bad.why.contains("no such table"), "{bad:?}");
        assert!(items.next().is_none());
    }
}
