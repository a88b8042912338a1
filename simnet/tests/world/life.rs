//! Processes that end at the worst moment, clocks that are wrong, and a layer that may lie.
//!
//! Invariant: what was acknowledged is counted once, in whatever effect a process ends. Deliberately
//! not here: lost disks (`disks`).

use fairmesh_model::JobKey;
use fairmesh_model::Millis;
use fairmesh_site::{Effect, Event, JobMark};
use simnet::{Action, Jobs, StepKind, Tamper, World};

use crate::support::{CHARGE, SYNC, a_job, charge_at, grid, report, with_seeds};

#[test]
fn a_crash_between_effects_loses_nothing_that_was_acknowledged() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 4);
        let mut acknowledged = 0;
        for round in 0..30 {
            world.crash_within(1, round % 5);
            let record = a_job(&world, 1, &format!("job {round}"));
            let mut answer = world.report(1, vec![record.clone()]);
            if answer.is_none() {
                world.start(1).expect("there is room");
                // A feed asks again until it is answered.
                answer = world.report(1, vec![record]);
            }
            acknowledged += u64::from(answer.is_some());
            world.run_for(Millis(3_000));
            world.heal();
        }
        assert_eq!(acknowledged, 30);
        assert!(world.faults().of("lost_write") > 0);
        assert!(world.faults().of("kept_write") > 0);
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
        assert_eq!(charge_at(&world, 0, &vo), 30 * CHARGE);
    });
}

#[test]
fn a_node_that_is_told_to_stop_has_told_everybody() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 4);
        report(&mut world, 3, "last words").expect("it runs");
        world.stop_gracefully(3);
        world.run_for(SYNC.times(4));
        assert!(!world.node(3).is_up());
        assert_eq!(charge_at(&world, 0, &vo), CHARGE);
        assert!(world.peers_of(0).all(|peer| peer != 3));
    });
}

#[test]
fn clocks_that_drift_and_jump_keep_nobody_from_agreeing() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 4);
        world.clock_drift(1, 300);
        world.clock_drift(2, -300);
        world.clock_jump(3, -120_000);
        for round in 0..20 {
            report_early(&mut world, round);
            world.run_for(Millis(10_000));
        }
        assert!(world.node(1).now(world.now()).wall > world.node(2).now(world.now()).wall);
        world.heal();
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
        assert_eq!(charge_at(&world, 0, &vo), 20 * CHARGE);
    });
}

/// A job that has ended by everybody's clock.
fn report_early(world: &mut World, round: usize) {
    let mut record = a_job(world, round % 4, &format!("job {round}"));
    record.start = record.start.before(Millis(600_000));
    record.end = record.end.before(Millis(600_000));
    world.report(round % 4, vec![record]).expect("it runs");
}

struct Honest;

impl Tamper for Honest {}

/// Looks no job up, so that everything counts each time.
struct Forgetful;

impl Tamper for Forgetful {
    fn mark(&mut self, _node: usize, _job: &JobKey, mark: &mut Option<JobMark>) {
        *mark = None;
    }
}

/// Keeps nobody's pushes.
struct Deaf;

impl Tamper for Deaf {
    fn event(&mut self, _node: usize, event: &mut Event) {
        if matches!(event, Event::Pushed { .. }) {
            *event = Event::Tick;
        }
    }

    fn effects(&mut self, _node: usize, effects: &mut Vec<Effect>) {
        effects.retain(|effect| !matches!(effect, Effect::ReportValidation { .. }));
    }
}

#[test]
fn a_layer_that_does_nothing_leaves_no_trace_and_one_that_lies_is_felt() {
    with_seeds(|seed| {
        let told = |tamper: Option<Box<dyn Tamper>>| {
            let (mut world, vo) = grid(seed, 3);
            world.set_tamper(tamper);
            report(&mut world, 0, "once").expect("it runs");
            let again = report(&mut world, 0, "once").expect("it runs");
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(6)));
            assert_eq!(charge_at(&world, 2, &vo), charge_at(&world, 0, &vo));
            (
                again.counted,
                world.node(2).verdicts.accepted,
                world.trace_hash(),
            )
        };
        let plain = told(None);
        assert_eq!(plain, told(Some(Box::new(Honest))));
        assert_eq!(told(Some(Box::new(Forgetful))).0, 1);
        assert!(told(Some(Box::new(Deaf))).1 < plain.1);
    });
}

#[test]
fn each_step_says_what_it_did_and_where() {
    with_seeds(|seed| {
        let (mut world, _) = grid(seed, 3);
        let end = world.now().after(Millis(20_000));
        let jobs = Jobs::default();
        world.at(end.after(Millis(1)), Action::Report { node: 1, jobs });
        let mut last = world.steps();
        while let Some(info) = world.step_until(end) {
            assert_eq!(info.number, last + 1);
            assert!(info.node.is_some() && info.at <= end);
            last = info.number;
        }
        let planned = world.step().expect("it is next");
        assert_eq!((planned.kind, planned.node), (StepKind::Action, Some(1)));
        assert_eq!(world.take_replies(1).len(), 1);
    });
}
