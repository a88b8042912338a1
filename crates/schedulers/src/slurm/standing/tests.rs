//! What `fairmesh explain --job` prints of Slurm's queue, for the rows that real Slurms printed.

use super::rows::tests::{NOW_S, SINFO_ROWS, SPRIO_ROWS, SQUEUE, queue};
use super::rows::{factors, partitions};
use super::*;

fn found(squeue: &str, sprio: &str, job: &str) -> InQueue {
    let queue = Queue {
        jobs: queue(squeue),
        nodes: partitions(SINFO_ROWS),
        factors: factors(sprio),
        now_s: NOW_S,
    };
    InQueue::new(&queue, job).expect("the job")
}

fn words_of(found: &InQueue) -> String {
    let mut out = Vec::new();
    found.words(&mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

fn words(job: &str) -> String {
    words_of(&found(SQUEUE, SPRIO_ROWS, job))
}

#[test]
fn a_job_in_turn_has_a_place_by_tier_and_priority() {
    assert_eq!(
        words("12"),
        "In Slurm, job 12+0 of root waits in main; the reason given is Resources.\n\
         Its priority is 1; its site factor is 0.\n\
         511 of 513 other jobs that can start now on its nodes stand before it; each task of an array is a job.\n\
         2 of them are in a partition of a higher PriorityTier, which goes first whatever the priority.\n\
         500 of them are tasks of 7_[1-500%10], which runs at most 10 at once.\n\
         All of them are of the same account.\n\
         3 more wait for the same nodes and cannot start now (1 BeginTime, 1 Dependency, 1 JobHeldUser): they are not \
         counted.\n"
    );
    assert!(words("10").contains("Its priority is 777; its site factor is 777."));
}

#[test]
fn a_priority_that_an_administrator_has_set_is_called_so() {
    let fixed = words("9");
    assert!(
        fixed.contains("an administrator has set this priority by hand"),
        "{fixed}"
    );
    assert!(!fixed.contains("site factor"), "{fixed}");
    let of_ann = |line: &str| match line.starts_with("9|") {
        true => line.replace("root|root", "users|ann"),
        false => line.to_owned(),
    };
    let lines: Vec<String> = SQUEUE.lines().map(of_ann).collect();
    let found = found(&lines.join("\n"), SPRIO_ROWS, "10");
    assert_eq!(found.before().map(|job| &*job.user), Some("ann"));
    let why = found.why_against_the_node();
    assert!(
        why.starts_with("An administrator has set the priority of job 9 by hand"),
        "{why}"
    );
}

#[test]
fn jobs_that_do_not_wait_for_their_turn_are_told_apart() {
    assert!(words("8").contains("is held (JobHeldUser)"));
    assert!(words("1").contains("is RUNNING"));
    for (job, reason) in [("5", "BeginTime"), ("6", "Dependency")] {
        let words = words(job);
        assert!(
            words.contains(&format!("the reason given is {reason}.")),
            "{words}"
        );
        assert!(
            words.contains("It cannot start now, whatever its priority"),
            "{words}"
        );
        assert!(
            words.contains(&format!("Slurm has no priority row for job {job}")),
            "{words}"
        );
        assert!(!words.contains("before it"), "{words}");
    }
}

#[test]
fn a_job_that_slurm_has_not_tried_has_no_place_yet() {
    let untried = "20|20_[1-4]|main|PENDING|None|1|N/A|(null)|(null)|root|root";
    let words = words_of(&found(untried, "", "20_[1-4]"));
    assert!(words.contains("Slurm has not tried it yet"), "{words}");
    assert!(!words.contains("cannot start now"), "{words}");
}

/// What 22.05 prints where it has no row, and what `sprio` says where there are no factors at all.
#[test]
fn the_words_of_another_program_are_no_value() {
    let none = "Unable to find jobs matching user/id(s) specified\n";
    let gone = words_of(&found(SQUEUE, none, "12"));
    assert!(
        gone.contains("Slurm has no priority row for job 12+0: it runs or is held by now."),
        "{gone}"
    );
    assert!(!gone.contains("Unable"), "{gone}");
    let failed = InQueue {
        sprio_failed: Some(
            "`sprio` failed: You are not running a supported priority plugin".to_owned(),
        ),
        ..found(SQUEUE, "", "12")
    };
    let words = words_of(&failed);
    assert!(
        words.contains("Its priority is 1; its site factor is not known: `sprio` failed: You are"),
        "{words}"
    );
}
