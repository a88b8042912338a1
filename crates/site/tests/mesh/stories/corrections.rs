//! Jobs that were reported in error are taken back: what was charged, whom it was charged to, once.

use std::collections::BTreeMap;

use fairmesh_model::{
    ChargingRule, Counters, Discounts, Millis, Share, Span, UsageMode, UsageRecord, WindowLength,
    cbor,
};
use fairmesh_site::{Correction, Event, Notice, Pattern, Refund, Reply, Reported, Rule, Table};

use crate::ledger::assert_same;
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{self, DAY, HOUR, job, next_charter, path, sign_charter, site_id};

const SETTLE: Millis = Millis::from_secs(40);

/// Hands in jobs to be taken back.
pub(super) fn correct(mesh: &mut Mesh, node: usize, jobs: &[&UsageRecord]) -> Reported {
    let with_mark = |job: &&UsageRecord| ((*job).clone(), mesh.nodes[node].mark(&job.key));
    let correction = Box::new(Correction {
        records: jobs.iter().map(with_mark).collect(),
        by: "ann".to_owned(),
        why: "a test".to_owned(),
    });
    let ticket = 1;
    mesh.handle(node, Event::Correct { ticket, correction });
    match mesh.nodes[node].replies.pop() {
        Some(Reply::Reported(reported)) => reported,
        other => panic!("{other:?}"),
    }
}

fn net(mesh: &Mesh, node: usize, account: &str) -> u64 {
    let by_account = mesh.nodes[node].site.usage_by_account(Some(mesh.vo));
    by_account
        .get(&path(account))
        .map_or(0, |counters| counters.net())
}

/// Whether a node names site 1 for more than it can have run, now.
fn is_named(mesh: &Mesh, node: usize) -> bool {
    let is_it = |notice: &Notice| matches!(notice, Notice::OverCapacity { site, .. } if *site == site_id(1));
    mesh.nodes[node].site.notices().any(is_it)
}

/// Weighted usage of an entry of a node's tree.
fn weighed(mesh: &Mesh, node: usize, entry: &str) -> u128 {
    let view = mesh.nodes[node].site.view();
    let entry = view.reader().entry(&path(entry)).expect("an entry");
    view.reader().sums(entry).local
}

#[test]
fn who_was_charged_gets_it_back_though_rules_and_prices_have_changed() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(0).wall;
    let ran = (end.before(Millis(HOUR.0 * 3 / 2)), end);
    let (wrong, right) = (
        job("wrong", "grid", "g0", "u0", ran, 7),
        job("right", "grid", "g0", "u0", ran, 2),
    );
    mesh.report(0, &[wrong.clone(), right]).expect("counted");
    mesh.run(SETTLE);
    let before = net(&mesh, 1, "/g0/u0");
    // The user belongs elsewhere from now on, and a core costs three times as much.
    let mut config = mesh.nodes[0].config.clone();
    let rules = [Rule {
        account: Some(Pattern::parse("grid")),
        vo: Some(mesh.vo),
        path: "/g1/u1".to_owned(),
        ..Rule::default()
    }];
    config.identity = fairmesh_site::IdentityMap::new(rules.into());
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    let mut charter = next_charter(&mesh.charter);
    charter.charging = ChargingRule::Weights {
        cpu: 3_000,
        gpu: 0,
        mem_gib: 0,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    let charter = sign_charter(charter);
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    mesh.run(SETTLE);
    let all = wrong.end.since(wrong.start).0 * 7;
    let corrected = correct(&mut mesh, 0, &[&wrong]);
    assert_eq!(corrected.taken_back, [(0, all)], "{corrected:?}");
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    for node in 0..2 {
        assert_eq!(net(&mesh, node, "/g0/u0"), before - all);
        assert_eq!(net(&mesh, node, "/g1/u1"), 0);
    }
}

/// A charter that charges so many thousandths for a core.
pub(super) fn charge_thousandths(mesh: &mut Mesh, cpu: u32) {
    let mut charter = next_charter(&mesh.charter);
    charter.charging = ChargingRule::Weights {
        cpu,
        gpu: 0,
        mem_gib: 0,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    mesh.charter = sign_charter(charter);
    let charter = mesh.charter.bytes().to_vec();
    assert!(mesh.publish(0, &charter).is_ok());
    mesh.run(SETTLE);
}

#[test]
fn a_job_is_taken_back_where_it_was_charged_though_other_rules_divide_it_otherwise() {
    let mut mesh = Mesh::found(1, 2);
    charge_thousandths(&mut mesh, 1_333);
    let hour = Span::Window(WindowLength::HOUR.window_at(mesh.now(0).wall));
    let hour = hour.start(WindowLength::HOUR);
    let earlier = (hour.before(Millis(HOUR.0 * 2)), hour.before(HOUR));
    let right = job("right", "grid", "g0", "u0", earlier, 2);
    // 3 and 2 by this rule, 4 and 1 by the next.
    let ran = (hour.before(Millis(3)), hour.after(Millis(1)));
    let wrong = job("wrong", "grid", "g0", "u0", ran, 1);
    mesh.report(0, &[right, wrong.clone()]).expect("counted");
    charge_thousandths(&mut mesh, 1_334);
    assert_eq!(correct(&mut mesh, 0, &[&wrong]).taken_back, [(0, 5)]);
    let mut by_span: BTreeMap<Span, Counters> = BTreeMap::new();
    for cell in mesh.nodes[0].site.usage_cells() {
        let sum = by_span.entry(cell.span).or_default();
        *sum = sum.plus(cell.counters);
    }
    let sums = by_span.values().map(|sum| (sum.charge, sum.refunds));
    let all = HOUR.0 * 2 * 1_333 / 1_000;
    assert_eq!(sums.collect::<Vec<_>>(), [(all, 0), (3, 3), (2, 2)]);
}

#[test]
fn a_job_is_taken_back_wherever_a_wrong_clock_has_put_it() {
    for settles in [Millis(1_000), HOUR] {
        let mut mesh = Mesh::found(1, 2);
        // The batch system's clock is as wrong as the node's, and both are set right afterwards.
        mesh.nodes[0].ahead_ms = HOUR.0 * 6;
        mesh.run(SETTLE);
        let end = mesh.now(0).wall;
        let wrong = job("wrong", "grid", "g0", "u0", (end.before(HOUR), end), 7);
        mesh.report(0, std::slice::from_ref(&wrong))
            .expect("counted");
        mesh.nodes[0].ahead_ms = 0;
        mesh.run(settles);
        let reported = correct(&mut mesh, 0, &[&wrong]);
        let all = wrong.end.since(wrong.start).0 * 7;
        assert_eq!(reported.taken_back, [(0, all)], "after {settles:?}");
        mesh.run(HOUR);
        for node in [0, 1] {
            assert_eq!(
                net(&mesh, node, "/g0/u0"),
                0,
                "after {settles:?}, node {node}"
            );
        }
    }
}

#[test]
fn what_cannot_be_taken_back_is_refused_with_a_word_and_the_rest_is_done() {
    let mut mesh = Mesh::found_with(1, 1, vo::timing(), |charter| {
        charter.usage_mode = UsageMode::Active;
        charter.discounts = Discounts {
            idle: Share::ZERO,
            ..Discounts::NONE
        };
    });
    let end = mesh.now(0).wall;
    let ran = (end.before(HOUR), end);
    let names = ["good", "runs", "twice"].map(|name| job(name, "grid", "g0", "u0", ran, 1));
    let [good, mut runs, twice] = names;
    runs.running = true;
    mesh.report(0, &[good.clone(), runs.clone(), twice.clone()])
        .expect("counted");
    assert_eq!(correct(&mut mesh, 0, &[&twice]).counted, 1);
    let unknown = job("unknown", "grid", "g0", "u0", ran, 1);
    let later = UsageRecord {
        end: ran.1.after(Millis(1)),
        ..good.clone()
    };
    let all = [&unknown, &runs, &twice, &good, &good];
    assert!(
        correct(&mut mesh, 0, &[&later]).refused[0]
            .1
            .contains("another time")
    );
    let corrected = correct(&mut mesh, 0, &all);
    assert_eq!(corrected.taken_back, [(3, HOUR.0)]);
    let words = ["never counted", "not ended", "already", "already"];
    let refused: Vec<usize> = corrected.refused.iter().map(|(index, _)| *index).collect();
    assert_eq!(refused, [0, 1, 2, 4]);
    for ((_, why), word) in corrected.refused.iter().zip(words) {
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_correction_without_a_name_or_a_reason_changes_nothing() {
    let mut mesh = Mesh::found(1, 1);
    let end = mesh.now(0).wall;
    let wrong = job("wrong", "grid", "g0", "u0", (end.before(HOUR), end), 1);
    mesh.report(0, std::slice::from_ref(&wrong))
        .expect("counted");
    for (by, why) in [("", "a test"), ("ann", " "), ("ann", &"x".repeat(600))] {
        let mark = mesh.nodes[0].mark(&wrong.key);
        let correction = Box::new(Correction {
            records: vec![(wrong.clone(), mark)],
            by: by.to_owned(),
            why: why.to_owned(),
        });
        let ticket = 1;
        mesh.handle(0, Event::Correct { ticket, correction });
        let Some(Reply::Reported(reported)) = mesh.nodes[0].replies.pop() else {
            panic!("no answer");
        };
        assert_eq!((reported.counted, reported.refused.len()), (0, 1));
    }
    assert_eq!(net(&mesh, 0, "/g0/u0"), HOUR.0);
}

#[test]
fn a_job_of_the_sites_own_accounts_weighs_nothing_once_it_is_taken_back() {
    // At once, and when the day that it ran in has become old, so that its windows are taken into the day.
    for days in [0, 3] {
        let mut mesh = Mesh::found(1, 1);
        let end = mesh.now(0).wall;
        let ran = (end.before(HOUR), end);
        let [wrong, right] = ["wrong", "right"].map(|name| job(name, "local", "g0", "u0", ran, 3));
        mesh.report(0, &[wrong.clone(), right]).expect("counted");
        let before = weighed(&mesh, 0, "/local");
        assert!(before > 0);
        mesh.run(DAY.times(days));
        assert_eq!(correct(&mut mesh, 0, &[&wrong]).charge, 3 * HOUR.0);
        assert_eq!(weighed(&mesh, 0, "/local"), before / 2);
        mesh.restart(0);
        assert_eq!(weighed(&mesh, 0, "/local"), before / 2);
        assert_eq!(mesh.nodes[0].site.refunds().count(), 1);
    }
}

#[test]
fn what_was_taken_back_leaves_its_room_and_the_site_is_named_no_more() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(1).wall;
    let ran = (end.before(HOUR), end);
    let right = job("right", "grid", "g0", "u0", ran, 800);
    let wrong = |index| job(format!("wrong-{index}"), "grid", "g1", "u1", ran, 900);
    let wrong: Vec<UsageRecord> = (0..5).map(wrong).collect();
    mesh.report(1, &[vec![right], wrong.clone()].concat())
        .expect("counted");
    mesh.run(SETTLE);
    assert_eq!([0, 1].map(|node| is_named(&mesh, node)), [true; 2]);
    // In two windows at most.
    assert!(weighed(&mesh, 1, "/grid") < u128::from(2_200 * HOUR.0) << 32);
    let all: Vec<&UsageRecord> = wrong.iter().collect();
    assert_eq!(correct(&mut mesh, 1, &all).counted, 5);
    mesh.run(SETTLE);
    assert_eq!([0, 1].map(|node| is_named(&mesh, node)), [false; 2]);
    assert_same(&mut mesh);
    assert_eq!(net(&mesh, 0, "/g0/u0"), 800 * HOUR.0);
    assert_eq!(net(&mesh, 0, "/g1/u1"), 0);
    assert_eq!(weighed(&mesh, 1, "/grid/g1"), 0);
    // In a day's table, too.
    mesh.tick_ms = 60_000;
    mesh.run(DAY.times(4));
    assert_same(&mut mesh);
    assert_eq!(net(&mesh, 0, "/g0/u0"), 800 * HOUR.0);
    assert_eq!(weighed(&mesh, 1, "/grid/g1"), 0);
}

#[test]
fn gpus_and_memory_beyond_what_the_charter_declares_are_refused_and_clamped() {
    let mut mesh = Mesh::found_with(1, 2, vo::timing(), |charter| {
        charter.charging = ChargingRule::Weights {
            cpu: 1_000,
            gpu: 8_000,
            mem_gib: 0,
            max: false,
            energy_kwh: 0,
            spec_max: None,
        };
        for member in &mut charter.sites {
            (member.gpus, member.mem_gib) = (Some(4), Some(64));
        }
    });
    let end = mesh.now(1).wall;
    let ran = (end.before(HOUR), end);
    let of = |name: &str, gpus, mem_mib| UsageRecord {
        gpus,
        mem_mib,
        ..job(name, "grid", "g0", "u0", ran, 1)
    };
    let absurd = [of("gpus", 5, 0), of("memory", 0, 64 * 1_024 + 1)];
    let reported = mesh.report(1, &absurd).expect("answered");
    assert_eq!((reported.counted, reported.refused.len()), (0, 2));
    assert!(reported.refused[0].1.contains("5 GPUs"), "{reported:?}");
    let many: Vec<UsageRecord> = (0..40)
        .map(|index| of(&format!("much-{index}"), 4, 0))
        .collect();
    mesh.report(1, &many).expect("counted");
    mesh.run(SETTLE);
    assert_eq!([0, 1].map(|node| is_named(&mesh, node)), [true; 2]);
    // The charge stays under what all cores and GPUs cost, in two windows at most.
    let most = |cores: u64| u128::from(2 * (cores + 4 * 8) * HOUR.0 * 17 / 16) << 32;
    assert!(weighed(&mesh, 1, "/grid") <= most(1_000));
    // With fewer cores declared the same tables count for less, everywhere; and named is only who is over.
    let mut charter = next_charter(&mesh.charter);
    for member in &mut charter.sites {
        member.cores = 10;
    }
    let charter = sign_charter(charter);
    assert!(mesh.publish(0, charter.bytes()).is_ok());
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    let less = weighed(&mesh, 1, "/grid");
    assert!(0 < less && less <= most(10), "{less}");
    let mut charter = next_charter(&charter);
    for member in &mut charter.sites {
        (member.cores, member.gpus) = (10_000, None);
    }
    assert!(mesh.publish(0, sign_charter(charter).bytes()).is_ok());
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert!(weighed(&mesh, 1, "/grid") > less, "nothing was lost");
    assert_eq!([0, 1].map(|node| is_named(&mesh, node)), [false; 2]);
}

#[test]
fn members_are_told_who_took_back_and_why_and_a_wiped_site_learns_it_again() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(1).wall;
    let wrong = |name: &str| job(name, "grid", "g0", "u0", (end.before(HOUR), end), 1);
    let jobs = ["a", "b", "c"].map(wrong);
    mesh.report(1, &jobs).expect("counted");
    assert_eq!(correct(&mut mesh, 1, &[&jobs[0], &jobs[1]]).counted, 2);
    mesh.run(SETTLE);
    let told = |mesh: &Mesh| -> Vec<(u64, u64, String)> {
        let members = mesh.nodes[0].site.audit_of_members(mesh.vo);
        let entries = members.flat_map(|(_, entries)| entries);
        entries
            .map(|entry| (entry.jobs, entry.charge, entry.why))
            .collect()
    };
    let both = (2, 2 * HOUR.0, "a test".to_owned());
    assert_eq!(told(&mesh), std::slice::from_ref(&both));
    // The disk is lost; the next incarnation goes on with what peers hold.
    mesh.restart_on(1, Default::default());
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert_eq!(told(&mesh), [both]);
}

#[test]
fn an_audit_row_says_who_took_back_how_much_and_why() {
    let mut mesh = Mesh::found(1, 1);
    let now = mesh.now(0).wall;
    let wrong = job("wrong", "grid", "g0", "u0", (now.before(HOUR), now), 5);
    mesh.report(0, std::slice::from_ref(&wrong))
        .expect("acknowledged");
    assert_eq!(correct(&mut mesh, 0, &[&wrong]).counted, 1);
    let row = mesh.nodes[0]
        .rows
        .iter()
        .find(|((table, _), _)| *table == Table::Audit);
    let audit: Refund = cbor::from_slice(row.expect("kept").1, 4_096).expect("a row");
    let refund = Refund {
        record: Some(Box::new(wrong.clone())),
        until: Some(now),
        job: wrong.key,
        vo: Some(mesh.vo),
        path: path("/g0/u0"),
        charge: 5 * HOUR.0,
        incarnation: audit.incarnation,
        at: now,
        by: "ann".to_owned(),
        why: "a test".to_owned(),
    };
    assert_eq!(audit, refund);
    assert!(mesh.nodes[0].site.refunds().eq([&refund]));
    let sums = mesh.nodes[0].site.usage_by_account(Some(mesh.vo));
    assert_eq!(sums[&path("/g0/u0")].net(), 0);
}

/// What counts, what is known, and of those what was taken back.
fn reported(mesh: &mut Mesh, jobs: &[&UsageRecord]) -> (u64, u64, u64) {
    let jobs: Vec<UsageRecord> = jobs.iter().map(|job| (*job).clone()).collect();
    let reported = mesh.report(0, &jobs).expect("answered");
    let not_again = reported.not_again.values().sum();
    (reported.counted, reported.known, not_again)
}

#[test]
fn a_job_that_was_taken_back_counts_again_as_something_else_and_never_as_it_was() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(0).wall;
    let wrong = job("j", "grid", "g0", "u0", (end.before(HOUR), end), 7);
    assert_eq!(reported(&mut mesh, &[&wrong]), (1, 0, 0));
    assert_eq!(correct(&mut mesh, 0, &[&wrong]).counted, 1);
    // Nor does an instalment, nor what another source says of the same job.
    let instalment = UsageRecord {
        running: true,
        cores: 9,
        ..wrong.clone()
    };
    let mut poorer = wrong.clone();
    poorer.placement.queue = None;
    let mut richer = wrong.clone();
    richer.origin.subject = Some("/CN=u0".to_owned());
    richer.mem_mib = 4_096;
    let same = [&wrong, &poorer, &richer, &instalment];
    assert_eq!(reported(&mut mesh, &same), (0, 4, 4));
    let at = mesh.nodes[0].site.refunds().map(|refund| refund.at).max();
    let again = mesh.report(0, std::slice::from_ref(&wrong));
    assert_eq!(
        again.expect("answered").not_again,
        BTreeMap::from([(at, 1)])
    );
    // Both files are read every day.
    let mut right = wrong.clone();
    (right.origin.group, right.cores) = (Some("g1".to_owned()), 2);
    assert_eq!(reported(&mut mesh, &[&wrong, &right, &wrong]), (1, 2, 1));
    for _ in 0..2 {
        assert_eq!(reported(&mut mesh, &[&wrong, &right]), (0, 2, 0));
        mesh.restart(0);
    }
    assert_eq!([net(&mesh, 0, "/g0/u0"), net(&mesh, 0, "/g1/u1")], [0, 0]);
    assert_eq!(net(&mesh, 0, "/g1/u0"), 2 * HOUR.0);
    // It is taken back as well: then a third record counts, and neither of the others.
    assert_eq!(correct(&mut mesh, 0, &[&right]).charge, 2 * HOUR.0);
    assert_eq!(correct(&mut mesh, 0, &[&right]).counted, 0);
    mesh.restart(0);
    assert_eq!(reported(&mut mesh, &[&wrong, &right]), (0, 2, 2));
    let mut third = right.clone();
    third.cores = 1;
    assert_eq!(reported(&mut mesh, &[&right, &third, &wrong]), (1, 2, 1));
    assert_eq!(net(&mesh, 0, "/g1/u0"), HOUR.0);
    assert_eq!(mesh.nodes[0].site.refunds().count(), 2);
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert_eq!(
        [net(&mesh, 1, "/g0/u0"), net(&mesh, 1, "/g1/u0")],
        [0, HOUR.0]
    );
}

#[test]
fn a_job_is_reported_again_once_whatever_a_crash_cuts_off() {
    with_seeds(|seed| {
        let mut mesh = Mesh::found(seed, 2);
        let end = mesh.now(0).wall;
        let mut last = job("j", "grid", "g0", "u0", (end.before(HOUR), end), 1);
        mesh.report(0, std::slice::from_ref(&last))
            .expect("counted");
        for cores in 2..8 {
            let next = UsageRecord {
                cores,
                ..last.clone()
            };
            for _ in 0..2 {
                mesh.nodes[0].crash_after = Some(mesh.dice.below(4) as usize);
                let with_mark = vec![(last.clone(), mesh.nodes[0].mark(&last.key))];
                let correction = Box::new(Correction {
                    records: with_mark,
                    by: "ann".to_owned(),
                    why: "a test".to_owned(),
                });
                mesh.handle(
                    0,
                    Event::Correct {
                        ticket: 1,
                        correction,
                    },
                );
                mesh.restart(0);
            }
            correct(&mut mesh, 0, &[&last]);
            assert_eq!(net(&mesh, 0, "/g0/u0"), 0);
            mesh.nodes[0].crash_after = Some(mesh.dice.below(4) as usize);
            mesh.report(0, &[last.clone(), next.clone()]);
            mesh.restart(0);
            mesh.report(0, &[next.clone(), last]).expect("answered");
            assert_eq!(net(&mesh, 0, "/g0/u0"), u64::from(cores) * HOUR.0);
            last = next;
        }
        mesh.run(SETTLE);
        assert_same(&mut mesh);
        assert_eq!(net(&mesh, 1, "/g0/u0"), 7 * HOUR.0);
    });
}
