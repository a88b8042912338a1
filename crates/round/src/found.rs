//! The rounds that a start finds in the journal's files.
//!
//! Invariant: rounds are taken in order, each whole, and of each file only a prefix of what was written. Counters
//! after a gap are never taken, because a later row of the same counter may have been in the gap. If the store has
//! everything that can have been in the gap, there is none.
//!
//! Deliberately not here: what a start does with the rounds (`start`).

use std::collections::BTreeMap;

use fairmesh_model::{mutant, mutated};
use fairmesh_site::{Table, Write, marks_lost};

use crate::frame::{Content, End, HEAD_BYTES, Head, Logged, parse, parse_head};
use crate::op::{FileName, JOURNAL, JOURNAL_OLD};

/// What reading a file of the data folder returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRead {
    /// The file does not exist.
    Absent,
    /// The whole content.
    Bytes(Vec<u8>),
    /// The file exists and cannot be read; the text is the system's error. A start must not treat it as absent.
    Refused(String),
}

/// Rows by table and key, each as the last round left it; `None` for a deleted row.
pub(crate) type Rows = BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>;

/// Both files as one log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The lineage of the store that they belong to; `None` if there is nothing to be read.
    pub(crate) lineage: Option<u64>,
    /// All rounds that may be used, in order.
    pub(crate) rounds: Vec<Logged>,
    /// How the current file ends; `None` if there is none.
    pub(crate) end: Option<End>,
    /// Where its last good round before the first bad byte ends.
    pub(crate) good_bytes: u64,
    /// The first round's number and its rows of how far counters reached. From then on no mark of a job is missing.
    began: Option<(u64, Vec<Write>)>,
    /// Whole rounds after the first bad byte: usable only by a store that has everything in between.
    behind: Vec<Logged>,
    /// What is damaged, for the operator.
    pub(crate) damage: Option<String>,
}

impl Found {
    /// Reads the old and the current file. An old file that cannot be read is left out and reported as damage.
    ///
    /// # Errors
    /// Why the current file cannot be read. It may hold acknowledged rounds, so the node must not start without it.
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

    /// Also takes the rounds after the first bad byte, if the store has everything in between: it contains the rounds
    /// up to `number`, and each further round has the next number.
    pub(crate) fn close_gap(&mut self, number: u64) {
        let mut last = number;
        let mut next = |round: &Logged| {
            // Consecutive numbers prove that no round is missing between the store's last one and this one.
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

    /// Notes in the rows that a store lacks until when its marks of jobs are lost: the journal has no marks from
    /// before it began, but counters that include those jobs. `number` is the store's last round, `None` for a store
    /// of another lineage. Without the note a feed that repeats such a job would count it twice.
    pub(crate) fn note_lost_marks(&self, number: Option<u64>, lacking: &mut Rows) {
        let Some((began, rows)) = &self.began else {
            return;
        };
        // A store that has followed past the journal's beginning has the earlier marks itself.
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

    /// The rows that a store with the rounds up to `number` lacks; all rows for `None`. A later row replaces an
    /// earlier one.
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
        // Its frames are good: only a bit of the head flipped. `Damaged` makes the start replace the file.
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
    // An old file of another lineage belongs to a store that was replaced; its counters are not this store's.
    let old = old.filter(|old| head_is_good(old));
    if let Some(mut old) = old.filter(|old| of_current.is_none_or(|lineage| lineage == old.lineage))
    {
        if old.end != End::Whole {
            found.damage = Some(damage_at(&JOURNAL_OLD, old.bad_at));
            // Rounds are missing between the two files, so a counter here may be older than one in the missing
            // rounds. Marks are safe: they only say that a job has been counted.
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

/// The number of a file's first round, and its rows of how far counters reached then.
fn began(rounds: &[Logged]) -> Option<(u64, Vec<Write>)> {
    let number = rounds.first()?.number;
    let first = rounds.iter().take_while(|round| round.number == number);
    let rows = first.flat_map(|round| &round.writes);
    let reach = rows.filter(|row| row.table == Table::Reach).cloned();
    Some((number, reach.collect()))
}

/// Whether rows of the table are counters: an old row of them must never replace a newer one.
pub(crate) fn is_counter(table: Table) -> bool {
    matches!(table, Table::Ledger | Table::Rights)
}

fn damage_at(file: &FileName, offset: usize) -> String {
    format!("{file} is damaged at byte {offset}")
}
