//! The order in which batches come, and how often, decides nothing.

use fairmesh_model::Millis;
use fairmesh_site::gossip::wire::Push;
use fairmesh_site::{Event, Table};
use serde_bytes::ByteBuf;

use crate::ledger::{Ledger, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::site_id;

#[test]
fn two_sites_fed_the_same_batches_in_any_order_see_the_same_bit_for_bit() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 5), Ledger::default());
        // Nodes 3 and 4 hear nothing by themselves; what the others sign is dealt to them by hand.
        mesh.cut(3);
        mesh.nodes[4].subscribed.clear();
        for round in 0..40 {
            ledger.report(&mut mesh, round % 3);
            mesh.run(Millis::from_secs(4));
        }
        mesh.run(Millis::from_secs(10));
        let own = site_id(3);
        let other = site_id(4);
        let held = mesh.nodes[0].rows.clone();
        let mut batches: Vec<Vec<u8>> = held
            .into_iter()
            .filter(|((table, key), _)| {
                *table == Table::Batches
                    && key[32..64] != own.as_bytes()[..]
                    && key[32..64] != other.as_bytes()[..]
            })
            .map(|(_, bytes)| Push::Batch(ByteBuf::from(bytes)).to_bytes())
            .collect();
        for node in [3, 4] {
            // Repeats, in any order, until each has come in its turn.
            for _ in 0..batches.len() {
                mesh.dice.shuffle(&mut batches);
                for bytes in batches.clone() {
                    let (from, vo) = (site_id(0), mesh.vo);
                    mesh.handle(
                        node,
                        Event::Pushed {
                            from,
                            vo,
                            bytes,
                            token: 0,
                        },
                    );
                }
                if crate::ledger::sums(&mesh, node) == ledger.sums {
                    break;
                }
            }
        }
        assert_eq!(crate::ledger::sums(&mesh, 3), ledger.sums);
        assert_eq!(state(&mesh, 3).view, state(&mesh, 4).view);
        let lookups = |node: usize| {
            let site = &mesh.nodes[node].site;
            let (view, ids) = (site.view(), site.snapshot().ids());
            let looked_up =
                ids.map(|id| (view.reader().path(id).clone(), view.reader().lookup(id)));
            format!("{:?}", looked_up.collect::<Vec<_>>())
        };
        assert_eq!(lookups(3), lookups(4));
    });
}
