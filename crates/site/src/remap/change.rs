//! Jobs that move to other accounts, gathered as one change.

use std::collections::BTreeMap;

use fairmesh_model::{Counters, Origin, Span, VoId, WallTime};

use crate::identity::{Account, IdentityMap};
use crate::reach::Reach;
use crate::store::JobMark;

/// Jobs after which a change is to be taken. Bounds its frame in the journal to some 2 MB, and the time that it takes
/// to some ten milliseconds.
pub const MOVES_MAX: usize = 10_000;

/// What becomes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is charged to the account that the rules map it to; or it was taken back.
    Stays,
    /// All of it is older than any history that counts it.
    Past,
    /// It is charged to another account and cannot move, for this reason.
    Left(String),
    /// The job's usage moves to another account.
    Moves(Box<Move>),
}

/// A job that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub(super) key: Vec<u8>,
    pub(super) origin: Origin,
    pub(super) end: WallTime,
    /// The account that it was charged to.
    pub from: Account,
    /// The account that it maps to now.
    pub to: Account,
    /// Whether no rule maps it now.
    pub(super) is_unmapped: bool,
    pub(super) credit: Vec<(Span, u64)>,
    pub(super) parts: Vec<(Span, Counters)>,
    pub(super) mark: JobMark,
}

/// Sums of jobs that move between two accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Number of jobs whose usage moved.
    pub jobs: u64,
    /// What is credited, core-milliseconds.
    pub credit: u64,
    /// What is charged, core-milliseconds.
    pub charge: u64,
}

/// Jobs that move, as one change.
#[derive(Debug, Clone, Default)]
pub struct Remap {
    /// The user of the site who does it, by name.
    pub by: String,
    /// The user's reason, for the audit.
    pub why: String,
    /// Of which state of the site this was made.
    pub(super) state: u64,
    pub(super) credit: BTreeMap<(Account, Span), u64>,
    pub(super) charge: BTreeMap<(Account, Span), Counters>,
    pub(super) marks: BTreeMap<Vec<u8>, JobMark>,
    pub(super) reach: BTreeMap<Option<VoId>, Reach>,
    /// Records and charge that stop and begin to be unmapped, by origin, and when the last of these ended.
    pub(super) mapped: BTreeMap<Origin, Moved>,
    pub(super) unmapped: BTreeMap<Origin, (Moved, WallTime)>,
    pub(super) moved: BTreeMap<(Account, Account), Moved>,
}

impl Remap {
    /// Adds a job to the plan.
    pub fn add(&mut self, job: Move) {
        let Move {
            key,
            origin,
            end,
            from,
            to,
            is_unmapped,
            credit,
            parts,
            mark,
        } = job;
        let mut moved = Moved {
            jobs: 1,
            ..Moved::default()
        };
        for (span, amount) in credit {
            moved.credit = moved.credit.saturating_add(amount);
            let sum = self.credit.entry((from.clone(), span)).or_default();
            *sum = sum.saturating_add(amount);
        }
        for (span, counters) in parts {
            moved.charge = moved.charge.saturating_add(counters.charge);
            let sum = self.charge.entry((to.clone(), span)).or_default();
            *sum = sum.plus(counters);
        }
        let reach = self.reach.entry(to.vo).or_default();
        *reach = reach.join(Reach::of(mark));
        self.marks.insert(key, mark);
        if from == IdentityMap::nowhere() {
            self.mapped.entry(origin.clone()).or_default().join(moved);
        }
        if is_unmapped {
            let (sums, last) = self.unmapped.entry(origin).or_default();
            sums.join(moved);
            *last = end.max(*last);
        }
        self.moved.entry((from, to)).or_default().join(moved);
    }

    /// What moves, from where to where.
    pub fn moved(&self) -> &BTreeMap<(Account, Account), Moved> {
        &self.moved
    }

    /// Number of jobs whose usage moves.
    pub fn jobs(&self) -> usize {
        self.marks.len()
    }
}

impl Moved {
    /// Adds the sums of another part of the plan.
    pub fn join(&mut self, other: Self) {
        self.jobs = self.jobs.saturating_add(other.jobs);
        self.credit = self.credit.saturating_add(other.credit);
        self.charge = self.charge.saturating_add(other.charge);
    }
}
