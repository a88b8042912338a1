//! Quotas on real sites: holds, charges and transfers while nodes crash between any two steps, lose their stores,
//! are given old ones back and are cut off.
//!
//! Books are kept of nothing but the answers that sites gave. After every step: what runs within the quota and what
//! was charged is never more than what was granted; a hold that was granted is there at the next start; a site
//! whose rights are frozen grants nothing. At rest every site says of each slice what the books say, and granted =
//! used + held + spendable + on the way.
//!
//! Stores are lost here when all that they hold was published: of the rest that much, and no more, can be used
//! again (docs/quotas.md). The table below names faults in the site's part of it, each of which has to be found.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{
    Allocation, AllocationSlice, CoreMillis, JobKey, Millis, Signed, UsageRecord, WallTime,
};
use fairmesh_quota::{State, Verdict};
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall, QuotaReply};
use simnet::vo::{HOUR, START, Vo, allocation, authority_key, job, key, path};
use simnet::{World, WorldSpec};

use crate::support::{SYNC, spec, with_seeds};

const SITES: usize = 3;

/// Core-hours that are granted.
const GRANTED: u64 = 90;

const STEPS: usize = 60;

/// What a run does beside asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Faults {
    Crashes,
    Losses,
}

/// A Grid, and what its sites have answered.
struct Play {
    world: World,
    vo: Vo,
    random: Stream,
    jobs: u64,
    /// Held, by job: where, how many cores for an hour.
    held: BTreeMap<JobKey, (usize, u64)>,
    /// Charged, core-milliseconds.
    charged: BTreeMap<JobKey, u64>,
    /// Nobody knows what became of them: their sites ended before they answered.
    unknown: BTreeSet<JobKey>,
}

impl Play {
    fn new(seed: Seed) -> Self {
        let (mut spec, vo): (WorldSpec, Vo) = spec(SITES);
        spec.keeps_journal = true;
        let mut world = World::founded(seed, spec, std::slice::from_ref(&vo));
        world.run_for(Millis(20_000));
        let start = WallTime(START.0 + world.now().0);
        let slice = AllocationSlice {
            amount: CoreMillis(GRANTED * HOUR.0),
            start,
            end: start.after(Millis(100 * HOUR.0)),
        };
        let body = Allocation {
            issued: start,
            expires: start.after(Millis(200 * HOUR.0)),
            ..allocation(vo.id, path("/g0"), vec![slice], SITES)
        };
        let keys = [authority_key(0), key("second authority", 0)];
        let signed = Signed::sign(body, &keys.each_ref()).expect("valid");
        world.publish(0, signed.bytes()).expect("it is adopted");
        let mut play = Self {
            world,
            vo,
            random: seed.stream("quotas"),
            jobs: 0,
            held: BTreeMap::new(),
            charged: BTreeMap::new(),
            unknown: BTreeSet::new(),
        };
        play.rest();
        play
    }

    fn wall(&self) -> WallTime {
        WallTime(START.0 + self.world.now().0)
    }

    fn step(&mut self, faults: Faults) {
        let node = self.random.index(SITES);
        match (self.random.below(20), faults) {
            (0..9, _) => self.hold(node),
            (9..13, _) => self.end(),
            (13, _) => self.release(),
            (14, _) => self.world.island(&[node]),
            (15, _) => self.world.heal_network(),
            (16, Faults::Crashes) => {
                let steps = self.random.index(6);
                self.world.crash_within(node, steps);
            }
            (17, Faults::Crashes) => self.world.crash(node),
            (16, Faults::Losses) => self.world.backup(node),
            (17, Faults::Losses) => self.lose(node),
            _ => {
                let time = 500 + self.random.below(8_000);
                self.world.run_for(Millis(time));
            }
        }
        for node in 0..SITES {
            // A node that went down is started by its machine, sooner or later.
            if !self.world.node(node).is_up() && self.random.below(3) == 0 {
                let _ = self.world.start(node);
            }
        }
        self.check();
    }

    fn record(&mut self, cores: u64) -> UsageRecord {
        self.jobs += 1;
        let (end, user) = (self.wall(), format!("u{}", self.jobs % 4));
        let ran = (end.before(HOUR), end);
        let cores = u32::try_from(cores).expect("few");
        job(self.jobs.to_string(), "grid", ("g0", &user), ran, cores)
    }

    fn hold(&mut self, node: usize) {
        let cores = 1 + self.random.below(9);
        let record = self.record(cores);
        let frozen = self.ledger_is_frozen(node);
        let job = record.key.clone();
        let call = QuotaCall::Hold(Box::new(HoldCall {
            record,
            account: None,
            is_exempt: false,
            may_wait: true,
            importance: Default::default(),
        }));
        let Some(ticket) = self.world.send_quota(node, call) else {
            return;
        };
        let mut answer = self.world.quota_reply(node, ticket);
        if answer.is_none() {
            self.world.run_for(Millis(3_000));
            answer = self.world.quota_reply(node, ticket);
        }
        match answer.map(granted) {
            Some(true) => {
                assert!(
                    !frozen || !self.ledger_is_frozen(node),
                    "frozen rights are spent"
                );
                self.held.insert(job, (node, cores));
            }
            Some(false) => {}
            None => drop(self.unknown.insert(job)),
        }
    }

    fn ledger_is_frozen(&self, node: usize) -> bool {
        let site = self.world.site(node);
        let ledger = site.and_then(|site| site.ledger(self.vo.id));
        ledger.is_none_or(|ledger| ledger.is_frozen())
    }

    fn any_held(&mut self) -> Option<(JobKey, usize, u64)> {
        if self.held.is_empty() {
            return None;
        }
        let at = self.random.index(self.held.len());
        let (job, (node, cores)) = self.held.iter().nth(at).expect("it is there");
        Some((job.clone(), *node, *cores))
    }

    /// A job has run for as long as it asked to, or for half of that.
    fn end(&mut self) {
        let Some((key, node, cores)) = self.any_held() else {
            return;
        };
        let ran = HOUR.0 / (1 + self.random.below(2));
        let mut record = self.record(cores);
        (record.key, record.start) = (key.clone(), record.end.before(Millis(ran)));
        let reported = self.world.report(node, vec![record]);
        self.held.remove(&key);
        match reported.filter(|reported| reported.refused.is_empty()) {
            Some(reported) => drop(self.charged.insert(key, reported.charge)),
            None => drop(self.unknown.insert(key)),
        }
    }

    fn release(&mut self) {
        let Some((job, node, _)) = self.any_held() else {
            return;
        };
        self.held.remove(&job);
        let released = self
            .world
            .quota(node, QuotaCall::Release { job: job.clone() });
        // One whose name was lost with its store is held until it is charged.
        if !matches!(released, Some(Ok(_))) {
            self.unknown.insert(job);
        }
    }

    /// A store is lost, or an old one put back, when all that it holds was published.
    fn lose(&mut self, node: usize) {
        self.rest();
        match self.world.node(node).backups.is_empty() {
            true => self.world.wipe(node, false),
            false => self.world.restore_backup(node, false),
        }
        if !self.world.node(node).is_up() {
            let _ = self.world.start(node);
        }
    }

    /// All is put right, and all have heard of all.
    fn rest(&mut self) {
        self.world.heal();
        for node in 0..SITES {
            if !self.world.node(node).is_up() {
                let _ = self.world.start(node);
            }
        }
        self.world.run_for(SYNC.times(12));
    }

    /// What sites have granted and charged, by their answers.
    fn spent(&self) -> u64 {
        let held: u64 = self.held.values().map(|(_, cores)| cores * HOUR.0).sum();
        held + self.charged.values().sum::<u64>()
    }

    fn check(&self) {
        assert!(
            self.spent() <= GRANTED * HOUR.0,
            "{} of {GRANTED} h",
            self.spent() / HOUR.0
        );
        for node in 0..SITES {
            let Some(ledger) = self
                .world
                .site(node)
                .and_then(|site| site.ledger(self.vo.id))
            else {
                continue;
            };
            // After a loss they come back as a sum, without the jobs' names.
            let marks: BTreeMap<_, _> = ledger.marks().collect();
            let is_whole = self.world.node(node).disk.losses() == Default::default();
            let is_whole = is_whole && self.world.faults().of("wipe") == 0;
            let is_whole = is_whole && self.world.faults().of("restore_backup") == 0;
            if !is_whole {
                continue;
            }
            for (job, _) in self.held.iter().filter(|(_, (at, _))| *at == node) {
                let mark = marks
                    .get(job)
                    .unwrap_or_else(|| panic!("{job:?} was granted"));
                assert_eq!(mark.state, State::Held, "{job:?} was granted");
            }
            for job in self.charged.keys().filter(|job| marks.contains_key(job)) {
                assert_eq!(marks[job].state, State::Committed, "{job:?} was charged");
            }
        }
    }

    /// At rest all sites say the same, and what the books say.
    fn check_at_rest(&mut self, faults: Faults) {
        self.rest();
        self.check();
        for node in 0..SITES {
            let site = self.world.site(node).expect("it runs");
            let ledger = site.ledger(self.vo.id).expect("a member");
            assert!(!ledger.is_frozen(), "{node} has heard all");
            let now = self.world.now_at(node).wall;
            let totals = ledger.account_totals(&path("/g0"), now);
            let sum = totals.used + totals.held + totals.spendable + totals.on_the_way;
            assert_eq!(sum, totals.granted, "{node}: {totals:?}");
            let charged = u128::from(self.charged.values().sum::<u64>());
            let spent = u128::from(self.spent());
            assert!(
                totals.used >= charged,
                "{node}: {totals:?}, {charged} charged"
            );
            assert!(
                totals.used + totals.held >= spent,
                "{node}: {totals:?}, {spent} spent"
            );
            // What was held for a job whose name was lost is free as far as it was charged.
            if self.unknown.is_empty() && faults == Faults::Crashes {
                assert_eq!(
                    (totals.used, totals.used + totals.held),
                    (charged, spent),
                    "{node}"
                );
            }
        }
    }
}

fn granted(reply: QuotaReply) -> bool {
    match reply {
        Ok(QuotaAnswer::Held { answer, .. }) => answer.verdict == Verdict::Granted,
        _ => false,
    }
}

fn play(seed: Seed, faults: Faults) {
    let mut play = Play::new(seed);
    for _ in 0..STEPS {
        play.step(faults);
    }
    play.check_at_rest(faults);
}

#[test]
fn nobody_overspends_and_nothing_granted_is_forgotten_whatever_crashes() {
    with_seeds(|seed| play(seed, Faults::Crashes));
}

#[test]
fn what_a_lost_store_had_published_is_not_spent_again() {
    with_seeds(|seed| play(seed, Faults::Losses));
}

/// How long a job waits that lacks rights which another site has.
#[cfg(feature = "mutants")]
fn waits(seed: Seed) -> Millis {
    let mut play = Play::new(seed);
    let record = play.record(40);
    let call = QuotaCall::Hold(Box::new(HoldCall {
        record,
        account: None,
        is_exempt: false,
        may_wait: true,
        importance: Default::default(),
    }));
    let began = play.world.now();
    let ticket = play.world.send_quota(0, call).expect("it runs");
    loop {
        if let Some(reply) = play.world.quota_reply(0, ticket) {
            assert!(granted(reply));
            return play.world.now().since(began);
        }
        play.world.run_for(Millis(5));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn witnesses_cost_a_job_that_waits_for_rights_little_more_than_a_round_trip() {
    with_seeds(|seed| {
        let asked = waits(seed);
        let planted = fairmesh_model::mutant::plant("WitnessesUnasked");
        let unasked = waits(seed);
        drop(planted);
        println!("{asked:?}, and unasked {unasked:?}");
        assert!(asked.0 <= unasked.0 + 400, "{asked:?} {unasked:?}");
    });
}

/// Faults in what a site does with its ledger, and what finds each.
#[cfg(feature = "mutants")]
const PLANTED: [(&str, Faults, &str); 8] = [
    (
        "RightsUnwritten",
        Faults::Crashes,
        "own rows are not written to the store",
    ),
    (
        "HoldsUnwritten",
        Faults::Crashes,
        "what is held for a job is not written to the store",
    ),
    (
        "RightsUnpublished",
        Faults::Crashes,
        "own rows are no part of the head",
    ),
    (
        "RightsUnheard",
        Faults::Crashes,
        "rows of members' heads are not read",
    ),
    (
        "EndedUncommitted",
        Faults::Crashes,
        "jobs that end are not charged",
    ),
    (
        "CommitUnwritten",
        Faults::Crashes,
        "a charge is not written with its usage",
    ),
    (
        "StoreTrusted",
        Faults::Losses,
        "a start takes its store to be the newest",
    ),
    (
        "OwnRightsUnread",
        Faults::Losses,
        "what peers give back of own rights is not read",
    ),
];

#[cfg(feature = "mutants")]
#[test]
fn each_planted_fault_is_found() {
    for (name, faults, says) in PLANTED {
        let _planted = fairmesh_model::mutant::plant(name);
        let finds = |seed: u64| std::panic::catch_unwind(move || play(Seed(seed), faults)).is_err();
        assert!((1..=40).any(finds), "{name} survives: {says}");
        assert!(fairmesh_model::mutant::reached() > 0, "{name} has no hook");
    }
}
