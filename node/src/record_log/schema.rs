//! The tables, and what is done with a file that cannot be read.
//!
//! Invariant: a file that was opened has this schema; one of a newer release or with damage is
//! renamed, never changed, and a new one begun. Deliberately not here: rows.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairmesh_api::record_log::{LogStart, LogState};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::LogError;
use crate::driver::wall_now;

/// Version of the schema, in SQLite's `user_version`.
const VERSION: i64 = 1;

/// How long a reader waits for a writer or the other way round; in WAL mode only a checkpoint makes
/// them meet.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(10);

/// `moment` is the end of the job, or what is known before it ends: what age and periods go by.
const TABLES: &str = "
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        cluster TEXT NOT NULL,
        job TEXT NOT NULL,
        instance INTEGER NOT NULL,
        moment INTEGER NOT NULL,
        submitted INTEGER,
        started INTEGER,
        ended INTEGER,
        held INTEGER,
        user TEXT,
        account TEXT,
        local_group TEXT,
        subject TEXT,
        vo TEXT,
        path TEXT,
        queue TEXT,
        state TEXT NOT NULL,
        is_over INTEGER NOT NULL,
        is_full INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        energy INTEGER,
        record TEXT NOT NULL,
        UNIQUE (cluster, job, instance)
    ) STRICT;
    CREATE INDEX records_by_moment ON records (moment);
";

/// What filters go by, made where an earlier release has not: a user's or an account's newest, a job by its id alone,
/// and jobs that are not over, which are few. Other names are met often on the way back from the newest.
const INDEXES: &str = "
    CREATE INDEX IF NOT EXISTS records_by_user ON records (user, moment);
    CREATE INDEX IF NOT EXISTS records_by_account ON records (account, moment);
    CREATE INDEX IF NOT EXISTS records_by_job ON records (job);
    CREATE INDEX IF NOT EXISTS records_not_over ON records (moment) WHERE is_over = 0;
";

/// How many batches each start of the node has written: a copy of the file lacks those that came after it.
const STARTS: &str = "
    CREATE TABLE IF NOT EXISTS starts (
        place INTEGER PRIMARY KEY,
        start INTEGER NOT NULL UNIQUE,
        batches INTEGER NOT NULL
    ) STRICT;
";

/// Starts that are remembered. A feed that was away for more of them reports all that its source has once more, which
/// counts nothing twice; each start is a row of each answer to a feed.
const STARTS_MAX: i64 = 16;

/// Drawn, as two logs of a site can begin in one second; SQLite has 32 bits for an id.
const DRAWN: &str = "SELECT 1 + abs(random() % 2147483646)";

/// Opens the file; sets aside what is there and is no log of ours.
pub(super) fn open_or_set_aside(path: &Path) -> Result<Connection, LogError> {
    // What cannot be read is for SQLite to say.
    if is_cut_short(path).unwrap_or(false) {
        set_aside(path, "its end is missing")?;
    }
    match open(path) {
        Ok(Some(connection)) => Ok(connection),
        Ok(None) => {
            set_aside(path, "it was written by a newer release")?;
            anew(path)
        }
        Err(error) if is_damage(&error) => {
            set_aside(path, &error.to_string())?;
            anew(path)
        }
        Err(error) => Err(error.into()),
    }
}

fn anew(path: &Path) -> Result<Connection, LogError> {
    open(path)?.ok_or(LogError::Closed)
}

/// Whether pages are missing that the file says it has and its write-ahead log does not bring back. SQLite opens
/// such a file without a word, where the log is there.
fn is_cut_short(path: &Path) -> io::Result<bool> {
    let wal = match File::open(format!("{}-wal", path.display())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened?),
    };
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut head = [0; HEAD_BYTES];
    if length < HEAD_BYTES as u64 {
        return Ok(wal.is_some_and(|wal| wal.metadata().is_ok_and(|of| of.len() > 0)));
    }
    file.read_exact(&mut head)?;
    let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 1 << 16,
        bytes => usize::from(bytes).max(HEAD_BYTES),
    };
    let pages = u32::from_be_bytes([head[28], head[29], head[30], head[31]]);
    let there = u32::try_from(length / page_bytes as u64).unwrap_or(u32::MAX);
    if there >= pages {
        return Ok(false);
    }
    let logged = wal.map_or(Ok(BTreeSet::new()), |wal| pages_of(&wal, page_bytes as u64))?;
    Ok((there.saturating_add(1)..=pages).any(|page| !logged.contains(&page)))
}

/// The pages that a write-ahead log has. It may be long: of each frame the head is read.
fn pages_of(wal: &File, page_bytes: u64) -> io::Result<BTreeSet<u32>> {
    let (mut head, mut frame) = ([0; 32], [0; 24]);
    let (mut at, length) = (head.len() as u64, wal.metadata()?.len());
    let frame_bytes = frame.len() as u64 + page_bytes;
    let mut pages = BTreeSet::new();
    if length < at {
        return Ok(pages);
    }
    wal.read_exact_at(&mut head, 0)?;
    while at + frame_bytes <= length {
        wal.read_exact_at(&mut frame, at)?;
        // Frames of this log begin with the page's number and bear its salt.
        if frame[8..16] == head[16..24] {
            pages.insert(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]));
        }
        at += frame_bytes;
    }
    Ok(pages)
}

/// Bytes of the head of a database (https://sqlite.org/fileformat2.html).
const HEAD_BYTES: usize = 100;

/// Whether the file itself is at fault.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// `None` for a file of another version.
fn open(path: &Path) -> rusqlite::Result<Option<Connection>> {
    // Job records are about people: nobody else on this machine reads them past the socket. SQLite
    // gives its journals the mode of the file.
    let mut options = std::fs::File::options();
    options.create(true).append(true).mode(0o600);
    if let Err(error) = options.open(path) {
        tracing::debug!(%error, "SQLite will say what is wrong with the file");
    }
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_MAX)?;
    // Before the first table, so that pruned pages can be given back.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if !(0..=VERSION).contains(&version) {
        return Ok(None);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A batch that is acknowledged survives the process; the writer syncs a moment later.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    // Pages of the indexes, which are written here and there, stay in memory (in KiB), and are written to their places once for many
    // changes. By measurement, a third less CPU for a record.
    connection.pragma_update(None, "cache_size", -(32 << 10))?;
    connection.pragma_update(None, "wal_autocheckpoint", 8_000)?;
    if version == 0 {
        let id = draw(&connection)?;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {id}; PRAGMA user_version = {VERSION}; COMMIT;"
        ))?;
    }
    let has_energy = "SELECT count(*) FROM pragma_table_info('records') WHERE name = 'energy'";
    let has_energy: i64 = connection.query_row(has_energy, [], |row| row.get(0))?;
    if has_energy == 0 {
        // Earlier releases go on with this, too.
        connection.execute_batch("ALTER TABLE records ADD COLUMN energy INTEGER")?;
    }
    connection.execute_batch(INDEXES)?;
    connection.execute_batch(STARTS)?;
    // Reads the schema and a page of the table and of its index: damage at the front shows here.
    connection.query_row(
        "SELECT count(*) FROM (SELECT moment, record FROM records ORDER BY moment LIMIT 1)",
        [],
        |_| Ok(()),
    )?;
    Ok(Some(connection))
}

/// A random number of 31 bits.
pub(super) fn draw(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(DRAWN, [], |row| row.get(0))
}

/// Counts a batch of this start, and forgets the oldest starts.
pub(super) fn count_batch(connection: &Connection, start: i64) -> rusqlite::Result<()> {
    let count = "INSERT INTO starts (start, batches) VALUES (?1, 1)
        ON CONFLICT (start) DO UPDATE SET batches = batches + 1";
    connection.prepare_cached(count)?.execute([start])?;
    let forget = "DELETE FROM starts WHERE place <= (SELECT max(place) FROM starts) - ?1";
    connection.prepare_cached(forget)?.execute([STARTS_MAX])?;
    Ok(())
}

/// How far the log has come. Its id distinguishes it from the one before it, whose file was lost or set aside.
pub(super) fn state(connection: &Connection) -> rusqlite::Result<LogState> {
    let id = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let mut starts =
        connection.prepare_cached("SELECT start, batches FROM starts ORDER BY place")?;
    let starts = starts.query_map([], |row| {
        let batches: i64 = row.get(1)?;
        Ok(LogStart {
            start: row.get(0)?,
            batches: batches.unsigned_abs(),
        })
    })?;
    Ok(LogState {
        log: Some(id).filter(|id| *id != 0),
        starts: starts.collect::<rusqlite::Result<_>>()?,
    })
}

/// Opens the file for reading only.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    Ok(connection)
}

/// Renames the file and its journal.
pub(super) fn set_aside(path: &Path, why: &str) -> Result<(), LogError> {
    let second = wall_now().0 / 1_000;
    let with = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let kept = with(&format!(".unreadable-{second}"));
    tracing::error!(
        file = %path.display(), kept = %kept.display(), why,
        "the record log cannot be read and was set aside: a new one begins; usage is counted all the \
         same, and `fairmesh report` of the batch system's own files fills the log again"
    );
    for end in ["", "-wal", "-shm"] {
        let (from, to) = (with(end), PathBuf::from(format!("{}{end}", kept.display())));
        match std::fs::rename(&from, to) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                return Err(LogError::File { path: from, why });
            }
            _ => {}
        }
    }
    Ok(())
}
