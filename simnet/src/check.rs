//! One seed, from its first step to its verdict.
//!
//! A run has a safety phase, in which faults happen and everything but progress is checked; then all
//! is put right at once, and the Grid must come to one view in time; then it is at rest, and its sums
//! must be the ledger's.
//!
//! Invariant: a run is a function of its seed, its options and its planted fault, and so is every byte
//! of its trace. Deliberately not here: many seeds (`pool`), and what is printed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use fairmesh_cluster::Seed;
use fairmesh_model::{IncarnationId, Millis, MonoTime, VoId};
use fairmesh_site::Site;

use crate::facts::watch::{Facts, SharedFacts, Watch};
use crate::invariants::{
    Invariant, LIVENESS, Lag, Liveness, NO_PANIC, SEES_TIME_WITHIN, Seen, Steps, TABLE, Violation,
};
use crate::liar::{Liars, Lie, named};
use crate::oracle::{Amounts, Oracle};
use crate::swarm::{Feeds, Options, QuotaStep, plan_credit, plan_faults};
use crate::vo::{Relabel, START};
use crate::world::{Action, StepInfo, StepKind, Tamper, World};

mod act;
mod credit;
mod heal;
mod lie;
pub mod outcome;
pub mod pool;
pub mod seeds;
pub mod shrink;
pub mod summary;

use credit::Credit;
pub use outcome::{Failure, Outcome, RunStats};

/// Steps between two checks that cost more.
const DEEP_EVERY: u64 = 96;

/// Within so many ticks after the heal every site has counted what it holds, also if it counts one table a tick.
const COUNTS_WITHIN_TICKS: u64 = 3_600;

/// Ticks between two looks at a Grid of which a site counts a few entries a tick.
const LOOK_TICKS: u64 = 4;

/// Looks between steps at random moments, and at windows that begin, of each length, at most.
const GLANCES: u64 = 120;

/// How often views are compared while the Grid is to become one.
const LOOK_EVERY: Millis = Millis(1_000);

/// Something that the run itself will do.
#[derive(Debug, Clone)]
enum Planned {
    Report(usize),
    Running(usize),
    Fault(Box<Action>),
    Relabel(usize),
    Lie(usize),
    Credit(QuotaStep),
    Crowd(usize),
    /// A look at all sites as they stand.
    Glance,
}

/// Where a run is.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Safety,
    /// Until all have had one view for as long as they must.
    Healed(Liveness),
    Over,
}

/// A run of one seed.
pub struct Run {
    seed: Seed,
    options: Options,
    world: World,
    ids: Vec<VoId>,
    oracle: Oracle,
    feeds: Feeds,
    credit: Credit,
    facts: SharedFacts,
    invariants: Vec<(Box<dyn Invariant>, u64)>,
    schedule: BTreeMap<(u64, u64), Planned>,
    planned: u64,
    phase: Phase,
    taken: Steps,
    /// Heads since the heal that not all hold.
    lag: Lag,
    /// When the next look is due, once the Grid is healed.
    look_at: MonoTime,
    /// Whose own sums do not depend on what peers give back.
    whole: Vec<bool>,
    /// Streams that a site had when it last lost its store.
    lost_streams: BTreeMap<usize, BTreeSet<(VoId, IncarnationId)>>,
    /// Sites that a charter does not list now, by VO.
    removed: BTreeSet<(usize, usize)>,
    /// What a site had counted of its own when its oldest backup was made.
    backups: BTreeMap<usize, Amounts>,
    departed: BTreeSet<(usize, usize)>,
    /// Sites whose feeds hold back what they have.
    paused: BTreeSet<usize>,
    /// Whether feeds have said once more what was left at the heal.
    told_again: bool,
    /// Who is who at each site.
    relabels: Vec<Relabel>,
    liars: BTreeSet<usize>,
    /// Of these, those whose nodes may see other things than honest ones.
    blinded: BTreeSet<usize>,
    /// Jobs that liars have made up.
    false_jobs: u64,
    /// The one invariant that is checked, where it is not all of them.
    only: Option<&'static str>,
    stats: RunStats,
    failure: Option<Failure>,
}

/// Liars whose nodes may see other things than honest ones.
fn blinded(options: &Options) -> BTreeSet<usize> {
    let sees = |lie: &str| named(lie).is_some_and(Lie::sees_rightly);
    let liars = options.liars.iter().filter(|liar| !sees(&liar.lie));
    liars.map(|liar| liar.site).collect()
}

impl Run {
    /// A run before its first step.
    pub fn new(seed: Seed, options: Options) -> Self {
        fairmesh_model::signed::remember_verdicts();
        fairmesh_model::signed::remember_documents();
        let vos = options.found();
        let spec = options.world(&vos);
        let mut world = World::founded(seed, spec, &vos);
        let facts: SharedFacts = Rc::new(RefCell::new(Facts::default()));
        let permille = options.link.garbage_permille;
        let garbage = (permille > 0).then(|| (seed.stream("swarm broken bytes"), permille));
        let node_of: HashMap<_, _> = world
            .nodes()
            .iter()
            .map(|node| (node.id, node.index))
            .collect();
        let liars = (!options.liars.is_empty())
            .then(|| Liars::new(seed, &options.liars, &vos, Rc::clone(&facts)))
            .map(|liars| Box::new(liars) as Box<dyn Tamper>);
        let watch = Watch::new(Rc::clone(&facts), liars, garbage, node_of);
        world.set_tamper(Some(Box::new(watch)));
        world.set_usual_link(options.link.spec());
        let sites_that_lie: BTreeSet<usize> = options.liars.iter().map(|liar| liar.site).collect();
        world.set_liars(sites_that_lie.clone());
        let mut oracle = Oracle::new(options.sites);
        oracle.short = options.short_histories(&vos);
        for vo in &vos {
            oracle.published.found(vo.id, vo.spec.window);
            vo.documents()
                .for_each(|bytes| oracle.documents.signed(bytes));
        }
        let mut run = Self {
            seed,
            ids: vos.iter().map(|vo| vo.id).collect(),
            feeds: Feeds::new(seed, &options),
            credit: Credit::new(seed, options.sites, options.quotas.is_some()),
            invariants: TABLE
                .iter()
                .map(|entry| ((entry.make)(options.sites), 0))
                .collect(),
            schedule: BTreeMap::new(),
            planned: 0,
            phase: Phase::Safety,
            taken: Steps::default(),
            lag: Lag::default(),
            look_at: MonoTime(0),
            whole: vec![true; options.sites],
            lost_streams: BTreeMap::new(),
            removed: BTreeSet::new(),
            backups: BTreeMap::new(),
            departed: BTreeSet::new(),
            paused: BTreeSet::new(),
            told_again: false,
            relabels: vec![Relabel::Usual; options.sites],
            liars: sites_that_lie,
            blinded: blinded(&options),
            false_jobs: 0,
            only: None,
            stats: RunStats::default(),
            failure: None,
            options,
            world,
            oracle,
            facts,
        };
        run.plan();
        run
    }

    /// The same run, which looks at nothing but one invariant and liveness.
    pub fn only(mut self, invariant: &'static str) -> Self {
        self.only = Some(invariant);
        self
    }

    /// The seed.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The world, to look at.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What failed, if something has.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Takes one step of the world, or does what is planned. False when the verdict is in.
    pub fn step(&mut self) -> bool {
        if self.failure.is_some() || matches!(self.phase, Phase::Over) {
            return false;
        }
        let until = self.next_own();
        match self.world.step_until(until) {
            Some(info) => self.after_step(info),
            None => {
                self.world.run_until(until);
                self.do_own(until);
            }
        }
        self.failure.is_none() && !matches!(self.phase, Phase::Over)
    }

    /// Runs to the end. A panic in a node is the end of the run, and its failure.
    pub fn finish(mut self) -> Outcome {
        let run = || while self.step() {};
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(run)) {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let message = format!("a node panics: {}", said.unwrap_or("without a word"));
            self.failure = Some(Failure {
                invariant: NO_PANIC.to_owned(),
                node: None,
                at_ms: self.world.now().0,
                message,
                last_events: Vec::new(),
            });
        }
        self.outcome()
    }

    /// What has come of it so far.
    pub fn outcome(&self) -> Outcome {
        let mut stats = self.stats.clone();
        let checks = TABLE.iter().zip(&self.invariants);
        stats.checks = checks
            .map(|(entry, (_, checks))| (entry.name, *checks))
            .collect();
        let faults = self.world.faults().iter();
        // Beside what feeds and owners did.
        stats
            .faults
            .extend(faults.map(|(word, count)| (word.to_owned(), count)));
        for liar in &self.options.liars {
            *stats
                .faults
                .entry(format!("lies: {}", liar.lie))
                .or_default() += 1;
        }
        stats.steps = self.world.steps();
        stats.node_ms = self.world.now().0 * self.options.sites as u64;
        Outcome {
            seed: self.seed,
            trace_hash: self.world.trace_hash(),
            failure: self.failure.clone(),
            stats,
        }
    }

    fn plan(&mut self) {
        let ms = self.options.minutes * 60_000;
        let mut random = self.seed.stream("swarm report times");
        let stretch = self.options.stretch;
        let reports = self.options.minutes * self.options.reports_per_hour / 60 / stretch;
        for node in 0..self.options.sites {
            for _ in 0..reports {
                self.at(random.below(ms), Planned::Report(node));
            }
            let every = self.options.running_s * 1_000 * stretch;
            if every > 0 {
                let first = random.below(every);
                let mut at = first;
                while at < ms {
                    self.at(at, Planned::Running(node));
                    at += every;
                }
            }
        }
        let mut random = self.seed.stream("swarm identity changes");
        for _ in 0..self.options.load.identity_changes {
            let (at, node) = (random.below(ms), random.index(self.options.sites));
            self.at(at, Planned::Relabel(node));
        }
        let mut random = self.seed.stream("swarm lies");
        for node in self.liars.clone() {
            for _ in 0..lie::LIES {
                self.at(random.below(ms), Planned::Lie(node));
            }
        }
        if let Some(quotas) = self.options.quotas {
            for (at, step) in plan_credit(self.seed, &quotas, self.options.sites, ms) {
                self.at(at, Planned::Credit(step));
            }
        }
        if self.options.load.crowd > 0 {
            let mut random = self.seed.stream("swarm crowd time");
            let node = random.index(self.options.sites);
            self.at(random.below(ms), Planned::Crowd(node));
        }
        self.plan_glances(ms);
        for planned in plan_faults(self.seed, &self.options, ms) {
            let action = Box::new(planned.action);
            self.at(planned.at.0, Planned::Fault(action));
        }
    }

    /// Looks at random moments, and soon after windows have begun.
    fn plan_glances(&mut self, ms: u64) {
        let mut random = self.seed.stream("swarm glances");
        for _ in 0..GLANCES {
            self.at(random.below(ms), Planned::Glance);
        }
        let windows = self.options.vos.iter().map(|vo| vo.window_s);
        let windows: BTreeSet<u64> = windows.chain([self.options.local_window_s]).collect();
        for window_ms in windows.into_iter().map(|window_s| window_s * 1_000) {
            let first = window_ms - START.0 % window_ms;
            let many = (ms / window_ms).div_ceil(GLANCES).max(1);
            for window in (0..ms / window_ms).step_by(usize::try_from(many).unwrap_or(1)) {
                let at = first + window * window_ms + SEES_TIME_WITHIN.0;
                self.at(at + 2 * self.options.tick().0 + 1, Planned::Glance);
            }
        }
    }

    fn at(&mut self, at_ms: u64, what: Planned) {
        self.planned += 1;
        self.schedule.insert((at_ms, self.planned), what);
    }

    fn next_own(&self) -> MonoTime {
        let next = self.schedule.keys().next().map(|(at, _)| MonoTime(*at));
        match self.phase {
            Phase::Safety => {
                let end = MonoTime(self.options.minutes * 60_000);
                next.map_or(end, |next| next.min(end))
            }
            _ => self.look_at,
        }
    }

    fn do_own(&mut self, now: MonoTime) {
        match self.phase {
            Phase::Safety if now.0 >= self.options.minutes * 60_000 => self.heal(),
            Phase::Safety => {
                if let Some((_, planned)) = self.schedule.pop_first() {
                    self.act(planned);
                }
            }
            Phase::Healed(liveness) => self.look_for_one_view(now, liveness),
            Phase::Over => {}
        }
    }

    fn after_step(&mut self, info: StepInfo) {
        let deep = info.number.is_multiple_of(DEEP_EVERY);
        self.look(info.node, info.kind, deep);
        if let Err(message) = self.taken.count(info.at, self.options.sites) {
            self.fails(LIVENESS, Violation::of_all(message));
        }
    }

    fn fails(&mut self, invariant: &'static str, violation: Violation) {
        self.failure = Some(Failure::of(invariant, violation, &self.world));
    }

    /// Checks every invariant that looks at moments.
    fn look(&mut self, node: Option<usize>, kind: StepKind, deep: bool) {
        if let Some(node) = node.filter(|_| self.options.quotas.is_some()) {
            self.note_steady(node, kind);
            if !self.credit.books.waiting.is_empty() {
                self.hear_waiting(node);
            }
        }
        self.look_with(node, kind, deep, |invariant, seen, checks| {
            invariant.after_step(seen, checks)
        });
        self.credit.books.were_judged();
    }

    fn look_with(
        &mut self,
        node: Option<usize>,
        kind: StepKind,
        deep: bool,
        check: impl Fn(&mut dyn Invariant, &Seen<'_>, &mut u64) -> Result<(), Violation>,
    ) {
        let facts = self.facts.take();
        self.stats.garbage += facts.garbage;
        if let Some(liar) = node.filter(|node| self.is_liar(*node)) {
            // What others have signed meanwhile, when somebody told them something, is judged with the next step.
            self.facts.replace(facts.of_others(liar));
            return;
        }
        self.facts.replace(facts.behind());
        for seen in facts.heads.iter().filter(|seen| seen.own) {
            let (site, incarnation) = (seen.head.site, seen.head.incarnation);
            let stream = IncarnationId { site, incarnation };
            self.oracle.published.signed(seen.head.vo, stream);
        }
        self.check_all((node, kind, deep), &facts, check);
    }

    /// Looks at all sites as they stand, between two steps.
    fn glance(&mut self) {
        let facts = Facts::default();
        let of = (None, StepKind::Action, false);
        self.check_all(of, &facts, |invariant, seen, checks| {
            invariant.between_steps(seen, checks)
        });
    }

    fn check_all(
        &mut self,
        (node, kind, deep): (Option<usize>, StepKind, bool),
        facts: &Facts,
        check: impl Fn(&mut dyn Invariant, &Seen<'_>, &mut u64) -> Result<(), Violation>,
    ) {
        self.oracle.now = self.world.true_wall();
        let seen = Seen {
            world: &self.world,
            node,
            kind,
            facts,
            oracle: &self.oracle,
            books: &self.credit.books,
            deep,
            whole: &self.whole,
            vos: &self.ids,
            liars: &self.options.liars,
        };
        let all = TABLE.iter().zip(&mut self.invariants);
        let looked_at = all.filter(|(entry, _)| self.only.is_none_or(|only| only == entry.name));
        for (entry, (invariant, checks)) in looked_at {
            if let Err(violation) = check(invariant.as_mut(), &seen, checks) {
                return self.fails(entry.name, violation);
            }
        }
    }

    /// Whether an honest site has something to say of a VO that its newest head does not.
    fn is_unsigned(&self) -> bool {
        let honest = (0..self.options.sites).filter(|node| !self.blinded.contains(node));
        let mut sites = honest.filter_map(|node| self.world.site(node));
        sites.any(|site| self.ids.iter().any(|vo| site.has_unpublished(*vo)))
    }

    /// Whether an honest site may still count: its heads change numbers, or it feeds its next tree.
    fn is_counting(&self, now: MonoTime, healed: MonoTime) -> bool {
        let within = self.options.tick().times(COUNTS_WITHIN_TICKS);
        let honest = (0..self.options.sites).filter(|node| !self.blinded.contains(node));
        let mut sites = honest.filter_map(|node| self.world.site(node));
        let counts = |site: &Site| self.ids.iter().any(|vo| site.is_counting(*vo));
        now.since(healed) < within && sites.any(|site| site.is_feeding() || counts(site))
    }

    fn look_for_one_view(&mut self, now: MonoTime, mut liveness: Liveness) {
        let is_counting = self.is_counting(now, liveness.healed);
        let is_slow = is_counting && self.options.counts_in_steps();
        self.look_at = match is_slow && now > liveness.flushed {
            true => now.after(self.options.tick().times(LOOK_TICKS)),
            false => now.after(LOOK_EVERY.times(self.options.stretch)),
        };
        if now >= liveness.flushed && !std::mem::replace(&mut self.told_again, true) {
            for node in 0..self.options.sites {
                self.tell_the_rest(node);
                self.note_untaken(node);
                self.tell_all_again(node);
            }
            self.facts.borrow_mut().is_still = true;
        }
        let vos = self.world.founded_vos();
        let difference = Liveness::difference(&self.world, vos, &self.blinded);
        let lacked = self.lag.look(now, &self.world, vos, &self.blinded);
        let looked = liveness.look(now, difference, (lacked, is_slow));
        self.phase = Phase::Healed(liveness);
        match looked {
            Ok(false) => {}
            Ok(true) if liveness.may_wait(now) && self.is_unsigned() => {}
            Ok(true) if is_counting => {}
            Ok(true) => {
                let took = liveness.one_since().since(liveness.healed);
                self.stats.healed_ms = Some(took.0);
                self.stats.liveness_checks += 1;
                self.whole.fill(true);
                self.look_with(None, StepKind::Action, true, |invariant, seen, checks| {
                    invariant.at_rest(seen, checks)
                });
                self.phase = Phase::Over;
            }
            Err(violation) => self.fails(LIVENESS, violation),
        }
    }
}
