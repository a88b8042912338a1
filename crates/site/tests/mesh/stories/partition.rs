//! Both halves of a cut mesh go on by themselves, and are one again soon after it heals.

use fairmesh_model::Millis;

use crate::ledger::{Ledger, assert_converged, assert_no_fork, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::timing;

#[test]
fn halves_diverge_and_are_identical_within_three_sync_intervals_of_the_heal() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 6), Ledger::default());
        mesh.cut(3);
        for _ in 0..60 {
            let node = mesh.dice.below(6) as usize;
            ledger.report(&mut mesh, node);
            mesh.run(Millis(2_000));
        }
        mesh.run(timing().publish.times(3));
        mesh.drain();
        assert_eq!(state(&mesh, 0), state(&mesh, 2));
        assert_eq!(state(&mesh, 3), state(&mesh, 5));
        assert_ne!(state(&mesh, 0).view, state(&mesh, 3).view);

        mesh.heal();
        mesh.run(timing().sync.times(3));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}
