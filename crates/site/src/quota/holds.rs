//! Calls of batch systems: holds before a job runs, and commits and releases after it.
//!
//! A hold that lacks rights which other members have waits for a transfer for [`WAIT_MAX`], if the caller can wait.
//!
//! Invariant: an answer is durable before it is sent, and a repeated call gets the same answer.

use fairmesh_model::{AccountPath, CoreMillis, JobKey, Millis, Now, VoId, mutated};
use fairmesh_quota::{Answer, HoldRequest, SliceId, Verdict, core_hours};

use crate::event::Reply;
use crate::quota::calls::{HoldCall, HoldContext, QuotaAnswer, QuotaCall, QuotaReply, Waiting};
use crate::quota::handler::QuotaHandler;
use crate::quota::query::{explain, held, waits_for};
use crate::quota::{ASK_AGAIN, Quota};
use crate::tickets::Ticket;

/// Longest time that a call waits for rights of other members. Short, because the scheduler may block meanwhile.
const WAIT_MAX: Millis = Millis::from_secs(2);

/// How long it waits where they have all that it lacks, as far as is known: some rounds of requests and heads. The
/// programs that a batch system calls wait for ten seconds.
const CLAIM_WAIT_MAX: Millis = Millis::from_secs(6);

/// Most waiting calls in one VO: bounds what each transfer makes the site decide again. Further calls are decided at
/// once.
const WAITING_MAX: usize = 1_024;

impl QuotaHandler<'_> {
    pub(crate) fn take_quota(&mut self, now: Now, ticket: Ticket, call: QuotaCall) {
        // With a clock that is known to be wrong holds would expire, and slices begin and end, at the wrong time.
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
        self.cx.reply(ticket, Reply::Quota(Box::new(reply)));
    }

    /// `None` if the call waits; it is answered later.
    fn take_hold(&mut self, now: Now, ticket: Ticket, call: HoldCall) -> Option<QuotaReply> {
        let mut asked = match self.query().asked(now, call) {
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
        let quota = &mut self.vos.listed(vo).quota;
        quota.waiting.push(Waiting {
            ticket,
            asked,
            since: now.mono,
            until: now.mono.after(CLAIM_WAIT_MAX),
        });
        None
    }

    /// Asks the ledger, and requests rights from other members if the job should wait.
    fn hold(&mut self, now: Now, asked: &HoldContext) -> Answer {
        let vo = asked.vo;
        // Checked again for each attempt: while the call waited, other jobs may have got the free machines.
        let request = &HoldRequest {
            is_idle: self.query().would_idle(now, &asked.account, asked.job),
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
            let has_claim = quota.ledger.has_claim(&request.job);
            if has_claim {
                wants = quota.ledger.ask(now.wall, &account, answer.short, can_hear);
            }
            // Where all have too little as far as is known, they are asked for what is new before the job is refused.
            let is_under_way = match has_claim {
                true => !wants.is_empty() || !quota.asked.is_empty(),
                false => !connected.is_empty(),
            };
            if !has_claim && now.mono >= quota.probe_at {
                quota.probe_at = now.mono.after(ASK_AGAIN);
                connected
                    .iter()
                    .for_each(|site| self.peers.gossip.probe(*site));
            }
            if !is_under_way && !quota.ledger.is_frozen() {
                let request = HoldRequest {
                    may_wait: false,
                    ..request.clone()
                };
                answer = quota.ledger.hold(now.wall, &request);
            }
        }
        explain(quota, &mut answer);
        if answer.verdict == Verdict::Idle && !was_known {
            self.sources.give(asked.job.cores);
        }
        self.ask_for_rights(now, vo, wants);
        self.rights().keep_quota(vo);
        // After the new hold is made: a job that is refused here keeps its hold elsewhere.
        if answer.verdict.runs() {
            self.release_elsewhere(vo, &asked.request.job);
        }
        answer
    }

    /// Releases the job's holds in other VOs: its identity may have mapped to another VO when it asked before.
    fn release_elsewhere(&mut self, vo: VoId, job: &JobKey) {
        let mut known = Vec::new();
        for (other, held) in self.vos.iter_mut().filter(|(other, _)| **other != vo) {
            known.extend(held.quota.ledger.release(job).then_some(*other));
        }
        known
            .into_iter()
            .for_each(|other| self.rights().keep_quota(other));
    }

    /// Decides waiting calls again when rights may have arrived, and finally when they have waited long enough. In
    /// the order of arrival, so that a later call does not take the rights that an earlier one waits for.
    pub(super) fn answer_waiting(&mut self, now: Now, vo: VoId) {
        let quota = &mut self.vos.listed(vo).quota;
        let has_news = std::mem::take(&mut quota.has_news);
        let is_over = |quota: &Quota, call: &Waiting| {
            let until = match quota.ledger.has_claim(&call.asked.request.job) {
                true => call.until,
                false => call.since.after(WAIT_MAX),
            };
            now.mono >= until
        };
        if !has_news && !quota.waiting.iter().any(|call| is_over(quota, call)) {
            return;
        }
        let mut calls = std::mem::take(&mut quota.waiting);
        if mutated!(LastCallFirst) {
            calls.reverse();
        }
        for call in calls {
            let is_over = is_over(&self.vos[&vo].quota, &call);
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
        let (vo, quota) = self.vos.quota_of_hold(job).ok_or_else(|| unknown(job))?;
        let account = quota.ledger.mark(job).map(|mark| mark.account.clone());
        let account = account.ok_or_else(|| unknown(job))?;
        let committed = self.quotas.commit(self.vos, now, vo, job, charge, &account);
        self.rights().keep_quota(vo);
        let committed = committed.ok_or_else(|| unknown(job))?;
        Ok(QuotaAnswer::Committed(committed))
    }

    fn take_release(&mut self, job: &JobKey) -> QuotaReply {
        let (vo, quota) = self.vos.quota_of_hold(job).ok_or_else(|| unknown(job))?;
        let _ = mutated!(ReleaseForgotten) || quota.ledger.release(job);
        quota.has_news = true;
        self.rights().keep_quota(vo);
        Ok(QuotaAnswer::Released)
    }

    /// Sends all rights to other members. All VOs or none: the operator removes the site after this.
    ///
    /// # Errors
    /// The rights of a VO are frozen, or nothing can be sent because the splits name no other member.
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
            self.rights().keep_quota(vo);
        }
        match gone.0 == 0 && stays.0 > 0 {
            true => Err(format!(
                "nothing is sent: the split of what is left here ({} core-hours) names no other member",
                core_hours(stays)
            )),
            false => Ok(gone),
        }
    }
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
