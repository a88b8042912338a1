//! A newcomer gets a long history as heads with their parts.

use std::collections::BTreeSet;

use fairmesh_model::{Millis, SiteId};
use fairmesh_site::{Effect, Event};

use crate::ledger::{Ledger, assert_converged, assert_no_fork};
use crate::mesh::{CALM, Faults, Mesh};
use crate::node::Rows;
use crate::random::with_seeds;
use crate::vo::{site_id, timing};

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

/// One that has lost its disk, say, and whose configuration names no peers.
#[test]
fn a_site_without_a_charter_lets_the_last_callers_in_until_it_has_one() {
    let mut mesh = Mesh::found(1, 2);
    let call = |mesh: &mut Mesh, caller| {
        let now = mesh.now(0);
        let effects = mesh.nodes[0].site.handle(now, Event::Called(caller));
        let allowed = effects.into_iter().filter_map(|effect| match effect {
            Effect::Allow { sites, .. } => Some(sites),
            _ => None,
        });
        allowed.last()
    };
    let callers: Vec<SiteId> = (20..29).map(site_id).collect();
    assert_eq!(
        call(&mut mesh, callers[0]),
        None,
        "its charter says who is let in"
    );
    mesh.cut(1);
    mesh.restart_on(0, Rows::new());
    let mut allowed = BTreeSet::new();
    for caller in &callers {
        allowed = call(&mut mesh, *caller).expect("it may be a member");
        assert!(allowed.contains(caller));
        assert_eq!(call(&mut mesh, *caller), None, "it is let in already");
    }
    assert!(!allowed.contains(&callers[0]), "of nine the last eight");
    assert!(allowed.contains(&callers[1]));
    let now = mesh.now(0);
    let (ticket, bytes) = (1, mesh.charter.bytes().to_vec());
    let by = "owner".to_owned();
    let effects = mesh.nodes[0]
        .site
        .handle(now, Event::Publish { ticket, bytes, by });
    let allowed = effects.into_iter().find_map(|effect| match effect {
        Effect::Allow { sites, .. } => Some(sites),
        _ => None,
    });
    let allowed = allowed.expect("there are members now");
    assert!(callers.iter().all(|caller| !allowed.contains(caller)));
}
