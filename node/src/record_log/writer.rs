//! The thread that writes.
//!
//! Invariant: a batch is one transaction, and is acknowledged when the system has it, so that it survives the
//! process; [`SYNC_AFTER`] later at the most it is on disk. Behind a batch there is
//! at most one small step of pruning for every [`STEP_AFTER_ROWS`] rows that came, so that no batch waits
//! long for it, and a step forgets more than came: the log is bounded under a feed without pause, too.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fairmesh_api::record_log::LogState;
use fairmesh_model::WallTime;
use rusqlite::Connection;
use tokio::sync::watch;

use super::{Command, Entry, Keep, LogError, LogStats, row, schema, signed};
use crate::driver::wall_now;

/// Rows that one step of pruning forgets: some milliseconds of work.
const STEP_ROWS: u32 = 1_000;

/// Rows after which a step is due even if more come without a pause. Half of what a step forgets, so
/// that the log shrinks to its bounds, and does not only cease to grow.
const STEP_AFTER_ROWS: u64 = 500;

/// Pages that one step gives back to the file system.
const STEP_PAGES: u32 = 1_000;

/// Time between two looks at the bounds while nothing comes.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long what was written may wait for its sync: what a power cut costs at most. Usage does not wait for the log
/// to be on disk, nor is it lost with it.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// Pages of the write-ahead log with which it is made to start over: 256 MiB. Without readers it has some 8,000.
const WAL_PAGES_MAX: i64 = 1 << 16;

/// How long records wait for readers to end then.
const GIVE_WAY_MAX: Duration = Duration::from_secs(1);

/// Time between two steps while there is more to forget.
const STEP_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    path: PathBuf,
    /// None where it could not be opened: it is tried again.
    connection: Option<Connection>,
    keep: Keep,
    /// What time it is, as the site last believed it; 0 before it has said: then nothing is too old.
    believed: watch::Receiver<WallTime>,
    /// Whether readers are to end, so that the write-ahead log can start over.
    gives_way: Arc<AtomicBool>,
    /// So many pages are too many in it.
    wal_pages_max: i64,
    /// Whether the last step of pruning had more to do.
    more: bool,
    /// Rows that came since the last step was due.
    rows_since_step: u64,
    /// Since when something waits for its sync.
    unsynced: Option<Instant>,
    stats: watch::Sender<LogStats>,
    /// What feeds compare: published after a batch is written, so a node that is killed never reports more than it has.
    state: watch::Sender<LogState>,
    /// Distinguishes the batches of this connection from those that another one adds to a copy of the file.
    start: i64,
}

impl Writer {
    pub(super) fn new(
        path: PathBuf,
        keep: Keep,
        (believed, gives_way): (watch::Receiver<WallTime>, Arc<AtomicBool>),
        (stats, state): (watch::Sender<LogStats>, watch::Sender<LogState>),
    ) -> Self {
        let mut writer = Self {
            path,
            connection: None,
            keep,
            believed,
            gives_way,
            wal_pages_max: WAL_PAGES_MAX,
            more: true,
            rows_since_step: 0,
            unsynced: None,
            stats,
            state,
            start: 0,
        };
        if let Err(error) = writer.open() {
            tracing::error!(
                %error,
                "the record log cannot be opened: job records are refused until it can be; usage counts where it is \
                 reported alone, as feeds do then"
            );
        }
        writer
    }

    fn open(&mut self) -> Result<&mut Connection, LogError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let opened = schema::open_or_set_aside(&self.path)?;
                self.start = schema::draw(&opened)?;
                self.measure(&opened);
                opened
            }
        };
        Ok(self.connection.insert(connection))
    }

    pub(super) fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let mut pause = if self.more { STEP_EVERY } else { LOOK_EVERY };
            if let Some(since) = self.unsynced {
                pause = pause.min(SYNC_AFTER.saturating_sub(since.elapsed()));
                if pause.is_zero() {
                    self.sync();
                    continue;
                }
            }
            match commands.recv_timeout(pause) {
                Ok(Command::Append(entries, done)) => {
                    // Nobody waits any more: what was written stays.
                    let _ = done.send(self.append(&entries));
                    self.more = true;
                    self.rows_since_step += entries.len() as u64;
                    while self.more && self.rows_since_step >= STEP_AFTER_ROWS {
                        self.rows_since_step -= STEP_AFTER_ROWS;
                        self.prune();
                    }
                    self.rows_since_step %= STEP_AFTER_ROWS;
                }
                Ok(Command::Keep(keep)) => (self.keep, self.more) = (keep, true),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return self.sync(),
                Err(RecvTimeoutError::Timeout) if self.unsynced.is_some() && !self.more => {}
                Err(RecvTimeoutError::Timeout) => self.prune(),
            }
        }
    }

    /// Brings what was written to the disk. Readers wait for nothing.
    fn sync(&mut self) {
        self.unsynced = None;
        let Some(connection) = &self.connection else {
            return;
        };
        match checkpoint(connection, self.wal_pages_max, &self.gives_way) {
            // One that has not started over is made to when it has grown by as much.
            Ok(pages) if pages > self.wal_pages_max => {
                self.wal_pages_max = pages + WAL_PAGES_MAX;
            }
            Ok(pages) if pages <= WAL_PAGES_MAX => self.wal_pages_max = WAL_PAGES_MAX,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the record log was not synced: a power cut may cost its last records");
            }
        }
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), LogError> {
        let written = self.write(entries);
        self.unsynced.get_or_insert_with(Instant::now);
        self.stats.send_modify(|stats| match &written {
            Ok(inserted) => {
                stats.inserted += inserted;
                stats.rows += inserted;
            }
            Err(_) => stats.refused += entries.len() as u64,
        });
        if let Some(connection) = &self.connection {
            self.note_bytes(connection);
        }
        written.map(|_| ())
    }

    fn write(&mut self, entries: &[Entry]) -> Result<u64, LogError> {
        match self.write_once(entries) {
            Err(LogError::Database(error)) if schema::is_damage(&error) => {
                schema::set_aside(&self.path, &error.to_string())?;
                self.connection = None;
                self.write_once(entries)
            }
            written => written,
        }
    }

    fn write_once(&mut self, entries: &[Entry]) -> Result<u64, LogError> {
        self.open()?;
        let start = self.start;
        let written = write(self.open()?, entries, start)?;
        if let Some(connection) = &self.connection {
            self.note_state(connection);
        }
        Ok(written)
    }

    fn prune(&mut self) {
        let (keep, believed) = (self.keep, *self.believed.borrow());
        let stepped = self
            .open()
            .and_then(|connection| Ok(step(connection, keep, believed)?));
        match (stepped, &self.connection) {
            (Ok(done), Some(connection)) => {
                self.more = done.more;
                self.stats.send_modify(|stats| {
                    stats.pruned += done.forgotten;
                    stats.rows = stats.rows.saturating_sub(done.forgotten);
                });
                self.note_bytes(connection);
            }
            (Err(error), Some(_)) => {
                self.more = false;
                tracing::warn!(%error, "the record log cannot forget old records");
            }
            // It was said that it cannot be opened.
            (_, None) => self.more = false,
        }
    }

    /// Counts what is there, once for each file.
    fn measure(&self, connection: &Connection) {
        let rows = "SELECT count(*) FROM records";
        let rows = connection.query_row(rows, [], |row| row.get::<_, i64>(0));
        let rows = u64::try_from(rows.unwrap_or(0)).unwrap_or(0);
        self.stats.send_modify(|stats| stats.rows = rows);
        self.note_bytes(connection);
        self.note_state(connection);
    }

    fn note_state(&self, connection: &Connection) {
        match schema::state(connection) {
            Ok(state) => _ = self.state.send_replace(state),
            Err(error) => {
                tracing::warn!(%error, "feeds do not hear how far the record log has come")
            }
        }
    }

    fn note_bytes(&self, connection: &Connection) {
        if let Ok(bytes) = bytes_in_use(connection) {
            self.stats.send_modify(|stats| stats.bytes = bytes);
        }
    }
}

/// Brings what was written to the disk. Where readers, one behind the other, have kept the write-ahead log from starting
/// over until it has more than `pages_max`, they end, and it does. Says how many it has then; more, if one has not ended.
pub(super) fn checkpoint(
    connection: &Connection,
    pages_max: i64,
    gives_way: &AtomicBool,
) -> rusqlite::Result<i64> {
    let pages: i64 =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?;
    if pages <= pages_max {
        return Ok(pages);
    }
    gives_way.store(true, Ordering::Relaxed);
    let is_busy = connection.busy_timeout(GIVE_WAY_MAX).and_then(|()| {
        let start_over = "PRAGMA wal_checkpoint(TRUNCATE)";
        connection.query_row(start_over, [], |row| row.get(0))
    });
    gives_way.store(false, Ordering::Relaxed);
    connection.busy_timeout(schema::BUSY_MAX)?;
    Ok(if is_busy? { pages } else { 0 })
}

/// Says how many rows are new.
fn write(connection: &mut Connection, entries: &[Entry], start: i64) -> rusqlite::Result<u64> {
    let transaction = connection.transaction()?;
    let inserted = row::write(&transaction, entries, wall_now())?;
    schema::count_batch(&transaction, start)?;
    transaction.commit()?;
    Ok(inserted)
}

/// What a step of pruning did.
pub(super) struct Step {
    pub(super) forgotten: u64,
    /// Whether there is more to do.
    pub(super) more: bool,
}

/// Forgets up to [`STEP_ROWS`] rows that are too old by the time `believed`, or the oldest while the log is too large.
pub(super) fn step(
    connection: &mut Connection,
    keep: Keep,
    believed: WallTime,
) -> rusqlite::Result<Step> {
    let before = signed(believed.before(keep.age).0);
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
    Ok(Step {
        forgotten: forgotten as u64,
        more: forgotten > 0 || given_back,
    })
}

/// Bytes of pages that hold something.
fn bytes_in_use(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
}
