//! Calls of batch systems about the quotas of jobs, and their answers.

use fairmesh_model::{
    AccountPath, CoreMillis, Importance, JobKey, Millis, MonoTime, UsageRecord, VoId,
};
use fairmesh_quota::{Answer, Committed, HoldRequest};

use crate::identity::Account;
use crate::tickets::Ticket;

/// A job that wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldCall {
    /// What it asks for; from its start to its end is how long it may run.
    pub record: UsageRecord,
    /// The account that the user named.
    pub account: Option<AccountPath>,
    /// Whoever asks says that the owner exempts the user, his group or the queue.
    pub is_exempt: bool,
    /// Whoever asks can wait a moment for rights.
    pub may_wait: bool,
    /// How important it is among its user's own.
    pub importance: Importance,
}

/// A call about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaCall {
    /// Asks whether a job may run, and holds what it may cost.
    Hold(Box<HoldCall>),
    /// It has ended, and is charged so much at the usual price. What a feed reports needs no such call.
    Commit {
        /// The job that has ended.
        job: JobKey,
        /// Its charge at the usual price.
        charge: CoreMillis,
    },
    /// It did not run.
    Release {
        /// The job that did not run.
        job: JobKey,
    },
    /// Send all that is left to the other members, in every VO: the site is to leave.
    Drain,
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaAnswer {
    /// The answer to [`QuotaCall::Hold`].
    Held {
        /// Whose rights; `None` of an account of the site's own, which has no quota.
        vo: Option<VoId>,
        /// The verdict, with its reason.
        answer: Box<Answer>,
    },
    /// The job is charged.
    Committed(Committed),
    /// Nothing is held for it any more.
    Released,
    /// So much went to other members.
    Drained(CoreMillis),
}

/// The answer to a call; an error says what is wrong with the call, and that nothing was done.
pub type QuotaReply = Result<QuotaAnswer, String>;

/// A call that waits for rights.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) asked: HoldContext,
    pub(super) since: MonoTime,
    /// When it is decided, whatever may still come.
    pub(super) until: MonoTime,
}

/// What a job asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    pub(super) cores: u32,
    pub(super) wall: Millis,
}

/// A job that wants to run, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct HoldContext {
    pub(super) vo: VoId,
    pub(super) account: Account,
    pub(super) job: Asking,
    pub(super) request: HoldRequest,
}
