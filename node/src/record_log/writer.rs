//! The thread that writes.
//!
//! Invariant: a batch is one transaction, and is acknowledged when it is on disk; between two batches
//! at most one small step of pruning is done, so that no batch waits long for it.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::{Command, Entry, Keep, LogError, row, schema, signed};

/// Rows that one step of pruning forgets: some milliseconds of work.
const STEP_ROWS: u32 = 1_000;

/// Pages that one step gives back to the file system.
const STEP_PAGES: u32 = 1_000;

/// Time between two looks at the bounds while nothing comes.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Time between two steps while there is more to forget.
const STEP_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    keep: Keep,
    /// Whether the last step of pruning had more to do.
    more: bool,
}

impl Writer {
    pub(super) fn new(path: PathBuf, connection: Connection, keep: Keep) -> Self {
        Self {
            path,
            connection,
            keep,
            more: true,
        }
    }

    pub(super) fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let pause = if self.more { STEP_EVERY } else { LOOK_EVERY };
            match commands.recv_timeout(pause) {
                Ok(Command::Append(entries, done)) => {
                    // Nobody waits any more: what was written stays.
                    let _ = done.send(self.append(&entries));
                    self.more = true;
                }
                Ok(Command::Keep(keep)) => (self.keep, self.more) = (keep, true),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.prune(),
            }
        }
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), LogError> {
        match write(&mut self.connection, entries) {
            Err(error) if schema::is_damage(&error) => {
                schema::set_aside(&self.path, &error.to_string())?;
                self.connection = schema::open_or_set_aside(&self.path)?;
                Ok(write(&mut self.connection, entries)?)
            }
            written => Ok(written?),
        }
    }

    fn prune(&mut self) {
        match step(&mut self.connection, self.keep) {
            Ok(more) => self.more = more,
            Err(error) => {
                self.more = false;
                tracing::warn!(%error, "the record log cannot forget old records");
            }
        }
    }
}

fn write(connection: &mut Connection, entries: &[Entry]) -> rusqlite::Result<()> {
    let now = now();
    let transaction = connection.transaction()?;
    {
        let mut statement = transaction.prepare_cached(row::UPSERT)?;
        for entry in entries {
            row::write(&mut statement, entry, now)?;
        }
    }
    transaction.commit()
}

/// Forgets up to [`STEP_ROWS`] rows that are too old, or the oldest while the log is too large; says
/// whether there is more to do.
pub(super) fn step(connection: &mut Connection, keep: Keep) -> rusqlite::Result<bool> {
    let before = signed(now().saturating_sub(keep.age.0));
    let oldest =
        format!("SELECT id FROM records WHERE moment < ?1 ORDER BY moment LIMIT {STEP_ROWS}");
    let forget = format!("DELETE FROM records WHERE id IN ({oldest})");
    let mut forgotten = connection.execute(&forget, [before])?;
    if forgotten == 0 && bytes_in_use(connection)? > keep.bytes {
        forgotten = connection.execute(&forget, [i64::MAX])?;
    }
    let free: u32 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    // Some free pages are kept for the next batches.
    let given_back = free > 2 * STEP_PAGES;
    if given_back {
        connection.execute_batch(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    }
    Ok(forgotten > 0 || given_back)
}

/// Bytes of pages that hold something.
fn bytes_in_use(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.map_or(0, |since| since.as_millis())).unwrap_or(u64::MAX)
}
