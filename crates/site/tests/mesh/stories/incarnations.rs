//! Every start is a new incarnation; its first head contains what the earlier ones counted, and covers
//! what it holds, so nothing is left behind anywhere.

use fairmesh_model::{HistoryRule, Millis};
use fairmesh_site::{HeadId, Table, Timing, Write};

use crate::ledger::{Ledger, assert_converged, assert_no_fork, assert_same, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{DAY, HOUR, timing};

fn slow() -> Timing {
    Timing {
        publish: Millis::from_secs(600),
        heartbeat: HOUR,
        sync: Millis::from_secs(600),
        silence: HOUR.times(3),
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

/// How many heads of site `node` are held at `at`.
fn heads(mesh: &Mesh, at: usize, node: usize) -> usize {
    let site = mesh.nodes[node].site.id();
    let vectors = mesh.nodes[at].site.vectors();
    vectors[&mesh.vo]
        .keys()
        .filter(|head| head.site == site)
        .count()
}

fn assert_only_held_heads_are_stored(mesh: &Mesh, node: usize) {
    let held = &mesh.nodes[node].site.vectors()[&mesh.vo];
    for ((table, key), value) in &mesh.nodes[node].rows {
        let write = Write::set(*table, key.clone(), value.clone());
        let id = match table {
            Table::Heads => HeadId::numbered(&write).map(|(id, _)| id),
            Table::Parts => HeadId::of_key(key).map(|(id, _)| id),
            _ => None,
        };
        if let Some(id) = id {
            let is_held = held
                .keys()
                .any(|of| (of.site, of.incarnation) == (id.site, id.incarnation));
            assert!(is_held, "{id:?} is left behind");
        }
    }
}

#[test]
fn restarts_leave_one_head_of_a_site_and_lose_nothing() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        for _ in 0..8 {
            ledger.report(&mut mesh, 1);
            mesh.run(Millis::from_secs(11));
            mesh.restart(1);
            ledger.report(&mut mesh, 1);
        }
        mesh.run(Millis::from_secs(60));
        assert_converged(&mut mesh, &ledger);
        for node in 0..3 {
            assert_eq!(heads(&mesh, node, 1), 1, "at node {node}");
            assert_only_held_heads_are_stored(&mesh, node);
        }
        for node in 0..3 {
            mesh.restart(node);
        }
        mesh.run(Millis::from_secs(60));
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_thousand_starts_in_a_day_are_one_head_with_few_parts() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 2), Ledger::default());
    for _ in 0..1_100 {
        ledger.report(&mut mesh, 0);
        mesh.restart(0);
        mesh.run(Millis::from_secs(1));
    }
    mesh.run(Millis::from_secs(60));
    assert_converged(&mut mesh, &ledger);
    assert_eq!(heads(&mesh, 1, 0), 1);
    assert!(mesh.nodes[1].count_rows(Table::Parts) < 30);
}

#[test]
fn what_weighs_nothing_any_more_is_left_out_by_its_site_and_goes_everywhere() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (short_memory(seed), Ledger::default());
        for hour in 0..72 {
            let node = mesh.dice.below(3) as usize;
            if hour % 6 == 0 {
                ledger.report(&mut mesh, node);
            }
            if hour % 8 == 3 {
                mesh.restart(1);
                ledger.report(&mut mesh, 1);
            }
            mesh.run(HOUR);
        }
        mesh.run(DAY.times(7));
        assert_same(&mut mesh);
        assert!(state(&mesh, 0).sums.is_empty());
        for node in 0..3 {
            assert_only_held_heads_are_stored(&mesh, node);
            assert_eq!(mesh.nodes[node].count_rows(Table::Ledger), 0);
        }
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_site_that_slept_through_it_brings_nothing_back() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (short_memory(seed), Ledger::default());
        for round in 0..12 {
            ledger.report(&mut mesh, round % 3);
            mesh.restart(1);
            mesh.run(HOUR.times(4));
        }
        mesh.cut(2);
        mesh.run(DAY.times(8));
        mesh.heal();
        mesh.run(DAY.times(2));
        assert_same(&mut mesh);
        assert!(state(&mesh, 0).sums.is_empty());
        assert_eq!(heads(&mesh, 2, 1), 1);
    });
}
