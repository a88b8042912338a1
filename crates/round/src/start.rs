//! A start: how store and journal agree again after any crash.
//!
//! A start finishes or undoes an interrupted rotation ([`tidy`]) and brings the store up to its journal
//! ([`Opening::new`]). When the site is restored and knows which counters only it holds, the start prepares the journal
//! for the next round ([`Opening::ready`]).
//!
//! The number of the store's last change, and its *lineage* (a number drawn when the store was made), say which rounds
//! it contains. A store of another lineage, such as a new one after a loss, takes everything in the journal.
//!
//! Invariant: a start that is interrupted anywhere, any number of times, has the same result in the end.
//! Deliberately not here: the incarnation (`side`), which is taken before.

use fairmesh_model::{WallTime, mutant, mutated};
use fairmesh_site::{Table, Write};

use crate::Round;
use crate::STORE_FORMAT;
use crate::found::{FileRead, Found, Rows, is_counter};
use crate::frame::End;
use crate::journal::Journal;
use crate::op::{FileName, JOURNAL, JOURNAL_NEW, JOURNAL_OLD, Op, aside};

/// Key of the store's lineage in [`Table::Meta`]: eight bytes, most significant first.
pub const LINEAGE_KEY: &[u8] = b"lineage";

/// Key of the format of the store's rows in [`Table::Meta`]: [`STORE_FORMAT`] in four bytes, most significant first. A
/// store with a lineage and no format is of the first edition.
pub const FORMAT_KEY: &[u8] = b"format";

/// Which rounds a store contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Drawn when the store was made; `None` for a new store.
    pub lineage: Option<u64>,
    /// Number of the newest change: the last round that the store contains.
    pub number: u64,
}

impl StoreState {
    /// From the value under [`LINEAGE_KEY`]; a value that is not eight bytes counts as absent.
    pub fn new(lineage: Option<&[u8]>, number: u64) -> Self {
        let lineage = lineage.and_then(|value| value.try_into().ok());
        Self {
            lineage: lineage.map(u64::from_be_bytes),
            number,
        }
    }
}

/// The journal cannot be read. It may hold acknowledged rounds that the store lacks, so the node must not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; it may have usage that nobody else has: make the file readable, or move it away, start again and feed \
     again what was reported last: nothing counts twice"
)]
pub struct Unopened(String);

/// Finishes or undoes a rotation that a crash interrupted.
pub fn tidy(is_there: impl Fn(&FileName) -> bool) -> Vec<Op> {
    if !is_there(&JOURNAL_NEW) {
        return Vec::new();
    }
    let is_between = !is_there(&JOURNAL) && is_there(&JOURNAL_OLD);
    let op = if is_between && !mutated!(HalfRotationDropped) {
        // The new journal was whole and synced before the current one was renamed, so it can take its place.
        let (from, to) = (JOURNAL_NEW, JOURNAL);
        Op::Rename { from, to }
    } else {
        // The current journal is complete; the new one may be cut anywhere.
        Op::Remove(JOURNAL_NEW)
    };
    vec![op, Op::SyncNames]
}

/// A start between bringing the store up to date and preparing the journal, which needs the restored site.
#[derive(Debug)]
pub struct Opening {
    lineage: u64,
    number: u64,
    plan: Plan,
    /// Number of rows that the journal had and the store lacked; the start has written them to the store.
    pub rows_replayed: usize,
    /// What is damaged in the journal, for the operator.
    pub journal_damage: Option<String>,
    /// Offset of the end of the last whole round, if other bytes follow. A crash during a write leaves that, and then
    /// nothing acknowledged is lost. A flipped bit in the last, acknowledged round looks the same.
    pub journal_torn_at: Option<u64>,
}

/// What the start does with the journal's file.
#[derive(Debug)]
enum Plan {
    /// Append to it: it is whole and of the store's lineage.
    GoOn { good_bytes: u64 },
    /// Replace it: it is absent, damaged, torn or of another lineage. `marks` are its rows other than counters; the
    /// store may have newer ones. A torn end is not cut off, because it may be a damaged whole round; the older
    /// counters before it would then be the newest in the journal, and a later loss of the store would bring them
    /// back.
    Begin { marks: Vec<Write> },
}

impl Opening {
    /// Reads both journals, after [`tidy`]. The operations bring the store up to them. A new store takes `lineage`,
    /// which no other store may ever have had: otherwise an old journal would count as its own.
    pub fn new(
        store: StoreState,
        lineage: u64,
        old: &FileRead,
        current: &FileRead,
    ) -> Result<(Self, Vec<Op>), Unopened> {
        let mut found = Found::read(old, current).map_err(Unopened)?;
        let is_same = store.lineage.is_some() && store.lineage == found.lineage;
        // Numbers say something only within one lineage: those of a lost store may be higher than the new one's.
        let is_same = is_same || mutated!(LineageIgnored);
        if is_same {
            found.close_gap(store.number);
        }
        let number = is_same.then_some(store.number);
        let mut lacking = found.lacking(number);
        found.note_lost_marks(number, &mut lacking);
        let rows_replayed = lacking.len();
        let writes = bring_up(lacking, store.lineage.is_none().then_some(lineage));
        let (mut number, mut ops) = (store.number, Vec::new());
        if !writes.is_empty() {
            // At least the number of the newest round in the journal: with a lower one the next start would apply
            // that round again, over newer rows.
            let newest = found.rounds.iter().map(|round| round.number).max();
            let newest = newest.filter(|_| is_same).unwrap_or_default();
            number = mutant!(BroughtUpByOne, newest.max(number + 1), number + 1);
            ops.push(Op::Apply { number, writes });
        }
        let opening = Self {
            lineage: store.lineage.unwrap_or(lineage),
            number,
            plan: plan(&found, is_same),
            rows_replayed,
            journal_damage: found.damage,
            journal_torn_at: (found.end == Some(End::Torn)).then_some(found.good_bytes),
        };
        Ok((opening, ops))
    }

    /// The first round, and the operations that prepare the journal. If the journal is replaced, `rows` receives its
    /// rows other than counters and returns the new beginning: those rows as the store has them, the marks of the
    /// latest jobs, and then the counters that only this site holds. The journal rotates above `bytes_max` bytes.
    pub fn ready(
        self,
        rows: impl FnOnce(Vec<Write>) -> Vec<Write>,
        bytes_max: u64,
        now: WallTime,
    ) -> (Round, Vec<Op>) {
        let journal = |bytes| Journal::at(self.lineage, bytes, bytes_max);
        let number = self.number;
        let (journal, ops) = match self.plan {
            Plan::GoOn { good_bytes } => (journal(good_bytes), Vec::new()),
            Plan::Begin { marks } => {
                let mut ops = Vec::new();
                if self.journal_damage.is_some() {
                    // Kept for the operator: the replaced files are the only trace of what was damaged.
                    let copy = |from: FileName| {
                        let to = aside(&from, now.0 / 1_000);
                        Op::Copy { from, to }
                    };
                    ops.extend([JOURNAL, JOURNAL_OLD].map(copy));
                }
                let mut journal = journal(0);
                ops.extend(journal.replace(number, &rows(marks)));
                (journal, ops)
            }
        };
        (Round::new(journal, number), ops)
    }
}

/// The rows that the store lacks; for a store without a lineage also the lineage and the format, in the same change.
fn bring_up(lacking: Rows, lineage: Option<u64>) -> Vec<Write> {
    let meta = |key: &[u8], value: &[u8]| Write::set(Table::Meta, key.to_vec(), value);
    let made = lineage.map(|lineage| {
        let lineage = meta(LINEAGE_KEY, &lineage.to_be_bytes());
        [lineage, meta(FORMAT_KEY, &STORE_FORMAT.to_be_bytes())]
    });
    let rows = lacking
        .into_iter()
        .map(|((table, key), value)| Write { table, key, value });
    rows.chain(made.into_iter().flatten()).collect()
}

fn plan(found: &Found, is_same: bool) -> Plan {
    let good_bytes = found.good_bytes;
    match found.end {
        Some(End::Whole) if is_same && found.damage.is_none() => Plan::GoOn { good_bytes },
        _ => Plan::Begin {
            marks: found
                .lacking(None)
                .into_iter()
                .filter(|((table, _), value)| !is_counter(*table) && value.is_some())
                .map(|((table, key), value)| Write { table, key, value })
                .collect(),
        },
    }
}
