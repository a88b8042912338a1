//! Up to [`ROUND_MAX`] inputs, made durable by one sync and then answered.
//!
//! For each input, [`Round::event`] looks up the marks of its jobs, the site handles the event, and
//! [`Round::push_effects`] collects the effects. [`Round::finish`] returns all steps in order: the journal and its
//! sync, the store's batch if one is due, the rotation of the journal if it is full, then everything that is sent,
//! answered and acknowledged. A change may always become durable before its place among the effects, so a busy node
//! needs one sync for a round, not one for each input.
//!
//! The journal's sync makes a round durable. The store follows in bulk: [`StoreBacklog`] keeps the rows that it lacks.
//!
//! Invariant: a mark is read as the job's last event left it, even if the store still has an older one. So a record
//! that is reported twice counts once.

use std::collections::BTreeMap;

use fairmesh_model::{RunningJob, UsageRecord, mutant, mutated};
use fairmesh_site::{Correction, Effect, Event, JobMark, Table, Ticket, Write, job_key};

use crate::journal::{Journal, is_own};
use crate::op::{Op, Step};

/// Most inputs of one round. Bounds how long the first input waits for its reply; each more saves a sync.
pub const ROUND_MAX: usize = 64;

/// An input of a node, before the marks of its jobs are looked up.
#[derive(Debug)]
pub enum Input {
    /// An event that needs no marks.
    Event(Event),
    /// A feed reports usage.
    Report {
        /// Identifies the reply to the feed.
        ticket: Ticket,
        /// Records of ended or running jobs; one job may occur more than once.
        records: Vec<UsageRecord>,
    },
    /// A feed lists the jobs that run.
    Running {
        /// Identifies the reply to the feed.
        ticket: Ticket,
        /// All jobs that run; a job that is not listed does not run.
        jobs: Vec<RunningJob>,
    },
    /// A user of the machine takes jobs back.
    Correct {
        /// Identifies the reply.
        ticket: Ticket,
        /// The records of the jobs, as they were reported.
        records: Vec<UsageRecord>,
        /// The user's name, for the audit.
        by: String,
        /// The user's reason, for the audit.
        why: String,
    },
}

/// The store cannot read a mark that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// The current round, and how far the journal and the store have advanced.
#[derive(Debug)]
pub struct Round {
    journal: Journal,
    /// Number of the newest round. A change of the store has the number of the last round that it contains.
    number: u64,
    /// Marks that events of this round have changed: they are in neither the backlog nor the store yet.
    marks: BTreeMap<Vec<u8>, JobMark>,
    backlog: StoreBacklog,
    effects: Vec<Effect>,
    inputs: usize,
    /// Whether this round also applies the backlog, because the node stops after it.
    is_last: bool,
}

/// Rows that are in the journal and not yet in the store, each as the last round left it.
#[derive(Debug, Default)]
struct StoreBacklog {
    rows: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>,
    bytes: usize,
    /// Whether a row is not in the journal: only the store makes it durable, so it cannot wait.
    is_due: bool,
}

/// Bytes of rows at which the store follows the journal. Bounds the memory, what a start has to apply, and the round
/// that applies them to some ten milliseconds.
const BACKLOG_BYTES_MAX: usize = 128 << 10;

/// Bytes counted for a row in addition to its key and value: an estimate.
const ROW_BYTES: usize = 64;

impl StoreBacklog {
    fn extend(&mut self, writes: Vec<Write>) {
        for write in writes {
            // Only the store makes rows of other tables (heads, parts, documents) durable, so they cannot wait in
            // memory.
            self.is_due |= !is_own(&&write) && !mutated!(OthersRowsWait);
            let value_bytes = write.value.as_ref().map_or(0, Vec::len);
            let bytes = write.key.len() + value_bytes + ROW_BYTES;
            let before = self.rows.insert((write.table, write.key), write.value);
            // A row that is written again replaces one of about the same size.
            self.bytes += if before.is_none() { bytes } else { 0 };
        }
    }

    /// Empties the backlog into one change of the store.
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

    /// The event for the site. `mark` finds the mark of each record: see [`Round::mark_of`].
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

    /// How much of a job is charged: as this round or the backlog left it, otherwise as the store has it.
    pub fn mark_of(
        &self,
        record: &UsageRecord,
        stored: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>, Unreadable>,
    ) -> Option<JobMark> {
        let key = job_key(&record.key);
        let stored = || Self::mark_stored(record, stored(&key));
        self.mark_here(&key).unwrap_or_else(stored)
    }

    /// How much of a job is charged, if the store does not have the mark yet. An outer `None` means that the store's
    /// mark counts, even if it is read later.
    pub fn mark_here(&self, key: &[u8]) -> Option<Option<JobMark>> {
        // The order matters: this round's mark is newer than the backlog's, and the backlog's newer than the store's.
        let moved = self.marks.get(key);
        if let Some(mark) = moved.filter(|_| !mutated!(RoundForgetsMarks)) {
            return Some(Some(*mark));
        }
        let row = self.backlog.rows.get(&(Table::Jobs, key.to_vec()));
        let row = row.filter(|_| !mutated!(BehindUnread))?;
        Some(row.as_deref().and_then(JobMark::from_bytes))
    }

    /// The mark that the store returned for a record's job; an unreadable one counts as fully charged.
    pub fn mark_stored(
        record: &UsageRecord,
        stored: Result<Option<Vec<u8>>, Unreadable>,
    ) -> Option<JobMark> {
        match stored {
            Ok(value) => value.as_deref().and_then(JobMark::from_bytes),
            // Usage that is missing can be fed again; usage that peers have merged twice can never be removed.
            Err(Unreadable) if mutated!(UnreadableIsNew) => None,
            Err(Unreadable) => Some(JobMark {
                ended: true,
                ..JobMark::at(record.end)
            }),
        }
    }

    /// Makes this round also apply the backlog, so that the store has everything when the node stops.
    pub fn end_with_store(&mut self) {
        self.is_last = true;
    }

    /// Collects the effects of one event. Returns whether the round may take another input.
    pub fn push_effects(&mut self, effects: Vec<Effect>) -> bool {
        // A later input of this round may report the same job again. Without the mark here it would read the store's
        // old mark and charge the job twice.
        let persisted = effects.iter().filter_map(|effect| match effect {
            Effect::Persist(writes) => Some(writes),
            _ => None,
        });
        let job_rows = persisted.flatten().filter(|row| row.table == Table::Jobs);
        for write in job_rows {
            if let Some(mark) = write.value.as_deref().and_then(JobMark::from_bytes) {
                self.marks.insert(write.key.clone(), mark);
            }
        }
        self.effects.extend(effects);
        self.inputs += 1;
        self.inputs < ROUND_MAX
    }

    /// Ends the round and starts the next. `rows_held_alone` returns the counters that only this site holds; it is
    /// called only when the journal is rotated.
    pub fn finish(&mut self, rows_held_alone: impl FnOnce() -> Vec<Write>) -> Vec<Step> {
        self.inputs = 0;
        self.marks.clear();
        // A counter that many records of the round have raised is written once, with its last value. All rows of a
        // round are in one frame, so no crash leaves a mark without its counter.
        let mut rows: BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>> = BTreeMap::new();
        let mut outgoing = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Persist(writes) => {
                    let writes = writes.into_iter();
                    rows.extend(writes.map(|write| ((write.table, write.key), write.value)));
                }
                other => outgoing.push(Step::Do(other)),
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
        // A rotation drops frames of the journal, so the store must have their rows first.
        let is_full = self.journal.is_full();
        let is_due = self.backlog.is_due || self.backlog.bytes > BACKLOG_BYTES_MAX;
        if !self.backlog.rows.is_empty() && (is_due || is_full || self.is_last) {
            // The number in the same change: a start skips the journal's rounds up to it.
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
            return outgoing.into_iter().chain(ops).collect();
        }
        // Nothing leaves the node before it is durable: an acknowledged record, or a head that peers hold, must
        // survive a crash.
        ops.chain(outgoing).collect()
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
