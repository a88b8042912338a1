//! Who may say whether a job runs: a mesh of ledgers, or a bank.
//!
//! Invariant: each job that is asked about is decided once, and what it costs is told once.

use fairmesh_model::{CoreMillis, Factor, JobKey, WallTime};
use fairmesh_quota::Verdict;

/// A job that wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub job: JobKey,
    /// Whose, as an index.
    pub project: usize,
    /// At which site, as an index.
    pub site: usize,
    /// What it would be charged at the usual price if it ran as long as it asks to.
    pub charge: CoreMillis,
    /// What the site asks for its machines now.
    pub price: Factor,
    /// The machines that it asks for would stand idle.
    pub is_idle: bool,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// About which job.
    pub job: JobKey,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Whether somebody else had to be heard first.
    pub has_waited: bool,
}

/// What a project was charged so far, at all sites together, and how much it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// What the authority has granted.
    pub granted: u128,
    /// Charged to that.
    pub used: u128,
    /// Charged beyond the rights that there were, where a rule lets jobs do so.
    pub overdraft: u128,
    /// What can still be held somewhere.
    pub spendable: u128,
}

/// Keeps the accounts.
pub trait Credit {
    /// When it next has something to do.
    fn next_at(&self) -> Option<WallTime>;

    /// Does what is due.
    fn advance(&mut self, now: WallTime);

    /// May the job run? The answer is among [`Credit::decided`], now or later.
    fn ask(&mut self, now: WallTime, ask: Ask);

    /// What was decided since this was last asked.
    fn decided(&mut self) -> Vec<Decided>;

    /// A job that ran has ended at its site, and cost so much at the usual price.
    fn ended(&mut self, now: WallTime, site: usize, job: &JobKey, charge: CoreMillis);

    /// From now on sites of one number hear each other, and a bank those of number 0.
    fn cut(&mut self, now: WallTime, groups: &[usize]);

    /// What a project has spent, by all rows there are.
    fn spent(&self, now: WallTime, project: usize) -> Spent;
}
