//! Running a scenario: load and steps at their times, what held, and the end.
//!
//! Invariant: a scenario and a seed give one trace and one story. After the last step everything is
//! put right, and whatever the file says, all must agree and know of all that was acknowledged.
//!
//! Deliberately not here: printing (the command line) and reports of failures (`report`).

use fairmesh_cluster::Seed;
use fairmesh_model::{Millis, MonoTime};

use super::condition::Condition;
use super::expect::Expect;
use super::feed::Feeds;
use super::{Scenario, Step, What};
use crate::facts::watch::Watch;
use crate::length::length;
use crate::vo::{OwnerSpec, Vo};
use crate::world::{Action, Counts, World, WorldSpec};

/// How often agreement is looked for while it is awaited.
const LOOK: Millis = Millis(500);

/// Entries of the event log: enough for a report to show what led to a failure.
const LOG_ENTRIES: usize = 4_096;

/// A line of the story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: MonoTime,
    /// The line of the file; 0 for what all scenarios end with.
    pub line: usize,
    /// What happened, or was expected.
    pub what: String,
    /// Whether it held; `None` where it was a task.
    pub verdict: Option<Verdict>,
}

/// Whether an expectation held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It did, with a remark, which may be empty.
    Held(String),
    /// It did not, and this is the case.
    Failed(String),
}

/// What a run was asked for beside its scenario.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Ends the run early.
    pub until: Option<MonoTime>,
}

/// What came of a run. The world is as it was at the end.
pub struct Outcome {
    /// The world.
    pub world: World,
    /// The seed.
    pub seed: Seed,
    /// Expectations that held.
    pub held: usize,
    /// Those that did not; the first one's line comes first.
    pub failed: Vec<Line>,
    /// The longest time that any agreement took which was waited for.
    pub convergence: Millis,
    /// Records that were acknowledged.
    pub records: u64,
}

impl Outcome {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Sites times simulated time, in years.
    pub fn node_years(&self) -> f64 {
        let years = self.world.now().0 as f64 / (365.25 * 86_400_000.0);
        years * self.world.nodes().len() as f64
    }

    /// Faults by kind.
    pub fn faults(&self) -> &Counts {
        self.world.faults()
    }
}

/// A scenario under way.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    pub(super) world: World,
    pub(super) feeds: Feeds,
    condition: &'a mut dyn Condition,
    tell: &'a mut dyn FnMut(&Line),
    plan: Plan,
    broken: Option<String>,
    held: usize,
    failed: Vec<Line>,
    convergence: Millis,
}

/// Runs a scenario with a seed, telling every line of the story as it comes.
pub fn run(
    scenario: &Scenario,
    seed: Seed,
    plan: Plan,
    condition: &mut dyn Condition,
    tell: &mut dyn FnMut(&Line),
) -> Outcome {
    // One thread is all sites: a signature is checked once for all of them.
    fairmesh_model::signed::remember_verdicts();
    let mut run = Run::new(scenario, seed, plan, condition, tell);
    for step in &scenario.steps {
        if !run.go_to(MonoTime(step.at.0)) {
            return run.finish(seed);
        }
        run.take_step(step);
    }
    if run.go_to(MonoTime(scenario.duration.0)) {
        run.end();
    }
    run.finish(seed)
}

impl<'a> Run<'a> {
    fn new(
        scenario: &'a Scenario,
        seed: Seed,
        plan: Plan,
        condition: &'a mut dyn Condition,
        tell: &'a mut dyn FnMut(&Line),
    ) -> Self {
        let found = |(index, spec): (usize, &crate::vo::VoSpec)| {
            Vo::found(index, spec.clone()).expect("the file was checked")
        };
        let vos: Vec<Vo> = scenario.vos.iter().enumerate().map(found).collect();
        let grid = &scenario.grid;
        let owner = OwnerSpec {
            timing: grid.timing(),
            ..OwnerSpec::default()
        };
        let mut spec = WorldSpec::of_vos(grid.sites, &vos, &owner);
        spec.late = grid.late.iter().copied().collect();
        spec.tick = grid.tick.unwrap_or(spec.tick);
        spec.network = grid.network();
        spec.keeps_journal = grid.keeps_journal;
        spec.log_entries = LOG_ENTRIES;
        let mut world = World::founded(seed, spec, &vos);
        if let Some(facts) = condition.facts() {
            let nodes = world.nodes().iter();
            let node_of = nodes.map(|node| (node.id, node.index)).collect();
            let watch = Watch::new(facts, None, None, node_of);
            world.set_tamper(Some(Box::new(watch)));
        }
        Self {
            scenario,
            world,
            feeds: Feeds::new(seed, grid.sites, &scenario.loads, &vos),
            condition,
            tell,
            plan,
            broken: None,
            held: 0,
            failed: Vec::new(),
            convergence: Millis(0),
        }
    }

    /// Lets load come and time pass up to `time`; false where the run ends before.
    fn go_to(&mut self, time: MonoTime) -> bool {
        let end = self.plan.until.map_or(time, |until| until.min(time));
        while let Some(next) = self.feeds.next().filter(|next| *next <= end) {
            if !self.pass(next) {
                return false;
            }
            self.feeds.advance(&mut self.world);
        }
        self.pass(end) && end == time
    }

    /// Lets time pass without load, checking every step.
    fn pass(&mut self, time: MonoTime) -> bool {
        while self.broken.is_none() {
            let Some(step) = self.world.step_until(time) else {
                self.world.run_until(time);
                return true;
            };
            if let Err(why) = self.condition.step(&self.world, &step) {
                self.broken = Some(why.clone());
                let what = "nothing is broken".to_owned();
                self.tell(0, what, Some(Verdict::Failed(why)));
            }
        }
        false
    }

    fn take_step(&mut self, step: &Step) {
        let verdict = match &step.what {
            What::Do(action) => self.act(action).err().map(Verdict::Failed),
            What::Expect(expect @ Expect::Agree { within, .. }) if *within > Millis(0) => {
                Some(self.wait_for(expect, *within))
            }
            What::Expect(expect) => Some(match self.judge(expect) {
                Ok(remark) => Verdict::Held(remark),
                Err(why) => Verdict::Failed(why),
            }),
        };
        self.tell(step.line, step.text.clone(), verdict);
    }

    /// Does it now. An error is the scenario's fault: it asks for something that cannot be.
    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Report { node, jobs } => {
                self.feeds.ask_for(*node, jobs, &mut self.world);
                return Ok(());
            }
            Action::PauseLoad { nodes } => self.feeds.hold(nodes, true),
            Action::ResumeLoad { nodes } => self.feeds.hold(nodes, false),
            Action::Wipe { nodes, keeps_side } | Action::RestoreBackup { nodes, keeps_side } => {
                for node in nodes {
                    self.condition.forgot(*node, *keeps_side);
                }
            }
            _ => {}
        }
        let done = self.world.apply(action);
        // Whoever is up again is told what it has not acknowledged yet.
        self.feeds.flush(&mut self.world);
        done
    }

    fn wait_for(&mut self, expect: &Expect, within: Millis) -> Verdict {
        let began = self.world.now();
        self.feeds.hold_all(true);
        let mut last = self.judge(expect);
        while last.is_err() && self.world.now().since(began) < within {
            let next = self.world.now().after(LOOK);
            if !self.pass(next) {
                break;
            }
            last = self.judge(expect);
        }
        self.feeds.hold_all(false);
        let took = self.world.now().since(began);
        match last {
            Ok(_) => {
                self.convergence = self.convergence.max(took);
                Verdict::Held(format!("after {}", length(took)))
            }
            Err(why) => Verdict::Failed(why),
        }
    }

    /// What all scenarios end with.
    fn end(&mut self) {
        self.world.heal();
        self.feeds.hold(&[], false);
        self.feeds.flush(&mut self.world);
        // What nobody waits for in a story.
        let patience = self.scenario.grid.timing().sync.times(20);
        let expect = Expect::Agree {
            vo: None,
            within: patience,
        };
        let verdict = self.wait_for(&expect, patience);
        self.tell(
            0,
            format!("in the end agree, within = {}", length(patience)),
            Some(verdict),
        );
        if self.broken.is_none() {
            let verdict = match self.condition.end(&self.world, &self.feeds.acknowledged) {
                Ok(()) => Verdict::Held(format!("{} records", self.feeds.records)),
                Err(why) => Verdict::Failed(why),
            };
            let what = "in the end all that was acknowledged is known, once".to_owned();
            self.tell(0, what, Some(verdict));
        }
    }

    fn tell(&mut self, line: usize, what: String, verdict: Option<Verdict>) {
        let at = self.world.now();
        let line = Line {
            at,
            line,
            what,
            verdict,
        };
        (self.tell)(&line);
        match line.verdict {
            Some(Verdict::Held(_)) => self.held += 1,
            Some(Verdict::Failed(_)) => self.failed.push(line),
            None => {}
        }
    }

    fn finish(self, seed: Seed) -> Outcome {
        Outcome {
            world: self.world,
            seed,
            held: self.held,
            failed: self.failed,
            convergence: self.convergence,
            records: self.feeds.records,
        }
    }
}
