//! A handful of inputs, made durable in one write, and then answered.
//!
//! For each input: [`Round::event`] looks its jobs' marks up, the site handles the event, and
//! [`Round::took`] keeps what the site wants done. [`Round::finish`] says all of it in order: the
//! journal, its sync, the store's batch, the journal begun anew if it has grown long; and then what is
//! sent, answered and acknowledged. Making a change durable earlier than its place among the effects
//! says is always safe. So a busy node pays for one sync where a naive one pays for hundreds.
//!
//! Invariant: within a round a job's mark is as its last event left it, though the store still has an
//! older one; so a record that comes twice in one round counts once.

use std::collections::BTreeMap;

use fairmesh_model::{RunningJob, UsageRecord, mutant, mutated};
use fairmesh_site::{Correction, Effect, Event, JobMark, Table, Ticket, Write, job_key};

use crate::journal::Journal;
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
    /// Number of the store's newest change.
    number: u64,
    /// Marks of jobs that this round's events have moved and that are not in the store yet.
    marks: BTreeMap<Vec<u8>, JobMark>,
    effects: Vec<Effect>,
    inputs: usize,
}

impl Round {
    pub(crate) fn new(journal: Journal, number: u64) -> Self {
        Self {
            journal,
            number,
            marks: BTreeMap::new(),
            effects: Vec::new(),
            inputs: 0,
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
        if let Some(mark) = self
            .marks
            .get(&key)
            .filter(|_| !mutated!(RoundForgetsMarks))
        {
            return Some(*mark);
        }
        match stored(&key) {
            Ok(value) => value.as_deref().and_then(JobMark::from_bytes),
            // Better to leave a job out than to count it twice.
            Err(Unreadable) if mutated!(UnreadableIsNew) => None,
            Err(Unreadable) => Some(JobMark {
                ended: true,
                ..JobMark::at(record.end)
            }),
        }
    }

    /// Keeps what the site wants done for one event. True while the round may take another.
    pub fn took(&mut self, effects: Vec<Effect>) -> bool {
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
            let number = self.number;
            ops = self.journal.append(&writes, number);
            ops.push(Op::Apply { number, writes });
            if mutated!(StoreBeforeJournal) {
                ops.rotate_right(1);
            }
        }
        if self.journal.is_full() {
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
