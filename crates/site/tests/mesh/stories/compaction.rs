//! Old hours become days; sums, priorities and late reports do not notice.

use fairmesh_model::Millis;
use fairmesh_site::Timing;

use crate::ledger::{Ledger, assert_converged, assert_no_fork, assert_same, sums};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{DAY, HOUR, job, timing};

fn slow() -> Timing {
    Timing {
        publish: Millis::from_secs(600),
        heartbeat: HOUR,
        sync: Millis::from_secs(600),
        silence: HOUR.times(3),
        sweep_entries: 8_192,
        ..timing()
    }
}

#[test]
fn ten_days_of_reports_are_the_same_everywhere_before_and_after_they_are_merged() {
    with_seeds(|seed| {
        let mut ledger = Ledger::default();
        let mut mesh = Mesh::found_with(seed, 3, slow(), |_| {});
        mesh.tick_ms = 300_000;
        for day in 0..10 {
            for _ in 0..24 {
                let node = mesh.dice.below(3) as usize;
                ledger.report(&mut mesh, node);
                mesh.run(HOUR);
            }
            if day == 7 {
                mesh.restart(1);
            }
        }
        mesh.run(HOUR);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
        // A rebuilt tree has the sums that the changes made.
        let before = mesh.nodes[2].site.view_digest(mesh.vo);
        let config = mesh.nodes[2].config.clone();
        mesh.handle(2, fairmesh_site::Event::Reconfigured(Box::new(config)));
        assert_eq!(before, mesh.nodes[2].site.view_digest(mesh.vo));
    });
}

#[test]
fn a_late_report_for_a_merged_day_counts() {
    with_seeds(|seed| {
        let mut ledger = Ledger::default();
        let mut mesh = Mesh::found_with(seed, 3, slow(), |_| {});
        mesh.tick_ms = 300_000;
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(ledger.report(&mut mesh, 0));
            mesh.run(HOUR);
        }
        mesh.run(DAY.times(5));
        for (index, known) in seen.iter().enumerate() {
            let late = job(
                format!("late-{index}"),
                "grid",
                known.origin.group.as_deref().expect("given"),
                known.origin.user.as_deref().expect("given"),
                (known.start, known.end),
                5,
            );
            // Some just when the next day begins, before anything is merged.
            if index % 5 == 4 {
                let day = mesh.now(0).wall.0 % DAY.0;
                mesh.nodes[0].ticked_at = mesh.elapsed_ms + DAY.0;
                mesh.run(Millis(DAY.0 - day));
                mesh.nodes[0].ticked_at = 0;
            }
            mesh.report(0, std::slice::from_ref(&late))
                .expect("acknowledged");
            ledger.count(&late);
        }
        mesh.run(HOUR.times(3));
        assert_converged(&mut mesh, &ledger);
    });
}

#[test]
fn what_no_history_weighs_any_more_goes_everywhere_at_the_same_time() {
    let mut ledger = Ledger::default();
    let mut mesh = Mesh::found_with(1, 3, slow(), |_| {});
    mesh.tick_ms = 300_000;
    mesh.run(HOUR.times(7));
    for _ in 0..6 {
        ledger.report(&mut mesh, 0);
        ledger.report(&mut mesh, 1);
        mesh.run(HOUR);
    }
    mesh.tick_ms = 3_000_000;
    mesh.run(DAY.times(29));
    // A restart in the middle of the day must not forget earlier than others do.
    for _ in 0..6 {
        mesh.run(HOUR.times(7));
        mesh.restart(2);
        mesh.run(HOUR.times(2));
        assert_same(&mut mesh);
    }
    mesh.run(DAY.times(3));
    assert_same(&mut mesh);
    assert!(sums(&mesh, 0).is_empty());
}
