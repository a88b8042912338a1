//! The books of what batch systems asked about quotas, and what sites answered.
//!
//! Invariant: what is in them was said by a site, or to one.
//! Deliberately not here: judging (`invariants::{quotas, verdicts, holds}`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{JobKey, Millis, MonoTime, VoId, WallTime};
use fairmesh_quota::{Answer, Verdict};
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaReply, Ticket};

use crate::oracle::rights::{Job, Place};
use crate::vo::{DAY, HOUR};

/// A hold expires so long after its job asked, in addition to the time that the job may run: 30 days in a queue, and
/// 10 minutes.
pub(crate) const EXPIRES_AFTER: Millis = Millis(30 * DAY.0 + HOUR.0 / 6);

/// A job that may run.
#[derive(Debug, Clone)]
pub struct Booked {
    /// At which site.
    pub node: usize,
    /// In which VO.
    pub vo: VoId,
    /// When its hold expires, by its site's clock.
    pub expires: WallTime,
    /// What its site answered.
    pub answer: Answer,
    /// Whether its site has lost its store since, or was given an older one.
    pub is_lost: bool,
    /// Whether its feed has its last record.
    pub is_ending: bool,
}

/// A job that owes its quota nothing.
#[derive(Debug, Clone, Copy)]
pub struct Freed {
    /// At which site.
    pub node: usize,
    /// In which VO.
    pub vo: VoId,
}

/// What sites have answered.
#[derive(Debug, Default)]
pub struct Books {
    /// Whether there are quotas in the run.
    pub has_quotas: bool,
    /// Jobs that may run, and have not ended.
    pub held: BTreeMap<JobKey, Booked>,
    /// Jobs that were allowed to run, and whose last record was acknowledged.
    pub charged: BTreeMap<JobKey, Booked>,
    /// Jobs that never ran, or ran while the owner of their site let no quota hold for their VO: they owe nothing.
    pub freed: BTreeMap<JobKey, Freed>,
    /// Sites that have lost their store, or were given an older one.
    pub lost: BTreeSet<usize>,
    /// Calls that wait, the first that asked first.
    pub waiting: Vec<HoldContext>,
    /// Calls that began to wait since the last look, and their sites as they were before.
    pub began: Vec<(HoldContext, Option<Place>)>,
    /// What was decided since the last look.
    pub decided: Vec<Decided>,
}

impl Books {
    pub(crate) fn waits(&mut self, asked: HoldContext, before: Option<Place>) {
        self.began.push((asked.clone(), before));
        self.waiting.push(asked);
    }

    /// Forgets what was judged.
    pub(crate) fn were_judged(&mut self) {
        self.began.clear();
        self.decided.clear();
    }
}

/// A job that has asked.
#[derive(Debug, Clone)]
pub struct HoldContext {
    /// What its batch system asked.
    pub call: HoldCall,
    /// At which site.
    pub node: usize,
    /// In which VO, by its number.
    pub vo: usize,
    /// The call's number there.
    pub ticket: Ticket,
    /// How often its site had started.
    pub life: u32,
    /// When.
    pub at: MonoTime,
    /// When its hold expires, by its site's clock.
    pub expires: WallTime,
    /// The same as the oracle sees it; `None` if its cost or its account is unknown.
    pub job: Option<Job>,
    /// Prices that its site's owner may ask at the moment.
    pub prices: Vec<fairmesh_model::Factor>,
}

/// A call that was answered.
#[derive(Debug)]
pub struct Decided {
    /// The call.
    pub asked: HoldContext,
    /// The site before, where it answered at once.
    pub before: Option<Place>,
    /// What was answered about that job before.
    pub known: Option<Booked>,
    /// The answer.
    pub reply: QuotaReply,
}

/// The answer, where the job may run and its site remembers it.
pub(crate) fn runs(reply: &QuotaReply) -> Option<Answer> {
    let Ok(QuotaAnswer::Held { answer, .. }) = reply else {
        return None;
    };
    let is_held = matches!(answer.verdict, Verdict::Granted | Verdict::OverQuota);
    is_held.then(|| Answer::clone(answer))
}

/// Whether the job runs because its owner exempts it.
pub(crate) fn is_exempt(reply: &QuotaReply) -> bool {
    matches!(reply, Ok(QuotaAnswer::Held { answer, .. }) if answer.verdict == Verdict::Exempt)
}
