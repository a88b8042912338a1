//! Disks that fill, flip, vanish and come back from backups.
//!
//! Invariant: what was gossiped is never lost, whatever becomes of one disk; what was only
//! acknowledged survives where the journal outlives its store. Deliberately not here: the real store,
//! whose tests kill real processes.

use fairmesh_cluster::Seed;
use fairmesh_model::{Millis, UsageRecord, WallTime};
use fairmesh_round::{JOURNAL, SIDE};
use simnet::vo::{HOUR, Vo};
use simnet::{StopReason, World};

use crate::support::{CHARGE, SYNC, a_job, charge_at, grid, met, report, spec, with_seeds};

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
fn the_journal_keeps_what_was_not_published() {
    with_seeds(|seed| {
        let (mut world, vo) = grid_with_journals(seed, 4);
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

/// A Grid whose journals outlive their stores.
fn grid_with_journals(seed: Seed, sites: usize) -> (World, Vo) {
    let (mut spec, vo) = spec(sites);
    spec.keeps_journal = true;
    met(World::founded(seed, spec, std::slice::from_ref(&vo)), vo)
}

#[test]
fn a_bit_that_flips_beside_a_whole_store_costs_nothing() {
    with_seeds(|seed| {
        for file in [SIDE, JOURNAL] {
            let (mut world, vo) = grid_with_journals(seed, 3);
            world.island(&[1]);
            report(&mut world, 1, "alone").expect("it runs");
            let disk = &mut world.node_mut(1).disk;
            assert!(disk.flip_bit_of(&file, &mut seed.stream("a flip")));
            world.restart(1).expect("there is room");
            // What was put in its place is as good as what it was.
            world.wipe(1, true);
            world.start(1).expect("there is room");
            let again = report(&mut world, 1, "alone").expect("it runs");
            assert_eq!(again.counted, 0);
            world.heal();
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(12)));
            assert_eq!(charge_at(&world, 0, &vo), CHARGE);
        }
    });
}

#[test]
fn a_store_that_is_put_back_beside_its_journal_is_not_taken_back_at_later_starts() {
    with_seeds(|seed| {
        let (mut world, vo) = grid_with_journals(seed, 3);
        let job = a_job(&world, 1, "long");
        let until = |tenths: u64| UsageRecord {
            end: WallTime(job.start.0 + tenths * HOUR.0 / 10),
            running: true,
            ..job.clone()
        };
        let told = |world: &mut World, tenths| {
            let answer = world.report(1, vec![until(tenths)]);
            answer.expect("it runs").counted
        };
        assert_eq!(told(&mut world, 1), 1);
        world.backup(1);
        (2..6).for_each(|tenths| assert_eq!(told(&mut world, tenths), 1));
        world.restore_backup(1, true);
        world.start(1).expect("there is room");
        for tenths in 6..10 {
            assert_eq!(told(&mut world, tenths), 1);
            world.restart(1).expect("there is room");
            assert_eq!(told(&mut world, tenths), 0, "{tenths} tenths are counted");
        }
        assert!(world.run_until_quiet(Millis(1_000), SYNC.times(12)));
        assert_eq!(charge_at(&world, 0, &vo), CHARGE / 10 * 9);
    });
}

#[test]
fn an_old_backup_covers_its_earlier_heads_and_loses_nothing_that_was_published() {
    with_seeds(|seed| {
        for keeps_side in [false, true] {
            let (mut world, vo) = grid(seed, 4);
            report(&mut world, 1, "first").expect("it runs");
            world.backup(1);
            report(&mut world, 1, "second").expect("it runs");
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(4)));
            let heads = |world: &World| {
                let site = world.site(0).expect("it runs");
                site.vectors()[&vo.id].len()
            };
            let before = heads(&world);
            world.restore_backup(1, keeps_side);
            world.start(1).expect("there is room");
            report(&mut world, 1, "third").expect("it runs");
            world.run_for(SYNC.times(6));
            assert!(world.run_until_quiet(Millis(1_000), SYNC.times(10)));
            assert_eq!(heads(&world), before, "the new head covers the one before");
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
