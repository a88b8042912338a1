//! A newcomer gets a long history as heads with their parts.

use fairmesh_model::Millis;

use crate::ledger::{Ledger, assert_converged, assert_no_fork};
use crate::mesh::{CALM, Faults, Mesh};
use crate::random::with_seeds;
use crate::vo::timing;

#[test]
fn a_newcomer_to_a_long_history_ends_like_all_others() {
    with_seeds(|seed| {
        let timing = timing();
        let mut ledger = Ledger::default();
        let mut mesh = Mesh::found_with(seed, 4, timing, |_| {});
        mesh.cut(3);
        mesh.restart_on(3, Default::default());
        for _ in 0..80 {
            let node = mesh.dice.below(3) as usize;
            ledger.report(&mut mesh, node);
            mesh.run(Millis::from_secs(7));
        }
        mesh.heal();
        mesh.faults = Faults {
            lost_percent: 20,
            ..CALM
        };
        mesh.run(Millis::from_secs(60));
        mesh.faults = CALM;
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
        mesh.restart(3);
        mesh.restart(1);
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
        let damaged = |notice: &_| matches!(notice, fairmesh_site::Notice::BadRow { .. });
        assert!(!mesh.noticed(3, damaged) && !mesh.noticed(1, damaged));
    });
}
