//! A site that says two things under one number is cut off at the last thing that it said once.

use fairmesh_model::documents::PathCells;
use fairmesh_model::{Counters, Incarnation, Millis, Seq, Signed, Span, UsageBatch, WindowLength};
use fairmesh_site::gossip::wire::Push;
use fairmesh_site::{Event, Notice};
use serde_bytes::ByteBuf;

use crate::ledger::assert_same;
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{path, site_id, site_key};

/// The dishonest member: it is in the charter, and runs no node.
const LIAR: usize = 4;

fn batch(
    mesh: &Mesh,
    seq: u64,
    previous: Option<&Signed<UsageBatch>>,
    charge: u64,
) -> Signed<UsageBatch> {
    let wall = mesh.now(0).wall;
    let span = Span::Window(WindowLength::HOUR.window_at(wall));
    let counters = Counters {
        charge,
        ..Counters::default()
    };
    let body = UsageBatch {
        vo: mesh.vo,
        site: site_id(LIAR),
        incarnation: Incarnation(1),
        seq: Seq(seq),
        previous: previous.map(Signed::hash),
        at: wall,
        retired_below: Incarnation(0),
        settled_below: Incarnation(0),
        cells: PathCells::from_rows([(span, path("/g0/u0"), counters)]),
    };
    Signed::sign(body, &[&site_key(LIAR)]).expect("well-formed")
}

fn mesh(seed: u64) -> Mesh {
    Mesh::found_with(seed, 4, crate::vo::timing(), |charter| {
        *charter = crate::vo::charter("grid", LIAR + 1);
    })
}

fn push(mesh: &mut Mesh, to: usize, batch: &Signed<UsageBatch>) {
    let bytes = Push::Batch(ByteBuf::from(batch.bytes().to_vec())).to_bytes();
    let (from, vo) = (site_id(3), mesh.vo);
    mesh.handle(
        to,
        Event::Pushed {
            from,
            vo,
            bytes,
            token: 0,
        },
    );
}

fn assert_cut_at(mesh: &mut Mesh, charge: u64) {
    assert_same(mesh);
    let sum = crate::ledger::sums(mesh, 0)
        .values()
        .map(|(charge, _)| charge)
        .sum::<u64>();
    assert_eq!(sum, charge);
    for node in 0..4 {
        assert!(
            mesh.noticed(node, |notice| matches!(notice, Notice::Forked { .. })),
            "node {node}"
        );
    }
}

#[test]
fn two_stories_for_two_halves_are_found_out_although_the_liar_falls_silent() {
    with_seeds(|seed| {
        let mut mesh = mesh(seed);
        let first = batch(&mesh, 1, None, 100);
        let (a, b) = (
            batch(&mesh, 2, Some(&first), 1_000),
            batch(&mesh, 2, Some(&first), 2_000),
        );
        for node in 0..4 {
            push(&mut mesh, node, &first);
            push(&mut mesh, node, if node < 2 { &a } else { &b });
        }
        mesh.run(Millis::from_secs(40));
        assert_cut_at(&mut mesh, 100);
        mesh.restart(1);
        mesh.run(Millis::from_secs(20));
        assert_same(&mut mesh);
    });
}

#[test]
fn of_two_forks_of_one_stream_the_deeper_one_counts_everywhere() {
    with_seeds(|seed| {
        let mut mesh = mesh(seed);
        mesh.cut(2);
        let first = batch(&mesh, 1, None, 100);
        let (a, b) = (
            batch(&mesh, 2, Some(&first), 1_000),
            batch(&mesh, 2, Some(&first), 2_000),
        );
        let (c, d) = (
            batch(&mesh, 3, Some(&a), 3_000),
            batch(&mesh, 3, Some(&a), 4_000),
        );
        for told in [&first, &a, &c, &d] {
            push(&mut mesh, 0, told);
        }
        for told in [&first, &a, &b] {
            push(&mut mesh, 2, told);
        }
        mesh.run(Millis::from_secs(20));
        mesh.heal();
        mesh.run(Millis::from_secs(40));
        assert_cut_at(&mut mesh, 100);
    });
}

#[test]
fn a_stream_that_forks_at_its_very_beginning_is_known_to_newcomers_too() {
    let mut mesh = mesh(1);
    let (a, b) = (batch(&mesh, 1, None, 1_000), batch(&mesh, 1, None, 2_000));
    push(&mut mesh, 0, &a);
    push(&mut mesh, 0, &b);
    mesh.run(Millis::from_secs(40));
    assert_cut_at(&mut mesh, 0);
}
