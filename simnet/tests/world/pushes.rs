//! Eager push over a mesh of some degree, in a Grid where not everybody is connected.
//!
//! Invariant: push is for speed and reaches nearly all; anti-entropy is for the rest. Deliberately
//! not here: the real gossipsub, which the node's tests run.

use fairmesh_cluster::Seed;
use fairmesh_model::Millis;
use simnet::{LinkSpec, World};

use crate::support::{CHARGE, SYNC, charge_at, report, spec};

#[test]
fn a_push_reaches_a_hundred_sites_over_lossy_links() {
    let (mut spec, vo) = spec(100);
    spec.network.link = LinkSpec {
        loss_permille: 100,
        ..LinkSpec::CALM
    };
    spec.network.degree = Some(12);
    spec.network.mesh_degree = 8;
    let mut world = World::founded(Seed(1), spec, std::slice::from_ref(&vo));
    world.run_for(Millis(20_000));
    assert!((0..100).all(|node| world.peers_of(node).count() <= 13));
    let accepted = |world: &World| {
        let verdicts = world.nodes().iter().map(|node| node.verdicts.accepted);
        verdicts.sum::<u64>()
    };
    let before = accepted(&world);
    report(&mut world, 42, "wide").expect("it runs");
    world.run_for(SYNC);
    let knowing = (0..100)
        .filter(|node| charge_at(&world, *node, &vo) == CHARGE)
        .count();
    assert!(knowing >= 95, "{knowing} sites know by push alone");
    assert!(accepted(&world) - before >= 90);
    assert!(world.run_until_quiet(Millis(2_000), SYNC.times(12)));
}
