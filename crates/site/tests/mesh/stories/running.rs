//! What runs counts at the owner's levels whatever a VO's mode, and alone in a VO without a history.

use fairmesh_model::{HistoryRule, Millis, RunningJob, UsageMode, UsageRecord};
use fairmesh_site::{Event, Table};

use crate::mesh::Mesh;
use crate::vo::{DAY, HOUR, job, next_charter, path, policy, sign_charter, sign_policy, timing};

/// Core-milliseconds of `/grid/g0/u0`, weighed: locally, and in the VO.
fn sums(mesh: &Mesh, node: usize) -> (u128, u128) {
    let view = mesh.nodes[node].site.view();
    let entry = view.reader().entry(&path("/grid/g0/u0")).expect("an entry");
    let sums = view.reader().sums(entry);
    (sums.local >> 32, sums.global >> 32)
}

/// A job of 10 cores that runs from `began` ago to now.
fn runs(mesh: &Mesh, name: &str, began: Millis) -> UsageRecord {
    let now = mesh.now(0).wall;
    job(name, "grid", "g0", "u0", (now.before(began), now), 10)
}

/// Lists jobs that will each run for another hour.
fn list(mesh: &mut Mesh, jobs: &[UsageRecord]) {
    let expected_end = mesh.now(0).wall.after(HOUR);
    let jobs = jobs.iter().map(|record| {
        let mark = mesh.nodes[0].mark(&record.key);
        let record = record.clone();
        let job = RunningJob {
            record,
            expected_end,
        };
        (job, mark)
    });
    let jobs = jobs.collect();
    mesh.handle(0, Event::Running { ticket: 1, jobs });
}

/// What two sites count of a job that is listed, and listed again, ends, and leaves another behind.
fn story(mode: UsageMode) -> Vec<[(u128, u128); 2]> {
    let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
        charter.usage_mode = mode;
    });
    let mut seen = Vec::new();
    let mut look = |mesh: &mut Mesh| {
        mesh.run(Millis::from_secs(10));
        seen.push([0, 1].map(|node| sums(mesh, node)));
    };
    let first = runs(&mesh, "first", HOUR.times(5));
    list(&mut mesh, std::slice::from_ref(&first));
    look(&mut mesh);
    let second = runs(&mesh, "second", HOUR);
    let first = UsageRecord {
        end: mesh.now(0).wall,
        ..first
    };
    list(&mut mesh, &[first.clone(), second.clone()]);
    look(&mut mesh);
    // The first ends: what it has used is counted once, before the next list and after it.
    let end = mesh.now(0).wall;
    mesh.report(0, &[UsageRecord { end, ..first }]);
    look(&mut mesh);
    // A new tree is fed the same.
    let vo = mesh.vo;
    mesh.publish(0, &sign_policy(policy(vo, 2, 60)))
        .expect("signed");
    look(&mut mesh);
    list(&mut mesh, &[second]);
    look(&mut mesh);
    seen
}

#[test]
fn the_local_level_is_active_whatever_the_mode() {
    let modes = [
        UsageMode::Historical,
        UsageMode::Active,
        UsageMode::Predictive,
    ];
    let stories = modes.map(story);
    let local = |story: &Vec<[(u128, u128); 2]>| -> Vec<[u128; 2]> {
        let local = story.iter().map(|nodes| nodes.map(|(local, _)| local));
        local.collect()
    };
    let hours = |hours: u64, seconds: u64| u128::from(10 * (HOUR.0 * hours + seconds * 1_000));
    // The other site runs nothing.
    let active = [
        [hours(5, 0), 0],
        [hours(6, 10), 0],
        [hours(6, 20), 0],
        [hours(6, 20), 0],
        [hours(6, 20), 0],
    ];
    for story in &stories {
        assert_eq!(local(story), active);
    }
    // In the VO each mode counts what it says, the same at both sites.
    let global = |story: &Vec<[(u128, u128); 2]>, step: usize| {
        let [here, there] = story[step].map(|(_, global)| global);
        assert_eq!(here, there);
        here
    };
    assert_eq!(stories[0][1].map(|(_, global)| global), [0, 0]);
    assert!(global(&stories[0], 2) > 0, "it has ended");
    assert!(global(&stories[1], 1) > 0);
    assert!(global(&stories[2], 1) > global(&stories[1], 1));
}

#[test]
fn without_a_history_whole_jobs_count_while_they_run() {
    for mode in [UsageMode::Historical, UsageMode::Active] {
        let mut mesh = Mesh::found_with(1, 3, timing(), |charter| {
            charter.history = HistoryRule::RunningOnly;
            charter.usage_mode = mode;
        });
        let job = runs(&mesh, "job", HOUR);
        list(&mut mesh, std::slice::from_ref(&job));
        mesh.run(Millis::from_secs(10));
        let whole = u128::from(10 * HOUR.times(2).0);
        for node in 0..3 {
            let local = if node == 0 { whole / 2 } else { 0 };
            assert_eq!(sums(&mesh, node), (local, whole), "node {node}, {mode:?}");
        }
        // It ends: in the VO nothing is left of it with the next list, and the owner has a history.
        mesh.report(0, &[job]);
        list(&mut mesh, &[]);
        mesh.run(Millis::from_secs(10));
        for node in 0..3 {
            let local = if node == 0 { whole / 2 } else { 0 };
            assert_eq!(sums(&mesh, node), (local, 0), "node {node}, {mode:?}");
        }
    }
}

#[test]
fn an_owner_without_a_history_counts_whole_jobs_that_run_here() {
    for mode in [UsageMode::Historical, UsageMode::Active] {
        let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
            charter.usage_mode = mode;
        });
        let mut config = mesh.config(timing());
        config.local_history = HistoryRule::RunningOnly;
        mesh.handle(0, Event::Reconfigured(Box::new(config)));
        let job = runs(&mesh, "job", HOUR);
        list(&mut mesh, std::slice::from_ref(&job));
        mesh.run(Millis::from_secs(10));
        let whole = u128::from(10 * HOUR.times(2).0);
        assert_eq!(sums(&mesh, 0).0, whole, "{mode:?}");
        assert_eq!(sums(&mesh, 1).0, 0, "{mode:?}");
        mesh.report(0, &[job]);
        assert_eq!(sums(&mesh, 0).0, 0, "{mode:?}");
    }
}

#[test]
fn a_job_of_a_vo_that_is_not_known_again_yet_counts_nowhere() {
    let mut mesh = Mesh::found(1, 1);
    let mut config = mesh.config(timing());
    config.local_history = HistoryRule::RunningOnly;
    mesh.nodes[0].config = config;
    mesh.restart(0);
    let job = [runs(&mesh, "job", HOUR)];
    let counts = |mesh: &Mesh| mesh.nodes[0].site.running_usage().count();
    list(&mut mesh, &job);
    assert_eq!(counts(&mesh), 1);
    // Its store is lost but for its marks, so the instalment is no news, and was not refused for want of a charter.
    let mut rows = mesh.nodes[0].rows.clone();
    rows.retain(|(table, _), _| *table == Table::Jobs);
    mesh.restart_on(0, rows);
    list(&mut mesh, &job);
    assert_eq!(counts(&mesh), 0);
    let charter = mesh.charter.bytes().to_vec();
    assert!(mesh.publish(0, &charter).is_ok());
    list(&mut mesh, &job);
    assert_eq!(counts(&mesh), 1);
}

#[test]
fn what_is_said_to_run_for_ever_is_cut_to_the_capacity() {
    let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
        charter.history = HistoryRule::RunningOnly;
    });
    let mut job = runs(&mesh, "job", HOUR);
    job.cores = 1_000;
    let expected_end = mesh.now(0).wall.after(DAY.times(3_000));
    let running = RunningJob {
        record: job,
        expected_end,
    };
    let jobs = vec![(running, None)];
    mesh.handle(0, Event::Running { ticket: 1, jobs });
    mesh.run(Millis::from_secs(10));
    // Thirty days of all that it has, and a sixteenth.
    let most = u128::from(1_000 * DAY.times(30).0) * 17 / 16;
    assert_eq!([0, 1].map(|node| sums(&mesh, node).1), [most, most]);
}

#[test]
fn a_history_that_is_taken_up_again_finds_what_was_used() {
    let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
        charter.history = HistoryRule::RunningOnly;
    });
    let job = runs(&mesh, "job", HOUR);
    let ended = |ago: Millis| UsageRecord {
        start: job.start.before(ago),
        end: job.end.before(ago),
        ..job.clone()
    };
    let reported = mesh.report(0, &[ended(DAY.times(20))]).expect("an answer");
    assert_eq!((reported.counted, reported.late), (1, 0));
    mesh.run(Millis::from_secs(10));
    let used = u128::from(10 * HOUR.0);
    assert_eq!([0, 1].map(|node| sums(&mesh, node)), [(used, 0), (0, 0)]);
    let mut charter = next_charter(&mesh.charter);
    charter.history = HistoryRule::None { horizon: 30 * 24 };
    mesh.publish(0, sign_charter(charter).bytes())
        .expect("signed");
    mesh.run(Millis::from_secs(10));
    assert_eq!(
        [0, 1].map(|node| sums(&mesh, node)),
        [(used, used), (0, used)]
    );
}
