//! A newcomer gets a long history as checkpoints, seals and the few batches behind them.

use fairmesh_model::Millis;
use fairmesh_site::{Table, Timing};

use crate::ledger::{Ledger, assert_converged, assert_no_fork, sums};
use crate::mesh::{CALM, Faults, Mesh};
use crate::random::with_seeds;
use crate::vo::timing;

#[test]
fn a_newcomer_to_a_long_history_ends_like_all_others() {
    with_seeds(|seed| {
        let timing = Timing {
            checkpoint_batches: 8,
            ..timing()
        };
        let mut ledger = Ledger::default();
        let mut mesh = Mesh::found_with(seed, 4, timing, |_| {});
        mesh.cut(3);
        mesh.restart_on(3, Default::default());
        for _ in 0..80 {
            let node = mesh.dice.below(3) as usize;
            ledger.report(&mut mesh, node);
            mesh.run(Millis::from_secs(7));
        }
        for node in 0..3 {
            let batches = mesh.nodes[node].count_rows(Table::Batches);
            assert!(batches < 200, "node {node} keeps {batches} batches");
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

#[test]
fn a_site_that_misses_every_push_lets_go_of_old_batches_too() {
    let timing = Timing {
        heartbeat: timing().publish,
        checkpoint_batches: 64,
        ..timing()
    };
    let mut ledger = Ledger::default();
    let mut mesh = Mesh::found_with(1, 3, timing, |_| {});
    mesh.tick_ms = 1_000;
    mesh.nodes[2].subscribed.clear();
    for _ in 0..16 {
        ledger.report(&mut mesh, 0);
        mesh.run(Millis::from_secs(600));
    }
    let kept = |node: usize| mesh.nodes[node].count_rows(Table::Batches);
    assert!(kept(0) < 3 * 200, "{}", kept(0));
    assert!(kept(2) < 3 * 700, "{}", kept(2));
    assert_eq!(sums(&mesh, 2), ledger.sums);
}
