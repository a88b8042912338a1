//! A VO's snapshot reaches everybody, who lacks what it names says so, and nothing changes but what is said.

use fairmesh_model::{Charter, Millis, Named, Role, Signed, SigningKey, Snapshot};
use fairmesh_site::{BroughtBy, Effect, Notice};

use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{HOUR, next_charter, path, policy, sign_charter, sign_policy, site_id};

fn online() -> SigningKey {
    SigningKey::from_secret(&[201; 32])
}

/// A mesh whose next charter says who signs snapshots.
fn found(seed: u64, sites: usize) -> (Mesh, Signed<Charter>) {
    let mut mesh = Mesh::found(seed, sites);
    let mut charter = next_charter(&mesh.charter);
    charter.snapshot = Some(Role::single(online().key_id()));
    let charter = sign_charter(charter);
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    mesh.run(Millis::from_secs(30));
    (mesh, charter)
}

/// A snapshot of the charter and of a policy of `/`, valid for an hour.
fn snapshot(mesh: &Mesh, version: u64, charter: &Signed<Charter>, shares: &[u8]) -> Vec<u8> {
    let shares = Signed::<fairmesh_model::SharePolicy>::parse(shares).expect("a policy");
    let named = |version, hash| Named { version, hash };
    let body = Snapshot {
        vo: mesh.vo,
        version,
        issued: mesh.now(0).wall,
        expires: mesh.now(0).wall.after(HOUR),
        charter: named(charter.claimed().version, charter.hash()),
        policies: [(path("/"), named(shares.claimed().version, shares.hash()))].into(),
        allocations: Default::default(),
    };
    let signed = Signed::sign(body, &[&online()]).expect("a valid snapshot");
    signed.bytes().to_vec()
}

fn said(mesh: &Mesh, node: usize) -> Vec<String> {
    let status = mesh.nodes[node].site.vo_status(mesh.now(node));
    status
        .into_iter()
        .flat_map(|of| of.snapshot_warnings)
        .collect()
}

fn unvouched(mesh: &Mesh, node: usize) -> bool {
    mesh.nodes[node].site.health(mesh.now(node)).unvouched
}

#[test]
fn a_member_that_was_cut_off_lacks_what_the_snapshot_names_until_it_comes() {
    with_seeds(|seed| {
        let (mut mesh, charter) = found(seed, 3);
        for node in 0..3 {
            assert!(unvouched(&mesh, node));
            assert!(said(&mesh, node)[0].starts_with("no snapshot has arrived"));
        }
        let second = sign_policy(policy(mesh.vo, 2, 80));
        assert!(mesh.publish(0, &second).is_ok());
        let first = snapshot(&mesh, 1, &charter, &second);
        assert!(mesh.publish(0, &first).is_ok());
        mesh.run(Millis::from_secs(30));
        (0..3).for_each(|node| assert!(!unvouched(&mesh, node), "{:?}", said(&mesh, node)));

        // One of two documents that belong together is shown to a member that is cut off.
        mesh.cut(2);
        let third = sign_policy(policy(mesh.vo, 3, 60));
        let newest = snapshot(&mesh, 2, &charter, &third);
        assert!(mesh.publish(2, &newest).is_ok());
        assert!(said(&mesh, 2)[0].contains("names share policy 3 of `/`"));
        assert!(mesh.noticed(2, |of| matches!(of, Notice::Snapshot { .. })
            && of.code() == "policy-snapshot"));
        // Nothing of it is out of force; an older snapshot takes nothing back; a start changes nothing.
        let refused = mesh.publish(2, &first).expect_err("it is older");
        assert!(
            refused.contains("snapshot 1 of `/` is older than version 2"),
            "{refused}"
        );
        mesh.restart(2);
        mesh.run(Millis::from_secs(1));
        assert!(said(&mesh, 2)[0].contains("names share policy 3 of `/`"));
        assert!(mesh.publish(0, &third).is_ok());
        mesh.heal();
        mesh.run(Millis::from_secs(60));
        let holdings: Vec<_> = mesh.nodes.iter().map(|node| node.site.holdings()).collect();
        assert!(holdings.iter().all(|of| *of == holdings[0]));
        (0..3).for_each(|node| assert!(!unvouched(&mesh, node), "{:?}", said(&mesh, node)));
        let mut listed = mesh.nodes[2].site.notices();
        assert!(!listed.any(|of| matches!(of, Notice::Snapshot { .. })));
    });
}

#[test]
fn a_snapshot_that_expires_stops_nothing_and_everybody_says_so() {
    let (mut mesh, charter) = found(1, 2);
    let second = sign_policy(policy(mesh.vo, 2, 80));
    assert!(mesh.publish(0, &second).is_ok());
    assert!(
        mesh.publish(0, &snapshot(&mesh, 1, &charter, &second))
            .is_ok()
    );
    mesh.run(Millis::from_secs(30));
    let entries = |mesh: &Mesh| mesh.nodes[1].site.compiled().entries.len();
    let before = entries(&mesh);
    mesh.tick_ms = 60_000;
    mesh.run(Millis(2 * HOUR.0));
    assert_eq!((entries(&mesh), unvouched(&mesh, 1)), (before, true));
    assert!(said(&mesh, 1)[0].contains("since then nobody vouches"));
    assert!(mesh.noticed(1, |of| matches!(of, Notice::Snapshot { .. })));
}

#[test]
fn a_snapshot_rebuilds_no_tree_and_replaces_the_row_of_the_one_before() {
    let (mut mesh, charter) = found(1, 1);
    let second = sign_policy(policy(mesh.vo, 2, 80));
    assert!(mesh.publish(0, &second).is_ok());
    mesh.run(Millis::from_secs(30));
    let rows = |mesh: &Mesh| {
        let rows = mesh.nodes[0].rows.keys();
        rows.filter(|(table, _)| *table == fairmesh_site::Table::Documents)
            .count()
    };
    assert!(
        mesh.publish(0, &snapshot(&mesh, 1, &charter, &second))
            .is_ok()
    );
    let before = (
        rows(&mesh),
        std::sync::Arc::as_ptr(&mesh.nodes[0].site.view()),
    );
    for version in 2..10 {
        let next = snapshot(&mesh, version, &charter, &second);
        assert!(mesh.publish(0, &next).is_ok());
        mesh.run(Millis::from_secs(6));
    }
    let after = (
        rows(&mesh),
        std::sync::Arc::as_ptr(&mesh.nodes[0].site.view()),
    );
    assert_eq!(before, after);
}

#[test]
fn who_brought_which_document_is_kept_over_a_restart_and_snapshots_are_left_out() {
    let (mut mesh, charter) = found(1, 2);
    let second = sign_policy(policy(mesh.vo, 2, 80));
    assert!(mesh.publish(0, &second).is_ok());
    assert!(
        mesh.publish(0, &snapshot(&mesh, 1, &charter, &second))
            .is_ok()
    );
    mesh.run(Millis::from_secs(30));
    let told = |mesh: &Mesh, node: usize| -> Vec<(String, u64, BroughtBy)> {
        let adoptions = mesh.nodes[node].site.adoptions();
        let told = adoptions.map(|(_, of)| (of.kind.to_string(), of.version, of.by.clone()));
        told.collect()
    };
    let owner = BroughtBy::User("the owner".to_owned());
    let by = |who: &BroughtBy| {
        [("charter", 2), ("share policy", 2)]
            .map(|(kind, version)| (kind.to_owned(), version, who.clone()))
    };
    for (node, who) in [(0, owner), (1, BroughtBy::Peer(site_id(0)))] {
        let before = told(&mesh, node);
        assert_eq!(before[before.len() - 2..], by(&who), "{before:?}");
        mesh.restart(node);
        assert_eq!(told(&mesh, node), before);
    }
}

#[test]
fn who_brought_which_document_is_kept_of_the_last_thousand() {
    let mut mesh = Mesh::found(1, 1);
    let mut deleted = 0;
    for version in 2..=1_003 {
        let bytes = sign_policy(policy(mesh.vo, version, 80));
        let (now, by) = (mesh.now(0), "x".repeat(1_000));
        let event = fairmesh_site::Event::Publish {
            ticket: 1,
            bytes,
            by,
        };
        let effects = mesh.nodes[0].site.handle(now, event);
        let writes = effects.iter().filter_map(|of| match of {
            Effect::Persist(writes) => Some(writes),
            _ => None,
        });
        let gone = writes
            .flatten()
            .filter(|of| of.table == fairmesh_site::Table::Adoptions && of.value.is_none());
        deleted += gone.count();
    }
    let kept: Vec<_> = mesh.nodes[0]
        .site
        .adoptions()
        .map(|(_, of)| of.clone())
        .collect();
    assert_eq!(kept.len(), 1_000);
    assert_eq!(kept.last().map(|of| of.version), Some(1_003));
    assert_eq!(
        kept.last().map(|of| of.by.clone()),
        Some(BroughtBy::User("x".repeat(128)))
    );
    assert!(deleted > 0);
}
