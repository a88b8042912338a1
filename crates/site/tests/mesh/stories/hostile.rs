//! What must be refused is refused, changes nothing, and never stops a site.

use fairmesh_gossip::wire::{Probe, Push, Request};
use fairmesh_model::{Millis, Span, WallTime, WindowLength};
use fairmesh_site::{Event, Notice, Verdict};
use proptest::prelude::*;

use crate::ledger::{Ledger, assert_converged, assert_same, seen, state, sums};
use crate::liar::{Liar, offer, push, push_by, usage};
use crate::mesh::Mesh;
use crate::vo::{DAY, HOUR, job, path, site_id};

/// The dishonest member: it is in the charter, and runs no node.
const LIAR: usize = 3;

fn mesh_with_liar() -> Mesh {
    Mesh::found_with(1, 3, crate::vo::timing(), |charter| {
        *charter = crate::vo::charter("grid", LIAR + 1);
    })
}

fn hour_of(at: WallTime) -> Span {
    Span::Window(WindowLength::HOUR.window_at(at))
}

#[test]
fn strangers_forgers_liars_and_prophets_change_nothing() {
    let mut mesh = mesh_with_liar();
    let (before, now) = (seen(&mesh, 0), mesh.now(0).wall);
    let stranger = Liar::new(&mesh, 9).sign(now, usage(hour_of(now), &[("/g0/u0", 5)]));
    assert_eq!(offer(&mut mesh, 0, stranger), Verdict::Ignore);
    // A flipped bit of a signature.
    let mut forged = Liar::new(&mesh, LIAR).sign(now, usage(hour_of(now), &[("/g0/u0", 5)]));
    let last = forged.len() - 2;
    forged[last] ^= 1;
    assert_eq!(offer(&mut mesh, 0, forged), Verdict::Reject);
    let clock_off =
        |mesh: &Mesh| mesh.noticed(0, |notice| matches!(notice, Notice::ClockOff { .. }));
    assert!(
        !clock_off(&mesh),
        "a forged head says nothing about anybody's clock"
    );
    let future = Liar::new(&mesh, LIAR).sign(now.after(DAY), usage(hour_of(now), &[("/g0/u0", 5)]));
    assert_eq!(offer(&mut mesh, 0, future), Verdict::Ignore);
    assert!(clock_off(&mesh));
    // Usage of a time that has not come, under a head of now.
    let mut prophet = Liar::new(&mesh, LIAR);
    prophet.sign(now, usage(hour_of(now.after(DAY)), &[("/g0/u0", 5)]));
    mesh.admit(LIAR, prophet);
    mesh.run(Millis::from_secs(30));
    assert_eq!(seen(&mesh, 0), before);
    assert_same(&mut mesh);
}

#[test]
fn a_head_without_its_content_is_passed_on_once_that_is_here_and_what_does_not_fit_to_it_is_not() {
    let mut mesh = mesh_with_liar();
    mesh.nodes[0].verdicts.clear();
    let now = mesh.now(0).wall;
    let mut member = Liar::new(&mesh, LIAR);
    let mut sign = |charge| member.sign(now, usage(hour_of(now), &[("/g0/u0", charge)]));
    let (first, second) = (sign(5), sign(6));
    // It says what it changes of a head by a few bytes of its hash: nobody knows who has signed it.
    assert_eq!(offer(&mut mesh, 0, second), Verdict::Ignore);
    let Ok(Push::Head(head, None)) = Push::from_bytes(&first) else {
        panic!("the first comes as it is signed");
    };
    let padded = Push::Head(head, Some(serde_bytes::ByteBuf::from([0; 1_000])));
    assert_eq!(offer(&mut mesh, 0, padded.to_bytes()), Verdict::Ignore);
    // Whoever got it from here would ask for its content here, so it waits: one of each site.
    push(&mut mesh, 0, first);
    assert_eq!(mesh.nodes[0].verdicts, []);
    let mut again = Liar::new(&mesh, LIAR);
    again.start_again();
    let other = again.sign(now, usage(hour_of(now), &[("/g0/u0", 7)]));
    push(&mut mesh, 0, other);
    assert_eq!(mesh.nodes[0].verdicts, [Verdict::Ignore], "the first");
    mesh.admit(LIAR, again);
    mesh.run(Millis(50));
    assert_eq!(mesh.nodes[0].verdicts, [Verdict::Ignore, Verdict::Accept]);
    assert_eq!(sums(&mesh, 0)[&path("/g0/u0")].0, 7);
}

#[test]
fn an_answer_that_tells_a_head_again_and_again_is_not_read() {
    let mut mesh = mesh_with_liar();
    let now = mesh.now(0).wall;
    let mut liar = Liar::new(&mesh, LIAR);
    liar.sign(now, usage(hour_of(now), &[("/g0/u0", 5)]));
    liar.repeats = 1_000;
    mesh.admit(LIAR, liar);
    mesh.run(Millis::from_secs(30));
    assert!(mesh.nodes[0].site.gossip_stats().failures > 0);
    assert!(!sums(&mesh, 0).contains_key(&path("/g0/u0")));
    mesh.liars.get_mut(&site_id(LIAR)).expect("there").repeats = 1;
    mesh.run(Millis::from_secs(30));
    assert_eq!(sums(&mesh, 0)[&path("/g0/u0")].0, 5);
}

#[test]
fn a_day_that_is_merged_too_early_weighs_the_same_for_whoever_held_its_hours_and_whoever_did_not() {
    let mut mesh = mesh_with_liar();
    // The middle of the day, which the whole of it is weighed from, must lie behind us.
    let day = mesh.now(0).wall.0 % DAY.0;
    mesh.tick_ms = 600_000;
    mesh.run(Millis(DAY.0 - day + HOUR.0 * 22));
    let now = mesh.now(0).wall;
    let mut liar = Liar::new(&mesh, LIAR);
    let mut hours = usage(hour_of(now), &[("/g0/u0", 7_000_000)]);
    liar.sign(now, hours.clone());
    mesh.admit(LIAR, liar);
    mesh.cut(2);
    mesh.run(HOUR);
    let mut liar = mesh.liars.remove(&site_id(LIAR)).expect("there");
    hours[0].1 = None;
    let today = Span::Day(WindowLength::HOUR.day_of(WindowLength::HOUR.window_at(now)));
    hours.extend(usage(today, &[("/g0/u0", 7_000_001)]));
    liar.sign(mesh.now(0).wall, hours);
    mesh.admit(LIAR, liar);
    mesh.heal();
    mesh.run(HOUR);
    assert_same(&mut mesh);
    assert_eq!(sums(&mesh, 0)[&path("/g0/u0")].0, 7_000_001);
    let taken = mesh.nodes[0].site.view_digest(mesh.vo);
    let config = mesh.nodes[0].config.clone();
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    assert_eq!(taken, mesh.nodes[0].site.view_digest(mesh.vo));
}

#[test]
fn a_head_that_is_dated_back_is_the_same_to_whoever_holds_its_parts_and_to_whoever_does_not() {
    let mut mesh = mesh_with_liar();
    let now = mesh.now(0).wall;
    let mut liar = Liar::new(&mesh, LIAR);
    liar.sign(now, usage(hour_of(now), &[("/g0/u0", 5)]));
    mesh.cut(2);
    mesh.liars.insert(site_id(LIAR), liar);
    for node in 0..2 {
        mesh.handle(node, Event::Connected(site_id(LIAR)));
    }
    mesh.run(Millis::from_secs(20));
    for node in 0..2 {
        assert_eq!(sums(&mesh, node)[&path("/g0/u0")].0, 5);
        mesh.handle(node, Event::Disconnected(site_id(LIAR)));
    }
    let mut liar = mesh.liars.remove(&site_id(LIAR)).expect("there");
    // Nothing changes but the time, before which nobody has used what it holds.
    let dated_back = liar.sign(now.before(HOUR.times(3)), Vec::new());
    let verdict = offer(&mut mesh, 0, dated_back);
    mesh.heal();
    mesh.run(Millis::from_secs(60));
    assert_same(&mut mesh);
    assert_eq!(verdict, Verdict::Reject);
    assert_eq!(sums(&mesh, 2)[&path("/g0/u0")].0, 5);
}

#[test]
fn a_clock_that_is_off_is_named_and_its_usage_counts_once_it_is_time() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    mesh.nodes[1].ahead_ms = HOUR.0 * 2;
    ledger.report(&mut mesh, 1);
    mesh.run(Millis::from_secs(30));
    assert!(mesh.noticed(
        0,
        |notice| matches!(notice, Notice::ClockOff { site, .. } if *site == site_id(1))
    ));
    mesh.nodes[1].ahead_ms = 0;
    mesh.run(HOUR.times(3));
    assert_converged(&mut mesh, &ledger);
}

/// The member pushes the head of a site that nobody knows.
fn push_of_stranger(mesh: &mut Mesh, index: usize) {
    let now = mesh.now(0).wall;
    let bytes = Liar::new(mesh, index).sign(now, usage(hour_of(now), &[("/g0/u0", 5)]));
    push_by(mesh, LIAR, 0, bytes);
}

#[test]
fn what_a_member_does_wrong_is_said_once_a_minute_and_hides_nothing_else() {
    let mut mesh = mesh_with_liar();
    let from = site_id(LIAR);
    let now = mesh.now(0).wall;
    // It signs two heads with one number.
    let sign = |charge| {
        let mut liar = Liar::new(&mesh, LIAR);
        let head = liar.sign(now, usage(hour_of(now), &[("/g0/u0", charge)]));
        (liar, head)
    };
    let ((liar, _), (_, forked)) = (sign(5), sign(6));
    mesh.admit(LIAR, liar);
    mesh.run(Millis::from_secs(30));
    push(&mut mesh, 0, forked);
    let is_listed = |mesh: &Mesh, is_it: fn(&Notice) -> bool| {
        let listed = mesh.nodes[0].site.notices();
        listed.filter(|notice| is_it(notice)).count()
    };
    let forked = |notice: &Notice| matches!(notice, Notice::Forked { .. });
    assert_eq!(is_listed(&mesh, forked), 1);
    mesh.nodes[0].notices.clear();
    for number in 0..1_000 {
        // The clocks that it tells take turns, and each head is by a key that nobody knows.
        let at = now.after(DAY.times(1 + number % 2));
        let probe = Request::Probe(Probe {
            at,
            vos: Vec::new(),
        });
        let (bytes, channel) = (probe.to_bytes(), 1_000 + number);
        let asked = Event::Requested {
            from,
            bytes,
            channel,
        };
        mesh.handle(0, asked);
        push_of_stranger(
            &mut mesh,
            100 + usize::try_from(number % 90).expect("small"),
        );
    }
    assert_eq!(mesh.nodes[0].notices.len(), 2, "a line of each");
    assert_eq!(is_listed(&mesh, forked), 1);
    let of_clock = |notice: &Notice| matches!(notice, Notice::ClockOff { .. });
    let of_refused = |notice: &Notice| matches!(notice, Notice::Refused { .. });
    let counts = [of_clock, of_refused].map(|of| is_listed(&mesh, of));
    assert_eq!(counts, [1, 1]);
    mesh.run(Millis::from_secs(61));
    mesh.nodes[0].notices.clear();
    push_of_stranger(&mut mesh, 9);
    let said = mesh.nodes[0].notices.iter().find(|of| of_refused(of));
    let said = said.expect("a minute later").clone();
    assert_eq!(mesh.nodes[0].site.held_back(&said), 999);
}

#[test]
fn usage_that_is_taken_back_again_and_again_is_named_once_with_the_sum() {
    let mut mesh = mesh_with_liar();
    let now = mesh.now(0).wall;
    let mut liar = Liar::new(&mesh, LIAR);
    let heads =
        |liar: &mut Liar, charge| liar.sign(now, usage(hour_of(now), &[("/g0/u0", charge)]));
    heads(&mut liar, 1);
    mesh.admit(LIAR, liar);
    mesh.run(Millis::from_secs(30));
    let mut liar = mesh.liars.remove(&site_id(LIAR)).expect("there");
    mesh.nodes[0].notices.clear();
    // More than it can have run, and back, by another amount each time.
    let much = 4_000 * HOUR.0;
    for round in 0..20 {
        for charge in [much, 20 - round] {
            let head = heads(&mut liar, charge);
            assert_eq!(offer(&mut mesh, 0, head), Verdict::Accept);
        }
    }
    let of_taken = |notice: &&Notice| matches!(notice, Notice::TookBack { .. });
    let of_excess = |notice: &&Notice| matches!(notice, Notice::OverCapacity { .. });
    let said = mesh.nodes[0].notices.iter();
    assert_eq!(
        [
            said.clone().filter(of_taken).count(),
            said.filter(of_excess).count()
        ],
        [1, 1]
    );
    let listed = || mesh.nodes[0].site.notices();
    assert_eq!(listed().filter(of_excess).count(), 0, "not any more");
    let taken: Vec<&Notice> = listed().filter(of_taken).collect();
    let all = 20 * much - (1..=20).sum::<u64>();
    assert!(
        matches!(taken[..], [Notice::TookBack { charge, .. }] if *charge == all),
        "{taken:?}"
    );
    mesh.liars.insert(site_id(LIAR), liar);
    mesh.run(Millis::from_secs(61));
    let mut liar = mesh.liars.remove(&site_id(LIAR)).expect("there");
    for charge in [3, 1] {
        let head = heads(&mut liar, charge);
        offer(&mut mesh, 0, head);
    }
    let said = mesh.nodes[0].notices.iter().rev().find(of_taken);
    let said = said.expect("a minute later").clone();
    assert!(matches!(said, Notice::TookBack { charge, .. } if charge == all + 2));
    assert_eq!(mesh.nodes[0].site.held_back(&said), 19);
}

#[test]
fn small_heads_of_a_site_of_many_rows_are_taken_one_at_a_time_and_the_last_soon() {
    let mut mesh = mesh_with_liar();
    let (from, now) = (site_id(LIAR), mesh.now(0).wall);
    let today = Span::Day(WindowLength::HOUR.day_of(WindowLength::HOUR.window_at(now)));
    let names: Vec<String> = (0..20_000).map(|user| format!("/g0/u{user:05}")).collect();
    let parts = |first: u64| {
        let rows = names.iter().map(|name| (name.as_str(), 1));
        let mut rows: Vec<(&str, u64)> = rows.collect();
        rows[0].1 = first;
        usage(today, &rows)
    };
    let mut liar = Liar::new(&mesh, LIAR);
    liar.sign(now, parts(1));
    mesh.admit(LIAR, liar);
    mesh.run(Millis::from_secs(30));
    let mut liar = mesh.liars.remove(&from).expect("there");
    // Each changes one cell, and all rows of the day are summed anew.
    let old = parts(1);
    let cell = |first| {
        let new = parts(first).into_iter();
        new.filter(|part| !old.contains(part)).collect()
    };
    let pushes: Vec<Vec<u8>> = (2..40).map(|first| liar.sign(now, cell(first))).collect();
    mesh.liars.insert(from, liar);
    let before = mesh.nodes[0].site.stats().heads_taken;
    mesh.nodes[0].verdicts.clear();
    pushes
        .into_iter()
        .for_each(|bytes| push_by(&mut mesh, LIAR, 0, bytes));
    assert_eq!(mesh.nodes[0].site.stats().heads_taken - before, 1);
    assert_eq!(
        mesh.nodes[0].verdicts[..2],
        [Verdict::Accept, Verdict::Ignore]
    );
    // Whoever offered them is asked, and not at the next exchange only.
    mesh.run(Millis(1_200));
    assert_eq!(mesh.nodes[0].site.stats().heads_taken - before, 2);
    assert_eq!(sums(&mesh, 0)[&path("/g0/u00000")].0, 39);
}

#[test]
fn a_site_that_reports_more_than_it_declares_counts_up_to_that_everywhere_alike() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    ledger.report(&mut mesh, 1);
    let end = mesh.now(1).wall;
    let ran = (end.before(HOUR), end);
    let absurd = job("absurd", "grid", "g2", "u3", ran, 4_000_000);
    let reported = mesh.report(1, &[absurd]).expect("answered");
    assert_eq!(
        (reported.counted, reported.refused.len()),
        (0, 1),
        "no site has such a machine"
    );
    // Each could have run, all of them together not.
    for index in 0..10 {
        let record = job(format!("much-{index}"), "grid", "g2", "u3", ran, 900);
        mesh.report(1, std::slice::from_ref(&record))
            .expect("acknowledged");
        ledger.count(&record);
        mesh.run(Millis::from_secs(10));
    }
    mesh.run(Millis::from_secs(30));
    assert_converged(&mut mesh, &ledger);
    let names_it = |notice: &Notice| matches!(notice, Notice::OverCapacity { site, .. } if *site == site_id(1));
    for node in 0..3 {
        assert!(mesh.noticed(node, names_it), "node {node}");
        let view = mesh.nodes[node].site.view();
        let entry = view.reader().entry(&path("/grid")).expect("an entry");
        let most = 2 * 1_000 * HOUR.0 * 17 / 16;
        assert!(
            view.reader().sums(entry).global >> 32 <= u128::from(most),
            "node {node}"
        );
    }
    mesh.restart(1);
    mesh.run(Millis::from_secs(30));
    assert_converged(&mut mesh, &ledger);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_and_damaged_bytes_are_refused_without_a_trace(
        noise in proptest::collection::vec(any::<u8>(), 0..400),
        cut in any::<u16>(),
        flip in any::<(u16, u8)>(),
    ) {
        let (mut mesh, mut ledger) = (Mesh::found(1, 2), Ledger::default());
        ledger.report(&mut mesh, 1);
        mesh.run(Millis::from_secs(20));
        let real: Vec<Vec<u8>> = mesh.nodes[1].sent.iter().rev().take(4).cloned().collect();
        let mut offered = vec![noise];
        for bytes in real {
            offered.push(bytes[..usize::from(cut) % bytes.len()].to_vec());
            let mut flipped = bytes;
            let at = usize::from(flip.0) % flipped.len();
            flipped[at] ^= flip.1.max(1);
            offered.push(flipped);
        }
        let before = state(&mesh, 0).sums;
        for bytes in offered {
            let (from, vo) = (site_id(1), mesh.vo);
            mesh.handle(0, Event::Requested { from, bytes: bytes.clone(), channel: 0 });
            for id in 0..40 {
                mesh.handle(0, Event::Answered { from, id, bytes: Some(bytes.clone()) });
            }
            mesh.handle(0, Event::Pushed { from, vo, bytes: bytes.clone(), token: 0 });
            mesh.handle(0, Event::Publish { ticket: 0, bytes, by: String::new() });
        }
        prop_assert_eq!(&before, &state(&mesh, 0).sums);
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
    }
}

#[test]
fn hundreds_of_accounts_of_a_site_over_its_capacity_count_in_one_report_as_after_a_start() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 2), Ledger::default());
    let end = mesh.now(1).wall;
    let ran = (end.before(HOUR.times(10)), end);
    for half in 0..2 {
        let of = |user| {
            job(
                format!("{half}-{user}"),
                "grid",
                "g2",
                &format!("v{user}"),
                ran,
                3,
            )
        };
        let records: Vec<_> = (0..500).map(of).collect();
        let reported = mesh.report(1, &records).expect("answered");
        assert_eq!(reported.counted, 500);
        records.iter().for_each(|record| ledger.count(record));
    }
    mesh.run(Millis::from_secs(30));
    assert_converged(&mut mesh, &ledger);
    mesh.restart(1);
    mesh.run(Millis::from_secs(30));
    assert_converged(&mut mesh, &ledger);
}
