//! Members that a charter drops and lists again.
//!
//! What holds for a VO: a site that has kept its store brings its usage along when it is listed again,
//! each job once, also where the store is an old backup. What a site has lost and only its peers held
//! goes with the charter that drops it, since the usage of a VO is that of its members: list a site
//! that was wiped again only after its records were reported anew. Charters that drop a site and list
//! it again may reach everybody at once; the order in which they were signed decides.
//!
//! Deliberately not here: what each node keeps of strangers (the site's own stories).

use fairmesh_model::Millis;
use simnet::vo::{Vo, VoSpec, site_config};
use simnet::{World, WorldSpec};

use crate::support::{CHARGE, SYNC, charge_at, grid, owner, report, with_seeds};

/// Sync intervals in which everybody must have one view again.
const INTERVALS: u64 = 3;

/// The next charter does not list site 3, or lists it again; handed in at site 0.
fn list(world: &mut World, vo: &mut Vo, is_member: bool) {
    let change = vo.next_charter(|charter| {
        if is_member {
            charter.sites.push(Vo::member(3, 1_000));
        } else {
            charter
                .sites
                .retain(|member| member.site != simnet::vo::site_id(3));
        }
    });
    let bytes = change.expect("it differs");
    world.publish(0, &bytes).expect("site 0 is a member");
}

fn all_count(world: &mut World, vo: &Vo, charge: u64) {
    world.run_for(SYNC.times(INTERVALS).max(Millis(5_000)));
    // One publish interval for what the site had not published.
    assert!(world.run_until_quiet(Millis(500), SYNC));
    for node in 0..world.nodes().len() {
        assert_eq!(charge_at(world, node, vo), charge, "site {node}");
    }
}

/// Found by seed 987654612: the site had asked its peers in vain while it was a stranger, and was
/// answered at the pace of the clock when it was one no more.
#[test]
fn a_site_that_restored_a_backup_while_it_was_no_member_counts_as_everybody_once_it_is_again() {
    with_seeds(|seed| {
        let (mut world, mut vo) = grid(seed, 9);
        report(&mut world, 3, "before the backup").expect("it runs");
        world.backup(3);
        world.run_for(SYNC.times(4));
        list(&mut world, &mut vo, false);
        world.run_for(SYNC.times(4));
        world.restore_backup(3, true);
        world.start(3).expect("there is room");
        world.run_for(SYNC.times(40));
        report(&mut world, 3, "behind it").expect("it runs");
        list(&mut world, &mut vo, true);
        all_count(&mut world, &vo, 2 * CHARGE);
    });
}

#[test]
fn a_site_that_kept_its_store_brings_its_usage_along() {
    with_seeds(|seed| {
        let (mut world, mut vo) = grid(seed, 4);
        report(&mut world, 3, "first").expect("it runs");
        world.run_for(SYNC.times(4));
        list(&mut world, &mut vo, false);
        world.run_for(SYNC.times(4));
        assert_eq!(
            charge_at(&world, 0, &vo),
            0,
            "who is no member does not count"
        );
        list(&mut world, &mut vo, true);
        all_count(&mut world, &vo, CHARGE);
    });
}

/// Found by seeds 987654579 and 987654785: both charters came at once, to peers that held the only copy. They
/// keep what a removed site had published, and it counts again with the charter that lists the site again.
#[test]
fn what_a_removed_site_has_lost_comes_back_with_the_charter_that_lists_it_again() {
    with_seeds(|seed| {
        let (mut world, mut vo) = grid(seed, 4);
        report(&mut world, 3, "lost with the disk").expect("it runs");
        world.run_for(SYNC.times(4));
        world.wipe(3, true);
        list(&mut world, &mut vo, false);
        list(&mut world, &mut vo, true);
        world.start(3).expect("there is room");
        world.run_for(SYNC.times(2));
        report(&mut world, 3, "behind it").expect("it runs");
        all_count(&mut world, &vo, 2 * CHARGE);
    });
}

/// Found by seed 5339: the side file of each held only what the other was not known to hold.
#[test]
fn what_two_sites_lose_one_after_the_other_is_lost() {
    with_seeds(|seed| {
        let (mut world, vo) = grid(seed, 2);
        report(&mut world, 0, "known to both").expect("it runs");
        world.run_for(SYNC.times(4));
        world.wipe(1, true);
        world.wipe(0, true);
        for node in [0, 1] {
            world.start(node).expect("there is room");
        }
        for bytes in [vo.charter.bytes(), vo.policy.bytes()] {
            world.publish(0, bytes).expect("the id is trusted");
        }
        world.run_for(SYNC.times(4));
        report(&mut world, 0, "behind it").expect("it runs");
        all_count(&mut world, &vo, CHARGE);
    });
}

/// Found by seeds 2001718 and 2001775: it drew whom to ask among all its peers, and did not ask the one who
/// named the VO to it.
#[test]
fn a_site_that_takes_part_in_a_small_vo_gets_its_charter_from_the_member_that_probes_it() {
    with_seeds(|seed| {
        let large = Vo::found(0, VoSpec::small("grid", 12)).expect("a valid VO");
        let small = Vo::found(1, VoSpec::small("pair", 2)).expect("a valid VO");
        let vos = [large, small];
        let mut spec = WorldSpec::of_vos(12, &vos, &owner());
        let with_both = site_config(1, &vos, &owner());
        spec.configs[1] = site_config(1, &vos[..1], &owner());
        let mut world = World::founded(seed, spec, &vos);
        world.run_for(Millis(20_000));
        world.reconfigure(1, with_both);
        world.run_for(SYNC.times(2));
        let documents = world.site(1).expect("it runs").documents(vos[1].id);
        assert_eq!(documents.len(), vos[1].documents().count());
    });
}
