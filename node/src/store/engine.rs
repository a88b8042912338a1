//! sled behind the store's interface, with its known faults covered.
//!
//! `flush` of sled calls `sync_file_range` on Linux, which is no fsync (its issues #1351 and #1452),
//! so each write also syncs the `db` file through a handle of our own before it returns. Values are
//! cut into chunks so that sled never makes a blob file, which it does not sync at all (`record`).
//! After a failed write the store takes no more: sled's memory may then be ahead of its disk.
//!
//! Marks of jobs are in files of their own (`jobs`), written and synced before the batch that makes them count.
//!
//! Invariant: one writer at a time; readers see a batch whole or not at all.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use fairmesh_model::WallTime;
use fairmesh_round::checksum;
use fairmesh_site::JobMark;
use sled::IVec;

use super::jobs::{Entry, Jobs};
use super::mark::Mark;
use super::record::{Stored, chunk_key, disk_key, parse_value};
use super::recovery::{self, Opened, Recovery, io_error};
use super::tally::Tally;
use super::{KEY_BYTES_MAX, STORE, StoreError, Table, VALUE_BYTES_MAX, Write};

/// Marks of an earlier release that are moved in one change: bounds its memory.
const MOVED_AT_ONCE: usize = 10_000;

/// What a batch changes beside sled's tree.
#[derive(Debug)]
struct State {
    tally: Tally,
    jobs: Jobs,
}

/// A store in one folder.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    tree: sled::Db,
    /// Our own handle of sled's data file, to sync it.
    data: File,
    mark: Mark,
    state: RwLock<State>,
    failed: AtomicBool,
    damaged: AtomicU64,
    records: usize,
    /// Held for as long as the store is; last, so that sled is closed before it is free.
    _lock: File,
}

impl Store {
    /// Opens the store in `dir`, or starts one. A store that cannot be opened is set aside under a
    /// name with the time `now`, and an empty one started: see [`Recovery`].
    pub fn open(dir: &Path, now: WallTime) -> Result<(Self, Recovery), StoreError> {
        let (lock, opened, recovery) = recovery::open(dir, now)?;
        let Opened {
            tree,
            mark,
            tally,
            jobs,
            mut counts,
        } = opened;
        let marks = counts.remove(&(Table::Jobs as u8));
        let data_path = dir.join("db");
        let data = File::open(&data_path).map_err(io_error("opening", &data_path))?;
        let store = Self {
            dir: dir.to_owned(),
            state: RwLock::new(State { tally, jobs }),
            mark,
            tree,
            data,
            failed: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            records: counts.values().sum(),
            _lock: lock,
        };
        if marks.is_some() {
            store.move_marks(now)?;
        }
        Ok((store, recovery))
    }

    /// How many records there were when it was opened, without the marks of jobs.
    pub fn records_at_start(&self) -> usize {
        self.records
    }

    /// Whether there is one in a data folder.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(STORE.as_ref()).join("db").exists()
    }

    /// Applies all of `writes`, in order, as one change. When this returns without an error they are
    /// on disk; on an error none was acknowledged.
    pub fn write(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.write_as(None, &writes)
    }

    /// Number of the newest batch.
    pub(super) fn number(&self) -> u64 {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.tally.number
    }

    /// As [`Store::write`], as the batch of that number, or the next.
    pub(super) fn write_as(&self, number: Option<u64>, writes: &[Write]) -> Result<(), StoreError> {
        let (mut rows, mut marks) = (Vec::new(), Vec::new());
        for write in writes {
            let value_bytes = write.value.as_ref().map_or(0, Vec::len);
            if write.key.len() > KEY_BYTES_MAX {
                return Err(StoreError::KeyTooLong(write.key.len()));
            } else if value_bytes > VALUE_BYTES_MAX {
                return Err(StoreError::ValueTooLong(value_bytes));
            } else if write.table == Table::Jobs {
                marks.extend(mark_of(write)?);
            } else {
                rows.push(write);
            }
        }
        let is_later = number.is_none_or(|number| number > self.number());
        assert!(is_later, "batches are numbered upwards");
        self.commit(number, rows.into_iter(), marks)
    }

    /// Lets go of marks of jobs that are charged up to some moment before this one, by and by.
    pub fn forget_marks(&self, before: WallTime) {
        if let Ok(mut state) = self.state.write() {
            state.jobs.forget(before);
        }
    }

    /// What a journal is begun anew with: the rows that it `held`, as they stand here, and the latest marks of jobs.
    /// A part of the journal may have been damaged that was followed here; were the store lost then, jobs would count
    /// twice.
    pub fn newest(&self, mut held: Vec<Write>) -> Vec<Write> {
        for write in &mut held {
            if let Ok(Some(value)) = self.get(write.table, &write.key) {
                write.value = Some(value);
            }
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let latest = state.jobs.latest();
        held.extend(latest.map(|(key, value)| Write::set(Table::Jobs, key, value)));
        held
    }

    /// The value under a key. A damaged one is an error, never a value.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if table == Table::Jobs {
            return self.mark(&state.jobs, key);
        }
        let disk_key = disk_key(table, key);
        match self.tree.get(&disk_key) {
            Ok(Some(stored)) => self.load(table, &disk_key, &stored).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(engine(&self.dir, error)),
        }
    }

    /// All records of a table but that of marks, in the order of their keys. A damaged one comes as an error in
    /// its place, and the iteration goes on behind it.
    pub fn scan(
        &self,
        table: Table,
    ) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>> + '_ {
        self.tree
            .scan_prefix([table as u8])
            .filter_map(move |item| {
                let (disk_key, _) = match item {
                    Ok(item) => item,
                    Err(error) => return Some(Err(engine(&self.dir, error))),
                };
                // Read again, under the lock: a value and its chunks must be of one batch.
                let key = &disk_key[1..];
                let value = self.get(table, key).transpose()?;
                Some(value.map(|value| (key.to_vec(), value)))
            })
    }

    /// How many jobs have a mark.
    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.jobs.keys().len()
    }

    /// How many times a damaged record was met since the store was opened.
    pub fn damaged_reads(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether a write has failed, so that the store takes no more.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.state.is_poisoned()
    }

    fn commit<'a>(
        &self,
        number: Option<u64>,
        rows: impl Iterator<Item = &'a Write>,
        marks: Vec<Entry>,
    ) -> Result<(), StoreError> {
        // Poisoned means that the engine panicked in the middle of a write.
        let failed = || StoreError::Failed(self.dir.clone());
        let mut state = self.state.write().map_err(|_| failed())?;
        if self.failed.load(Ordering::Acquire) {
            return Err(failed());
        }
        let done = self.try_to_commit(&mut state, number, rows, marks);
        self.failed.store(done.is_err(), Ordering::Release);
        done?;
        // The batch is on disk either way; a mark that lags only notices less.
        if let Err(error) = self.mark.write(state.tally.number) {
            tracing::warn!(folder = %self.dir.display(), %error, "the store's mark lags behind");
        }
        state.jobs.tidy();
        Ok(())
    }

    fn try_to_commit<'a>(
        &self,
        state: &mut State,
        number: Option<u64>,
        rows: impl Iterator<Item = &'a Write>,
        marks: Vec<Entry>,
    ) -> Result<(), StoreError> {
        let number = number.unwrap_or(state.tally.number + 1);
        let change = match marks.is_empty() {
            true => None,
            false => Some(state.jobs.append(marks)),
        };
        let change = change
            .transpose()
            .map_err(io_error("writing marks of jobs in", &self.dir))?;
        let engine = |error| engine(&self.dir, error);
        let batch = state.tally.batch(&self.tree, number, rows, change);
        self.tree
            .apply_batch(batch.map_err(engine)?)
            .map_err(engine)?;
        self.tree.flush().map_err(engine)?;
        let synced = self.data.sync_data();
        synced.map_err(io_error("syncing", &self.dir.join("db")))
    }

    fn mark(&self, jobs: &Jobs, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(job) = key.first_chunk() else {
            return Ok(None);
        };
        match jobs.get(job) {
            Ok(value) => Ok(value.map(|value| value.to_vec())),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(%error, "a mark of a job may be there");
                Err(self.damaged(Table::Jobs, key))
            }
            Err(error) => Err(io_error("reading marks of jobs in", &self.dir)(error)),
        }
    }

    /// Moves the marks that an earlier release has put into sled's tree to where they belong. The job of a damaged
    /// one, of which nobody knows how much was charged, counts as ended `now`: better to leave it out than to count
    /// it twice.
    fn move_marks(&self, now: WallTime) -> Result<(), StoreError> {
        let lost = JobMark {
            ended: true,
            ..JobMark::at(now)
        };
        loop {
            let (mut moved, mut marks) = (Vec::new(), Vec::new());
            let items = self.tree.scan_prefix([Table::Jobs as u8]);
            for item in items.take(MOVED_AT_ONCE) {
                let (disk_key, stored) = item.map_err(|error| engine(&self.dir, error))?;
                let value = self.load(Table::Jobs, &disk_key, &stored);
                let value = value.unwrap_or_else(|_| lost.to_bytes());
                let key = disk_key[1..].to_vec();
                marks.extend(mark_of(&Write::set(Table::Jobs, key.clone(), value))?);
                moved.push(Write::delete(Table::Jobs, key));
            }
            if moved.is_empty() {
                return Ok(());
            }
            self.commit(Some(self.number()), moved.iter(), marks)?;
        }
    }

    fn load(&self, table: Table, disk_key: &[u8], stored: &IVec) -> Result<Vec<u8>, StoreError> {
        let content = match parse_value(stored) {
            None => None,
            Some((sum, Stored::Whole(value))) => Some((sum, value.to_vec())),
            Some((sum, Stored::Chunks(chunks))) => {
                self.join(disk_key, chunks)?.map(|value| (sum, value))
            }
        };
        match content {
            Some((sum, value)) if sum == checksum(disk_key, &value) => Ok(value),
            _ => Err(self.damaged(table, &disk_key[1..])),
        }
    }

    /// Counts a record that is damaged, and names it.
    fn damaged(&self, table: Table, key: &[u8]) -> StoreError {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let key = key.to_vec();
        let error = StoreError::Damaged { table, key };
        tracing::error!(folder = %self.dir.display(), "{error}");
        error
    }

    /// The chunks of a record in a row; `None` if they cannot be those of a record.
    fn join(&self, disk_key: &[u8], chunks: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = Vec::new();
        for chunk in 0..chunks {
            let part = self.tree.get(chunk_key(disk_key, chunk));
            match part.map_err(|error| engine(&self.dir, error))? {
                Some(part) if value.len() + part.len() <= VALUE_BYTES_MAX => {
                    value.extend_from_slice(&part);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(value))
    }
}

/// A mark as it is kept. None where one is to be deleted, as journals of earlier releases say: it goes with the
/// history.
fn mark_of(write: &Write) -> Result<Option<Entry>, StoreError> {
    let Some(value) = &write.value else {
        return Ok(None);
    };
    let mark = JobMark::from_bytes(value).map(JobMark::to_bytes);
    match (
        write.key.first_chunk(),
        mark.and_then(|mark| mark.try_into().ok()),
    ) {
        (Some(key), Some(value)) => Ok(Some((*key, value))),
        _ => Err(StoreError::NoMark(write.key.clone())),
    }
}

fn engine(dir: &Path, source: sled::Error) -> StoreError {
    StoreError::Engine {
        path: dir.to_owned(),
        source,
    }
}
