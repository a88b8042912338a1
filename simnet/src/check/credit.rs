//! What authorities, jobs and operators do about quotas, and the books of what sites have answered.
//!
//! Invariant: the books know nothing of rows: a hold is in them once its site has answered that the job runs,
//! and a charge once the job's last record was acknowledged.
//! Deliberately not here: judging (`invariants::quotas`), and what is done when (`swarm::options::credit`).

mod crowd;
mod parts;
mod terms;

use std::collections::BTreeMap;

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{
    Allocation, AllocationSlice, CoreMillis, JobKey, Millis, MonoTime, QuotaMode, Signed,
    UsageRecord, VoId,
};
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall, QuotaReply};

use super::Run;
use crate::facts::{Booked, Books, Decided, Freed, HoldContext, is_exempt, owner_of, place, runs};
use crate::oracle::rights::Place;
use crate::swarm::{Offer, QuotaStep, VoOptions};
use crate::vo::{HOUR, allocation, job, path, site_id};
use crate::world::StepKind;

/// Cores that a job asks for, at most.
const CORES_MAX: u64 = 16;

/// Quotas of a run.
#[derive(Debug)]
pub(super) struct Credit {
    random: Stream,
    /// For what leaders pass on and what sites may have at most.
    of_parts: Stream,
    /// For terms, crowds, owners and jobs that ask in other ways.
    of_terms: Stream,
    jobs: u64,
    granted: Vec<Signed<Allocation>>,
    holding: Vec<HoldContext>,
    /// At which site a crowd asked last, and its first job.
    crowd: Option<(usize, JobKey)>,
    /// Since when a site's clock, configuration and process are as they are, and how far its clock is ahead.
    steady: Vec<Steady>,
    pub(super) books: Books,
}

/// Since when nothing about a site's clock, configuration and process has changed.
#[derive(Debug, Clone, Copy, Default)]
struct Steady {
    since: MonoTime,
    life: u32,
    ahead_ms: i64,
}

impl Credit {
    pub(super) fn new(seed: Seed, sites: usize, has_quotas: bool) -> Self {
        Self {
            random: seed.stream("swarm quota jobs"),
            of_parts: seed.stream("swarm parts passed on"),
            of_terms: seed.stream("swarm terms of credit"),
            jobs: 0,
            granted: Vec::new(),
            holding: Vec::new(),
            crowd: None,
            steady: vec![Steady::default(); sites],
            books: Books {
                has_quotas,
                ..Books::default()
            },
        }
    }

    /// A feed was answered to a record.
    pub(super) fn answered(&mut self, record: &UsageRecord) {
        if record.running {
            return;
        }
        if let Some(booked) = self.books.held.remove(&record.key) {
            self.books.charged.insert(record.key.clone(), booked);
        }
    }

    /// A feed was answered to the last record of a job that asked for no credit, while its owner let no quota hold for
    /// the VO, and had done so since before the job ended.
    pub(super) fn ended_free(&mut self, (node, vo): (usize, VoId), record: &UsageRecord) {
        let is_unasked = !self.books.charged.contains_key(&record.key);
        if is_unasked && !record.running {
            self.books
                .freed
                .insert(record.key.clone(), Freed { node, vo });
        }
    }

    /// A site has lost its store, or was given an older one.
    pub(super) fn lost(&mut self, node: usize) {
        self.books.lost.insert(node);
        let all = self.books.held.values_mut();
        let all = all.chain(self.books.charged.values_mut());
        let of_node = all.filter(|booked| booked.node == node);
        of_node.for_each(|booked| booked.is_lost = true);
    }
}

impl Run {
    pub(super) fn act_on_credit(&mut self, step: QuotaStep) {
        match step {
            QuotaStep::Grant => self.grant(),
            QuotaStep::Revoke => self.revoke(),
            QuotaStep::Jobs(node) => {
                self.end_some(node);
                self.hold(node);
            }
            QuotaStep::Crowd(node) => self.crowd(node),
            QuotaStep::Leave(node) => self.leave(node),
            QuotaStep::Owner(node) => self.decide_otherwise(node),
            QuotaStep::Age(node) => self.age(node),
            QuotaStep::Drain(node) if self.is_liar(node) => {}
            QuotaStep::Drain(node) => {
                let _ = self.world.quota(node, QuotaCall::Drain);
                self.look(Some(node), StepKind::Quota, true);
            }
            QuotaStep::Pass => self.pass_on(),
        }
    }

    fn grant(&mut self) {
        let Some(options) = self.options.quotas else {
            return;
        };
        let random = &mut self.credit.random;
        let vo = random.index(self.ids.len());
        let of = &self.options.vos[vo];
        // The first group's may be somebody else's to grant.
        let at = match of.groups > 1 && random.below(2) == 0 {
            true => path(&format!("/g{}", of.groups - 1)),
            false => path("/"),
        };
        let amount = CoreMillis(options.core_hours * HOUR.0 * of.members.len() as u64);
        let length = Millis(options.slice_minutes * 60_000);
        let start = self.world.true_wall();
        let is_expiring = random.below(2) == 0;
        let slices = (1..=random.between(1, 3)).map(|k| AllocationSlice {
            amount,
            start: if is_expiring {
                start
            } else {
                start.after(length.times(k - 1))
            },
            end: start.after(length.times(k)),
        });
        let slices = slices.collect();
        let mode = [None, None, Some(QuotaMode::Soft), Some(QuotaMode::Advisory)];
        let mode = mode[random.index(mode.len())];
        let members = of.members.iter();
        let split = members.map(|site| (site_id(*site), random.between(1, 4)));
        let split: BTreeMap<_, _> = split.collect();
        let of_parts = &mut self.credit.of_parts;
        let body = Allocation {
            issued: start,
            leaders: (options.parts > 0).then(|| parts::leaders(vo)),
            at_most: match options.bounds {
                true => parts::bounds(of_parts, &split),
                false => BTreeMap::new(),
            },
            split,
            mode,
            overdraft_max: CoreMillis(amount.0 / 10),
            ..allocation(self.ids[vo], at, slices, 1)
        };
        let body = match options.terms {
            true => terms::other(&mut self.credit.of_terms, body, self.options.vos[vo].users),
            false => body,
        };
        let signed = self.world.founded_vos()[vo].sign(body);
        let signed = signed.expect("a valid allocation");
        self.hand_in(vo, &signed);
        self.credit.granted.push(signed);
    }

    /// What is neither used nor held is gone.
    fn revoke(&mut self) {
        if self.credit.granted.is_empty() {
            return;
        }
        let at = self.credit.random.index(self.credit.granted.len());
        let first = self.credit.granted[at].clone();
        let mut body = first.claimed().clone();
        let now = self.world.true_wall();
        body.version += 1;
        body.id = body.id.or(Some(first.hash().into()));
        for slice in &mut body.slices {
            slice.end = slice.end.min(now.max(slice.start.after(Millis(1))));
        }
        let vo = self.number_of(body.vo);
        let signed = match &body.part_of {
            Some(_) => Signed::sign(body, &[&parts::leader_key(vo)]),
            None => self.world.founded_vos()[vo].sign(body),
        };
        let signed = signed.expect("a valid allocation");
        self.hand_in(vo, &signed);
        self.credit.granted[at] = signed;
    }

    fn number_of(&self, vo: VoId) -> usize {
        let vo = self.ids.iter().position(|id| *id == vo);
        vo.expect("it was granted")
    }

    /// At the first member that takes it.
    fn hand_in(&mut self, vo: usize, signed: &Signed<Allocation>) {
        for node in self.options.vos[vo].members.clone() {
            if !self.is_liar(node) && self.world.publish(node, signed.bytes()).is_ok() {
                self.look(Some(node), StepKind::Publish, true);
                return;
            }
        }
    }

    fn hold(&mut self, node: usize) {
        let mounted = self.mounted(node);
        if mounted.is_empty() || !self.world.node(node).is_up() || self.is_liar(node) {
            return;
        }
        let random = &mut self.credit.random;
        let vo = mounted[random.index(mounted.len())];
        let of = &self.options.vos[vo];
        let (group, user) = (random.index(of.groups), random.index(of.users));
        let cores = u32::try_from(random.between(1, CORES_MAX)).expect("few");
        let wall = Millis(random.between(60_000, 2 * HOUR.0));
        let may_wait = random.below(2) == 0;
        let mut call = self.call((node, vo), (group, user), (cores, wall), may_wait);
        if self.options.quotas.is_some_and(|quotas| quotas.terms) {
            terms::ask_otherwise(&mut self.credit.of_terms, &mut call, group);
        }
        self.ask(node, vo, call);
        if self.credit.of_terms.below(8) == 0 {
            self.ask_again(node);
        }
    }

    /// A new job of a user, for so many cores and so long.
    fn call(
        &mut self,
        (node, vo): (usize, usize),
        (group, user): (usize, usize),
        (cores, wall): (u32, Millis),
        may_wait: bool,
    ) -> HoldCall {
        let now = self.batch_wall(node);
        self.credit.jobs += 1;
        let name = format!("quota-{}", self.credit.jobs);
        let whose = (format!("g{group}"), format!("u{user}"));
        let ran = (now.before(wall), now);
        let account = VoOptions::name(vo);
        HoldCall {
            record: job(name, &account, (&whose.0, &whose.1), ran, cores),
            account: None,
            is_exempt: false,
            may_wait,
            importance: Default::default(),
        }
    }

    /// A batch system asks whether a job may run.
    fn ask(&mut self, node: usize, vo: usize, call: HoldCall) {
        self.world.take_waiting(node);
        // The quota is that of the VO that the job's names mean now.
        let owner = owner_of(&self.world.node(node).config);
        let vo = owner
            .account(&call.record)
            .0
            .map_or(vo, |of| self.number_of(of));
        let asked = self.asked(node, vo, call.clone());
        let before = place(&self.world, node, self.ids[vo]);
        if let Some(ticket) = self.world.send_quota(node, QuotaCall::Hold(Box::new(call))) {
            let asked = HoldContext { ticket, ..asked };
            match self.world.quota_reply(node, ticket) {
                Some(reply) => self.decided(asked, before, reply),
                // A node that ended before it could answer has forgotten the call.
                None if self.world.node(node).life() != asked.life => {}
                None if !self.world.node(node).is_up() => {}
                None => self.credit.books.waits(asked, before),
            }
        }
        self.look(Some(node), StepKind::Quota, false);
    }

    /// A batch system asks once more about a job that runs.
    fn ask_again(&mut self, node: usize) {
        let holding = self.credit.holding.iter();
        let here: Vec<_> = holding.filter(|asked| asked.node == node).collect();
        if here.is_empty() {
            return;
        }
        let asked = here[self.credit.of_terms.index(here.len())].clone();
        self.ask(node, asked.vo, asked.call);
    }

    /// Notes what sites have decided about jobs that waited. Those that a site has forgotten wait no more.
    pub(super) fn hear_waiting(&mut self, node: usize) {
        let waits_here = |asked: &HoldContext| asked.node == node;
        let waiting = std::mem::take(&mut self.credit.books.waiting);
        let life = self.world.node(node).life();
        let mounted = self.mounted(node);
        for asked in waiting {
            let reply = match waits_here(&asked) {
                true => self.world.quota_reply(node, asked.ticket),
                false => None,
            };
            match reply {
                Some(reply) => self.decided(asked, None, reply),
                None if waits_here(&asked)
                    && (asked.life != life || !mounted.contains(&asked.vo)) => {}
                None => self.credit.books.waiting.push(asked),
            }
        }
    }

    fn decided(&mut self, asked: HoldContext, before: Option<Place>, reply: QuotaReply) {
        let known = self.credit.books.held.get(&asked.call.record.key).cloned();
        if let Some(answer) = runs(&reply) {
            let is_frozen = before.as_ref().is_some_and(|before| before.is_frozen);
            let expires = match &known {
                // While rights are frozen an open hold stays as it is.
                Some(known) if is_frozen => known.expires,
                Some(known) => known.expires.max(asked.expires),
                None => asked.expires,
            };
            let booked = Booked {
                node: asked.node,
                vo: self.ids[asked.vo],
                expires,
                answer,
                is_lost: false,
                is_ending: false,
            };
            let job = asked.call.record.key.clone();
            self.credit.books.held.insert(job, booked);
            if known.is_none() {
                self.credit.holding.push(asked.clone());
            }
        }
        if is_exempt(&reply) && known.is_none() && asked.call.is_exempt {
            // It is in no book, and ends all the same.
            self.credit
                .holding
                .retain(|of| of.call.record.key != asked.call.record.key);
            self.credit.holding.push(asked.clone());
        }
        self.credit.books.decided.push(Decided {
            asked,
            before,
            known,
            reply,
        });
    }

    /// Jobs that hold at a site end: their feed tells of it, or they never ran.
    fn end_some(&mut self, node: usize) {
        let now = self.batch_wall(node);
        let all = std::mem::take(&mut self.credit.holding);
        for asked in all {
            if asked.node != node || self.credit.random.below(3) > 0 {
                self.credit.holding.push(asked);
                continue;
            }
            let mut record = asked.call.record;
            if self.credit.random.below(4) == 0 {
                self.release(node, record.key);
                continue;
            }
            let asked_for = record.end.since(record.start);
            let ran = Millis(self.credit.random.between(1, asked_for.0 * 3 / 2));
            (record.start, record.end) = (now.before(ran), now);
            if let Some(booked) = self.credit.books.held.get_mut(&record.key) {
                booked.is_ending = true;
            }
            let vo = Some(asked.vo);
            self.feeds.hand_in(node, Offer { record, vo });
        }
    }

    /// A job did not run.
    fn release(&mut self, node: usize, job: JobKey) {
        let holding = &mut self.credit.holding;
        holding.retain(|asked| asked.call.record.key != job);
        let vo = self.credit.books.held.remove(&job).map(|booked| booked.vo);
        let reply = self
            .world
            .quota(node, QuotaCall::Release { job: job.clone() });
        if let (Some(vo), Some(Ok(QuotaAnswer::Released))) = (vo, reply) {
            self.credit.books.freed.insert(job, Freed { node, vo });
        }
        self.look(Some(node), StepKind::Quota, false);
    }
}
