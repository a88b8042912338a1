//! What members, clocks, owners and users do to jobs that are passed on, by mistake or on purpose.

use fairmesh_model::Millis;
use fairmesh_site::{Came, End, Event, ForwardRules, Stage};

use super::forwarding::{MINUTE, configure, failed, found, hand_in, here, settle, stage};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{self, site_id};

/// Takes a node's VO out of its configuration.
fn leave(mesh: &mut Mesh, node: usize) {
    let with = &mesh.nodes[node].config;
    let without = vo::config(&[], with.introducers.clone(), with.timing);
    mesh.nodes[node].config = without.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(without)));
}

#[test]
fn a_job_of_a_vo_that_was_left_is_given_up_and_stops_nobody() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        assert_eq!(here(&mesh, 2), [job]);
        leave(&mut mesh, 2);
        settle(&mut mesh, 2, job, Came::Refused("it fails".to_owned()));
        let end = stage(&mesh, 2, job);
        assert!(
            matches!(end, Some(Stage::Ended(End::Failed { .. }))),
            "{end:?}"
        );
        // And where one is declined that is on its way.
        let mut mesh = found(seed, 3);
        configure(&mut mesh, 2, Some(ForwardRules::default()));
        let job = hand_in(&mut mesh, "j1");
        assert_eq!(stage(&mesh, 0, job), Some(Stage::Sent(site_id(2))));
        leave(&mut mesh, 0);
        mesh.run(MINUTE);
        let (_, tried) = failed(&mesh, job);
        assert_eq!(tried.len(), 1);
    });
}
