//! Marks of jobs that the history of every VO has passed over.
//!
//! Invariant: a mark goes only where the site has said that whatever is reported of such a job again is
//! too old to count. They go in small steps, each with a round that happens anyway, because nothing
//! waits for them.

use fairmesh_model::WallTime;
use fairmesh_site::{JobMark, Table};

use crate::store::Store;

/// Marks looked at in one round: bounds how long it takes.
const LOOKED_AT: usize = 512;

/// How far the marks have been gone through.
#[derive(Debug)]
pub(super) struct MarkSweep {
    before: WallTime,
    behind: Vec<u8>,
}

impl MarkSweep {
    /// Begins with the first mark.
    pub(super) fn new(before: WallTime) -> Self {
        Self {
            before,
            behind: Vec::new(),
        }
    }

    /// The keys of the next marks to delete, as the store has them; `None` when all have been looked at.
    pub(super) fn next(&mut self, store: &Store) -> Option<Vec<Vec<u8>>> {
        let records = store.scan_some(Table::Jobs, &self.behind, LOOKED_AT);
        self.behind.clone_from(&records.last()?.0);
        let is_past = |value: &[u8]| {
            JobMark::from_bytes(value).is_some_and(|mark| mark.charged_until < self.before)
        };
        let past = records.into_iter().filter(|(_, value)| is_past(value));
        Some(past.map(|(key, _)| key).collect())
    }
}
