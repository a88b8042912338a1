//! Documents handed in at one site are in force at all of them.

use fairmesh_model::{Millis, SharePolicy, Signed, WallTime};
use fairmesh_site::Notice;

use crate::ledger::{Ledger, assert_converged};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{self, START, next_charter, path, policy, sign_charter, sign_policy, site_id};

fn priority(mesh: &Mesh, node: usize) -> String {
    let view = mesh.nodes[node].site.view();
    let entry = view.reader().entry(&path("/grid/g0/u0")).expect("an entry");
    format!("{:?}", view.reader().vector(entry))
}

#[test]
fn a_new_policy_and_a_new_charter_reach_everybody_and_change_priorities() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 4), Ledger::default());
        (0..10).for_each(|round| drop(ledger.report(&mut mesh, round % 4)));
        mesh.run(Millis::from_secs(20));
        let before = priority(&mesh, 3);
        mesh.faults.lost_percent = 50;
        assert!(
            mesh.publish(2, &sign_policy(policy(mesh.vo, 2, 80)))
                .is_ok()
        );
        mesh.heal();
        mesh.run(Millis::from_secs(30));
        assert_ne!(before, priority(&mesh, 3));
        assert_converged(&mut mesh, &ledger);

        let mut charter = next_charter(&mesh.charter);
        charter
            .sites
            .retain(|member| member.site != site_id(3) || member.cores > 0);
        charter.history = fairmesh_model::HistoryRule::None { horizon: 24 };
        assert!(mesh.publish(1, sign_charter(charter).bytes()).is_ok());
        mesh.run(Millis::from_secs(30));
        for node in 0..4 {
            let status = mesh.nodes[node].site.vo_status(mesh.now(node));
            assert_eq!(status[0].held.charter_version, 2);
        }
        assert_converged(&mut mesh, &ledger);
    });
}

#[test]
fn a_form_of_a_version_that_is_not_in_force_is_told_to_whoever_hands_it_in_and_to_nobody_as_adopted()
 {
    let mut mesh = Mesh::found(1, 2);
    let mut forms = [70, 80].map(|share| sign_policy(policy(mesh.vo, 2, share)));
    let hash = |bytes: &Vec<u8>| Signed::<SharePolicy>::parse(bytes).expect("signed").hash();
    forms.sort_by_key(hash);
    let [first, second] = forms;
    assert!(mesh.publish(0, &first).is_ok());
    let told = mesh.publish(0, &second).expect_err("another is in force");
    assert!(told.contains("2 different forms"), "{told}");
    assert_eq!(
        mesh.publish(0, &second),
        Ok("it was known already".to_owned())
    );
    mesh.run(Millis::from_secs(30));
    let site = &mesh.nodes[0].site;
    let of = |bytes| {
        site.adoptions()
            .filter(move |(_, of)| of.hash == hash(bytes))
    };
    assert_eq!((of(&first).count(), of(&second).count()), (1, 0));
    for node in 0..2 {
        let site = &mesh.nodes[node].site;
        let warnings = &site.vo_status(mesh.now(node))[0].warnings;
        assert!(!warnings.is_empty(), "both know of both");
    }

    // The other way round the later one comes into force, and the first is no more.
    let mut mesh = Mesh::found(1, 2);
    assert!(mesh.publish(0, &second).is_ok());
    let told = mesh.publish(0, &first).expect("in force");
    assert!(told.contains("is adopted; but"), "{told}");
}

#[test]
fn an_expired_policy_stays_in_force_and_says_so() {
    let mut mesh = Mesh::found(1, 2);
    let mut short = policy(mesh.vo, 2, 70);
    short.expires = WallTime(START.0 + 60_000);
    assert!(mesh.publish(0, &sign_policy(short)).is_ok());
    mesh.run(Millis::from_secs(20));
    let before = priority(&mesh, 1);
    mesh.tick_ms = 60_000;
    mesh.run(vo::DAY);
    assert_eq!(before, priority(&mesh, 1));
    let status = mesh.nodes[1].site.vo_status(mesh.now(1));
    assert!(!status[0].warnings.is_empty());
    assert!(
        mesh.noticed(1, |notice| matches!(notice, Notice::Policy { .. })),
        "the operator is told"
    );
}

#[test]
fn a_smaller_declared_capacity_weighs_less_on_every_node_alike_and_loses_nothing() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    let end = mesh.now(0).wall;
    let large = vo::job(
        "large",
        "grid",
        "g0",
        "u0",
        (end.before(Millis::from_secs(1_200)), end),
        900,
    );
    mesh.report(0, std::slice::from_ref(&large))
        .expect("acknowledged");
    ledger.count(&large);
    mesh.run(Millis::from_secs(20));
    let mut charter = next_charter(&mesh.charter);
    charter
        .sites
        .iter_mut()
        .for_each(|member| member.cores = 10);
    let signed = sign_charter(charter);
    let smaller = signed.hash();
    assert!(mesh.publish(0, signed.bytes()).is_ok());
    mesh.run(Millis::from_secs(20));
    let counted = |mesh: &Mesh, node: usize| {
        let view = mesh.nodes[node].site.view();
        let entry = view.reader().entry(&path("/grid/g0/u0")).expect("an entry");
        view.reader().sums(entry).global >> 32
    };
    let most = 10 * vo::HOUR.0 * 17 / 16;
    for node in 0..3 {
        assert!(
            counted(&mesh, node) <= 2 * u128::from(most),
            "at node {node}"
        );
        mesh.restart(node);
        mesh.run(Millis::from_secs(20));
    }
    assert_converged(&mut mesh, &ledger);
    let mut charter = next_charter(&sign_charter(next_charter(&mesh.charter)));
    charter.previous = Some(smaller);
    assert!(mesh.publish(0, sign_charter(charter).bytes()).is_ok());
    mesh.run(Millis::from_secs(20));
    for node in 0..3 {
        assert_eq!(
            counted(&mesh, node),
            u128::from(900 * 1_200_000u64),
            "at node {node}"
        );
    }
}
