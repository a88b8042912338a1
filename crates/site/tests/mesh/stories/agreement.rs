//! Six sites, any reports, a network that loses, repeats, delays and reorders: in the end everybody
//! holds the same, and it is what was reported, to the unit.

use fairmesh_model::Millis;

use crate::ledger::{Ledger, assert_converged, assert_no_fork};
use crate::mesh::{Mesh, ROUGH};
use crate::random::with_seeds;

#[test]
fn a_rough_network_delays_agreement_and_changes_nothing_else() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 6), Ledger::default());
        mesh.faults = ROUGH;
        for _ in 0..120 {
            let node = mesh.dice.below(6) as usize;
            ledger.report(&mut mesh, node);
            let pause = Millis(mesh.dice.below(4_000));
            mesh.run(pause);
        }
        mesh.heal();
        mesh.run(Millis::from_secs(60));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn one_seed_tells_one_story() {
    let told = || {
        let (mut mesh, mut ledger) = (Mesh::found(4, 3), Ledger::default());
        mesh.faults = ROUGH;
        for round in 0..20 {
            ledger.report(&mut mesh, round % 3);
            mesh.run(Millis::from_secs(3));
        }
        mesh.nodes
            .iter()
            .map(|node| node.sent.clone())
            .collect::<Vec<_>>()
    };
    assert!(told() == told());
}
