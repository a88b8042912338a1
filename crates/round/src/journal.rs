//! The journal: a second copy of the rows that no peer has, in files outside the store.
//!
//! Peers hold what was published. Own counters, rights, holds, job marks, corrections and forwarded jobs exist only
//! here. Each round appends its rows of these tables and syncs them, which makes the round durable. The store
//! follows. A start brings a store up to the journal if the store is behind, lost, or restored from an older copy.
//!
//! `site.journal` grows to [`JOURNAL_BYTES_MAX`]. Then it becomes `site.journal.old`, and a new one begins with the
//! counters that only this site holds. The two files are one log, the old one first.
//!
//! Invariant: after any crash the two files hold every acknowledged row that no peer has, and the marks of the jobs
//! of at least the last [`JOURNAL_BYTES_MAX`] bytes.
//!
//! Deliberately not here: which rows those are (`fairmesh-site`), and reading them back (`found`).

use fairmesh_model::mutated;
use fairmesh_site::{Table, Write};

use crate::frame::{frame, head};
use crate::op::{JOURNAL, JOURNAL_NEW, JOURNAL_OLD, Op};

/// Bytes at which the journal is rotated, or twice its size after the last rotation if that is more. Bounds what a
/// start reads. It also bounds how many of the latest jobs a feed can repeat after the store was lost without
/// counting twice: some 30,000 if jobs arrive one by one, 100,000 if they arrive by the hundred.
pub const JOURNAL_BYTES_MAX: u64 = 8 << 20;

/// Rows in one frame at a journal's beginning. Bounds what one flipped bit makes unreadable.
const ROWS_PER_FRAME: usize = 4_096;

/// The end of the journal's file. Offsets are counted here, not read from the disk, because operations run later.
#[derive(Debug)]
pub(crate) struct Journal {
    lineage: u64,
    bytes: u64,
    bytes_max: u64,
    least_bytes_max: u64,
}

impl Journal {
    /// A journal whose file has `bytes` bytes.
    pub(crate) fn at(lineage: u64, bytes: u64, bytes_max: u64) -> Self {
        Self {
            lineage,
            bytes,
            bytes_max,
            least_bytes_max: bytes_max,
        }
    }

    /// Appends and syncs those of a round's rows that only this site holds; nothing if there are none.
    pub(crate) fn append(&mut self, writes: &[Write], number: u64) -> Vec<Op> {
        let mut own = writes.iter().filter(is_own).peekable();
        if own.peek().is_none() || mutated!(JournalUnwritten) {
            return Vec::new();
        }
        // One frame for the round: a mark and its counters become durable together or not at all.
        let (at, bytes) = (self.bytes, frame(own, number, self.bytes));
        self.bytes += bytes.len() as u64;
        let write = Op::Write {
            file: JOURNAL,
            at,
            bytes,
        };
        if mutated!(JournalUnsynced) {
            return vec![write];
        }
        vec![write, Op::Sync(JOURNAL)]
    }

    /// Whether the journal should be rotated.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Renames the journal to the old one and begins another with `rows`. Between the renames there is no current
    /// one; a start then finishes the rotation ([`tidy`](crate::tidy)).
    pub(crate) fn rotate(&mut self, number: u64, rows: &[Write]) -> Vec<Op> {
        // The new file is whole and synced before the first rename. Names are synced after each rename: a disk that
        // kept only the second one would have replaced the current journal without keeping it as the old one.
        let mut ops = self.write_new(number, rows);
        for (from, to) in [(JOURNAL, JOURNAL_OLD), (JOURNAL_NEW, JOURNAL)] {
            ops.extend([Op::Rename { from, to }, Op::SyncNames]);
        }
        ops
    }

    /// Begins a new journal with `rows` in place of both files, which are damaged or of another lineage.
    pub(crate) fn replace(&mut self, number: u64, rows: &[Write]) -> Vec<Op> {
        let mut ops = self.write_new(number, rows);
        let (from, to) = (JOURNAL_NEW, JOURNAL);
        ops.extend([
            Op::Rename { from, to },
            Op::Remove(JOURNAL_OLD),
            Op::SyncNames,
        ]);
        ops
    }

    /// Writes and syncs a file that begins with `rows`, under its temporary name.
    fn write_new(&mut self, number: u64, rows: &[Write]) -> Vec<Op> {
        let mut bytes = head(self.lineage);
        // The first frame is written even without rows: its number tells a start from which round on the journal is
        // complete.
        let (first, others) = rows.split_at(rows.len().min(ROWS_PER_FRAME));
        for rows in std::iter::once(first).chain(others.chunks(ROWS_PER_FRAME)) {
            let at = bytes.len() as u64;
            bytes.extend(frame(rows, number, at));
        }
        self.bytes = bytes.len() as u64;
        // A site with more own counters than fit the limit would otherwise rotate in every round.
        self.bytes_max = self.least_bytes_max.max(2 * self.bytes);
        vec![
            Op::Create(JOURNAL_NEW),
            Op::Write {
                file: JOURNAL_NEW,
                at: 0,
                bytes,
            },
            Op::Sync(JOURNAL_NEW),
            Op::SyncNames,
        ]
    }
}

/// Whether only this site may hold a row of this table. Documents, heads and parts come back from peers.
pub(crate) fn is_own(write: &&Write) -> bool {
    use Table::{Audit, Forwarded, Holds, Instalments, Jobs, Ledger, Reach, Rights};
    matches!(
        write.table,
        Ledger | Jobs | Instalments | Audit | Rights | Holds | Forwarded | Reach
    )
}
