//! Disks that fill, flip, vanish and come back from backups.
//!
//! Invariant: what was gossiped is never lost, whatever becomes of one disk; what was only
//! acknowledged survives where the side file keeps a journal. Deliberately not here: the real store,
//! whose tests kill real processes.

use fairmesh_model::Millis;
use simnet::{StopReason, World};

use crate::support::{CHARGE, SYNC, charge_at, grid, report, spec, with_seeds};

#[test]
fn a_damaged_store_is_set_aside_and_filled_by_peers() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 4);
        report(&mut world, 2, "before").expect("it runs");
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(4)));
        world.flip_bit(2);
        world.restart(2).expect("there is room");
        assert_eq!(world.faults().of("store_set_aside"), 1);
        // The documents went with the store: its introducers give them back.
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
        assert_eq!(charge_at(&world, 2, &vo), CHARGE);
    });
}

#[test]
fn the_journal_of_the_side_file_keeps_what_was_not_published() {
    with_seeds(|seed| {
        let (mut spec, vo) = spec(4);
        spec.keeps_journal = true;
        let (mut world, vo) =
            crate::support::met(World::founded(seed, spec, std::slice::from_ref(&vo)), vo);
        world.island(&[2]);
        report(&mut world, 2, "alone").expect("it runs");
        world.wipe(2, true);
        world.start(2).expect("there is room");
        world.heal();
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(12)));
        assert_eq!(charge_at(&world, 0, &vo), CHARGE);
        let again = report(&mut world, 2, "alone").expect("it runs");
        assert_eq!(again.counted, 0);
    });
}

#[test]
fn an_old_backup_starts_a_new_life_and_loses_nothing_that_was_gossiped() {
    with_seeds(|seed| {
        for keeps_side in [false, true] {
            let (mut world, vo) = grid(seed, 4);
            report(&mut world, 1, "first").expect("it runs");
            world.backup(1);
            report(&mut world, 1, "second").expect("it runs");
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(4)));
            let streams = |world: &World| {
                let site = world.site(0).expect("it runs");
                site.vectors()[&vo.id].len()
            };
            let before = streams(&world);
            world.restore_backup(1, keeps_side);
            world.start(1).expect("there is room");
            report(&mut world, 1, "third").expect("it runs");
            world.run_for(SYNC.times(6));
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
            assert_eq!(streams(&world), before + 1);
            for node in 0..4 {
                assert_eq!(charge_at(&world, node, &vo), 3 * CHARGE);
            }
        }
    });
}

#[test]
fn a_full_disk_stops_the_node_until_there_is_room() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 3);
        world.fill_disk(1, 100);
        assert_eq!(report(&mut world, 1, "too much"), None);
        assert_eq!(world.node(1).stopped(), Some(StopReason::DiskFull));
        world.make_room(1);
        report(&mut world, 1, "too much").expect("it runs again");
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(8)));
        assert_eq!(charge_at(&world, 0, &vo), CHARGE);
    });
}
