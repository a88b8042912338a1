//! A handful of inputs, made durable in one write, and then answered.
//!
//! For each input: [`Round::event`] looks its jobs' marks up, the site handles the event, and
//! [`Round::push_effects`] keeps what the site wants done. [`Round::finish`] says all of it in order: the
//! journal, its sync, the store's batch where one is due, the journal begun anew if it has grown long; and then
//! what is sent, answered and acknowledged. Making a change durable earlier than its place among the effects
//! says is always safe. So a busy node pays for one sync where a naive one pays for hundreds.
//!
//! The journal's sync is what acknowledges. The store follows in bulk ([`StoreBacklog`]): what it lacks of rows that are
//! in the journal is kept here.
//!
//! Invariant: a job's mark is as its last event left it, though the store still has an older one; so a record
//! that comes twice counts once.

use std::collections::BTreeMap;

use fairmesh_model::{RunningJob, UsageRecord, mutant, mutated};
use fairmesh_site::{Correction, Effect, Event, JobMark, Table, Ticket, Write, job_key};

use crate::journal::{Journal, is_own};
use crate::op::{Op, Step};

/// Most inputs that one round takes in before it writes: bounds how long the first of them waits.
pub const ROUND_MAX: usize = 64;

/// What reaches a node.
#[derive(Debug)]
pub enum Input {
    /// What needs nothing of the store.
    Event(Event),
    /// A feed reports usage.
    Report {
        /// Who waits for the answer.
        ticket: Ticket,
        /// What.
        records: Vec<UsageRecord>,
    },
    /// A feed lists the jobs that run.
    Running {
        /// Who waits for the answer.
        ticket: Ticket,
        /// All of them.
        jobs: Vec<RunningJob>,
    },
    /// Somebody takes jobs back.
    Correct {
        /// Who waits for the answer.
        ticket: Ticket,
        /// Their records.
        records: Vec<UsageRecord>,
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
}

/// A mark that the store has and cannot give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// The round under way, and where journal and store have come to.
#[derive(Debug)]
pub struct Round {
    journal: Journal,
    /// Number of the newest round: the store's changes have that of the last round that is in them.
    number: u64,
    /// Marks of jobs that this round's events have moved and that are nowhere else yet.
    marks: BTreeMap<Vec<u8>, JobMark>,
    backlog: StoreBacklog,
    effects: Vec<Effect>,
    inputs: usize,
    /// Whether the store has all when this round is done: the node stops.
    is_last: bool,
}

/// Rows of rounds that are in the journal, as the last of them left each, and that the store does not have yet.
#[derive(Debug, Default)]
struct StoreBacklog {
    rows: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>,
    bytes: usize,
    /// Whether one of them is in no journal.
    is_due: bool,
}

/// Bytes of rows with which the store follows the journal at the latest: bounds memory, what a start applies, and
/// how long a round takes that does it, to some ten milliseconds.
const BACKLOG_BYTES_MAX: usize = 128 << 10;

/// What a row takes beside its key and value, counted roughly.
const ROW_BYTES: usize = 64;

impl StoreBacklog {
    fn extend(&mut self, writes: Vec<Write>) {
        for write in writes {
            self.is_due |= !is_own(&&write) && !mutated!(OthersRowsWait);
            let value_bytes = write.value.as_ref().map_or(0, Vec::len);
            let bytes = write.key.len() + value_bytes + ROW_BYTES;
            let before = self.rows.insert((write.table, write.key), write.value);
            self.bytes += if before.is_none() { bytes } else { 0 };
        }
    }

    /// All of them, as one change.
    fn take(&mut self) -> Vec<Write> {
        let rows = std::mem::take(self).rows.into_iter();
        rows.map(|((table, key), value)| Write { table, key, value })
            .collect()
    }
}

impl Round {
    pub(crate) fn new(journal: Journal, number: u64) -> Self {
        Self {
            journal,
            number,
            marks: BTreeMap::new(),
            backlog: StoreBacklog::default(),
            effects: Vec::new(),
            inputs: 0,
            is_last: false,
        }
    }

    /// What the site is told. `mark` is asked for each job's mark: see [`Round::mark_of`].
    pub fn event(
        &self,
        input: Input,
        mut mark: impl FnMut(&UsageRecord) -> Option<JobMark>,
    ) -> Event {
        match input {
            Input::Event(event) => event,
            Input::Report { ticket, records } => {
                let records = with_marks(records, &mut mark);
                Event::Report { ticket, records }
            }
            Input::Correct {
                ticket,
                records,
                by,
                why,
            } => {
                let records = with_marks(records, &mut mark);
                let correction = Box::new(Correction { records, by, why });
                Event::Correct { ticket, correction }
            }
            Input::Running { ticket, jobs } => {
                let with_mark = |job: RunningJob| (mark(&job.record), job);
                let jobs = jobs.into_iter().map(with_mark);
                let jobs = jobs.map(|(mark, job)| (job, mark)).collect();
                Event::Running { ticket, jobs }
            }
        }
    }

    /// How much of a job is charged: as this round left it, or as the store has it.
    pub fn mark_of(
        &self,
        record: &UsageRecord,
        stored: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>, Unreadable>,
    ) -> Option<JobMark> {
        let key = job_key(&record.key);
        let stored = || Self::mark_stored(record, stored(&key));
        self.mark_here(&key).unwrap_or_else(stored)
    }

    /// How much of a job is charged, where the store does not know it yet; an outer `None` where it does: what it has
    /// then counts, also if it is read later.
    pub fn mark_here(&self, key: &[u8]) -> Option<Option<JobMark>> {
        let moved = self.marks.get(key);
        if let Some(mark) = moved.filter(|_| !mutated!(RoundForgetsMarks)) {
            return Some(Some(*mark));
        }
        let row = self.backlog.rows.get(&(Table::Jobs, key.to_vec()));
        let row = row.filter(|_| !mutated!(BehindUnread))?;
        Some(row.as_deref().and_then(JobMark::from_bytes))
    }

    /// What the store has of a job's mark.
    pub fn mark_stored(
        record: &UsageRecord,
        stored: Result<Option<Vec<u8>>, Unreadable>,
    ) -> Option<JobMark> {
        match stored {
            Ok(value) => value.as_deref().and_then(JobMark::from_bytes),
            // Better to leave a job out than to count it twice.
            Err(Unreadable) if mutated!(UnreadableIsNew) => None,
            Err(Unreadable) => Some(JobMark {
                ended: true,
                ..JobMark::at(record.end)
            }),
        }
    }

    /// The store has all that the journal has when this round is done.
    pub fn end_with_store(&mut self) {
        self.is_last = true;
    }

    /// Keeps what the site wants done for one event. True while the round may take another.
    pub fn push_effects(&mut self, effects: Vec<Effect>) -> bool {
        let persisted = effects.iter().filter_map(|effect| match effect {
            Effect::Persist(writes) => Some(writes),
            _ => None,
        });
        let of_jobs = persisted.flatten().filter(|of| of.table == Table::Jobs);
        for write in of_jobs {
            if let Some(mark) = write.value.as_deref().and_then(JobMark::from_bytes) {
                self.marks.insert(write.key.clone(), mark);
            }
        }
        self.effects.extend(effects);
        self.inputs += 1;
        self.inputs < ROUND_MAX
    }

    /// Ends the round, and begins the next. `rows_held_alone` are the counters that nobody but this
    /// site holds; they are asked for only when the journal is begun anew.
    pub fn finish(&mut self, rows_held_alone: impl FnOnce() -> Vec<Write>) -> Vec<Step> {
        self.inputs = 0;
        self.marks.clear();
        // A counter that many records of a round have raised is written once, as it stands.
        let mut rows: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>> = BTreeMap::new();
        let mut said = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Persist(writes) => {
                    let writes = writes.into_iter();
                    rows.extend(writes.map(|write| ((write.table, write.key), write.value)));
                }
                other => said.push(Step::Do(other)),
            }
        }
        let rows = rows.into_iter();
        let writes: Vec<Write> = rows
            .map(|((table, key), value)| Write { table, key, value })
            .collect();
        let mut ops = Vec::new();
        if !writes.is_empty() {
            self.number += mutant!(RoundsUnnumbered, 1, 0);
            ops = self.journal.append(&writes, self.number);
            self.backlog.extend(writes);
        }
        let is_full = self.journal.is_full();
        let is_due = self.backlog.is_due || self.backlog.bytes > BACKLOG_BYTES_MAX;
        if !self.backlog.rows.is_empty() && (is_due || is_full || self.is_last) {
            let (number, writes) = (self.number, self.backlog.take());
            ops.push(Op::Apply { number, writes });
            if mutated!(StoreBeforeJournal) {
                ops.rotate_right(1);
            }
        }
        if is_full {
            ops.extend(self.journal.rotate(
                self.number,
                &mutant!(RotationForgets, rows_held_alone(), Vec::new()),
            ));
        }
        let ops = ops.into_iter().map(Step::Disk);
        if mutated!(SaidBeforeDurable) {
            return said.into_iter().chain(ops).collect();
        }
        ops.chain(said).collect()
    }
}

/// Records, each with its job's mark.
fn with_marks(
    records: Vec<UsageRecord>,
    mut mark: impl FnMut(&UsageRecord) -> Option<JobMark>,
) -> Vec<(UsageRecord, Option<JobMark>)> {
    let with_mark = |record| (mark(&record), record);
    let records = records.into_iter().map(with_mark);
    records.map(|(mark, record)| (record, mark)).collect()
}
