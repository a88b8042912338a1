//! The mark of a job: what it holds or has cost, and how that was decided. And the answer that is made of it.
//!
//! Invariant: a job's mark goes from held to one of its ends and stays there, so whatever is asked again gets
//! the same answer and has no second effect.

use fairmesh_model::{AccountPath, AllocationId, CoreMillis, Factor, WallTime};
use serde::{Deserialize, Serialize};

use crate::grants::SliceId;
use crate::price;

/// An amount of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which slice.
    pub slice: SliceId,
    /// How much of it.
    pub amount: CoreMillis,
}

/// What was decided about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs within the quota; what it may cost is held.
    Granted,
    /// It runs beyond the quota; what there is, is held.
    OverQuota,
    /// It runs on machines that would stand idle; nothing is held.
    Idle,
    /// It runs because the site's owner exempts it; nothing is held and nothing charged to the quota.
    Exempt,
    /// It had better wait: rights are on the way. Nothing is held, and nothing is remembered.
    Waiting,
    /// It does not run. Nothing is remembered.
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

    /// Whether it comes before those that run without being within their quota.
    pub const fn is_within(self) -> bool {
        matches!(self, Self::Granted | Self::Exempt)
    }
}

/// Whose rule decided: of several that say something the owner's, then the allocation's, then the VO's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// The site's owner, about his own cluster.
    Owner,
    /// This allocation.
    Allocation(AllocationId),
    /// The VO's rule, which is strict.
    Vo,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its hold is open.
    Held,
    /// It was charged.
    Committed,
    /// It did not run.
    Released,
    /// Nobody spoke of it for too long.
    Expired,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where it stands.
    pub state: State,
    /// Whose credit it spends.
    pub account: AccountPath,
    /// Whose job it is; `None` of one that an earlier release wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<AccountPath>,
    /// When it first asked, or was charged without asking.
    #[serde(default)]
    pub at: WallTime,
    /// How it was decided.
    pub verdict: Verdict,
    /// By whose rule; `None` of a job that ran without asking.
    pub by: Option<Decider>,
    /// What it was to hold.
    pub amount: CoreMillis,
    /// What it holds, by slice, in the order in which it is spent. Of a job that has ended: what is still to
    /// be freed, because the site's counters are not to be trusted yet.
    pub parts: Vec<Part>,
    /// Its price.
    pub price: Factor,
    /// Of the price, what it is charged: less than all of it on machines that would stand idle.
    #[serde(default, skip_serializing_if = "is_all")]
    pub charged: Factor,
    /// When its hold expires.
    pub until: WallTime,
    /// What it was charged, less what was given back, by slice.
    pub used: Vec<Part>,
    /// What it was charged beyond the rights there were, less what was given back.
    pub overdraft: Option<Part>,
    /// What it is still to be charged, because the site's counters are not to be trusted yet.
    pub pending: CoreMillis,
}

impl Mark {
    /// Whether something is held for it, or still to be counted.
    pub fn is_open(&self) -> bool {
        self.state == State::Held || !self.parts.is_empty() || self.pending.0 > 0
    }

    /// What it costs, of what it would be charged at the usual price.
    pub fn cost(&self, charge: CoreMillis) -> CoreMillis {
        price::charge(charge, self.price, self.charged)
    }

    /// What it was promised beyond what it holds.
    pub fn promised(&self) -> u64 {
        match (self.state, self.verdict) {
            (State::Held, Verdict::OverQuota) => self.amount.minus(sum(&self.parts)).0,
            _ => 0,
        }
    }
}

/// What a call about a job comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What was decided.
    pub verdict: Verdict,
    /// By whose rule, where one was asked.
    pub by: Option<Decider>,
    /// Whose credit; `None` where no allocation covers the user.
    pub account: Option<AccountPath>,
    /// What the job holds.
    pub parts: Vec<Part>,
    /// What it is short of.
    pub short: CoreMillis,
    /// Its price.
    pub price: Factor,
    /// For the user, where it does not run as he asked.
    pub message: Option<String>,
}

impl Answer {
    /// The answer about a job that is known.
    pub(crate) fn of(mark: &Mark) -> Self {
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

/// The first parts that make up `amount`, the last of them cut, and what is left over of all.
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
