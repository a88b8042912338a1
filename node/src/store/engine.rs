//! sled behind the store's interface, with its known faults covered.
//!
//! `flush` of sled calls `sync_file_range` on Linux, which is no fsync (its issues #1351 and #1452),
//! so each write also syncs the `db` file through a handle of our own before it returns. Values are
//! cut into chunks so that sled never makes a blob file, which it does not sync at all (`record`).
//! After a failed write the store takes no more: sled's memory may then be ahead of its disk.
//!
//! Invariant: one writer at a time; readers see a batch whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use fairmesh_model::WallTime;
use fairmesh_round::checksum;
use sled::{Batch, IVec};

use super::data_dir::STORE;
use super::mark::Mark;
use super::record::{Stored, chunk_key, disk_key, parse_value};
use super::recovery::{self, Opened, Recovery};
use super::tally::Tally;
use super::{KEY_BYTES_MAX, StoreError, Table, VALUE_BYTES_MAX, Write};

/// A store in one folder.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    tree: sled::Db,
    /// Our own handle of sled's data file, to sync it.
    data: File,
    mark: Mark,
    tally: RwLock<Tally>,
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
        let (opened, recovery) = recovery::open(dir, now)?;
        let Opened {
            lock,
            tree,
            mark,
            tally,
            records,
        } = opened;
        let data_path = dir.join("db");
        let data = File::open(&data_path).map_err(|source| StoreError::Io {
            doing: "opening",
            path: data_path,
            source,
        })?;
        let store = Self {
            dir: dir.to_owned(),
            tally: RwLock::new(tally),
            mark,
            tree,
            data,
            failed: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            records,
            _lock: lock,
        };
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
        let tally = self.tally.read().unwrap_or_else(PoisonError::into_inner);
        tally.number
    }

    /// As [`Store::write`], as the batch of that number, or the next.
    pub(super) fn write_as(&self, number: Option<u64>, writes: &[Write]) -> Result<(), StoreError> {
        for write in writes {
            let value_bytes = write.value.as_ref().map_or(0, Vec::len);
            if write.key.len() > KEY_BYTES_MAX {
                return Err(StoreError::KeyTooLong(write.key.len()));
            } else if value_bytes > VALUE_BYTES_MAX {
                return Err(StoreError::ValueTooLong(value_bytes));
            }
        }
        // Poisoned means that the engine panicked in the middle of a write.
        let failed = || StoreError::Failed(self.dir.clone());
        let mut tally = self.tally.write().map_err(|_| failed())?;
        if self.failed.load(Ordering::Acquire) {
            return Err(failed());
        }
        let number = number.unwrap_or(tally.number + 1);
        let batch = tally.batch(&self.tree, number, writes);
        let batch = batch.map_err(|error| engine(&self.dir, error));
        let done = batch.and_then(|batch| self.commit(batch));
        self.failed.store(done.is_err(), Ordering::Release);
        // The batch is on disk either way; a mark that lags only notices less.
        if done.is_ok()
            && let Err(error) = self.mark.write(tally.number)
        {
            tracing::warn!(folder = %self.dir.display(), %error, "the store's mark lags behind");
        }
        done
    }

    /// The value under a key. A damaged one is an error, never a value.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let _batches_wait = self.tally.read().unwrap_or_else(PoisonError::into_inner);
        let disk_key = disk_key(table, key);
        match self.tree.get(&disk_key) {
            Ok(Some(stored)) => self.load(table, &disk_key, &stored).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(engine(&self.dir, error)),
        }
    }

    /// All records of a table, in the order of their keys. A damaged one comes as an error in its
    /// place, and the iteration goes on behind it.
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

    /// Up to `most` records of a table behind a key (all of them, where it is empty), without those that
    /// cannot be read.
    pub fn scan_some(&self, table: Table, behind: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut from = [&[table as u8], behind].concat();
        if !behind.is_empty() {
            from.push(0);
        }
        let keys = self
            .tree
            .range(from..vec![table as u8 + 1])
            .keys()
            .take(most);
        let records = keys.filter_map(|key| {
            let key = key.ok()?[1..].to_vec();
            let value = self.get(table, &key).ok()??;
            Some((key, value))
        });
        records.collect()
    }

    /// Bytes that the store takes on disk.
    pub fn size_on_disk(&self) -> Result<u64, StoreError> {
        self.tree
            .size_on_disk()
            .map_err(|error| engine(&self.dir, error))
    }

    /// How many times a damaged record was met since the store was opened.
    pub fn damaged_reads(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether a write has failed, so that the store takes no more.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.tally.is_poisoned()
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.tree
            .apply_batch(batch)
            .and_then(|()| self.tree.flush().map(|_| ()))
            .map_err(|error| engine(&self.dir, error))?;
        self.data.sync_data().map_err(|source| StoreError::Io {
            doing: "syncing",
            path: self.dir.join("db"),
            source,
        })
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
            _ => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                let error = StoreError::Damaged {
                    table,
                    key: disk_key[1..].to_vec(),
                };
                tracing::error!(folder = %self.dir.display(), "{error}");
                Err(error)
            }
        }
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

fn engine(dir: &Path, source: sled::Error) -> StoreError {
    StoreError::Engine {
        path: dir.to_owned(),
        source,
    }
}
