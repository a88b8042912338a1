//! The order in which heads come, and how often, decides nothing.

use fairmesh_model::Millis;

use crate::ledger::{Ledger, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::site_id;
use fairmesh_site::Event;

#[test]
fn two_sites_fed_the_same_pushes_in_any_order_see_the_same_bit_for_bit() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 5), Ledger::default());
        // Nodes 3 and 4 get nothing by themselves; what the others push is dealt to them by hand.
        mesh.cut(3);
        mesh.nodes[4].subscribed.clear();
        (0..3).for_each(|node| mesh.nodes[node].sent.clear());
        for round in 0..40 {
            ledger.report(&mut mesh, round % 3);
            mesh.run(Millis::from_secs(4));
        }
        mesh.run(Millis::from_secs(10));
        let sent = (0..3).flat_map(|node| mesh.nodes[node].sent.clone());
        let mut pushes: Vec<Vec<u8>> = sent.collect();
        for node in [3, 4] {
            // Repeats, in any order, until each has come in its turn.
            for _ in 0..pushes.len() {
                mesh.dice.shuffle(&mut pushes);
                for bytes in pushes.clone() {
                    let (from, vo) = (site_id(0), mesh.vo);
                    let token = 0;
                    mesh.handle(
                        node,
                        Event::Pushed {
                            from,
                            vo,
                            bytes,
                            token,
                        },
                    );
                }
                mesh.settle(node);
                if crate::ledger::sums(&mesh, node) == ledger.sums {
                    break;
                }
            }
        }
        assert_eq!(crate::ledger::sums(&mesh, 3), ledger.sums);
        assert_eq!(state(&mesh, 3).view, state(&mesh, 4).view);
        let vectors = |node: usize| {
            let site = &mesh.nodes[node].site;
            let (view, ids) = (site.view(), site.snapshot().ids());
            let row = |id| (view.reader().path(id).clone(), view.reader().vector(id));
            format!("{:?}", ids.map(row).collect::<Vec<_>>())
        };
        assert_eq!(vectors(3), vectors(4));
    });
}
