//! What the journal's files were found to hold.
//!
//! Invariant: what is taken from them are rounds in their order, each whole, and of each file a first
//! part of what was written: counters behind a gap are never taken, as they would be those of an
//! earlier day where a later row was in the gap. Where the store has all that can have been in the gap there is none.
//!
//! Deliberately not here: what becomes of it (`start`).

use std::collections::BTreeMap;

use fairmesh_model::{mutant, mutated};
use fairmesh_site::{Table, Write, marks_lost};

use crate::frame::{Content, End, HEAD_BYTES, Head, Logged, parse, parse_head};
use crate::op::{FileName, JOURNAL, JOURNAL_OLD};

/// A file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRead {
    /// There is none.
    Absent,
    /// Its bytes.
    Bytes(Vec<u8>),
    /// The machine refused, and why.
    Refused(String),
}

/// Rows by their keys, each as the last round left it.
pub(crate) type Rows = BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>;

/// Both files as one log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The lineage of the store that they belong to; `None` if there is nothing to be read.
    pub(crate) lineage: Option<u64>,
    /// All rounds that can be relied upon, in order.
    pub(crate) rounds: Vec<Logged>,
    /// How the current file ends; `None` if there is none.
    pub(crate) end: Option<End>,
    /// Where its last good round before the first bad byte ends.
    pub(crate) good_bytes: u64,
    /// What it began with, from when on no mark of a job is missing, and the number of the store's batch then.
    began: Option<(u64, Vec<Write>)>,
    /// Whole rounds behind that, which nobody may rely upon who lacks what was between.
    behind: Vec<Logged>,
    /// What is wrong, in words.
    pub(crate) damage: Option<String>,
}

impl Found {
    /// Reads the old and the current file. The error is why the current one cannot be read; an old
    /// one that cannot is left out, and named.
    pub(crate) fn read(old: &FileRead, current: &FileRead) -> Result<Self, String> {
        let current = read_one(&JOURNAL, current)?;
        Ok(match read_one(&JOURNAL_OLD, old) {
            Ok(old) => join(old, current),
            Err(refused) => {
                let mut found = join(None, current);
                found.damage.get_or_insert(refused);
                found
            }
        })
    }

    /// Takes the rounds behind the first bad byte, too, as far as the store they belong to lacks nothing between: it has
    /// come as far as the batch `number`, and each round behind that has the next one.
    pub(crate) fn close_gap(&mut self, number: u64) {
        let mut last = number;
        let mut next = |round: &Logged| {
            let is_next = round.number <= last + 1;
            last = last.max(round.number);
            is_next
        };
        let mut behind = std::mem::take(&mut self.behind).into_iter().peekable();
        self.rounds
            .extend(std::iter::from_fn(|| behind.next_if(&mut next)));
        if let (Some(damage), lost @ 1..) = (&mut self.damage, behind.count()) {
            *damage += &format!(
                ", behind what the store had followed: that and {lost} rounds behind it are not used"
            );
        }
    }

    /// Says in rows that a store lacks which has come as far as the batch `number`, or that knows none of them, until when
    /// the marks of jobs are lost: the log has none from before it began, and counters that reach to then.
    pub(crate) fn note_lost_marks(&self, number: Option<u64>, lacking: &mut Rows) {
        let Some((began, rows)) = &self.began else {
            return;
        };
        let has_all = number.is_some_and(|number| number >= *began);
        if has_all || mutated!(LostMarksUnsaid) {
            return;
        }
        for row in rows {
            let newest = lacking.get_mut(&(row.table, row.key.clone()));
            if let (Some(Some(newest)), Some(began)) = (newest, &row.value)
                && let Some(reach) = marks_lost(newest, began)
            {
                *newest = reach;
            }
        }
    }

    /// The rows that a store lacks which has come as far as the batch `number`, or that knows none
    /// of them. A later row replaces an earlier.
    pub(crate) fn lacking(&self, number: Option<u64>) -> Rows {
        let lacks = |round: &&Logged| {
            let newer =
                |number| mutant!(JournalBehind, round.number > number, round.number < number);
            number.is_none_or(newer)
        };
        let rounds = self.rounds.iter().filter(lacks);
        rounds
            .flat_map(|round| &round.writes)
            .map(|write| ((write.table, write.key.clone()), write.value.clone()))
            .collect()
    }
}

fn read_one(name: &FileName, read: &FileRead) -> Result<Option<Content>, String> {
    let bytes = match read {
        FileRead::Absent => return Ok(None),
        FileRead::Refused(why) => return Err(format!("{name}: {why}")),
        FileRead::Bytes(bytes) => bytes,
    };
    match parse_head(bytes) {
        Head::Of(lineage) => Ok(Some(parse(bytes, lineage))),
        Head::Flipped(lineage, bad_at) => Ok(Some(Content {
            end: End::Damaged,
            bad_at,
            ..parse(bytes, lineage)
        })),
        Head::Damaged => Ok(Some(Content {
            lineage: 0,
            rounds: Vec::new(),
            good_bytes: 0,
            bad_at: 0,
            behind: Vec::new(),
            end: End::Damaged,
        })),
        Head::Other(version) => Err(format!(
            "{name} is of version {}, which this release does not know",
            char::from(version)
        )),
    }
}

fn join(old: Option<Content>, current: Option<Content>) -> Found {
    let mut found = Found::default();
    let head_is_good = |content: &Content| content.good_bytes >= HEAD_BYTES;
    let lineage_of = |content: &Content| head_is_good(content).then_some(content.lineage);
    let of_current = current.as_ref().and_then(lineage_of);
    // A stray one of another store's is no part of this log.
    let old = old.filter(|old| head_is_good(old));
    if let Some(mut old) = old.filter(|old| of_current.is_none_or(|of| of == old.lineage)) {
        if old.end != End::Whole {
            found.damage = Some(damage_at(&JOURNAL_OLD, old.bad_at));
            // Without what follows it, a counter that moved on would stand here once more.
            let is_mark = |write: &Write| !is_counter(write.table);
            let rounds = &mut old.rounds;
            rounds
                .iter_mut()
                .for_each(|round| round.writes.retain(is_mark));
        }
        found.lineage = Some(old.lineage);
        found.rounds = old.rounds;
        found.began = began(&found.rounds).filter(|_| old.end == End::Whole);
    }
    if let Some(current) = current {
        if current.end == End::Damaged {
            found.damage = Some(damage_at(&JOURNAL, current.bad_at));
        }
        found.lineage = lineage_of(&current).or(found.lineage);
        found.began = found.began.or_else(|| began(&current.rounds));
        found.rounds.extend(current.rounds);
        found.behind = current.behind;
        found.end = Some(current.end);
        found.good_bytes = current.good_bytes as u64;
    }
    found
}

/// What a file began with of how far counters reach, and the number of the store's batch then.
fn began(rounds: &[Logged]) -> Option<(u64, Vec<Write>)> {
    let number = rounds.first()?.number;
    let first = rounds.iter().take_while(|round| round.number == number);
    let rows = first.flat_map(|round| &round.writes);
    let reach = rows.filter(|row| row.table == Table::Reach).cloned();
    Some((number, reach.collect()))
}

/// Whether a row of the table is a counter, which moves on.
pub(crate) fn is_counter(table: Table) -> bool {
    matches!(table, Table::Ledger | Table::Rights)
}

fn damage_at(file: &FileName, offset: usize) -> String {
    format!("{file} is damaged at byte {offset}")
}
