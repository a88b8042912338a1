//! Whatever a feed repeats, each moment of a job is charged once.

use fairmesh_model::{AccountPath, Counters, Millis, UsageRecord};
use fairmesh_site::Table;
use proptest::prelude::*;
use std::collections::BTreeMap;

use crate::ledger::{Ledger, assert_converged, state};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{HOUR, START, job, next_charter, sign_charter};

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
        rows.filter(|((table, _), _)| *table == Table::Ledger)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ledger_rows(&[instalment, whole.clone()]),
        ledger_rows(&[whole])
    );
}

/// The net charge and the GPUs of all that is counted.
fn net_and_gpus(mesh: &Mesh) -> (u64, u64) {
    let by_account = mesh.nodes[0].site.usage_by_account(Some(mesh.vo));
    let all = by_account.values();
    let sum = all.fold(Counters::default(), |sum, of| sum.plus(*of));
    (sum.net(), sum.gpu_ms)
}

/// These, after reports each of which is followed by a restart or not.
fn settled(reports: &[(UsageRecord, bool)]) -> (u64, u64) {
    let mut mesh = Mesh::found(1, 1);
    for (report, restarts) in reports {
        mesh.report(0, std::slice::from_ref(report))
            .expect("acknowledged");
        if *restarts {
            mesh.restart(0);
        }
    }
    assert_eq!(mesh.nodes[0].count_rows(Table::Instalments), 0);
    net_and_gpus(&mesh)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_final_record_replaces_instalments_whatever_they_said(
        ran_minutes in 0..400u64,
        said in proptest::collection::vec((0..=30u64, 0..=500u64, 0..9u32, 0..3u32, any::<bool>()), 0..6),
        at_once in any::<bool>(),
    ) {
        let minute = Millis::from_secs(60);
        let start = START.before(HOUR.times(9));
        let end = start.after(minute.times(ran_minutes));
        let last = UsageRecord { gpus: 2, ..job("long", "grid", "g1", "u1", (start, end), 3) };
        let mut reports: Vec<(UsageRecord, bool)> = said.into_iter().map(|(late, ran, cores, gpus, restarts)| {
            let start = start.after(minute.times(late));
            let end = start.after(minute.times(ran));
            (UsageRecord { start, end, cores, gpus, running: true, ..last.clone() }, restarts)
        }).collect();
        reports.push((last.clone(), false));
        reports.push((last.clone(), true));
        let alone = settled(&[(last, false)]);
        let (net, gpu_ms) = if at_once {
            let mut mesh = Mesh::found(1, 1);
            let records: Vec<UsageRecord> = reports.iter().map(|(record, _)| record.clone()).collect();
            mesh.report(0, &records).expect("acknowledged");
            net_and_gpus(&mesh)
        } else {
            settled(&reports)
        };
        prop_assert_eq!(net, alone.0);
        prop_assert!(gpu_ms >= alone.1, "{} of {}", gpu_ms, alone.1);
    }
}

#[test]
fn a_runaway_job_that_its_batch_system_settles_is_refunded_in_the_hours_that_it_was_charged_in() {
    let mut mesh = Mesh::found(1, 1);
    let start = START
        .before(Millis(START.0 % HOUR.0))
        .before(HOUR.times(30));
    let run = |hours: u64, cores, running| UsageRecord {
        running,
        ..job(
            "run",
            "grid",
            "g0",
            "u0",
            (start, start.after(HOUR.times(hours))),
            cores,
        )
    };
    let charge_by_hour = |mesh: &Mesh| {
        let cells = mesh.nodes[0].site.usage_cells();
        let net = cells.map(|cell| (cell.span, cell.counters.net() / HOUR.0));
        let mut net: Vec<_> = net.filter(|(_, net)| *net > 0).collect();
        net.sort();
        net.into_iter().map(|(_, net)| net).collect::<Vec<_>>()
    };
    let mut said = |record: UsageRecord| {
        let reported = mesh.report(0, &[record]).expect("acknowledged");
        (
            reported.charge / HOUR.0,
            reported.credited / HOUR.0,
            charge_by_hour(&mesh),
        )
    };
    // A list that knows of half of its cores, and goes on for two hours too long.
    assert_eq!(said(run(1, 4, true)), (4, 0, vec![4]));
    assert_eq!(said(run(4, 4, true)), (12, 0, vec![4; 4]));
    assert_eq!(said(run(2, 8, false)), (8, 8, vec![8; 2]));
    // Said again it is known.
    assert_eq!(said(run(2, 8, false)), (0, 0, vec![8; 2]));
    let mut never = run(23, 4, true);
    never.key.job = "never".to_owned();
    assert_eq!(said(never.clone()).0, 92);
    (never.end, never.running) = (never.start, false);
    assert_eq!(said(never), (0, 92, vec![8; 2]));
}

#[test]
fn rules_that_change_while_a_job_runs_are_no_contradiction() {
    let (mut mesh, start) = (Mesh::found(1, 1), START.before(HOUR.times(3)));
    let run = |hours, running| UsageRecord {
        running,
        ..job(
            "run",
            "grid",
            "g0",
            "u0",
            (start, start.after(HOUR.times(hours))),
            1,
        )
    };
    mesh.report(0, &[run(1, true)]).expect("acknowledged");
    super::corrections::charge_thousandths(&mut mesh, 3_000);
    let reported = mesh.report(0, &[run(2, false)]).expect("acknowledged");
    assert_eq!((reported.charge, reported.credited), (3 * HOUR.0, 0));
}

#[test]
fn a_job_that_counts_stays_known_when_the_charter_gives_its_site_less() {
    let mut mesh = Mesh::found(1, 1);
    let job = job("j", "grid", "g0", "u0", (START.before(HOUR), START), 900);
    mesh.report(0, std::slice::from_ref(&job)).expect("counted");
    let mut charter = next_charter(&mesh.charter);
    charter.sites[0].cores = 800;
    let charter = sign_charter(charter);
    mesh.publish(0, charter.bytes()).expect("in force");
    let again = mesh
        .report(0, std::slice::from_ref(&job))
        .expect("answered");
    assert_eq!((again.known, again.refused.len()), (1, 0));
    let mut other = job;
    other.key.job = "k".to_owned();
    assert_eq!(mesh.report(0, &[other]).expect("answered").refused.len(), 1);
}

#[test]
fn a_journal_that_begins_again_has_what_running_jobs_are_charged_for() {
    let mut mesh = Mesh::found(1, 1);
    let end = job("long", "grid", "g1", "u1", (START.before(HOUR), START), 3);
    let instalment = UsageRecord {
        running: true,
        ..end.clone()
    };
    let rows = |mesh: &Mesh| {
        let rows = mesh.nodes[0].site.rows_held_alone();
        let of_jobs = rows.iter().filter(|row| row.table == Table::Instalments);
        of_jobs.filter(|row| row.value.is_some()).count()
    };
    mesh.report(0, &[instalment]).expect("acknowledged");
    assert_eq!(rows(&mesh), 1);
    mesh.report(0, &[end]).expect("acknowledged");
    assert_eq!(rows(&mesh), 0);
}
