//! Every start leaves a stream behind; when nothing in it weighs any more, it goes everywhere.

use fairmesh_model::{HistoryRule, Incarnation, Millis};
use fairmesh_site::{BatchId, Timing, Write};

use crate::ledger::{Ledger, assert_no_fork, assert_same, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{DAY, HOUR, timing};

fn slow() -> Timing {
    Timing {
        publish: Millis::from_secs(600),
        heartbeat: HOUR,
        sync: Millis::from_secs(600),
        silence: HOUR.times(3),
        checkpoint_batches: 16,
        ..timing()
    }
}

/// Three sites whose usage weighs nothing after two days.
fn short_memory(seed: u64) -> Mesh {
    let mut mesh = Mesh::found_with(seed, 3, slow(), |charter| {
        charter.history = HistoryRule::None { horizon: 48 };
    });
    mesh.tick_ms = 300_000;
    mesh
}

/// The lives of site `node` that `at` holds.
fn lives(mesh: &Mesh, at: usize, node: usize) -> Vec<Incarnation> {
    let site = mesh.nodes[node].site.id();
    let vectors = mesh.nodes[at].site.vectors();
    let streams = vectors[&mesh.vo].keys();
    streams
        .filter(|stream| stream.site == site)
        .map(|stream| stream.incarnation)
        .collect()
}

fn assert_only_held_streams_are_stored(mesh: &Mesh, node: usize) {
    let held = &mesh.nodes[node].site.vectors()[&mesh.vo];
    let stored = mesh.nodes[node].rows.iter();
    for ((table, key), value) in stored {
        let write = Write::set(*table, key.clone(), value.clone());
        if let Some(batch) = BatchId::of(&write) {
            assert!(held.contains_key(&batch.stream), "{batch:?} is left behind");
        }
    }
}

fn live(mesh: &mut Mesh, ledger: &mut Ledger, days: u64, restarts: bool) {
    for _ in 0..days {
        for hour in 0..24 {
            let node = mesh.dice.below(3) as usize;
            if hour % 6 == 0 {
                ledger.report(mesh, node);
            }
            if restarts && hour % 8 == 3 {
                mesh.restart(1);
                // So that there is something to weigh in each life.
                ledger.report(mesh, 1);
            }
            mesh.run(HOUR);
        }
    }
}

#[test]
fn lives_that_weigh_nothing_are_let_go_of_by_everybody_and_for_good() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (short_memory(seed), Ledger::default());
        live(&mut mesh, &mut ledger, 3, true);
        let before = lives(&mesh, 0, 1);
        assert!(before.len() >= 6, "{before:?}");
        live(&mut mesh, &mut ledger, 7, false);
        assert_same(&mut mesh);
        for node in 0..3 {
            let left = lives(&mesh, node, 1);
            assert!(left.len() <= 2, "node {node} holds {left:?}");
            assert_only_held_streams_are_stored(&mesh, node);
        }
        let kept = state(&mesh, 0);
        for node in 0..3 {
            mesh.restart(node);
        }
        mesh.run(HOUR);
        assert_same(&mut mesh);
        assert_eq!(lives(&mesh, 0, 1).len(), lives(&mesh, 2, 1).len());
        assert_eq!(state(&mesh, 0).sums, kept.sums);
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_site_that_slept_through_it_lets_go_too_and_brings_nothing_back() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (short_memory(seed), Ledger::default());
        live(&mut mesh, &mut ledger, 2, true);
        mesh.cut(2);
        for _ in 0..8 {
            mesh.run(DAY);
        }
        mesh.heal();
        mesh.run(DAY.times(2));
        assert_same(&mut mesh);
        assert!(lives(&mesh, 2, 1).len() <= 2);
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_restored_backup_declares_nothing_over_before_it_has_heard_from_its_peers() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (short_memory(seed), Ledger::default());
        ledger.report(&mut mesh, 1);
        mesh.run(HOUR);
        let backup = mesh.nodes[1].rows.clone();
        for _ in 0..6 {
            mesh.run(DAY);
        }
        let sums_of_life = |mesh: &Mesh| state(mesh, 0).sums;
        let mut recent = ledger.clone();
        recent.sums.clear();
        recent.report(&mut mesh, 1);
        mesh.run(HOUR);
        let before = sums_of_life(&mesh);
        assert_eq!(before, recent.sums);
        // The backup knows the first report only, and that one weighs nothing any more.
        mesh.cut(1);
        mesh.restart_on(1, backup);
        mesh.run(DAY.times(1));
        mesh.heal();
        mesh.run(HOUR.times(3));
        assert_same(&mut mesh);
        assert_eq!(sums_of_life(&mesh), before);
    });
}
