//! Scenarios that must fail, because something in them is broken.
//!
//! Invariant: an expectation that never fails shows nothing; each kind is seen to fail here.

use simnet::scenario::Scenario;
use simnet::scenario::Verdict;

use crate::files::told;

const HEAD: &str = "title = \"t\"\nshows = \"s\"\nduration = \"4h\"\n[grid]\nsites = 4\n\
    publish = \"1m\"\nsync = \"1m\"\nheartbeat = \"5m\"\ntick = \"30s\"\n[[load]]\nevery = \"5m\"\nuntil = \"2h\"\n";

/// The lines that failed.
fn failures(steps: &str) -> Vec<String> {
    let scenario = Scenario::parse(&format!("{HEAD}{steps}"), "planted.toml");
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let (outcome, _) = told(&scenario, 3);
    let why = |line: &simnet::scenario::Line| match &line.verdict {
        Some(Verdict::Failed(why)) => format!("{}: {why}", line.what),
        _ => unreachable!("only what failed is listed"),
    };
    outcome.failed.iter().map(why).collect()
}

#[test]
fn what_does_not_hold_is_said() {
    let cut = "[[step]]\nat = \"30m\"\ndo = \"island\"\nnodes = [3]\n";
    for (expect, words) in [
        ("expect = \"agree\"", "they do not"),
        ("expect = \"agree\"\nwithin = \"10m\"", "they do not"),
        ("expect = \"total\"", "core-ms of"),
        (
            "expect = \"coverage\"\nreceived = 4\nyounger_than = \"20m\"",
            "3 members",
        ),
        ("expect = \"peers\"\ncount = 3", "2 peers"),
        ("expect = \"down\"\nnodes = [1]", "it runs"),
        (
            "expect = \"notice\"\nnodes = [1]\ncode = \"site-forked\"",
            "not told",
        ),
        ("expect = \"set_aside\"\ncount = 1", "0 stores"),
        (
            "expect = \"incarnations\"\nsite = 1\nleast = 2\nmost = 9",
            "1 incarnations",
        ),
        ("expect = \"rejected\"\nleast = 1", "0 times"),
        ("expect = \"fault\"\nkind = \"crash\"", "0 times"),
        ("expect = \"rows\"\nmost = 1", "rows"),
        (
            "expect = \"share\"\npath = \"/g0\"\npercent = 51",
            "it has 50",
        ),
    ] {
        let failures = failures(&format!("{cut}[[step]]\nat = \"90m\"\n{expect}\n"));
        assert_eq!(failures.len(), 1, "{expect}: {failures:?}");
        assert!(failures[0].contains(words), "{failures:?}");
    }
}

#[test]
fn two_that_agree_do_not_differ() {
    let failures = failures("[[step]]\nat = \"3h\"\nexpect = \"differ\"\n");
    assert_eq!(failures, ["differ: they agree"]);
}

#[test]
fn what_a_lost_disk_took_with_it_is_missed_in_the_end() {
    let steps = "[[step]]\nat = \"2h 30m\"\ndo = \"island\"\nnodes = [2]\n\
        [[step]]\nat = \"2h 31m\"\ndo = \"report\"\nnode = 2\n\
        [[step]]\nat = \"2h 40m\"\ndo = \"wipe\"\nnodes = [2]\n";
    let failures = failures(steps);
    assert!(failures[0].contains("were acknowledged"), "{failures:?}");
}
