//! The files of `configs/scenarios`.
//!
//! Invariant: each holds with two seeds, says what it shows, and one seed gives one trace.
//! Deliberately not here: what each is about; the files say it.

use std::path::{Path, PathBuf};

use fairmesh_cluster::Seed;
use simnet::scenario::{Invariants, Line, Outcome, Plan, Scenario, run};

/// Fewest files that there are.
const FILES_MIN: usize = 12;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/scenarios")
}

pub(crate) fn read(name: &str) -> Scenario {
    let file = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).expect("it is there");
    Scenario::parse(&text, &format!("{name}.toml")).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("it is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be read").file_name())
        .filter_map(|name| name.to_str()?.strip_suffix(".toml").map(str::to_owned))
        .collect();
    names.sort();
    names
}

pub(crate) fn told(scenario: &Scenario, seed: u64) -> (Outcome, Vec<Line>) {
    let mut lines = Vec::new();
    let mut tell = |line: &Line| lines.push(line.clone());
    let outcome = run(
        scenario,
        Seed(seed),
        Plan::default(),
        &mut Invariants::new(scenario),
        &mut tell,
    );
    (outcome, lines)
}

/// One test for each seed, so that they run side by side.
fn every_scenario_holds(seed: u64) {
    let names = names();
    assert!(names.len() >= FILES_MIN, "{names:?}");
    for name in names {
        let scenario = read(&name);
        assert!(
            scenario.shows.len() > 20,
            "{name} does not say what it shows"
        );
        let (outcome, lines) = told(&scenario, seed);
        assert!(outcome.is_good(), "{name}, seed {seed}: {lines:#?}");
        assert!(outcome.records > 0, "{name} has no load");
    }
}

#[test]
fn every_scenario_holds_with_one_seed() {
    every_scenario_holds(1);
}

#[test]
fn every_scenario_holds_with_another_seed() {
    every_scenario_holds(2);
}

#[test]
fn one_seed_is_one_story() {
    let scenario = read("crash-loop");
    let trace = |seed| {
        let (outcome, lines) = told(&scenario, seed);
        (outcome.world.trace_hash(), lines)
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1).0, trace(2).0);
}
