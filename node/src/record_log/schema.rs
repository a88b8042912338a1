//! The tables, and what is done with a file that cannot be read.
//!
//! Invariant: a file that was opened has this schema; one of a newer release or with damage is
//! renamed, never changed, and a new one begun. Deliberately not here: rows.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::LogError;

/// Version of the schema, in SQLite's `user_version`.
const VERSION: i64 = 1;

/// How long a reader waits for a writer or the other way round; in WAL mode only a checkpoint makes
/// them meet.
const BUSY_MAX: Duration = Duration::from_secs(10);

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
        record TEXT NOT NULL,
        UNIQUE (cluster, job, instance)
    ) STRICT;
    CREATE INDEX records_by_moment ON records (moment);
";

/// Opens the file; sets aside what is there and is no log of ours.
pub(super) fn open_or_set_aside(path: &Path) -> Result<Connection, LogError> {
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
    // A batch that is acknowledged survives a power cut.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    if version == 0 {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"
        ))?;
    }
    // Reads the schema and a page of the table and of its index: damage at the front shows here.
    connection.query_row(
        "SELECT count(*) FROM (SELECT moment, record FROM records ORDER BY moment LIMIT 1)",
        [],
        |_| Ok(()),
    )?;
    Ok(Some(connection))
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let second = since.map_or(0, |since| since.as_secs());
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
