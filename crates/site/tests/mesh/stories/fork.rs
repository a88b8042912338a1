//! A site that signs two heads with one number is named to everybody; its next head goes on.

use fairmesh_model::{Millis, Span, WindowLength};
use fairmesh_site::Notice;

use crate::ledger::assert_same;
use crate::liar::{Liar, offer, usage};
use crate::mesh::Mesh;
use crate::random::with_seeds;

/// The dishonest member: it is in the charter, and runs no node.
const LIAR: usize = 4;

fn mesh(seed: u64) -> Mesh {
    Mesh::found_with(seed, 4, crate::vo::timing(), |charter| {
        *charter = crate::vo::charter("grid", LIAR + 1);
    })
}

fn charged(mesh: &Mesh, node: usize) -> u64 {
    crate::ledger::sums(mesh, node)
        .values()
        .map(|(charge, _)| charge)
        .sum()
}

#[test]
fn two_stories_for_two_halves_are_found_out_and_the_next_head_goes_on_for_both() {
    with_seeds(|seed| {
        let mut mesh = mesh(seed);
        let now = mesh.now(0).wall;
        let hour = Span::Window(WindowLength::HOUR.window_at(now));
        let (mut a, mut b) = (Liar::new(&mesh, LIAR), Liar::new(&mesh, LIAR));
        a.sign(now, usage(hour, &[("/g0/u0", 100)]));
        b.sign(now, usage(hour, &[("/g0/u0", 100)]));
        mesh.admit(LIAR, Liar::new(&mesh, LIAR));
        mesh.run(Millis::from_secs(1));
        let first = |liar: &mut Liar| liar.sign(now, usage(hour, &[("/g0/u0", 100)]));
        let _ = (first(&mut a), first(&mut b));
        // Both halves hold the liar's first two heads; then each is told another third one.
        mesh.liars.insert(
            crate::vo::site_id(LIAR),
            std::mem::replace(&mut a, Liar::new(&mesh, LIAR)),
        );
        mesh.run(Millis::from_secs(20));
        let mut a = mesh.liars.remove(&crate::vo::site_id(LIAR)).expect("there");
        for node in 0..4 {
            assert_eq!(charged(&mesh, node), 100, "at node {node}");
            mesh.handle(
                node,
                fairmesh_site::Event::Disconnected(crate::vo::site_id(LIAR)),
            );
        }
        let told = [
            a.sign(now, usage(hour, &[("/g0/u0", 1_000)])),
            b.sign(now, usage(hour, &[("/g0/u0", 2_000)])),
        ];
        for node in 0..4 {
            offer(&mut mesh, node, told[node / 2].clone());
        }
        mesh.run(Millis::from_secs(60));
        assert_same(&mut mesh);
        for node in 0..4 {
            assert!(
                mesh.noticed(node, |notice| matches!(notice, Notice::Forked { .. })),
                "node {node}"
            );
        }
        mesh.restart(1);
        mesh.run(Millis::from_secs(20));
        assert_same(&mut mesh);
        assert!(
            mesh.nodes[1].site.health(mesh.now(1)).forked,
            "it is remembered"
        );
        // The next head of either goes on everywhere.
        let mut goes_on = if charged(&mesh, 0) == 1_000 { a } else { b };
        let next = goes_on.sign(now, usage(hour, &[("/g0/u0", 3_000)]));
        offer(&mut mesh, 0, next);
        mesh.run(Millis::from_secs(60));
        assert_same(&mut mesh);
        assert_eq!(charged(&mesh, 0), 3_000);
    });
}
