//! A VO mounts another VO's policy: its members hold that one's charters and policies, and nothing else of it.

use fairmesh_model::{Charter, HistoryRule, Millis, PolicyMount, Signed, VoId};
use fairmesh_site::{Event, Notice};

use crate::mesh::Mesh;
use crate::vo::{self, HOUR, job, next_charter, path, policy, sign_charter, sign_policy, timing};

/// Three members of a Grid, of which the first is the only member of another VO, too. The Grid's last group
/// is divided as that one's first is, where the Grid is a reader.
fn found(is_reader: bool) -> (Mesh, Signed<Charter>) {
    let mut mesh = Mesh::found_with(1, 3, timing(), |charter| {
        charter.history = HistoryRule::None { horizon: 240 };
    });
    let mut charter = vo::charter("inner", 1);
    charter.readers = is_reader.then_some(mesh.vo).into_iter().collect();
    let charter = sign_charter(charter);
    let introducers = mesh.nodes[0].config.introducers.clone();
    let vos = [("grid", mesh.vo), ("inner", charter.vo())];
    let config = vo::config(&vos, introducers, timing());
    mesh.nodes[0].config = config.clone();
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    let mut mounting = policy(mesh.vo, 2, 50);
    let last = path("/g2");
    mounting
        .shares
        .retain(|at, _| *at == last || !at.starts_with(&last));
    let entry = mounting.shares.get_mut(&last).expect("an entry");
    entry.mount = Some(PolicyMount {
        vo: charter.vo(),
        path: path("/g0"),
    });
    for document in [
        charter.bytes().to_vec(),
        sign_policy(policy(charter.vo(), 1, 50)),
        sign_policy(mounting),
    ] {
        assert!(mesh.publish(0, &document).is_ok());
    }
    mesh.run(Millis::from_secs(30));
    (mesh, charter)
}

/// Whose policy an entry of the last group is a part of, at a node; `None` where there is no such entry.
fn divided(mesh: &Mesh, node: usize) -> Option<VoId> {
    let compiled = mesh.nodes[node].site.compiled();
    compiled.get(&path("/grid/g2/u3"))?.policy_of
}

fn warned(mesh: &Mesh, node: usize, words: &str) -> bool {
    let warnings = &mesh.nodes[node].site.compiled().warnings;
    warnings
        .iter()
        .any(|warning| warning.to_string().contains(words))
}

fn views(mesh: &Mesh) -> usize {
    let view = |node: &crate::node::Node| node.site.view_digest(mesh.vo);
    let views = mesh.nodes.iter().map(view);
    views.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn readers_hold_the_policy_and_nothing_else_through_restarts() {
    let (mut mesh, charter) = found(true);
    let inner = charter.vo();
    let end = mesh.now(0).wall;
    let ran = (end.before(HOUR), end);
    let jobs = [
        job("inner", "inner", "g0", "u3", ran, 5),
        job("grid", "grid", "g2", "u3", ran, 7),
    ];
    mesh.report(0, &jobs).expect("acknowledged");
    mesh.run(Millis::from_secs(30));
    for node in 0..3 {
        assert_eq!(divided(&mesh, node), Some(inner), "{node}");
        let view = mesh.nodes[node].site.view();
        let entry = path("/grid/g2/u3");
        assert_eq!(view.divided_by(&entry).map(|by| &*by.name), Some("inner"));
        assert_eq!(view.divided_by(&path("/grid/g1/u3")), None);
        // Of the Grid's usage, at all of its members.
        let level = view
            .reader()
            .vector(view.reader().entry(&entry).expect("an entry"));
        let hours = level.levels()[2].usage >> 32;
        assert_eq!(hours, 7 * u128::from(HOUR.0), "{node}");
        assert_eq!(mesh.nodes[node].site.held_of(inner).is_some(), node == 0);
    }
    assert_eq!(views(&mesh), 1);
    for node in [1, 2] {
        assert_eq!(mesh.nodes[node].site.read_documents().count(), 2);
        assert!(
            mesh.nodes[node]
                .site
                .usage_by_account(Some(inner))
                .is_empty()
        );
    }
    // One that starts again has what it had before it has met anybody.
    mesh.stop(0);
    mesh.stop(1);
    mesh.restart(2);
    assert_eq!(divided(&mesh, 2), Some(inner));
    // And a member with a new disk gets it from one that is no member of the other VO either.
    mesh.restart_on(1, Default::default());
    mesh.run(Millis::from_secs(30));
    assert_eq!(divided(&mesh, 1), Some(inner));
}

/// The end of it was found by seed 2001526: a reader-only site acknowledged a charter that nobody could get from it.
#[test]
fn whoever_is_no_reader_is_shown_nothing_until_it_is_and_lets_go_when_it_is_no_more() {
    let (mut mesh, mut charter) = found(false);
    let inner = charter.vo();
    for node in 0..3 {
        let held = mesh.nodes[node].site.read_documents().count();
        assert_eq!((divided(&mesh, node), held), (None, 0), "{node}");
    }
    assert!(warned(&mesh, 0, "among its readers"));
    assert!(warned(&mesh, 1, "nothing is known of it"));
    let next = |charter: &Signed<Charter>, readers: Option<VoId>| {
        let mut next = next_charter(charter);
        next.readers = readers.into_iter().collect();
        sign_charter(next)
    };
    charter = next(&charter, Some(mesh.vo));
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    mesh.run(Millis::from_secs(30));
    (0..3).for_each(|node| assert_eq!(divided(&mesh, node), Some(inner), "{node}"));
    charter = next(&charter, None);
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    let secret = sign_policy(policy(inner, 2, 70));
    assert!(mesh.publish(0, &secret).is_ok());
    mesh.run(Millis::from_secs(30));
    for node in 0..3 {
        assert_eq!(divided(&mesh, node), None, "{node}");
        assert!(warned(&mesh, node, "among its readers"), "{node}");
        let mut read = mesh.nodes[node].site.read_documents();
        assert!(read.all(|(_, bytes)| *bytes != *secret), "{node}");
    }
    assert_eq!(views(&mesh), 1);
    // Nobody would get it from a site that is no reader any more.
    let next = sign_charter(next_charter(&charter));
    let refused = mesh.publish(1, next.bytes());
    assert!(refused.is_err_and(|why| why.contains("at a member of that VO")));
    assert!(mesh.publish(0, next.bytes()).is_ok());
}

#[test]
fn a_reader_says_that_what_it_reads_has_expired_and_keeps_it_in_force() {
    let (mut mesh, charter) = found(true);
    let inner = charter.vo();
    let mut short = policy(inner, 2, 50);
    short.expires = mesh.now(0).wall.after(HOUR);
    assert!(mesh.publish(0, &sign_policy(short)).is_ok());
    mesh.run(Millis::from_secs(30));
    let says = |mesh: &Mesh, node: usize| {
        let site = &mesh.nodes[node].site;
        let of_inner = |notice: &Notice| match notice {
            Notice::Policy { vo, what } => *vo == inner && what.contains("expired"),
            _ => false,
        };
        let named = site.notices().any(of_inner);
        (named, site.health(mesh.now(node)).expired)
    };
    (0..3).for_each(|node| assert_eq!(says(&mesh, node), (false, false), "{node}"));
    mesh.run(HOUR);
    // Documents are looked after once a day, and whenever one of them changes.
    let charter = sign_charter(next_charter(&charter));
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    mesh.run(Millis::from_secs(30));
    for node in 0..3 {
        assert_eq!(says(&mesh, node), (true, true), "{node}");
        assert_eq!(divided(&mesh, node), Some(inner), "{node}");
    }
}
