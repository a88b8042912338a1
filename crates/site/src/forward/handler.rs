//! What members send and answer about jobs that are passed on.

use fairmesh_broker::forward::{
    Answer, Effect as Step, Event as Arrived, RoutedJob, Sending, State,
};
use fairmesh_gossip::Gossip;
use fairmesh_model::{ContentHash, Millis, Now, Role, Signed, SiteId};

use super::wire;
use super::wire::HandOffReply;
use crate::advert::sources::Sources;
use crate::forward::offer::Offer;
use crate::forward::rows::{Entry, Withdrawal, is_open};
use crate::forward::table::{About, PendingRequest, has_ended};
use crate::forward::wire::{End, Message, Take, plain, read_forward, read_forward_reply};
use crate::notice::Notice;
use crate::parts::{Cx, Forwarding, Own, Vos};
use crate::requests::{JOBS, numbered};
use crate::tickets::Channel;
use crate::time::Standing;

/// Requests under way to one member: more wait until some are answered.
const ASKS_OF_ONE_MAX: usize = 16;

pub(crate) struct ForwardHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) sources: &'a mut Sources,
    pub(crate) forward: &'a mut Forwarding,
    pub(crate) gossip: &'a Gossip,
}

impl ForwardHandler<'_> {
    /// A member sends a job, or asks what became of some.
    pub(crate) fn answer_forward(
        &mut self,
        now: Now,
        from: SiteId,
        channel: Channel,
        bytes: &[u8],
    ) {
        let reply = match read_forward(bytes) {
            Some(Message::Take(take)) => self.take_job(now, from, channel, take),
            Some(Message::Ends(jobs)) => {
                let ends = jobs.iter().map(|job| self.end_for(from, *job));
                Some(wire::ends(ends))
            }
            Some(Message::Withdraw(jobs)) => {
                jobs.iter()
                    .for_each(|job| self.want_back_for(now, from, *job));
                let ends = jobs.iter().map(|job| self.end_of_withdrawn(from, *job));
                Some(wire::ends(ends))
            }
            None => Some(HandOffReply::Later),
        };
        if let Some(reply) = reply {
            self.send_reply(channel, &reply);
        }
    }

    fn send_reply(&mut self, channel: Channel, reply: &HandOffReply) {
        let bytes = wire::reply_bytes(reply);
        self.cx.answer(channel, bytes);
    }

    /// The state of a job, for the site that sent it here.
    pub(super) fn end_for(&self, asker: SiteId, job: ContentHash) -> Option<End> {
        let Some(entry) = self.forward.jobs.get(&job) else {
            // The sender has an acknowledgement, so this site has lost a part of its store.
            let why = "the site that took it does not know it any more, and may run it";
            return Some(End::Failed {
                why: why.to_owned(),
                tried: Vec::new(),
            });
        };
        let kept = self.forward.machine.kept(&job.to_string())?;
        entry.from.contains(&asker).then(|| entry.end(kept))?
    }

    /// Whether times of offers cannot be judged here, or said.
    pub(super) fn has_wrong_clock(&self) -> bool {
        let is_off = matches!(self.cx.clock.standing, Standing::Off { .. });
        is_off || self.cx.clock.standing == Standing::BeforeOwnHead
    }

    /// The reply to a sender; `None` if the state machine replies later.
    fn take_job(
        &mut self,
        now: Now,
        from: SiteId,
        channel: Channel,
        take: Take,
    ) -> Option<HandOffReply> {
        if self.has_wrong_clock() {
            return Some(HandOffReply::Later);
        }
        let declined = |why: &str| Some(HandOffReply::Declined(why.to_owned()));
        let Ok(signed) = Signed::<Offer>::parse(&take.offer) else {
            return declined("it is not understood there (another release?)");
        };
        let origin = signed.claimed().origin;
        let Ok(offer) = signed.verify(&[&Role::single(origin)]) else {
            return declined("its origin has not signed it");
        };
        let (job, vo, offer) = (offer.hash(), offer.vo(), offer.body().clone());
        let held = self.vos.get(&vo).map(|held| &held.replica);
        // Later, not never: a charter that has not arrived yet may make both of them members.
        if !held.is_some_and(|replica| replica.is_member(from) && replica.is_member(origin)) {
            return Some(HandOffReply::Later);
        }
        let is_known = self.forward.jobs.contains_key(&job);
        if let Some(why) = offer.unfit(now.wall).filter(|_| !is_known) {
            return declined(why);
        }
        if !is_known && self.forward.is_full(Some(from)) {
            return Some(HandOffReply::Later);
        }
        let refuse = self.objection(now, from, job, &offer);
        if let Some(why) = refuse.clone().filter(|_| !is_known) {
            let why = format!("a job: {why}");
            self.cx.notice(now.mono, Notice::Refused { vo, from, why });
        }
        let routed = RoutedJob {
            job: job.to_string(),
            vo: vo.to_string(),
            ttl: take.ttl,
            tried: take.tried,
        };
        let is_taken = refuse.is_none() && self.forward.machine.takes(&routed);
        // Places are computed only for a job that is taken: with many wishes that takes long, and anyone can send jobs.
        let places = match is_taken && !self.is_withdrawn(job) {
            true => self.places(now, &offer.job),
            false => Vec::new(),
        };
        let wanted_free = self.wanted_free((vo, &offer.job), &take.class, &places);
        if !is_known {
            let (first, entry) = (Some(from), Entry::of(&offer));
            self.forward.insert(job, Entry { first, ..entry });
        }
        if let Some(entry) = self.forward.jobs.get_mut(&job).filter(|_| is_taken) {
            entry.from.insert(from);
            entry.offer = Some(take.offer);
        }
        let arrived = Arrived::FromSite {
            from: from.to_string(),
            job: routed,
            wanted_free,
            places,
            refuse,
        };
        self.step(now, arrived, Some(channel));
        if self.forward.machine.kept(&job.to_string()).is_none() {
            self.forward.forget(job);
        }
        None
    }

    /// Why a member's job is not taken now, whatever the VO.
    fn objection(&self, now: Now, from: SiteId, job: ContentHash, offer: &Offer) -> Option<String> {
        let known = self.forward.machine.kept(&job.to_string());
        let known = known.zip(self.forward.jobs.get(&job));
        if known.is_some_and(|(kept, entry)| entry.end(kept).is_some()) {
            return Some("it has ended".to_owned());
        }
        let rules = self.cx.config.forward.clone().unwrap_or_default();
        if let Some(most) = rules.cpus_max.filter(|most| offer.job.cpus > *most) {
            return Some(format!("it takes jobs of {most} CPUs at most from others"));
        }
        if self.forward.open_of(from) >= rules.per_member {
            return Some(format!(
                "{} jobs of that sender wait there already",
                rules.per_member
            ));
        }
        let (began, count) = self.forward.rates.get(&from).copied().unwrap_or_default();
        let is_fast = now.mono < began.after(Millis::from_secs(60)) && count >= rules.per_minute;
        is_fast.then(|| format!("it takes {} jobs a minute of one sender", rules.per_minute))
    }

    fn count_rate(&mut self, now: Now, from: SiteId) {
        let rate = self.forward.rates.entry(from).or_insert((now.mono, 0));
        if now.mono >= rate.0.after(Millis::from_secs(60)) {
            *rate = (now.mono, 0);
        }
        rate.1 += 1;
    }

    /// Hands an event to the state machine and carries out what comes of it.
    pub(super) fn step(&mut self, now: Now, arrived: Arrived, channel: Option<Channel>) {
        let is_tick = arrived == Arrived::Tick;
        let mut steps = self.forward.machine.handle(now.mono, arrived);
        if is_tick && !steps.is_empty() {
            // Jobs that are sent again: others of many each time, for only some can be under way.
            let turn = usize::try_from(self.forward.last_ask).unwrap_or_default() % steps.len();
            steps.rotate_left(turn);
        }
        let is_declined = matches!(steps.last(), Some(Step::Decline { .. }));
        for step in steps {
            match step {
                Step::Keep(job, kept) => {
                    if !is_declined {
                        self.note_sent(now, &job, &kept.state);
                    }
                    self.keep_job(&job);
                }
                // It is asked for by whoever hands it to the batch system.
                Step::Assign { .. } => {}
                Step::Send(sending) => self.send_job(now, sending),
                Step::Acknowledge { to, .. } => {
                    self.forward.stats.taken += 1;
                    if let Ok(from) = to.parse() {
                        self.count_rate(now, from);
                    }
                    self.answer_step(channel, &HandOffReply::Taken);
                }
                Step::Decline { why, .. } => {
                    self.forward.stats.declined += 1;
                    self.answer_step(channel, &HandOffReply::Declined(plain(&why)));
                }
                Step::Fail(..) => self.forward.stats.failed += 1,
            }
        }
    }

    fn answer_step(&mut self, channel: Option<Channel>, reply: &HandOffReply) {
        let channel = channel.expect("only messages are answered");
        self.send_reply(channel, reply);
    }

    /// Makes durable what is remembered of a job, without its offer once nothing is to be done for it.
    pub(super) fn keep_job(&mut self, name: &str) {
        let Ok(job) = name.parse::<ContentHash>() else {
            return;
        };
        let forward = &mut self.forward;
        let Some((kept, entry)) = forward.machine.kept(name).zip(forward.jobs.get_mut(&job)) else {
            return;
        };
        if is_open(kept) {
            // It may have come back: what becomes of it is decided here.
            entry.end = None;
            if let Some(passed) = entry.passed.take() {
                forward.away.remove(&(passed, job));
            }
        } else {
            entry.offer = None;
        }
        forward.index(job);
        let entry = &self.forward.jobs[&job];
        let write = self.forward.row(job, entry);
        self.cx.persist(write.into_iter().collect());
    }

    /// Counts what was sent to a site since it told how it is.
    fn note_sent(&mut self, now: Now, name: &str, state: &State) {
        let to = match state {
            State::Here(..) => Some(self.cx.id),
            State::Sent(sending) => sending.to.parse().ok(),
            State::Failed(..) | State::Gone => None,
        };
        let entry = self.forward.entry(name);
        let cpus = entry.map_or(0, |entry| u64::from(entry.cpus));
        self.forward
            .recent
            .extend(to.map(|to| (to, now.wall, cpus)));
    }

    fn send_job(&mut self, now: Now, sending: Sending) {
        let (Ok(to), Ok(name)) = (sending.to.parse(), sending.job.job.parse::<ContentHash>())
        else {
            return;
        };
        let offer = self
            .forward
            .jobs
            .get(&name)
            .and_then(|entry| entry.offer.clone());
        let (Some(offer), true) = (offer, self.may_ask(to)) else {
            // It is sent again in a while.
            return;
        };
        self.forward.stats.sent += 1;
        let RoutedJob {
            job, ttl, tried, ..
        } = sending.job;
        let about = About::Job(Answer {
            from: sending.to,
            job,
            ttl,
        });
        let take = Take {
            ttl,
            tried,
            class: sending.class,
            offer,
        };
        self.ask_member(now, to, about, &Message::Take(take));
    }

    /// Whether a member can be asked, and is not asked a lot already.
    pub(super) fn may_ask(&self, to: SiteId) -> bool {
        let under_way = self.forward.asks.values().filter(|asked| asked.of == to);
        under_way.count() < ASKS_OF_ONE_MAX && self.gossip.peers().any(|peer| peer == to)
    }

    pub(super) fn ask_member(&mut self, now: Now, of: SiteId, about: About, message: &Message) {
        self.forward.last_ask += 1;
        let id = numbered(JOBS, self.forward.last_ask);
        let at = now.mono;
        self.forward
            .asks
            .insert(id, PendingRequest { of, at, about });
        let bytes = wire::message(message);
        self.cx.ask(of, id, bytes);
    }

    /// A member has answered, or has not.
    pub(crate) fn take_reply(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let asked = self.forward.asks.remove(&id);
        let reply = bytes.and_then(read_forward_reply);
        let (Some(PendingRequest { of, about, .. }), Some(reply)) = (asked, reply) else {
            return;
        };
        if of != from {
            return;
        }
        match (about, reply) {
            (About::Job(answer), HandOffReply::Taken) => {
                self.passed_on(&answer, from);
                self.step(now, Arrived::Taken(answer), None);
            }
            (About::Job(answer), HandOffReply::Declined(why)) => {
                let places = self.places_of(now, &answer.job);
                self.step(now, Arrived::Declined(answer, why, places), None);
            }
            (About::Ends(jobs), HandOffReply::Ends(ends)) => {
                for (job, end) in jobs.into_iter().zip(ends) {
                    self.take_end(from, job, end, false);
                }
            }
            (About::Withdrawals(jobs), HandOffReply::Ends(ends)) => {
                for (job, end) in jobs.into_iter().zip(ends) {
                    self.take_end(from, job, end, true);
                }
            }
            _ => {}
        }
    }

    /// Whoever the job was sent to last says that he has it.
    fn passed_on(&mut self, answer: &Answer, to: SiteId) {
        let kept = self.forward.machine.kept(&answer.job);
        let Some(State::Sent(sending)) = kept.map(|kept| &kept.state) else {
            return;
        };
        let is_last = sending.to == answer.from && sending.job.ttl == answer.ttl;
        let job = answer.job.parse::<ContentHash>().ok();
        let entry = job.and_then(|job| self.forward.jobs.get_mut(&job));
        if let Some(entry) = entry.filter(|_| is_last) {
            entry.passed = Some(to);
        }
    }

    /// Whether its user has taken it back: it is sent nowhere.
    fn is_withdrawn(&self, job: ContentHash) -> bool {
        let entry = self.forward.jobs.get(&job);
        entry.is_some_and(|entry| entry.withdrawal != Withdrawal::None)
    }

    pub(super) fn places_of(
        &mut self,
        now: Now,
        job: &str,
    ) -> Vec<fairmesh_broker::forward::Place> {
        if job.parse().is_ok_and(|job| self.is_withdrawn(job)) {
            return Vec::new();
        }
        let entry = self.forward.entry(job);
        let entry = entry.filter(|entry| !has_ended(entry, &self.cx.clock));
        let offer = entry.and_then(Entry::offer);
        offer.map_or_else(Vec::new, |offer| self.places(now, &offer.claimed().job))
    }

    /// A member says what became of a job; `stays`, where it was asked to take it back.
    fn take_end(&mut self, from: SiteId, job: ContentHash, end: Option<End>, stays: bool) {
        let Some(end) = end.filter(|_| self.forward.away.contains(&(from, job))) else {
            return;
        };
        if let Some(entry) = self.forward.jobs.get_mut(&job) {
            if entry.is_wanted_back() && (stays || matches!(end, End::Failed { .. })) {
                entry.withdrawal = Withdrawal::Answered;
            }
            entry.end = Some(end);
            self.keep_job(&job.to_string());
        }
    }
}
