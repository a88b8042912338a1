//! The record log: the job records that this site was told, one row a job, in SQLite beside the
//! node's store.
//!
//! A thread of its own writes: one transaction a batch, with the system before the batch is acknowledged, so that a
//! process that is killed loses nothing, and on disk a second later. The journal alone acknowledges usage
//! (`docs/round.md`): of a power cut the log may lose its last second, which is counted all the same.
//! Readers have connections of their own and see the last whole batch. The log is bounded by age and
//! by size, and what is too old goes in small steps between batches.
//!
//! Invariants: one row for each run of a job, the fullest word on it, whichever came first; the log is
//! never needed to count usage, so one that cannot be read is set aside and said so; nothing of it
//! leaves the site unless somebody exports it.
//! Deliberately not here: charging, and what a record means (`fairmesh-records`).

mod filter;
mod pages;
mod row;
mod same_run;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use fairmesh_api::record_log::LogState;
use fairmesh_model::{Millis, WallTime};
use fairmesh_records::BatchRecord;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

pub use filter::{Filter, Only, find, find_job, summarise};
pub use pages::{Logged, Place, page};
pub use same_run::{Run, settle_keys};

/// The log's file in the node's data folder.
pub const FILE: &str = "records.sqlite";

/// Steps of SQLite's machine between two looks at whether its answer is still wanted: about a millisecond.
const STEPS_UNWATCHED: std::ffi::c_int = 20_000;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Jobs that ended (or were last reported) longer ago are forgotten.
    pub age: Millis,
    /// With more than so many bytes of rows the oldest are forgotten.
    pub bytes: u64,
}

impl Default for Keep {
    /// 400 days, so that a year can be compared with the one before; and 4 GiB, which are some five
    /// million jobs.
    fn default() -> Self {
        Self {
            age: Millis::from_secs(400 * 86_400),
            bytes: 4 << 30,
        }
    }
}

/// A record, and whom it was charged to.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The record as the batch system reported it.
    pub record: BatchRecord,
    /// The VO, by the owner's alias or else by its id; `None` for the site's own accounts.
    pub vo: Option<String>,
    /// The account's path; `None` where no rule maps it.
    pub path: Option<String>,
    /// Whether the record is the batch system's own, and not only what was charged.
    pub full: bool,
    /// Whether it stands in the place of what the log has of the job, which was taken back.
    pub replaces: bool,
}

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database failed: the disk, or its file. Nothing of the batch was written.
    #[error("the record log failed: {0}")]
    Database(rusqlite::Error),
    /// Reading was ended: nobody wants it any more, or what is written had waited for readers too long.
    #[error("the record log had to write down what came meanwhile: ask again")]
    GaveWay,
    /// A file could not be set aside.
    #[error("{path}: {why}")]
    File {
        /// The file that could not be moved.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// The thread that writes has ended.
    #[error("the record log is closed")]
    Closed,
}

impl From<rusqlite::Error> for LogError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => Self::GaveWay,
            _ => Self::Database(error),
        }
    }
}

/// What the log holds, and what has become of records since the node was started. Written by the log's
/// thread, read by whoever likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Jobs in the log.
    pub rows: u64,
    /// Bytes of the file that hold something.
    pub bytes: u64,
    /// Jobs that were new.
    pub inserted: u64,
    /// Jobs that were forgotten, for their age or for want of room.
    pub pruned: u64,
    /// Records that could not be written.
    pub refused: u64,
}

enum Command {
    Append(Vec<Entry>, oneshot::Sender<Result<(), LogError>>),
    Keep(Keep),
    Stop,
}

/// The way to the log. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct RecordLog {
    path: PathBuf,
    commands: mpsc::Sender<Command>,
    stats: watch::Receiver<LogStats>,
    state: watch::Receiver<LogState>,
    /// Whether those who read for long are to end.
    gives_way: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RecordLog {
    /// Opens the log in the node's data folder, or begins one. A file that cannot be read is renamed and said so; one
    /// that cannot be opened is tried again, and refuses records until then. How old records are goes by what the
    /// site has `believed` the time to be. Blocks on the disk.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn open_by(
        data_dir: &Path,
        keep: Keep,
        believed: watch::Receiver<WallTime>,
    ) -> Result<Self, LogError> {
        let path = data_dir.join(FILE);
        let (commands, received) = mpsc::channel();
        let (stats_out, stats) = watch::channel(LogStats::default());
        let (state_out, state) = watch::channel(LogState::default());
        let gives_way = Arc::new(AtomicBool::new(false));
        let shared = (believed, Arc::clone(&gives_way));
        let mut writer = writer::Writer::new(path.clone(), keep, shared, (stats_out, state_out));
        let thread = std::thread::Builder::new()
            .name("record-log".to_owned())
            .spawn(move || writer.run(&received))
            .map_err(|why| LogError::File {
                path: path.clone(),
                why,
            })?;
        Ok(Self {
            path,
            commands,
            stats,
            state,
            gives_way,
            thread: Some(thread),
        })
    }

    /// One of no site: nothing in it is too old.
    #[cfg(test)]
    pub(crate) fn open(data_dir: &Path, keep: Keep) -> Result<Self, LogError> {
        let (_, believed) = watch::channel(WallTime(0));
        Self::open_by(data_dir, keep, believed)
    }

    /// Writes a batch; it survives the process when this returns, and the machine a second later.
    ///
    /// # Errors
    /// If it could not be written: then none of it was.
    pub async fn append(&self, entries: Vec<Entry>) -> Result<(), LogError> {
        let (done, written) = oneshot::channel();
        let command = Command::Append(entries, done);
        self.commands.send(command).map_err(|_| LogError::Closed)?;
        written.await.map_err(|_| LogError::Closed)?
    }

    /// Takes other bounds, from the next step of pruning on.
    pub fn keep(&self, keep: Keep) {
        // A log that is closed keeps everything.
        let _ = self.commands.send(Command::Keep(keep));
    }

    /// What it holds and has done.
    pub fn stats(&self) -> LogStats {
        *self.stats.borrow()
    }

    /// How far it has come, for the cursors of feeds. It has no id while it is not open, or if an earlier release
    /// began it.
    pub fn state(&self) -> LogState {
        self.state.borrow().clone()
    }

    /// A connection that only reads, for a thread that may block.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn reader(&self) -> Result<Connection, LogError> {
        Ok(schema::reader(&self.path)?)
    }

    /// The same for what takes long: it fails soon after `is_wanted` says no, or with [`LogError::GaveWay`].
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn reader_while(
        &self,
        is_wanted: impl Fn() -> bool + Send + 'static,
    ) -> Result<Connection, LogError> {
        let mut connection = self.reader()?;
        let gives_way = Arc::clone(&self.gives_way);
        let ends = move || !is_wanted() || gives_way.load(Ordering::Relaxed);
        connection.progress_handler(STEPS_UNWATCHED, Some(ends))?;
        Ok(connection)
    }
}

impl Drop for RecordLog {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Times and counts as the database keeps them: what is beyond 2^63 is no time of ours.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn moment(ms: i64) -> WallTime {
    WallTime(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests;
