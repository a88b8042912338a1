//! The journal: the site's own counters, job marks, corrections and forwarded jobs once more, in files that are not the
//! store's.
//!
//! Peers hold what was published, and nobody else holds the rest; so each round's rows of own
//! counters, rights, holds, job marks, corrections and forwarded jobs are written and synced here, which acknowledges
//! them. The store follows; one that is behind, lost or comes back older than its journal is brought up to it.
//!
//! `site.journal` grows to [`JOURNAL_BYTES_MAX`]; then it becomes `site.journal.old`, and a new one
//! begins with the counters that nobody else holds. The two are one log, the old one first.
//!
//! Invariant: at any moment, whatever crash comes, the two hold every acknowledged row that no peer
//! has, and the marks of the jobs of at least the last [`JOURNAL_BYTES_MAX`] bytes.
//!
//! Deliberately not here: which rows those are (`fairmesh-site`), and reading them back (`found`).

use fairmesh_model::mutated;
use fairmesh_site::{Table, Write};

use crate::frame::{frame, head};
use crate::op::{JOURNAL, JOURNAL_NEW, JOURNAL_OLD, Op};

/// Size at which the journal is begun anew, or twice its size when it was last begun, if that is
/// more. Bounds what a start has to read and, with the marks in it, for how many jobs a feed may
/// say again what it said before a store was lost: some 30,000 where jobs come one by one, 100,000
/// where they come by the hundred.
pub const JOURNAL_BYTES_MAX: u64 = 8 << 20;

/// Rows in one frame of those that a journal begins with. Bounds what one bad bit costs.
const ROWS_PER_FRAME: usize = 4_096;

/// Where the journal ends.
#[derive(Debug)]
pub(crate) struct Journal {
    lineage: u64,
    bytes: u64,
    bytes_max: u64,
    least_bytes_max: u64,
}

impl Journal {
    /// A journal that goes on at `bytes`.
    pub(crate) fn at(lineage: u64, bytes: u64, bytes_max: u64) -> Self {
        Self {
            lineage,
            bytes,
            bytes_max,
            least_bytes_max: bytes_max,
        }
    }

    /// Writes and syncs those of a batch's rows that belong here.
    pub(crate) fn append(&mut self, writes: &[Write], number: u64) -> Vec<Op> {
        let mut own = writes.iter().filter(is_own).peekable();
        if own.peek().is_none() || mutated!(JournalUnwritten) {
            return Vec::new();
        }
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

    /// Whether it has grown so much that it should be begun anew.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Makes it the old one, and begins another with `rows`. Between the renames there is none of its
    /// name: [`tidy`](crate::tidy) goes on from there.
    pub(crate) fn rotate(&mut self, number: u64, rows: &[Write]) -> Vec<Op> {
        let mut ops = self.write_new(number, rows);
        for (from, to) in [(JOURNAL, JOURNAL_OLD), (JOURNAL_NEW, JOURNAL)] {
            ops.extend([Op::Rename { from, to }, Op::SyncNames]);
        }
        ops
    }

    /// Begins anew with `rows`, in the place of all that was there: it is of another lineage or
    /// damaged, so that it is not read even if it comes back.
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
        // There is a first frame whatever there is to begin with: its number says from when on the journal has all.
        let (first, others) = rows.split_at(rows.len().min(ROWS_PER_FRAME));
        for rows in std::iter::once(first).chain(others.chunks(ROWS_PER_FRAME)) {
            let at = bytes.len() as u64;
            bytes.extend(frame(rows, number, at));
        }
        self.bytes = bytes.len() as u64;
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

/// Whether nobody but this site may hold such a row.
pub(crate) fn is_own(write: &&Write) -> bool {
    use Table::{Audit, Forwarded, Holds, Instalments, Jobs, Ledger, Reach, Rights};
    matches!(
        write.table,
        Ledger | Jobs | Instalments | Audit | Rights | Holds | Forwarded | Reach
    )
}
