//! A store that is lost, or taken from an old backup, costs nothing that had been gossiped.

use fairmesh_model::{Millis, Role, Signed, SigningKey, UsageRecord, WallTime, WindowLength};
use fairmesh_site::{Notice, Reach, Table, Timing, marks_lost};

use crate::ledger::{Ledger, assert_converged, assert_no_fork};
use crate::mesh::Mesh;
use crate::node::Rows;
use crate::random::with_seeds;
use crate::vo::{DAY, HOUR, authority, job, next_charter, policy, sign_charter, timing};

const SETTLE: Millis = Millis::from_secs(40);

#[test]
fn a_wiped_store_comes_back_with_all_that_was_gossiped() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        mesh.restart_on(0, Rows::new());
        // Nothing can be counted before the charter is back.
        mesh.run(Millis::from_secs(1));
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
        assert!(mesh.noticed(0, |notice| matches!(notice, Notice::Recovered { .. })));
    });
}

#[test]
fn behind_a_loss_all_may_be_reported_again_and_nothing_counts_twice() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        let past = |mesh: &Mesh| {
            let status = mesh.nodes[0].site.vo_status(mesh.now(0)).swap_remove(0);
            (status.past_known, status.recovered_until)
        };
        let told: Vec<UsageRecord> = (0..20).map(|_| ledger.report(&mut mesh, 0)).collect();
        let last = told.iter().map(|record| record.end).max().expect("twenty");
        let own = job("own", "local", "g0", "u0", (last.before(HOUR), last), 2);
        let again: Vec<UsageRecord> = told.into_iter().chain([own]).collect();
        mesh.report(0, &again[20..]).expect("acknowledged");
        mesh.run(SETTLE);
        mesh.restart(0);
        mesh.run(SETTLE);
        assert_eq!(past(&mesh), (true, None), "nothing was lost");
        mesh.stop(0);
        mesh.run(Millis::from_secs(600));
        mesh.restart_on(0, Rows::new());
        assert_eq!(past(&mesh), (false, None), "it has heard nobody yet");
        mesh.run(SETTLE);
        let until = Some(last);
        assert_eq!(past(&mesh), (true, until), "counters came back");
        let reported = mesh.report(0, &again).expect("acknowledged");
        assert_eq!(
            (reported.counted, reported.known, reported.left_out),
            (1, 20, 20),
            "what its own accounts had used it gets back from nobody"
        );
        // One that was never reported, and ended since.
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        mesh.restart(0);
        mesh.run(SETTLE);
        assert_eq!(
            past(&mesh),
            (true, until),
            "it is kept, and does not grow with what is counted since"
        );
        let reported = mesh.report(0, &again).expect("acknowledged");
        assert_eq!((reported.counted, reported.known), (0, 21));
    });
}

/// Where nothing has changed meanwhile, probes find that all hold the same, and mostly no pull follows them.
#[test]
fn a_start_in_a_quiet_mesh_knows_its_past_once_a_peer_agrees() {
    with_seeds(|seed| {
        let timing = Timing {
            heartbeat: HOUR,
            silence: DAY,
            ..timing()
        };
        let mut mesh = Mesh::found_with(seed, 3, timing, |_| {});
        let mut ledger = Ledger::default();
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        mesh.restart(0);
        assert!(!knows_past(&mesh, 0), "it has heard from no peer yet");
        mesh.run(Millis::from_secs(1));
        assert!(knows_past(&mesh, 0));
    });
}

/// Two that have lost everything hold the same, and know nothing of what the third holds of them.
#[test]
fn a_peer_that_has_lost_its_store_too_is_no_witness_of_the_past() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        mesh.stop(2);
        mesh.restart_on(0, Rows::new());
        mesh.restart_on(1, Rows::new());
        // Site 0 starts again, so that it has exchanged with an empty site 1 only.
        mesh.restart_on(0, Rows::new());
        mesh.run(SETTLE);
        assert!(!knows_past(&mesh, 0) && !knows_past(&mesh, 1));
        mesh.restart(2);
        mesh.run(SETTLE);
        assert!(knows_past(&mesh, 0) && knows_past(&mesh, 1));
        assert_converged(&mut mesh, &ledger);
    });
}

fn knows_past(mesh: &Mesh, node: usize) -> bool {
    let status = mesh.nodes[node].site.vo_status(mesh.now(node));
    status[0].past_known
}

/// Found by the scenario `backup-restored`: heads of a site that counts nothing new say no more than those before.
#[test]
fn what_ended_while_nothing_was_reported_counts_behind_a_loss() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        let last = mesh.now(0).wall;
        // Heads go on, with nothing new in them.
        mesh.run(HOUR);
        let missed = ledger.draw(&mut mesh, 0);
        mesh.run(SETTLE);
        mesh.restart_on(0, Rows::new());
        mesh.run(SETTLE);
        let reach = Reach {
            ended: last,
            running: WallTime(0),
        };
        assert_eq!(mesh.nodes[0].site.recovered(Some(mesh.vo)), Some(reach));
        let reported = mesh.report(0, std::slice::from_ref(&missed));
        assert_eq!(reported.expect("acknowledged").counted, 1);
        ledger.count(&missed);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
    });
}

/// Found by `simnet check --lies withstood --seed 101489`: a peer that broke messages gave heads and no
/// charter, and a site judged its own ones by windows of an hour, and refused them for good.
#[test]
fn own_heads_that_come_before_the_charter_are_taken_behind_it() {
    with_seeds(|seed| {
        let quarter = WindowLength::from_millis(900_000).expect("it divides a day");
        let mut mesh = Mesh::found_with(seed, 3, timing(), |charter| charter.window = quarter);
        let mut ledger = Ledger::default();
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        mesh.loses_documents = true;
        mesh.restart_on(0, Rows::new());
        mesh.run(SETTLE);
        mesh.loses_documents = false;
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
        let refused = |notice: &_| matches!(notice, Notice::Refused { .. });
        assert!(!mesh.noticed(0, refused), "nobody has lied");
    });
}

#[test]
fn a_restart_keeps_what_signers_of_later_charters_have_signed_in_whatever_order_it_is_read() {
    let keys = [7, 8].map(|byte| SigningKey::from_secret(&[byte; 32]));
    let role = |other: &SigningKey| Role {
        keys: [authority().key_id(), other.key_id()].into(),
        threshold: 1,
    };
    for issued in 0..12 {
        let mut mesh = Mesh::found(1, 1);
        let mut last = mesh.charter.clone();
        for (other, version, by) in [(&keys[0], 5, &keys[0]), (&keys[1], 2, &authority())] {
            let mut charter = next_charter(&last);
            charter.policy = role(other);
            last = sign_charter(charter);
            assert!(mesh.publish(0, last.bytes()).is_ok());
            let mut shares = policy(mesh.vo, version, 70);
            // Another hash, and so another place in the store.
            shares.issued = WallTime(shares.issued.0 + issued);
            let signed = Signed::sign(shares, &[by]).expect("a valid policy");
            assert!(mesh.publish(0, signed.bytes()).is_ok());
        }
        let before = mesh.nodes[0].site.documents(mesh.vo);
        mesh.restart(0);
        let after = mesh.nodes[0].site.documents(mesh.vo);
        assert!(
            after == before,
            "{} of {}, issued {issued}",
            after.len(),
            before.len()
        );
    }
}

#[test]
fn an_old_backup_loses_nothing_that_was_gossiped_and_counts_nothing_twice() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        // Not published yet when the backup is made, but later.
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        let backup = mesh.nodes[0].rows.clone();
        mesh.run(SETTLE);
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        mesh.restart_on(0, backup);
        (0..5).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
        mesh.restart(0);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
    });
}

#[test]
fn what_a_backup_carries_is_settled_although_its_days_have_been_merged_since() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        let backup = mesh.nodes[0].rows.clone();
        mesh.tick_ms = 600_000;
        mesh.run(DAY.times(7));
        mesh.tick_ms = 1;
        mesh.restart_on(0, backup);
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

/// Found by `simnet check --lies withstood --seed 60001079`: what a peer had of windows that the backup lacked was weighed
/// against the whole day, without the windows that the backup knew.
#[test]
fn what_a_backup_lacks_of_a_day_counts_although_a_report_by_a_clock_ahead_has_made_it_a_whole_day()
{
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    let yesterday = WallTime(mesh.now(0).wall.before(DAY).0 / DAY.0 * DAY.0);
    let mut report = |mesh: &mut Mesh, name: &str, hour: u64| {
        let at = |hour| yesterday.after(HOUR.times(hour));
        let record = job(name, "grid", "g0", "u0", (at(hour), at(hour + 1)), 4);
        let reported = mesh.report(0, std::slice::from_ref(&record));
        assert_eq!(reported.expect("acknowledged").counted, 1);
        ledger.count(&record);
    };
    report(&mut mesh, "known", 10);
    mesh.run(SETTLE);
    let backup = mesh.nodes[0].rows.clone();
    report(&mut mesh, "lacks", 14);
    mesh.run(SETTLE);
    mesh.cut(1);
    mesh.nodes[0].ahead_ms = DAY.times(10).0;
    mesh.restart_on(0, backup);
    report(&mut mesh, "late", 10);
    // Nothing is signed while the clock is ahead, so the head that comes back is in terms of the one in the backup.
    mesh.heal();
    mesh.run(SETTLE);
    mesh.nodes[0].ahead_ms = 0;
    mesh.run(SETTLE);
    assert_converged(&mut mesh, &ledger);
    assert_no_fork(&mesh);
}

#[test]
fn what_was_never_gossiped_is_not_lost_with_a_restart_either() {
    let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
    mesh.cut(1);
    for _ in 0..6 {
        ledger.report(&mut mesh, 0);
        mesh.restart(0);
    }
    mesh.heal();
    mesh.run(SETTLE);
    assert_converged(&mut mesh, &ledger);
    assert_no_fork(&mesh);
}

/// What the journal beside a store holds: the rows that nobody else has, and the jobs' marks.
fn journal_of(mesh: &Mesh, node: usize) -> Rows {
    let node = &mesh.nodes[node];
    let rows = node.site.rows_held_alone().into_iter();
    let rows = rows.filter_map(|write| Some(((write.table, write.key), write.value?)));
    let marks = node
        .rows
        .iter()
        .filter(|((table, _), _)| *table == Table::Jobs);
    rows.chain(marks.map(|(key, value)| (key.clone(), value.clone())))
        .collect()
}

/// What a start makes of one that has just been begun, where the store is lost: it has counters and no marks.
fn journal_begun_just_now(mesh: &Mesh, node: usize) -> Rows {
    let mut rows = journal_of(mesh, node);
    rows.retain(|(table, _), _| *table != Table::Jobs);
    for ((table, _), row) in &mut rows {
        if *table == Table::Reach {
            *row = marks_lost(row, row).expect("a reach");
        }
    }
    rows
}

#[test]
fn what_nobody_else_holds_is_enough_to_lose_nothing_with_a_store() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        let kept = journal_of(&mesh, 0);
        let marks_only = |table| matches!(table, Table::Jobs | Table::Reach);
        assert!(kept.keys().all(|(table, _)| marks_only(*table)));
        // Published on an island of one, so that nobody gets it; and some not even published.
        mesh.cut(1);
        (0..20).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        let last = ledger.report(&mut mesh, 0);
        let journal = journal_of(&mesh, 0);
        mesh.restart_on(0, journal);
        mesh.run(SETTLE);
        let again = mesh.report(0, std::slice::from_ref(&last));
        assert_eq!(again.expect("acknowledged").known, 1);
        mesh.heal();
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

/// Found by `simnet check --lies withstood --seed 220000091`.
#[test]
fn counters_whose_marks_are_lost_with_a_store_count_nothing_again() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        mesh.cut(1);
        let mut told: Vec<_> = (0..20).map(|_| ledger.report(&mut mesh, 0)).collect();
        let last = told.iter().map(|record| record.end).max().expect("twenty");
        let own = job("own", "local", "g0", "u0", (last.before(HOUR), last), 2);
        told.push(own);
        mesh.report(0, &told[20..]).expect("acknowledged");
        let rows = journal_begun_just_now(&mesh, 0);
        mesh.restart_on(0, rows);
        mesh.heal();
        mesh.run(SETTLE);
        let again = mesh.report(0, &told).expect("acknowledged");
        assert_eq!((again.counted, again.left_out), (0, 21));
        let since = mesh.now(0).wall;
        let new = job("new", "local", "g0", "u0", (last, since), 2);
        assert_eq!(mesh.report(0, &[new]).expect("acknowledged").counted, 1);
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn a_clock_that_was_ahead_makes_no_later_job_a_known_one_behind_a_loss() {
    for is_lost_meanwhile in [false, true] {
        let (mut mesh, mut ledger) = (Mesh::found(1, 3), Ledger::default());
        mesh.nodes[0].ahead_ms = 365 * DAY.0;
        // Its batch system goes by the same clock.
        ledger.report(&mut mesh, 0);
        mesh.run(SETTLE);
        if is_lost_meanwhile {
            let rows = journal_begun_just_now(&mesh, 0);
            mesh.restart_on(0, rows);
            mesh.run(SETTLE);
        }
        mesh.nodes[0].ahead_ms = 0;
        mesh.run(SETTLE);
        let rows = journal_begun_just_now(&mesh, 0);
        mesh.restart_on(0, rows);
        mesh.run(HOUR);
        let new = ledger.draw(&mut mesh, 0);
        let reported = mesh.report(0, std::slice::from_ref(&new));
        let reported = reported.expect("acknowledged");
        assert_eq!((reported.counted, reported.left_out), (1, 0));
        ledger.count(&new);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
    }
}

#[test]
fn a_lost_store_counts_nothing_twice_though_only_an_absent_site_had_its_last_batch() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 3), Ledger::default());
        (0..5).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        mesh.run(SETTLE);
        // Nodes 0 and 1 are alone when 0 publishes; then 1 goes and 0 loses its store.
        mesh.cut(2);
        (0..5).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        let journal = journal_of(&mesh, 0);
        mesh.run(SETTLE);
        mesh.stop(1);
        mesh.heal();
        mesh.restart_on(0, journal);
        mesh.run(SETTLE);
        mesh.restart(1);
        mesh.run(SETTLE);
        assert_converged(&mut mesh, &ledger);
        assert_no_fork(&mesh);
    });
}

#[test]
fn what_a_lost_store_had_not_published_is_everywhere_three_sync_intervals_later() {
    with_seeds(|seed| {
        let (mut mesh, mut ledger) = (Mesh::found(seed, 6), Ledger::default());
        (0..20).for_each(|round| drop(ledger.report(&mut mesh, round % 6)));
        mesh.run(SETTLE);
        mesh.cut(1);
        (0..5).for_each(|_| drop(ledger.report(&mut mesh, 0)));
        let journal = journal_of(&mesh, 0);
        mesh.restart_on(0, journal);
        mesh.run(SETTLE);
        mesh.heal();
        let timing = mesh.nodes[0].config.timing;
        mesh.run(Millis(timing.publish.0 + 3 * timing.sync.0));
        assert_converged(&mut mesh, &ledger);
    });
}
