//! What a batch system asks: may this job run, it has ended, it did not run.
//!
//! A hold that lacks rights which other members have waits for them, for a moment, if whoever asks can wait.
//!
//! Invariant: what is answered is durable; a call that is repeated gets the same answer.

use fairmesh_model::{
    AccountPath, CoreMillis, Factor, Importance, JobKey, Millis, MonoTime, Now, UsageRecord, VoId,
    mutant, mutated,
};
use fairmesh_quota::{
    Answer, Committed, Decider, HoldRequest, Mark, SliceId, State, Verdict, core_hours,
};

use crate::charge::rate;
use crate::config::OwnerQuota;
use crate::event::{Effect, Reply, Ticket};
use crate::identity::Account;
use crate::quota::Quota;
use crate::quota::idle::Asking;
use crate::report::Reporting;
use crate::site::Site;

/// How long a call waits for rights that other members have.
const WAIT_MAX: Millis = Millis::from_secs(2);

/// Calls that wait in one VO, at most; more are decided at once.
const WAITING_MAX: usize = 1_024;

/// How long a job may wait in its queue until its hold expires, beside the time that it may run.
const QUEUE_MAX: Millis = Millis::from_secs(30 * 86_400);

/// What is added to that.
const MARGIN: Millis = Millis::from_secs(600);

/// A job that is listed as running keeps its hold for so long at least, and is looked at again at half of it.
const RENEWED_FOR: Millis = Millis::from_secs(86_400);

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
    /// May it run?
    Hold(Box<HoldCall>),
    /// It has ended, and is charged so much at the usual price. What a feed reports needs no such call.
    Commit {
        /// Which.
        job: JobKey,
        /// How much.
        charge: CoreMillis,
    },
    /// It did not run.
    Release {
        /// Which.
        job: JobKey,
    },
    /// Send all that is left to the other members, in every VO: the site is to leave.
    Drain,
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaAnswer {
    /// May it run?
    Held {
        /// Whose rights; `None` of an account of the site's own, which has no quota.
        vo: Option<VoId>,
        /// What was decided.
        answer: Box<Answer>,
    },
    /// It is charged.
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
    ticket: Ticket,
    asked: Asked,
    pub(super) until: MonoTime,
}

/// A job that wants to run, and whose it is.
#[derive(Debug, Clone)]
struct Asked {
    vo: VoId,
    account: Account,
    job: Asking,
    request: HoldRequest,
}

impl Site {
    pub(crate) fn take_quota(&mut self, now: Now, ticket: Ticket, call: QuotaCall) {
        let reply = match (self.cx.clock.refuses_all(), call) {
            (Some(why), _) => Err(why),
            (None, QuotaCall::Hold(call)) => match self.take_hold(now, ticket, *call) {
                Some(reply) => reply,
                None => return,
            },
            (None, QuotaCall::Commit { job, charge }) => self.take_commit(now, &job, charge),
            (None, QuotaCall::Release { job }) => self.take_release(&job),
            (None, QuotaCall::Drain) => self.drain_rights(now).map(QuotaAnswer::Drained),
        };
        self.reply_quota(ticket, reply);
    }

    fn reply_quota(&mut self, ticket: Ticket, reply: QuotaReply) {
        let reply = Reply::Quota(Box::new(reply));
        self.cx.effects.push(Effect::Reply { ticket, reply });
    }

    /// `None` where the call waits.
    fn take_hold(&mut self, now: Now, ticket: Ticket, call: HoldCall) -> Option<QuotaReply> {
        let mut asked = match self.asked(now, call) {
            Ok(found) => found,
            Err(reply) => return Some(*reply),
        };
        let vo = asked.vo;
        asked.request.may_wait &= self.vos[&vo].quota.waiting.len() < WAITING_MAX;
        let answer = self.hold(now, &asked);
        if answer.verdict != Verdict::Waiting {
            self.count_hold(&answer, false);
            return Some(held(vo, answer));
        }
        let until = now.mono.after(WAIT_MAX);
        let quota = &mut self.vos.listed(vo).quota;
        quota.waiting.push(Waiting {
            ticket,
            asked,
            until,
        });
        None
    }

    /// What is asked of the ledger, and of which VO's.
    fn asked(&self, now: Now, call: HoldCall) -> Result<Asked, Box<QuotaReply>> {
        let record = &call.record;
        if let Err(error) = record.validate() {
            return Err(Box::new(Err(error.to_string())));
        }
        let Some(account) = self.cx.config.identity.resolve(record) else {
            if !self.vos.values().any(|held| held.quota.is_on()) {
                return Err(Box::new(Ok(without_quota(None))));
            }
            let why = "no identity rule says who it belongs to";
            return Err(Box::new(Err(format!("job `{}`: {why}", record.key.job))));
        };
        let on = account.vo.filter(|vo| {
            let held = self.vos.get(vo);
            held.is_some_and(|held| held.quota.is_on())
        });
        let Some(vo) = on else {
            return Err(Box::new(Ok(without_quota(account.vo))));
        };
        if let Err(why) = self.terms().check_capacity(Some(vo), record) {
            return Err(Box::new(Err(why)));
        }
        let wall = record.end.since(record.start);
        let owner = self.cx.config.quotas.get(&vo);
        let is_exempt = call.is_exempt || owner.is_some_and(|owner| owner.exempts(record));
        let rules = self.terms().rules(Some(vo), now.wall);
        let rate = rate(record, &rules, &self.cx.config.charging);
        let rate =
            rate.map_err(|error| Box::new(Err(format!("job `{}`: {error}", record.key.job))))?;
        let job = Asking {
            cores: record.cores,
            wall,
        };
        let queue_max = mutant!(QueueTimeForgotten, QUEUE_MAX, Millis(0));
        let request = HoldRequest {
            charge: CoreMillis(rate.counters(wall).charge),
            job: call.record.key,
            user: account.path.clone(),
            account: call.account,
            price: self.vos[&vo].quota.poster.price(),
            least: self.least_price(vo),
            importance: call.importance,
            until: now.wall.after(queue_max).after(wall).after(MARGIN),
            owner: owner.and_then(|owner| owner.mode),
            is_exempt,
            may_wait: call.may_wait,
            is_idle: self.would_idle(now, &account, job),
        };
        Ok(Asked {
            vo,
            account,
            job,
            request,
        })
    }

    /// Asks the ledger, and other members where the job had better wait.
    fn hold(&mut self, now: Now, asked: &Asked) -> Answer {
        let vo = asked.vo;
        // Since the call came others may have been given the machines that were free then.
        let request = &HoldRequest {
            is_idle: self.would_idle(now, &asked.account, asked.job),
            ..asked.request.clone()
        };
        let connected: Vec<_> = self.peers.gossip.peers().collect();
        let quota = &mut self.vos.listed(vo).quota;
        let was_known = quota.ledger.mark(&request.job).is_some();
        let mut answer = quota.ledger.hold(now.wall, request);
        let mut wants = Vec::new();
        if answer.verdict == Verdict::Waiting {
            let account = answer.account.clone().unwrap_or_else(AccountPath::root);
            let grants = quota.ledger.grants();
            let can_hear = |site, slice: SliceId| {
                connected.contains(&site)
                    && quota.may_ask(now.mono, site, slice)
                    && grants.admits(slice.allocation, &request.user)
            };
            wants = quota.ledger.ask(now.wall, &account, answer.short, can_hear);
            // Nobody who could be asked, and nothing under way: it is decided now.
            if wants.is_empty() && quota.asked.is_empty() && !quota.ledger.is_frozen() {
                let request = HoldRequest {
                    may_wait: false,
                    ..request.clone()
                };
                answer = quota.ledger.hold(now.wall, &request);
            }
        }
        explain(quota, &mut answer);
        if answer.verdict == Verdict::Idle && !was_known {
            self.jobs.sources.give(asked.job.cores);
        }
        self.ask_for_rights(now, vo, wants);
        self.keep_quota(vo);
        if answer.verdict.runs() {
            self.release_elsewhere(vo, &asked.request.job);
        }
        answer
    }

    /// A job's names may mean another VO than when it asked before: it holds in this one alone.
    fn release_elsewhere(&mut self, vo: VoId, job: &JobKey) {
        let mut known = Vec::new();
        for (of, held) in self.vos.iter_mut().filter(|(of, _)| **of != vo) {
            known.extend(held.quota.ledger.release(job).then_some(*of));
        }
        known.into_iter().for_each(|of| self.keep_quota(of));
    }

    /// What a hold of a job that is not known yet would be answered, without holding anything; `ahead` is what
    /// others are about to hold of the same account. It waits for nothing: where other members have what it
    /// lacks, and can be asked, the verdict is that it had better wait.
    pub fn check_quota(&self, now: Now, call: HoldCall, ahead: CoreMillis) -> QuotaReply {
        if let Some(why) = self.cx.clock.refuses_all() {
            return Err(why);
        }
        let Asked { vo, request, .. } = match self.asked(now, call) {
            Ok(found) => found,
            Err(reply) => return *reply,
        };
        let quota = &self.vos[&vo].quota;
        let mut answer = quota.ledger.check(now.wall, &request, ahead);
        if answer.verdict == Verdict::Waiting
            && !self.could_come(now, quota, &answer, (&request.user, ahead))
        {
            let request = HoldRequest {
                may_wait: false,
                ..request
            };
            answer = quota.ledger.check(now.wall, &request, ahead);
        }
        explain(quota, &mut answer);
        held(vo, answer)
    }

    /// Whether others have all that a job of a user lacks, and one of them could be asked for it now.
    fn could_come(
        &self,
        now: Now,
        quota: &Quota,
        answer: &Answer,
        (user, ahead): (&AccountPath, CoreMillis),
    ) -> bool {
        let Some(account) = &answer.account else {
            return false;
        };
        if quota.ledger.is_frozen() {
            return true;
        }
        let totals = quota.ledger.totals_for(account, user, now.wall);
        let there = totals.spendable + totals.on_the_way;
        let connected: Vec<_> = self.peers.gossip.peers().collect();
        let grants = quota.ledger.grants();
        let can_hear = |site, slice: SliceId| {
            connected.contains(&site) && grants.admits(slice.allocation, user)
        };
        let others = quota.ledger.ask(now.wall, account, answer.short, can_hear);
        let spent_here = totals.here.max(u128::from(ahead.0));
        let is_enough = there >= spent_here + u128::from(answer.short.0);
        is_enough && (!others.is_empty() || totals.on_the_way > 0)
    }

    /// Answers calls whose rights have come, or that have waited for long enough.
    pub(super) fn answer_waiting(&mut self, now: Now, vo: VoId) {
        let quota = &mut self.vos.listed(vo).quota;
        let has_news = std::mem::take(&mut quota.has_news);
        let is_due = |call: &Waiting| now.mono >= call.until;
        if !has_news && !quota.waiting.iter().any(is_due) {
            return;
        }
        let mut calls = std::mem::take(&mut quota.waiting);
        if mutated!(LastCallFirst) {
            calls.reverse();
        }
        for call in calls {
            let is_over = is_due(&call);
            if !is_over && !has_news {
                self.wait_again(vo, call);
                continue;
            }
            let mut asked = call.asked.clone();
            asked.request.may_wait = !is_over || mutated!(WaitsForEver);
            let answer = self.hold(now, &asked);
            if answer.verdict == Verdict::Waiting {
                self.wait_again(vo, call);
                continue;
            }
            self.count_hold(&answer, true);
            self.reply_quota(call.ticket, held(vo, answer));
        }
    }

    fn wait_again(&mut self, vo: VoId, call: Waiting) {
        let quota = &mut self.vos.listed(vo).quota;
        quota.waiting.push(call);
    }

    fn count_hold(&mut self, answer: &Answer, has_waited: bool) {
        let stats = &mut self.quotas.stats;
        match answer.verdict {
            Verdict::Granted if has_waited => stats.granted_after_transfer += 1,
            Verdict::Granted => stats.granted_locally += 1,
            Verdict::OverQuota | Verdict::Idle => stats.over_quota += 1,
            Verdict::Refused => stats.refused += 1,
            Verdict::Exempt | Verdict::Waiting | Verdict::Ended => {}
        }
    }

    fn take_commit(&mut self, now: Now, job: &JobKey, charge: CoreMillis) -> QuotaReply {
        let (vo, quota) = self.quota_of_hold(job).ok_or_else(|| unknown(job))?;
        let account = quota.ledger.mark(job).map(|mark| mark.account.clone());
        let account = account.ok_or_else(|| unknown(job))?;
        let committed = self.commit(now, vo, job, charge, &account);
        self.keep_quota(vo);
        let committed = committed.ok_or_else(|| unknown(job))?;
        Ok(QuotaAnswer::Committed(committed))
    }

    fn take_release(&mut self, job: &JobKey) -> QuotaReply {
        let (vo, quota) = self.quota_of_hold(job).ok_or_else(|| unknown(job))?;
        let _ = mutated!(ReleaseForgotten) || quota.ledger.release(job);
        quota.has_news = true;
        self.keep_quota(vo);
        Ok(QuotaAnswer::Released)
    }

    /// An error where a VO's rights are frozen, and where all that there is stays.
    fn drain_rights(&mut self, now: Now) -> Result<CoreMillis, String> {
        let mut on = self.vos.values().map(|held| &held.quota);
        if let Some(quota) = on.find(|quota| quota.is_on && quota.ledger.is_frozen()) {
            return Err(format!("nothing is sent{}", waits_for(quota)));
        }
        let (mut gone, mut stays) = (CoreMillis(0), CoreMillis(0));
        for vo in self.vos.ids() {
            let quota = &mut self.vos.listed(vo).quota;
            gone = gone.plus(quota.ledger.drain(now.wall));
            stays = stays.plus(quota.ledger.left_to_spend(now.wall));
            quota.is_urgent = true;
            self.keep_quota(vo);
        }
        match gone.0 == 0 && stays.0 > 0 {
            true => Err(format!(
                "nothing is sent: the split of what is left here ({} core-hours) names no other member",
                core_hours(stays)
            )),
            false => Ok(gone),
        }
    }

    /// Charges a job at the price of its hold.
    pub(super) fn commit(
        &mut self,
        now: Now,
        vo: VoId,
        job: &JobKey,
        charge: CoreMillis,
        user: &AccountPath,
    ) -> Option<Committed> {
        let quota = &mut self.vos.get_mut(&vo)?.quota;
        let cost = cost(quota.ledger.mark(job), charge);
        let committed = quota.ledger.commit(now.wall, job, cost, user)?;
        quota.has_news = true;
        self.quotas.stats.committed += 1;
        Some(committed)
    }

    /// Whether any quota was charged for a job.
    pub fn is_quota_charged(&self, job: &JobKey) -> bool {
        let mut ledgers = self.vos.values().map(|held| &held.quota.ledger);
        let is_charged = |mark: &Mark| mark.state == State::Committed;
        ledgers.any(|ledger| ledger.mark(job).is_some_and(is_charged))
    }

    /// Whether a job's quota can be given back what it was charged: not while its counters are not to be trusted.
    pub(crate) fn quota_gives_back(&self, job: &JobKey) -> Result<(), String> {
        let mut ledgers = self.vos.values().map(|held| &held.quota.ledger);
        let is_charged = |mark: &Mark| mark.state == State::Committed;
        let charged = ledgers.find(|of| of.is_frozen() && of.mark(job).is_some_and(is_charged));
        charged.map_or(Ok(()), |ledger| {
            let unheard = ledger.unheard().count();
            Err(format!(
                "job `{}` was charged to a quota, which this site, just started, gives nothing back to until heads of \
                 {unheard} more sites have been received: take it back then",
                job.job
            ))
        })
    }

    /// Gives back what a job was charged that is taken back.
    pub(crate) fn correct_quota(
        &mut self,
        now: Now,
        job: &JobKey,
        charge: u64,
        report: &mut Reporting,
    ) {
        let Some((vo, quota)) = self.quota_of_hold(job) else {
            return;
        };
        let ledger = &mut quota.ledger;
        let cost = cost(ledger.mark(job), CoreMillis(charge));
        ledger.correct(now.wall, job, cost);
        report.writes.extend(self.quota_writes(vo));
    }

    /// A job is listed as running: its hold does not expire.
    pub(crate) fn renew_hold(&mut self, now: Now, job: &JobKey) {
        let Some((vo, quota)) = self.quota_of_hold(job) else {
            return;
        };
        let ledger = &mut quota.ledger;
        let soon = now.wall.after(Millis(RENEWED_FOR.0 / 2));
        if ledger.mark(job).is_some_and(|mark| mark.until < soon) {
            ledger.renew(job, now.wall.after(RENEWED_FOR));
            self.keep_quota(vo);
        }
    }

    /// What the owner says of a VO's quotas.
    pub fn owner_quota(&self, vo: VoId) -> Option<&OwnerQuota> {
        self.cx.config.quotas.get(&vo)
    }

    /// Whether a job has an open hold.
    pub fn has_hold(&self, job: &JobKey) -> bool {
        self.vos.values().any(|held| {
            let mark = held.quota.ledger.mark(job);
            mark.is_some_and(|mark| mark.state == State::Held)
        })
    }

    /// Whether jobs of a VO are charged to quotas.
    pub(crate) fn has_quota(&self, vo: Option<VoId>) -> bool {
        let held = vo.and_then(|vo| self.vos.get(&vo));
        held.is_some_and(|held| held.quota.is_on())
    }

    /// The VO whose rights a job holds, or was charged to, and its quotas.
    pub(super) fn quota_of_hold(&mut self, job: &JobKey) -> Option<(VoId, &mut Quota)> {
        let marks = self.vos.iter();
        let marks = marks.filter_map(|(vo, held)| Some((*vo, held.quota.ledger.mark(job)?.state)));
        let (vo, _) = marks.min_by_key(|(_, state)| match state {
            State::Held => 0,
            State::Committed => 1,
            _ => 2,
        })?;
        Some((vo, &mut self.vos.get_mut(&vo)?.quota))
    }
}

/// Says what a user could not know from the numbers alone.
fn explain(quota: &Quota, answer: &mut Answer) {
    if answer.by == Some(Decider::Owner)
        && let Some(message) = &mut answer.message
    {
        *message += " (so the owner of this site decides)";
    }
    if let Some(message) = answer.message.as_mut().filter(|_| quota.ledger.is_frozen()) {
        *message += &waits_for(quota);
    }
}

/// What a site whose rights are frozen waits for.
fn waits_for(quota: &Quota) -> String {
    let unheard = quota.ledger.unheard().count();
    format!(
        " (this site has just started, and spends nothing until heads of {unheard} more sites have been received)"
    )
}

/// What a job costs at the price of its hold; at the usual one where nobody had asked.
pub(super) fn cost(mark: Option<&Mark>, charge: CoreMillis) -> CoreMillis {
    let mark = mark.filter(|_| !mutated!(HoldPriceForgotten));
    mark.map_or(charge, |mark| mark.cost(charge))
}

fn held(vo: VoId, answer: Answer) -> QuotaReply {
    let (vo, answer) = (Some(vo), Box::new(answer));
    Ok(QuotaAnswer::Held { vo, answer })
}

fn unknown(job: &JobKey) -> String {
    let JobKey {
        cluster,
        job,
        instance,
    } = job;
    format!(
        "job `{job}` of cluster `{cluster}` (instance {instance}): nothing was held for it here"
    )
}

/// Where no quota says anything: it runs, and nothing is remembered.
fn without_quota(vo: Option<VoId>) -> QuotaAnswer {
    let answer = Answer {
        verdict: Verdict::Exempt,
        by: Some(if vo.is_some() {
            Decider::Vo
        } else {
            Decider::Owner
        }),
        account: None,
        parts: Vec::new(),
        short: CoreMillis(0),
        price: Factor::ONE,
        message: None,
    };
    QuotaAnswer::Held {
        vo,
        answer: Box::new(answer),
    }
}
