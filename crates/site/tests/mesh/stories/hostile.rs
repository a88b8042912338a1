//! What must be refused is refused, changes nothing, and never stops a site.

use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    Counters, Incarnation, Millis, Seq, Signed, Span, UsageBatch, WallTime, WindowLength,
};
use fairmesh_site::gossip::wire::Push;
use fairmesh_site::{Event, Notice, Verdict};
use proptest::prelude::*;
use serde_bytes::ByteBuf;

use crate::ledger::{Ledger, assert_converged, state};
use crate::mesh::Mesh;
use crate::vo::{DAY, HOUR, job, path, site_id, site_key};

/// A batch of the site with key `signer`, in the name of site `claimed`.
fn batch(mesh: &Mesh, claimed: usize, signer: usize, at: WallTime, charge: u64) -> Vec<u8> {
    let span = Span::Window(WindowLength::HOUR.window_at(at));
    let counters = Counters {
        charge,
        ..Counters::default()
    };
    let body = UsageBatch {
        vo: mesh.vo,
        site: site_id(claimed),
        incarnation: Incarnation(1),
        seq: Seq(1),
        previous: None,
        at,
        retired_below: Incarnation(0),
        settled_below: Incarnation(0),
        cells: PathCells::from_rows([(span, path("/g0/u0"), counters)]),
    };
    let signed = Signed::sign(body, &[&site_key(signer)]).expect("well-formed");
    Push::Batch(ByteBuf::from(signed.bytes().to_vec())).to_bytes()
}

/// What a member may sign, though no honest one does: an hour, and today as a whole behind it.
fn early_day(mesh: &Mesh) -> [Vec<u8>; 2] {
    let (at, length) = (mesh.now(0).wall, WindowLength::HOUR);
    let hour = length.window_at(at);
    let sign = |seq: u64, previous, span: Span, charge: u64| {
        let counters = Counters {
            charge,
            ..Counters::default()
        };
        let body = UsageBatch {
            vo: mesh.vo,
            site: site_id(2),
            incarnation: Incarnation(1),
            seq: Seq(seq),
            previous,
            at,
            retired_below: Incarnation(0),
            settled_below: Incarnation(0),
            cells: PathCells::from_rows([(span, path("/g0/u0"), counters)]),
        };
        Signed::sign(body, &[&site_key(2)]).expect("well-formed")
    };
    let first = sign(1, None, Span::Window(hour), 7_000_000);
    let day = Span::Day(length.day_of(hour));
    let second = sign(2, Some(first.hash()), day, 7_000_001);
    [first, second].map(|batch| Push::Batch(ByteBuf::from(batch.bytes().to_vec())).to_bytes())
}

#[test]
fn hours_that_are_merged_too_early_weigh_the_same_for_whoever_heard_them_and_whoever_did_not() {
    let mut mesh = Mesh::found(1, 3);
    // The middle of the day, which the whole of it is weighed from, must lie behind us.
    let day = mesh.now(0).wall.0 % DAY.0;
    mesh.tick_ms = 600_000;
    mesh.run(Millis(DAY.0 - day + HOUR.0 * 22));
    for bytes in early_day(&mesh) {
        assert_eq!(offer(&mut mesh, bytes), Verdict::Accept);
    }
    mesh.handle(0, Event::Tick);
    let heard = mesh.nodes[0].site.view_digest(mesh.vo);
    let config = mesh.nodes[0].config.clone();
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
    assert_eq!(heard, mesh.nodes[0].site.view_digest(mesh.vo));
}

fn offer(mesh: &mut Mesh, bytes: Vec<u8>) -> Verdict {
    let (from, vo) = (site_id(1), mesh.vo);
    mesh.handle(
        0,
        Event::Pushed {
            from,
            vo,
            bytes,
            token: 0,
        },
    );
    mesh.nodes[0].verdicts.pop().expect("judged")
}

#[test]
fn strangers_forgers_liars_and_prophets_change_nothing() {
    let mut mesh = Mesh::found(1, 3);
    let (before, now) = (state(&mesh, 0), mesh.now(0).wall);
    let stranger = batch(&mesh, 9, 9, now, 5);
    let forged = batch(&mesh, 2, 9, now, 5);
    let too_much = batch(&mesh, 2, 2, now, u64::MAX);
    let future = batch(&mesh, 2, 2, now.after(DAY), 5);
    let framed = batch(&mesh, 1, 9, now.after(DAY), 5);
    assert_eq!(offer(&mut mesh, stranger), Verdict::Ignore);
    assert_eq!(offer(&mut mesh, forged), Verdict::Reject);
    assert_eq!(offer(&mut mesh, too_much), Verdict::Ignore);
    assert_eq!(offer(&mut mesh, framed), Verdict::Reject);
    let clock_off =
        |mesh: &Mesh| mesh.noticed(0, |notice| matches!(notice, Notice::ClockOff { .. }));
    assert!(
        !clock_off(&mesh),
        "a forged batch says nothing about anybody's clock"
    );
    assert_eq!(offer(&mut mesh, future), Verdict::Ignore);
    assert!(clock_off(&mesh));
    assert_eq!(state(&mesh, 0), before);
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

#[test]
fn a_site_that_reports_more_than_it_declares_goes_on_and_is_believed_up_to_that() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    ledger.report(&mut mesh, 1);
    let end = mesh.now(1).wall;
    let absurd = job(
        "absurd",
        "grid",
        "g2",
        "u3",
        (end.before(Millis::from_secs(60)), end),
        4_000_000,
    );
    let reported = mesh.report(1, &[absurd]).expect("acknowledged");
    assert_eq!(reported.counted, 1);
    for _ in 0..10 {
        ledger.report(&mut mesh, 1);
        mesh.run(Millis::from_secs(10));
    }
    mesh.run(Millis::from_secs(30));
    assert!(mesh.noticed(1, |notice| matches!(notice, Notice::OverCapacity { .. })));
    let seen = crate::ledger::sums(&mesh, 0);
    let honest = |sums: &crate::ledger::Sums| {
        let others = sums
            .iter()
            .filter(|(account, _)| **account != path("/g2/u3"));
        others
            .map(|(account, sum)| (account.clone(), *sum))
            .collect::<Vec<_>>()
    };
    assert_eq!(honest(&seen), honest(&ledger.sums));
    mesh.restart(1);
    mesh.run(Millis::from_secs(30));
    assert_eq!(honest(&crate::ledger::sums(&mesh, 2)), honest(&ledger.sums));
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
            mesh.handle(0, Event::Asked { from, bytes: bytes.clone(), channel: 0 });
            for id in 0..40 {
                mesh.handle(0, Event::Answered { from, id, bytes: Some(bytes.clone()) });
            }
            mesh.handle(0, Event::Pushed { from, vo, bytes: bytes.clone(), token: 0 });
            mesh.handle(0, Event::Publish { ticket: 0, bytes });
        }
        prop_assert_eq!(&before, &state(&mesh, 0).sums);
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
    }
}
