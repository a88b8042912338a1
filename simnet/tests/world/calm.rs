//! Without faults everybody learns everything, a newcomer is let in, and one seed is one trace.
//!
//! Invariant: no fault is counted where none was asked for. Deliberately not here: numbers that the
//! sites compute; their own tests check those.

use fairmesh_cluster::Seed;
use fairmesh_model::Millis;
use simnet::World;

use crate::support::{CHARGE, SYNC, charge_at, grid, met, report, spec, with_seeds};

#[test]
fn a_calm_mesh_agrees() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 6);
        for node in 0..6 {
            let reported = report(&mut world, node, &format!("job {node}"));
            assert_eq!(reported.map(|reported| reported.counted), Some(1));
        }
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(4)));
        for node in 0..6 {
            assert_eq!(charge_at(&world, node, &vo), 6 * CHARGE);
        }
        assert_eq!(world.faults().total(), 0);
    });
}

#[test]
fn one_report_twice_counts_once() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 3);
        report(&mut world, 1, "once").expect("it runs");
        let again = report(&mut world, 1, "once").expect("it runs");
        assert_eq!((again.counted, again.known), (0, 1));
        assert_eq!(charge_at(&world, 1, &vo), CHARGE);
    });
}

#[test]
fn documents_spread_from_one_site_and_a_newcomer_is_let_in() {
    with_seeds(|seed| {
        let (mut spec, vo) = spec(5);
        spec.late.insert(4);
        let mut world = World::new(seed, spec);
        world.publish(0, vo.charter.bytes()).expect("it is valid");
        world.publish(0, vo.policy.bytes()).expect("it is valid");
        let (mut world, vo) = met(world, vo);
        report(&mut world, 2, "before").expect("it runs");
        world.start(4).expect("a new disk has room");
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
        assert_eq!(charge_at(&world, 4, &vo), CHARGE);
        assert_eq!(world.peers_of(4).count(), 4);
    });
}

#[test]
fn one_seed_is_one_trace() {
    let trace = |seed| {
        let (mut spec, vo) = spec(5);
        spec.network.link = simnet::LinkSpec::ROUGH;
        let mut world = World::founded(Seed(seed), spec, std::slice::from_ref(&vo));
        for round in 0..20 {
            report(&mut world, round % 5, &format!("job {round}"));
            world.run_for(Millis(7_000));
            if round == 10 {
                world.crash_within(2, 1);
            }
        }
        world.heal();
        world.run_for(Millis(60_000));
        (world.trace_hash(), world.steps(), world.log().lines())
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1).0, trace(2).0);
}
