//! A crash at any moment loses nothing that was acknowledged and counts nothing twice.

use fairmesh_model::Millis;

use crate::ledger::{Ledger, assert_converged, assert_no_fork};
use crate::mesh::{Mesh, ROUGH};
use crate::random::with_seeds;
use crate::vo::DAY;

#[test]
fn whatever_a_crash_cuts_off_a_report_is_counted_once() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        mesh.faults = ROUGH;
        for _ in 0..40 {
            let record = ledger.draw(&mut mesh, 0);
            // Somewhere in the effects of the report, or of what follows it.
            mesh.nodes[0].crash_after = Some(mesh.dice.below(6) as usize);
            let acknowledged = mesh.report(0, std::slice::from_ref(&record)).is_some();
            let pause = Millis(mesh.dice.below(9_000));
            mesh.run(pause);
            mesh.restart(0);
            // A feed without an answer asks again.
            if !acknowledged {
                mesh.report(0, std::slice::from_ref(&record))
                    .expect("acknowledged");
            }
            ledger.count(&record);
        }
        mesh.heal();
        mesh.run(Millis::from_secs(60));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_crash_while_days_are_merged_counts_nothing_twice() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 2), Ledger::default());
        mesh.tick_ms = 600_000;
        for _ in 0..12 {
            ledger.report(&mut mesh, 0);
            mesh.run(Millis(mesh.tick_ms * 12));
        }
        // Until a day can be merged, and into it.
        for cut in 0..8 {
            mesh.nodes[0].crash_after = Some(cut);
            mesh.run(DAY);
            mesh.restart(0);
        }
        mesh.run(DAY);
        mesh.tick_ms = 1;
        mesh.run(Millis::from_secs(60));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}
