//! What takes long is done beside the site, and bit by bit: meanwhile it answers, and nothing is lost.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Millis, ShareEntry, VoId, Weight};
use fairmesh_policy::Origin;
use fairmesh_site::{Reply, Timing};

use crate::ledger::{Ledger, assert_converged, assert_same, seen};
use crate::mesh::{CALM, Faults, Mesh};
use crate::random::with_seeds;
use crate::vo::{self, DAY, HOUR, path, policy, sign_policy};

/// Nothing is built at once.
fn never_at_once() -> Timing {
    Timing {
        build_entries: 0,
        ..vo::timing()
    }
}

/// The version of the policy that the tree in force at a node is of; 0 for none.
fn version_in_force(mesh: &Mesh, node: usize) -> u64 {
    let compiled = mesh.nodes[node].site.compiled();
    let entry = compiled.get(&path("/grid/g0"));
    entry.map_or(0, |entry| match &entry.from {
        Origin::Document(document) => document.version,
        Origin::Site => 0,
    })
}

fn local_usage(mesh: &Mesh, node: usize) -> u128 {
    let view = mesh.nodes[node].site.view();
    let entry = view.reader().entry(&path("/grid")).expect("mounted");
    view.reader().sums(entry).global
}

#[test]
fn while_a_large_tree_is_built_the_last_one_answers_and_what_comes_meanwhile_follows() {
    with_seeds(|seed| {
        let mut ledger = Ledger::default();
        let mut mesh = Mesh::found_with(seed, 3, never_at_once(), |_| {});
        (0..12).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);

        // From now on nothing is built for a while.
        mesh.work_ms = HOUR.0;
        let second = sign_policy(policy(mesh.vo, 2, 80));
        assert!(mesh.publish(0, &second).is_ok());
        mesh.run(Millis::from_secs(20));
        let before = local_usage(&mesh, 1);
        (0..12).for_each(|round| drop(ledger.report(&mut mesh, round % 3)));
        mesh.run(Millis::from_secs(20));
        for node in 0..3 {
            let site = &mesh.nodes[node].site;
            let held = site.documents(mesh.vo);
            assert!(
                held.iter().any(|bytes| **bytes == *second),
                "held at {node}"
            );
            assert_eq!(version_in_force(&mesh, node), 1, "the last one answers");
            assert!(mesh.nodes[node].site.is_feeding());
        }
        assert!(local_usage(&mesh, 1) > before, "and follows what is used");
        let third = sign_policy(policy(mesh.vo, 3, 60));
        assert!(mesh.publish(2, &third).is_ok());
        // One that ends meanwhile has lost nothing: it begins with the newest.
        mesh.run(Millis::from_secs(20));
        mesh.restart(2);
        assert_eq!(version_in_force(&mesh, 2), 3);

        // What was handed out first is done first; then the one behind it follows.
        mesh.work_ms = 50;
        mesh.run(HOUR);
        for node in 0..3 {
            assert_eq!(version_in_force(&mesh, node), 3, "at node {node}");
            assert!(!mesh.nodes[node].site.is_feeding());
        }
        assert_converged(&mut mesh, &ledger);
    });
}

#[test]
fn a_member_that_publishes_policies_all_the_time_keeps_no_tree_from_coming_into_force() {
    let mut mesh = Mesh::found_with(1, 2, never_at_once(), |_| {});
    let mut ledger = Ledger::default();
    (0..12).for_each(|round| drop(ledger.report(&mut mesh, round % 2)));
    mesh.run(Millis::from_secs(30));
    mesh.work_ms = 3_000;
    let views = mesh.nodes[1].views;
    for version in 2..62 {
        let share = 10 + u32::try_from(version).expect("small");
        let next = sign_policy(policy(mesh.vo, version, share));
        assert!(mesh.publish(0, &next).is_ok());
        mesh.run(Millis::from_secs(1));
        let in_force = version_in_force(&mesh, 1);
        assert!(in_force + 8 >= version, "{in_force} after {version}");
    }
    assert!(mesh.nodes[1].views >= views + 12);
    mesh.run(Millis::from_secs(60));
    assert_eq!(version_in_force(&mesh, 1), 61);
    assert_converged(&mut mesh, &ledger);
}

/// A policy that is too large to be read at once, or to be pushed.
fn large_policy(vo: VoId, version: u64) -> Vec<u8> {
    let mut large = policy(vo, version, 50);
    let entry = |number: u32| {
        (
            path(&format!("/g0/x{number:05}")),
            ShareEntry::of(Weight::HUNDRED),
        )
    };
    let entries: BTreeMap<AccountPath, ShareEntry> = (0..4_000).map(entry).collect();
    large.shares.extend(entries);
    sign_policy(large)
}

#[test]
fn a_document_that_is_read_beside_the_site_keeps_its_place() {
    with_seeds(|seed| {
        let mut mesh = Mesh::found(seed, 3);
        mesh.work_ms = 200;
        let large = large_policy(mesh.vo, 2);
        let small = sign_policy(policy(mesh.vo, 3, 70));
        mesh.nodes[0].replies.clear();
        for bytes in [large, small.clone(), small] {
            let by = String::new();
            mesh.handle(
                0,
                fairmesh_site::Event::Publish {
                    ticket: 1,
                    bytes,
                    by,
                },
            );
        }
        assert_eq!(mesh.nodes[0].replies, [], "nothing overtakes it");
        mesh.run(Millis::from_secs(1));
        let published = |reply: &Reply| match reply {
            Reply::Published(result) => result.clone().expect("adopted"),
            Reply::Reported(_) | Reply::Quota(_) | Reply::Advert(_) | Reply::Forward(_) => {
                panic!("nothing was reported")
            }
        };
        let replies: Vec<String> = mesh.nodes[0].replies.iter().map(published).collect();
        let adopted = |version| format!("share policy {version} of / is adopted");
        let known = "it was known already".to_owned();
        assert_eq!(replies, [adopted(2), adopted(3), known]);

        // A large one comes to the others in an exchange, with what is behind it.
        let large = large_policy(mesh.vo, 4);
        mesh.handle(
            0,
            fairmesh_site::Event::Publish {
                ticket: 1,
                bytes: large,
                by: String::new(),
            },
        );
        mesh.run(Millis::from_secs(60));
        for node in 0..3 {
            assert_eq!(version_in_force(&mesh, node), 4, "at node {node}");
            assert!(!mesh.nodes[node].site.is_taking_in());
        }
        assert_same(&mut mesh);
    });
}

/// Many accounts have used something on each of many days at a node.
pub(super) fn long_history(mesh: &mut Mesh, node: usize, ledger: &mut Ledger) {
    let end = mesh.now(node).wall;
    for day in 0..28 {
        let mut records = Vec::new();
        for number in 0..240u64 {
            let end = end.before(DAY.times(day));
            let ran = (
                end.before(Millis(1_000 + number * 7_919 + day * 104_729)),
                end,
            );
            let (group, user) = (format!("g{}", number % 3), format!("n{number}"));
            let name = format!("{node} {day} {number}");
            records.push(vo::job(name, "grid", &group, &user, ran, 1));
        }
        mesh.report(node, &records).expect("acknowledged");
        records.iter().for_each(|record| ledger.count(record));
    }
}

#[test]
fn a_long_answer_is_taken_in_bit_by_bit_and_nothing_is_asked_for_twice() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 4), Ledger::default());
    for node in [0, 2, 3] {
        long_history(&mut mesh, node, &mut ledger);
    }
    mesh.run(Millis::from_secs(30));
    mesh.restart_on(1, Default::default());
    let mut taken_in_steps = 0;
    for _ in 0..30_000 {
        mesh.run(Millis(1));
        taken_in_steps += usize::from(mesh.nodes[1].site.is_taking_in());
    }
    assert!(taken_in_steps > 1, "in {taken_in_steps}");
    let requests = mesh.nodes[1].site.gossip_stats();
    let asked = requests.pulls + requests.part_requests;
    assert!(asked <= 12, "{requests:?}");
    assert_converged(&mut mesh, &ledger);

    // Where answers are lost and nodes end in the middle of it, too.
    mesh.faults = Faults {
        lost_percent: 30,
        repeated_percent: 30,
        ..CALM
    };
    mesh.restart_on(1, Default::default());
    for _ in 0..20_000 {
        mesh.run(Millis(1));
        if mesh.nodes[1].site.is_taking_in() {
            break;
        }
    }
    mesh.restart(1);
    mesh.run(Millis::from_secs(60));
    mesh.heal();
    mesh.run(Millis::from_secs(30));
    assert_eq!(seen(&mesh, 0), seen(&mesh, 1));
    assert_converged(&mut mesh, &ledger);
}
