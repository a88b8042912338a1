//! What running jobs are expected to use counts at once, shrinks, and goes when a site falls silent.

use fairmesh_model::{Millis, RunningJob, UsageMode};
use fairmesh_site::Event;

use crate::mesh::Mesh;
use crate::vo::{HOUR, job, path, timing};

fn expected(mesh: &Mesh, node: usize) -> u128 {
    let view = mesh.nodes[node].site.view();
    let entry = view.reader().entry(&path("/grid/g0/u0")).expect("an entry");
    view.reader().sums(entry).global >> 32
}

fn run_jobs(mesh: &mut Mesh, jobs: u32) {
    let now = mesh.now(0).wall;
    let jobs = (0..jobs)
        .map(|index| {
            let record = job(
                format!("running-{index}"),
                "grid",
                "g0",
                "u0",
                (now, now),
                10,
            );
            let running = RunningJob {
                expected_end: now.after(HOUR),
                record,
            };
            (running, None)
        })
        .collect();
    mesh.handle(0, Event::Running { ticket: 1, jobs });
}

#[test]
fn in_flight_usage_counts_shrinks_and_is_dropped_when_its_site_falls_silent() {
    let mut mesh = Mesh::found_with(1, 3, timing(), |charter| {
        charter.usage_mode = UsageMode::Predictive;
    });
    run_jobs(&mut mesh, 2);
    mesh.run(Millis::from_secs(10));
    for node in 0..3 {
        assert_eq!(
            expected(&mesh, node),
            u128::from(20 * HOUR.0),
            "node {node}"
        );
    }
    run_jobs(&mut mesh, 1);
    mesh.run(Millis::from_secs(10));
    for node in 0..3 {
        assert_eq!(
            expected(&mesh, node),
            u128::from(10 * HOUR.0),
            "node {node}"
        );
    }
    mesh.stop(0);
    mesh.run(timing().silence.times(2));
    for node in 1..3 {
        assert_eq!(expected(&mesh, node), 0, "node {node}");
    }
    // Back again without jobs: what it predicted in its earlier incarnation is over for itself too.
    mesh.restart(0);
    run_jobs(&mut mesh, 0);
    mesh.run(Millis::from_secs(30));
    for node in 0..3 {
        assert_eq!(expected(&mesh, node), 0, "node {node}");
    }
}

#[test]
fn a_restart_without_jobs_takes_back_what_was_expected() {
    let mut mesh = Mesh::found_with(1, 2, timing(), |charter| {
        charter.usage_mode = UsageMode::Predictive;
    });
    run_jobs(&mut mesh, 2);
    mesh.run(Millis::from_secs(10));
    mesh.restart(0);
    run_jobs(&mut mesh, 0);
    mesh.run(Millis::from_secs(10));
    assert_eq!((expected(&mesh, 0), expected(&mesh, 1)), (0, 0));
}

#[test]
fn a_clock_that_was_ahead_drops_no_running_jobs_for_good() {
    let mut mesh = Mesh::found_with(1, 3, timing(), |charter| {
        charter.usage_mode = UsageMode::Predictive;
    });
    run_jobs(&mut mesh, 2);
    mesh.run(Millis::from_secs(10));
    // Alone, so that nobody says what time it is.
    mesh.cut(2);
    mesh.nodes[2].ahead_ms = HOUR.0;
    mesh.restart(2);
    mesh.run(Millis::from_secs(10));
    assert_eq!(expected(&mesh, 2), 0, "silent for an hour, it seems");
    mesh.nodes[2].ahead_ms = 0;
    mesh.heal();
    mesh.run(Millis::from_secs(20));
    for node in 0..3 {
        assert_eq!(
            expected(&mesh, node),
            u128::from(20 * HOUR.0),
            "node {node}"
        );
    }
}
