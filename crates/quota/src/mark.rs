//! The mark of a job: what it holds or has cost, and how that was decided; and the answer about the job.
//!
//! Invariant: a mark changes from held to one of the final states and stays there. So a repeated request gets the same
//! answer and has no second effect.

use fairmesh_model::{AccountPath, AllocationId, CoreMillis, Factor, WallTime};
use serde::{Deserialize, Serialize};

use crate::grants::SliceId;
use crate::price;

/// An amount of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The slice whose rights they are.
    pub slice: SliceId,
    /// Core-milliseconds of the slice.
    pub amount: CoreMillis,
}

/// What was decided about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs within the quota; all that it may cost is held.
    Granted,
    /// It runs beyond the quota; the rights that are left are held.
    OverQuota,
    /// It runs on machines that would stand idle; nothing is held.
    Idle,
    /// It runs because the site's owner exempts it; nothing is held and nothing charged to the quota.
    Exempt,
    /// It should wait, because rights are in transit. Nothing is held, and nothing is remembered.
    Waiting,
    /// It must not run. Nothing is held, and nothing is remembered.
    Refused,
    /// The job has ended for the quota: its hold was committed, released, or has expired.
    Ended,
}

impl Verdict {
    /// Whether the job may run.
    pub const fn runs(self) -> bool {
        matches!(
            self,
            Self::Granted | Self::OverQuota | Self::Idle | Self::Exempt
        )
    }

    /// Whether the job is ranked before jobs beyond their quota.
    pub const fn is_within(self) -> bool {
        matches!(self, Self::Granted | Self::Exempt)
    }
}

/// The source of the rule that decided, in the order in which the rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// The site's owner, who has the last word about the cluster.
    Owner,
    /// The mode of this allocation.
    Allocation(AllocationId),
    /// The VO's default, which is strict.
    Vo,
}

/// The state of a job in the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its hold is open.
    Held,
    /// It has ended and was charged.
    Committed,
    /// It did not run, and its hold was freed.
    Released,
    /// Its hold was freed because nothing was reported about it before [`Mark::until`].
    Expired,
}

/// What a site remembers of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Whether its hold is open, or how it ended.
    pub state: State,
    /// The account whose credit it spends.
    pub account: AccountPath,
    /// The job's user; `None` in marks that an earlier release wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<AccountPath>,
    /// When it first asked for a hold, or was charged without one.
    #[serde(default)]
    pub at: WallTime,
    /// The decision about its hold.
    pub verdict: Verdict,
    /// The source of that decision; `None` for a job that ran without a hold.
    pub by: Option<Decider>,
    /// Core-milliseconds that it should hold; beyond the quota it holds less.
    pub amount: CoreMillis,
    /// What it holds, by slice, in the order of spending. For an ended job: what must still be freed once the site's
    /// rights thaw.
    pub parts: Vec<Part>,
    /// Its price, fixed when its hold was made.
    pub price: Factor,
    /// Of the price, what it is charged: less than all of it on machines that would stand idle.
    #[serde(default, skip_serializing_if = "is_all")]
    pub charged: Factor,
    /// When its hold expires.
    pub until: WallTime,
    /// What it was charged by slice, less corrections.
    pub used: Vec<Part>,
    /// What it was charged beyond the site's rights, less corrections.
    pub overdraft: Option<Part>,
    /// What must still be charged once the site's rights thaw.
    pub pending: CoreMillis,
}

impl Mark {
    /// Whether rights are held for it, or something must still be freed or charged. Such a mark must not be forgotten.
    pub fn is_open(&self) -> bool {
        self.state == State::Held || !self.parts.is_empty() || self.pending.0 > 0
    }

    /// What it costs in core-milliseconds, for a charge at the usual price.
    pub fn cost(&self, charge: CoreMillis) -> CoreMillis {
        price::charge(charge, self.price, self.charged)
    }

    /// Core-milliseconds that it may cost beyond what it holds.
    pub fn promised(&self) -> u64 {
        match (self.state, self.verdict) {
            (State::Held, Verdict::OverQuota) => self.amount.minus(sum(&self.parts)).0,
            _ => 0,
        }
    }
}

/// The answer to a request about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the job may run, and how.
    pub verdict: Verdict,
    /// The source of the decision; `None` for a job that ran without a hold.
    pub by: Option<Decider>,
    /// The account whose credit the job spends; `None` if no allocation covers the user.
    pub account: Option<AccountPath>,
    /// The rights that the job holds.
    pub parts: Vec<Part>,
    /// Core-milliseconds that the job lacks.
    pub short: CoreMillis,
    /// The job's price.
    pub price: Factor,
    /// A text for the user if the job does not run as requested.
    pub message: Option<String>,
}

impl Answer {
    /// The answer about a known job, from its mark.
    pub(crate) fn for_mark(mark: &Mark) -> Self {
        let is_held = mark.state == State::Held;
        Self {
            verdict: if is_held {
                mark.verdict
            } else {
                Verdict::Ended
            },
            by: mark.by,
            account: Some(mark.account.clone()),
            parts: mark.parts.clone(),
            short: CoreMillis(mark.promised()),
            price: mark.price,
            message: None,
        }
    }
}

fn is_all(part: &Factor) -> bool {
    *part == Factor::ONE
}

/// The sum of some parts.
pub(crate) fn sum(parts: &[Part]) -> CoreMillis {
    parts.iter().map(|part| part.amount).sum()
}

/// Splits parts into those that make up `amount` in order, the last one cut, and the rest.
pub(crate) fn split(parts: &[Part], amount: u64) -> (Vec<Part>, Vec<Part>) {
    let mut left = amount;
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for part in parts {
        let taken = part.amount.0.min(left);
        left -= taken;
        for (amount, side) in [(taken, &mut first), (part.amount.0 - taken, &mut rest)] {
            if amount > 0 {
                let slice = part.slice;
                side.push(Part {
                    slice,
                    amount: CoreMillis(amount),
                });
            }
        }
    }
    (first, rest)
}
