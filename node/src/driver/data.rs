//! The node's data folder: the driver writes to it, and others read marks of jobs there, beside the driver's task.
//!
//! Invariant: it is closed when the driver lets it go, whoever reads there. Whoever reads holds it for one mark at a
//! time, so that a write waits for that at most.

use std::sync::{Arc, PoisonError, RwLock};

use fairmesh_model::UsageRecord;
use fairmesh_round::{Round, Unreadable};
use fairmesh_site::{JobMark, Table, Write, job_key};

use crate::store::DataDir;

/// The folder. Empty when it is closed.
type Shared = Arc<RwLock<Option<DataDir>>>;

/// The driver's hold of it.
pub(super) struct Data(Shared);

#[derive(Clone)]
pub(super) struct Stored(pub(super) Shared);

impl Data {
    pub(super) fn new(data: DataDir) -> Self {
        Self(Arc::new(RwLock::new(Some(data))))
    }

    /// For whoever reads beside the driver.
    pub(super) fn stored(&self) -> Stored {
        Stored(self.0.clone())
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&DataDir) -> T) -> T {
        let data = self.0.read().unwrap_or_else(PoisonError::into_inner);
        read(data.as_ref().expect("open for as long as this is"))
    }

    /// What a journal that `held` so much is begun anew with (`Store::newest`).
    pub(super) fn newest(&self, held: Vec<Write>) -> Vec<Write> {
        self.read(|data| data.store().expect("it was just opened").newest(held))
    }

    pub(super) fn write<T>(&self, write: impl FnOnce(&mut DataDir) -> T) -> T {
        let mut data = self.0.write().unwrap_or_else(PoisonError::into_inner);
        write(data.as_mut().expect("open for as long as this is"))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Stored {
    /// How much of a job is charged, as the store has it. Blocks.
    pub(super) fn mark_of(&self, record: &UsageRecord) -> Option<JobMark> {
        let data = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let value = value_of(data.as_ref(), &job_key(&record.key), record);
        Round::mark_stored(record, value)
    }
}

/// The value of a job's mark in the store, under the key of the job of `record`.
pub(super) fn value_of(
    data: Option<&DataDir>,
    key: &[u8],
    record: &UsageRecord,
) -> Result<Option<Vec<u8>>, Unreadable> {
    let store = data.and_then(DataDir::store).ok_or(Unreadable)?;
    store.get(Table::Jobs, key).map_err(|error| {
        tracing::error!(%error, job = %record.key.job, "mark of a job cannot be read; the job is not counted");
        Unreadable
    })
}
