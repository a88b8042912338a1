//! A job that fits into what the VO has left is granted at any connected site, whatever was asked before and elsewhere.

use fairmesh_model::Millis;
use fairmesh_quota::Verdict;
use fairmesh_site::QuotaCall;

use super::quotas::{MINUTE, answer, asking, call, found, hold, hold_call, hours, reply, totals};
use crate::mesh::Mesh;

/// Longer than a call waits.
const SECONDS: Millis = Millis::from_secs(7);

/// Asks for jobs, each at its node, all at one moment; what each was answered.
fn hold_at_once(mesh: &mut Mesh, jobs: &[(usize, &str, u32)]) -> Vec<Verdict> {
    hold_each(mesh, jobs, Millis(0))
}

/// The same with a pause after each.
fn hold_each(mesh: &mut Mesh, jobs: &[(usize, &str, u32)], pause: Millis) -> Vec<Verdict> {
    let mut replies = Vec::new();
    for (node, name, cores) in jobs {
        let record = asking(mesh, name, *cores);
        replies.push(call(mesh, *node, hold_call(record, true)));
        mesh.run(pause);
    }
    mesh.run(SECONDS);
    let replies = replies.into_iter().zip(jobs);
    let late = |(now, (node, _, _)): (Option<_>, &(usize, &str, u32))| {
        answer(now.or_else(|| reply(mesh, *node))).verdict
    };
    replies.map(late).collect()
}

fn hold_one(mesh: &mut Mesh, node: usize, name: &str, cores: u32) -> Verdict {
    hold_at_once(mesh, &[(node, name, cores)])[0]
}

#[test]
fn of_two_jobs_that_cannot_both_run_one_does() {
    for seed in 0..4 {
        let mut mesh = found(seed, 2, 20);
        let verdicts = hold_at_once(&mut mesh, &[(0, "a", 12), (1, "b", 12)]);
        // Both asked in one millisecond: the lower site id comes first.
        let ids = [0, 1].map(|node| mesh.nodes[node].site.id());
        let first = usize::from(ids[1] < ids[0]);
        assert_eq!(verdicts[first], Verdict::Granted, "seed {seed}");
        assert_eq!(verdicts[1 - first], Verdict::Refused, "seed {seed}");
        mesh.run(MINUTE);
        assert_eq!(hours(totals(&mesh, 0)), [0, 12, 8, 0]);
        assert_eq!(
            hold_one(&mut mesh, 1 - first, "small", 8),
            Verdict::Granted,
            "the rest is left"
        );
    }
}

#[test]
fn the_job_that_asked_first_runs() {
    for first in 0..3 {
        let mut mesh = found(first as u64, 3, 30);
        let second = (first + 1) % 3;
        let jobs = [(first, "first", 24), (second, "second", 24)];
        let verdicts = hold_each(&mut mesh, &jobs, Millis(300));
        assert_eq!(verdicts, [Verdict::Granted, Verdict::Refused], "{first}");
    }
}

#[test]
fn a_job_that_needs_what_all_have_is_granted_on_the_first_try() {
    for (seed, sites) in [(1, 3), (2, 6)] {
        let grant = 10 * sites as u64;
        let mut mesh = found(seed, sites, grant);
        let cores = u32::try_from(grant).expect("few") - 1;
        assert_eq!(
            hold_one(&mut mesh, 0, "large", cores),
            Verdict::Granted,
            "{sites}"
        );
    }
}

#[test]
fn a_job_that_was_refused_is_granted_elsewhere() {
    let mut mesh = found(3, 3, 30);
    mesh.cut(1);
    assert_eq!(
        hold_one(&mut mesh, 0, "job", 24),
        Verdict::Refused,
        "cut off"
    );
    for _ in 0..3 {
        assert_eq!(
            hold(&mut mesh, 0, "job", 24).verdict,
            Verdict::Refused,
            "nor later"
        );
    }
    mesh.heal();
    mesh.run(Millis::from_secs(20));
    assert_eq!(hold_one(&mut mesh, 1, "job", 24), Verdict::Granted);
}

#[test]
fn a_large_job_that_did_not_run_keeps_nothing_from_others() {
    let mut mesh = found(4, 3, 30);
    assert_eq!(hold_one(&mut mesh, 0, "cancelled", 25), Verdict::Granted);
    let job = asking(&mesh, "cancelled", 25).key;
    call(&mut mesh, 0, QuotaCall::Release { job })
        .expect("at once")
        .expect("it is released");
    mesh.run(Millis::from_secs(5));
    assert_eq!(hold_one(&mut mesh, 2, "other", 28), Verdict::Granted);
}

#[test]
fn jobs_that_are_expected_yield_to_one_that_waits() {
    let mut mesh = found(5, 2, 40);
    for minute in 0..5 {
        assert_eq!(
            hold_one(&mut mesh, 1, &format!("{minute}"), 2),
            Verdict::Granted
        );
        mesh.run(MINUTE);
    }
    assert_eq!(hold_one(&mut mesh, 0, "large", 28), Verdict::Granted);
    assert_eq!(
        hold_one(&mut mesh, 1, "next", 2),
        Verdict::Granted,
        "and what is left comes back"
    );
}

#[test]
fn a_job_that_no_site_could_run_takes_nothing_from_the_others() {
    let mut mesh = found(6, 3, 30);
    let sent = |mesh: &Mesh| {
        mesh.nodes
            .iter()
            .map(|node| node.site.quota_stats().transfers)
            .sum::<u64>()
    };
    let before = sent(&mesh);
    assert_eq!(hold_one(&mut mesh, 0, "too-large", 31), Verdict::Refused);
    mesh.run(MINUTE);
    assert_eq!(sent(&mesh), before);
}

#[test]
fn callers_that_cannot_wait_are_granted_when_they_ask_again() {
    let mut mesh = found(7, 2, 20);
    let mut granted = 0;
    for _ in 0..6 {
        for (node, name) in [(0, "a"), (1, "b")] {
            granted += u32::from(hold(&mut mesh, node, name, 12).verdict == Verdict::Granted);
        }
        mesh.run(Millis::from_secs(10));
    }
    assert!(granted > 0, "one of them runs");
    assert_eq!(hours(totals(&mesh, 0))[1], 12, "and only one");
}
