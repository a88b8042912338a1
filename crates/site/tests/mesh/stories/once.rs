//! Whatever a feed repeats, each moment of a job is charged once.

use fairmesh_model::{AccountPath, Counters, Millis, UsageRecord};
use proptest::prelude::*;
use std::collections::BTreeMap;

use crate::ledger::{Ledger, assert_converged, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{HOUR, START, job};

#[test]
fn feeding_the_same_records_again_changes_nothing() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 2), Ledger::default());
        let records: Vec<UsageRecord> = (0..20).map(|_| ledger.draw(&mut mesh, 0)).collect();
        records.iter().for_each(|record| ledger.count(record));
        let twice: Vec<UsageRecord> = records.iter().chain(&records).cloned().collect();
        let reported = mesh.report(0, &twice).expect("acknowledged");
        assert_eq!((reported.counted, reported.known), (20, 20));
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
        let before = state(&mesh, 1);

        assert_eq!(mesh.report(0, &records).expect("acknowledged").known, 20);
        mesh.restart(0);
        assert_eq!(mesh.report(0, &records).expect("acknowledged").known, 20);
        mesh.run(Millis::from_secs(30));
        assert_converged(&mut mesh, &ledger);
        assert_eq!(before.sums, state(&mesh, 1).sums);
    });
}

#[test]
fn what_is_refused_for_now_is_told_apart_from_what_never_counts() {
    let mut mesh = Mesh::found(1, 2);
    let ends_in = |mesh: &Mesh, ahead: u64| {
        let end = mesh.now(1).wall.after(Millis::from_secs(ahead));
        job("j", "grid", "g1", "u1", (end.before(HOUR), end), 1)
    };
    let told = |mesh: &mut Mesh, record| {
        let reported = mesh.report(1, &[record]).expect("answered");
        (reported.refused.len(), reported.for_now)
    };
    // The batch system's clock is ahead of the node's: of a little one, and of one that nobody waits for.
    for (ahead, for_now) in [(600, 1), (3 * 86_400, 0)] {
        let record = ends_in(&mesh, ahead);
        assert_eq!(told(&mut mesh, record), (1, for_now));
    }
    let mut nonsense = ends_in(&mesh, 600);
    nonsense.start = nonsense.end.after(HOUR);
    assert_eq!(told(&mut mesh, nonsense), (1, 0));
    // A new node that the charter has not reached.
    mesh.cut(1);
    mesh.restart_on(1, Default::default());
    let record = ends_in(&mesh, 0);
    assert_eq!(told(&mut mesh, record.clone()), (1, 1));
    mesh.heal();
    mesh.run(Millis::from_secs(60));
    assert_eq!(told(&mut mesh, record), (0, 0));
}

fn counted(reports: &[UsageRecord]) -> BTreeMap<AccountPath, Counters> {
    let mut mesh = Mesh::found(1, 1);
    for report in reports {
        mesh.report(0, std::slice::from_ref(report))
            .expect("acknowledged");
    }
    mesh.nodes[0].site.usage_by_account(Some(mesh.vo))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn instalments_and_the_last_word_make_what_the_last_word_makes_alone(
        ran_minutes in 0..400u64,
        cuts in proptest::collection::vec((0..=400u64, any::<bool>()), 0..8),
        order in any::<u64>(),
    ) {
        let minute = Millis::from_secs(60);
        let start = START.before(HOUR.times(9));
        let last_word = job("long", "grid", "g1", "u1", (start, start.after(minute.times(ran_minutes))), 3);
        let mut reports = vec![last_word.clone()];
        for (cut, twice) in cuts {
            let instalment = UsageRecord {
                end: start.after(minute.times(cut.min(ran_minutes))),
                running: true,
                ..last_word.clone()
            };
            reports.extend(std::iter::repeat_n(instalment, 1 + usize::from(twice)));
        }
        crate::random::Dice::new(order).shuffle(&mut reports);
        prop_assert_eq!(counted(&reports), counted(&[last_word]));
    }
}

#[test]
fn a_job_that_ends_with_an_hour_is_one_job_of_that_hour_however_it_is_told() {
    // Published cells must agree too, not only their sums: they are what peers compare.
    let start = START.before(Millis(START.0 % HOUR.0)).before(HOUR.times(5));
    let whole = job(
        "even",
        "grid",
        "g0",
        "u0",
        (start, start.after(HOUR.times(2))),
        1,
    );
    let instalment = UsageRecord {
        running: true,
        ..whole.clone()
    };
    let ledger_rows = |reports: &[UsageRecord]| {
        let mut mesh = Mesh::found(1, 1);
        mesh.report(0, reports).expect("acknowledged");
        let rows = mesh.nodes[0].rows.clone().into_iter();
        rows.filter(|((table, _), _)| *table == fairmesh_site::Table::Ledger)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ledger_rows(&[instalment, whole.clone()]),
        ledger_rows(&[whole])
    );
}
