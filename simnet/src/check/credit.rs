//! What authorities, jobs and operators do about quotas, and the books of what sites have answered.
//!
//! Invariant: the books know nothing of rows: a hold is in them once its site has answered that it is granted,
//! and a charge once the job's last record was acknowledged.
//! Deliberately not here: judging (`invariants::quotas`), and what is done when (`swarm::credit`).

mod parts;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{
    Allocation, AllocationSlice, CoreMillis, JobKey, Millis, QuotaMode, Signed, UsageRecord, VoId,
};
use fairmesh_site::rights::Verdict;
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall, QuotaReply, Ticket};

use super::Run;
use crate::swarm::{Offer, QuotaStep, VoOptions};
use crate::vo::{HOUR, allocation, authority_key, job, key, path, site_id};
use crate::world::StepKind;

/// Cores that a job asks for, at most.
const CORES_MAX: u64 = 16;

/// Where a job was granted what it may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booked {
    /// At which site.
    pub node: usize,
    /// In which VO.
    pub vo: VoId,
}

/// What sites have answered.
#[derive(Debug, Default)]
pub struct Books {
    /// Jobs that were granted, and have not ended.
    pub held: BTreeMap<JobKey, Booked>,
    /// Jobs that were granted, and whose last record was acknowledged.
    pub charged: BTreeMap<JobKey, Booked>,
    /// Sites that have lost their store, or were given an older one.
    pub lost: BTreeSet<usize>,
}

/// A job that has asked.
#[derive(Debug, Clone)]
struct Asked {
    record: UsageRecord,
    node: usize,
    vo: usize,
}

/// Quotas of a run.
#[derive(Debug)]
pub(super) struct Credit {
    random: Stream,
    /// For what leaders pass on and what sites may have at most.
    of_parts: Stream,
    jobs: u64,
    granted: Vec<Signed<Allocation>>,
    waiting: Vec<(Ticket, Asked)>,
    holding: Vec<Asked>,
    pub(super) books: Books,
}

impl Credit {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            random: seed.stream("swarm quota jobs"),
            of_parts: seed.stream("swarm parts passed on"),
            jobs: 0,
            granted: Vec::new(),
            waiting: Vec::new(),
            holding: Vec::new(),
            books: Books::default(),
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
}

impl Run {
    pub(super) fn act_on_credit(&mut self, step: QuotaStep) {
        match step {
            QuotaStep::Grant => self.grant(),
            QuotaStep::Revoke => self.revoke(),
            QuotaStep::Jobs(node) => {
                self.hear_waiting();
                self.end_some(node);
                self.hold(node);
            }
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
        let keys = [authority_key(vo), key("second authority", vo)];
        let signed = Signed::sign(body, &keys.each_ref()).expect("a valid allocation");
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
        let keys = match &body.part_of {
            Some(_) => vec![parts::leader_key(vo)],
            None => vec![authority_key(vo), key("second authority", vo)],
        };
        let keys: Vec<_> = keys.iter().collect();
        let signed = Signed::sign(body, &keys).expect("a valid allocation");
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
        let now = self.batch_wall(node);
        let random = &mut self.credit.random;
        let vo = mounted[random.index(mounted.len())];
        let of = &self.options.vos[vo];
        let (group, user) = (random.index(of.groups), random.index(of.users));
        let cores = u32::try_from(random.between(1, CORES_MAX)).expect("few");
        let wall = Millis(random.between(60_000, 2 * HOUR.0));
        let may_wait = random.below(2) == 0;
        self.credit.jobs += 1;
        let name = format!("quota-{}", self.credit.jobs);
        let whose = (format!("g{group}"), format!("u{user}"));
        let ran = (now.before(wall), now);
        let account = VoOptions::name(vo);
        let record = job(name, &account, (&whose.0, &whose.1), ran, cores);
        let call = QuotaCall::Hold(Box::new(HoldCall {
            record: record.clone(),
            account: None,
            is_exempt: false,
            may_wait,
            importance: Default::default(),
        }));
        let asked = Asked { record, node, vo };
        if let Some(ticket) = self.world.send_quota(node, call) {
            self.credit.waiting.push((ticket, asked));
            self.hear_waiting();
        }
        self.look(Some(node), StepKind::Quota, false);
    }

    /// Takes down what sites have answered since.
    fn hear_waiting(&mut self) {
        for (ticket, asked) in std::mem::take(&mut self.credit.waiting) {
            match self.world.quota_reply(asked.node, ticket) {
                None => self.credit.waiting.push((ticket, asked)),
                Some(reply) if is_granted(&reply) => {
                    let vo = self.ids[asked.vo];
                    let booked = Booked {
                        node: asked.node,
                        vo,
                    };
                    let books = &mut self.credit.books;
                    books.held.insert(asked.record.key.clone(), booked);
                    self.credit.holding.push(asked);
                }
                Some(_) => {}
            }
        }
        // Those that ended before they answered do not answer any more.
        let keep = self.credit.waiting.len().saturating_sub(64);
        self.credit.waiting.drain(..keep);
    }

    /// Jobs that hold at a site end: their feed tells of it, or they never ran.
    fn end_some(&mut self, node: usize) {
        let now = self.batch_wall(node);
        let all = std::mem::take(&mut self.credit.holding);
        for mut asked in all {
            if asked.node != node || self.credit.random.below(3) > 0 {
                self.credit.holding.push(asked);
                continue;
            }
            if self.credit.random.below(4) == 0 {
                let job = asked.record.key.clone();
                self.credit.books.held.remove(&job);
                let _ = self.world.quota(node, QuotaCall::Release { job });
                continue;
            }
            let asked_for = asked.record.end.since(asked.record.start);
            let ran = Millis(self.credit.random.between(1, asked_for.0 * 3 / 2));
            (asked.record.start, asked.record.end) = (now.before(ran), now);
            let (record, vo) = (asked.record, Some(asked.vo));
            self.feeds.hand_in(node, Offer { record, vo });
        }
    }
}

fn is_granted(reply: &QuotaReply) -> bool {
    matches!(reply, Ok(QuotaAnswer::Held { answer, .. }) if answer.verdict == Verdict::Granted)
}
