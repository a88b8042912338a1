//! What a start makes of store and journal, whatever a crash has left of them.
//!
//! A start finishes or undoes a rotation that was cut off ([`tidy`]), brings the store up to its
//! journal ([`Opening::new`]), and, once the site is there to say which counters nobody else holds,
//! makes the journal ready to be gone on with ([`Opening::ready`]).
//!
//! Which rounds a store has is told by their number, and by the store's *lineage*: a number that it
//! was given when it was made. A store of another lineage (a new one, after the last one was lost)
//! takes all that the journal holds.
//!
//! Invariant: a start that is cut off anywhere, any number of times, comes to the same in the end.
//! Deliberately not here: the incarnation (`side`), which is taken before.

use fairmesh_model::{WallTime, mutant, mutated};
use fairmesh_site::{Table, Write};

use crate::Round;
use crate::STORE_FORMAT;
use crate::found::{FileRead, Found, Rows, is_counter};
use crate::frame::End;
use crate::journal::Journal;
use crate::op::{FileName, JOURNAL, JOURNAL_NEW, JOURNAL_OLD, Op, aside};

/// Key of the store's lineage in [`Table::Meta`]: eight bytes, the greatest first.
pub const LINEAGE_KEY: &[u8] = b"lineage";

/// Key of the form of the store's rows in [`Table::Meta`]: [`STORE_FORMAT`] in four bytes, the greatest
/// first. A store that has a lineage and no format is of the first edition.
pub const FORMAT_KEY: &[u8] = b"format";

/// What a store tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Which it is; `None` for a new one.
    pub lineage: Option<u64>,
    /// Number of its newest change.
    pub number: u64,
}

impl StoreState {
    /// Of a store that has this under [`LINEAGE_KEY`].
    pub fn new(lineage: Option<&[u8]>, number: u64) -> Self {
        let lineage = lineage.and_then(|value| value.try_into().ok());
        Self {
            lineage: lineage.map(u64::from_be_bytes),
            number,
        }
    }
}

/// The journal cannot be read, and may have what only it has: the last rounds, or all of them where the store is new.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; it may have usage that nobody else has: make the file readable, or move it away, start again and feed \
     again what was reported last: nothing counts twice"
)]
pub struct Unopened(String);

/// Finishes or undoes what a crash left half done of a rotation.
pub fn tidy(is_there: impl Fn(&FileName) -> bool) -> Vec<Op> {
    if !is_there(&JOURNAL_NEW) {
        return Vec::new();
    }
    let is_between = !is_there(&JOURNAL) && is_there(&JOURNAL_OLD);
    let op = if is_between && !mutated!(HalfRotationDropped) {
        // The new one was whole and synced before the current one became the old one.
        let (from, to) = (JOURNAL_NEW, JOURNAL);
        Op::Rename { from, to }
    } else {
        Op::Remove(JOURNAL_NEW)
    };
    vec![op, Op::SyncNames]
}

/// A start, as far as it can come without the site.
#[derive(Debug)]
pub struct Opening {
    lineage: u64,
    number: u64,
    plan: Plan,
    /// Rows of own counters and job marks that the store lacked and the journal had.
    pub rows_replayed: usize,
    /// What is wrong with the journal, if something is.
    pub journal_damage: Option<String>,
    /// Where its last whole round ends, if something that is none follows: a crash in the middle of a write leaves
    /// that, and nothing acknowledged is lost; so does a bit that flips in the last round, which was acknowledged.
    pub journal_torn_at: Option<u64>,
}

/// What becomes of the journal's file.
#[derive(Debug)]
enum Plan {
    /// It is whole.
    GoOn { good_bytes: u64 },
    /// There is none, or not one that can be gone on with. `marks` are those that it held, and who took jobs back; of
    /// what was in a damaged place the store may know more. A torn end could be cut; but it may as well be a whole
    /// round that is damaged, and then counters that had moved on in it would stand there once more.
    Begin { marks: Vec<Write> },
}

impl Opening {
    /// Looks at both files of the journal, after [`tidy`], and brings the store up to them by the
    /// operations. A store that is new takes `lineage`, which no other may ever have had.
    pub fn new(
        store: StoreState,
        lineage: u64,
        old: &FileRead,
        current: &FileRead,
    ) -> Result<(Self, Vec<Op>), Unopened> {
        let mut found = Found::read(old, current).map_err(Unopened)?;
        let is_same = store.lineage.is_some() && store.lineage == found.lineage;
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
            // Were it less than that of any round it has now, that one would be applied again over
            // what comes next.
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

    /// Makes the journal ready by the operations, and the first round. Where the journal is begun anew, `rows` are told
    /// what it held beside counters, and say what it begins with: that as the store has it, the marks of the latest
    /// jobs, and, behind these, the counters that nobody but this site holds. A new one is begun when it is longer than
    /// `bytes_max`.
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

/// What is lacking, and a lineage and a format for a store without one.
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
