//! Cuts of all shapes, bad links, and what reaches whom across them.
//!
//! Invariant: a cut or a bad link delays what sites know; it never changes what they agree on in the
//! end. Deliberately not here: eager push in larger Grids (`pushes`).

use fairmesh_model::Millis;
use simnet::LinkSpec;

use crate::support::{CHARGE, SYNC, charge_at, grid, report, with_seeds};

/// Long enough for both ends of a session to notice a cut.
const NOTICED: Millis = Millis(25_000);

#[test]
fn sides_differ_until_the_cut_is_healed() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 6);
        world.partition(&[vec![0, 1, 2]]);
        world.run_for(NOTICED);
        assert_eq!(world.peers_of(0).collect::<Vec<_>>(), [1, 2]);
        report(&mut world, 0, "here").expect("it runs");
        report(&mut world, 5, "there").expect("it runs");
        world.run_for(SYNC.times(6));
        assert!(!world.agree(vo.id));
        assert_eq!(charge_at(&world, 2, &vo), CHARGE);
        world.heal_network();
        assert!(world.run_until_quiet(Millis(500), SYNC.times(3)));
        assert_eq!(charge_at(&world, 2, &vo), 2 * CHARGE);
    });
}

#[test]
fn a_short_cut_breaks_no_session() {
    with_seeds(|seed| {
        let (mut world, _) = grid(seed, 4);
        world.island(&[3]);
        world.run_for(Millis(5_000));
        world.heal_network();
        world.run_for(Millis(30_000));
        let cut = |line: &String| line.contains("disconnected");
        assert!(!world.log().lines().iter().any(cut));
        assert_eq!(world.peers_of(3).count(), 3);
    });
}

#[test]
fn a_cut_of_one_direction_ends_sessions_and_others_pass_the_word_on() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 4);
        world.cut_one_way(&[0], &[1]);
        world.run_for(NOTICED);
        assert_eq!(world.peers_of(1).collect::<Vec<_>>(), [2, 3]);
        report(&mut world, 0, "here").expect("it runs");
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(6)));
        assert_eq!(charge_at(&world, 1, &vo), CHARGE);
        assert_eq!(world.faults().of("cut_one_way"), 1);
    });
}

#[test]
fn a_bridge_joins_two_sides() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 7);
        world.partition(&[vec![0, 1, 2], vec![4, 5, 6]]);
        world.run_for(NOTICED);
        report(&mut world, 0, "here").expect("it runs");
        world.run_for(SYNC.times(6));
        assert!(!world.agree(vo.id));
        world.bridge(3);
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(6)));
        assert_eq!(charge_at(&world, 6, &vo), CHARGE);
        assert_eq!(world.peers_of(0).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn rough_links_delay_and_change_nothing() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 5);
        world.set_usual_link(LinkSpec::ROUGH);
        for round in 0..40 {
            report(&mut world, round % 5, &format!("job {round}")).expect("it runs");
            world.run_for(Millis(15_000));
        }
        for kind in ["loss", "duplication", "reordering"] {
            assert!(world.faults().of(kind) > 0, "{kind}");
        }
        world.calm_links();
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(20)));
        assert_eq!(charge_at(&world, 0, &vo), 40 * CHARGE);
        // What is played back from sessions of hours ago counts nothing again.
        world.set_tick(Millis(30_000));
        world.run_for(Millis(7 * 3_600_000));
        assert!(world.faults().of("replay") > 0);
        assert_eq!(charge_at(&world, 0, &vo), 40 * CHARGE);
    });
}

#[test]
fn a_clogged_link_makes_nobody_forget() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 3);
        let clogged = LinkSpec {
            bandwidth_bytes_per_s: 100,
            queue_bytes_max: 1_000,
            ..LinkSpec::CALM
        };
        world.set_links_between(0, 1, clogged);
        for round in 0..10 {
            report(&mut world, 0, &format!("job {round}")).expect("it runs");
            world.run_for(Millis(10_000));
        }
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(20)));
        assert_eq!(charge_at(&world, 1, &vo), 10 * CHARGE);
    });
}
