//! Sites that say that all of their CPUs are free: what it costs whoever believes them, and what gives them away.
//!
//! A liar says nothing false that a member could refuse by itself: its numbers fit each other. Two things speak
//! against it. A host whose own jobs have run there since before the view was made, and still do, knows that more is
//! held than the site says: a proof. And attempts that should have started at once wait.
//!
//! Invariant: the sites that lie, and everything else, are the same for every selector.

use fairmesh_broker::Selector;

use super::Extent;
use super::gruber::{short, upper};
use super::hosts::{HOSTS_MAX, Setup, run};
use super::measure::{Measure, RunMeasures};
use super::site::{Faults, SITES};
use crate::experiment::{Claim, Outcome, Row, Study, Table, each_with, mean};

/// How many of the sites lie.
pub const LIARS: [usize; 4] = [0, 1, 3, 6];

const SELECTORS: [Selector; 3] = [Selector::LeastUsed, Selector::Random, Selector::Observant];

/// Submit hosts, who chooses sites, and how many sites lie.
type Case = ((usize, Selector), usize);

/// Runs all of it.
pub fn study(extent: &Extent) -> Study<Case, RunMeasures> {
    let cases = each_with(&each_with(&[1, HOSTS_MAX], &SELECTORS), &LIARS);
    extent.study(cases, |&((hosts, selector), liars), extent, seed| {
        run(Setup {
            liars,
            jobs: extent.jobs,
            ..Setup::new(seed, Faults::Benign, selector, hosts)
        })
    })
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let study = study(extent);
    Outcome {
        tables: vec![table(&study)],
        claims: claims(&study),
        ..Outcome::default()
    }
}

/// Minutes until a liar was contradicted, in the mean of those that were; how many were, of how many.
fn found(row: &Row<Case, RunMeasures>) -> (f64, usize, usize) {
    let all = row.runs.iter().flat_map(|run| run.doubts.found());
    let all: Vec<Option<f64>> = all.collect();
    let found: Vec<f64> = all.iter().copied().flatten().collect();
    (mean(&found), found.len(), all.len())
}

/// All rows, in the mean of all seeds.
#[rustfmt::skip]
pub fn table(study: &Study<Case, RunMeasures>) -> Table {
    type Value = fn(&RunMeasures) -> f64;
    let measured: [(&str, Value); 7] = [
        ("Comp %", |run| Measure::Comp.of(run)),
        ("Replan", |run| Measure::Replan.of(run)),
        ("Delay s", |run| Measure::Delay.of(run)),
        ("Time h", |run| Measure::Time.of(run)),
        ("attempts sent to liars", |run| run.sent_to_liars as f64),
        ("late at liars", |run| run.doubts.late_by_honesty().0 as f64),
        ("late elsewhere", |run| run.doubts.late_by_honesty().1 as f64),
    ];
    let named = |(head, of)| (head, move |row: &Row<_, _>| short(row.average(of)));
    study.table("liars", "Sites that lie, in the mean of all seeds")
        .case("hosts", |case| case.0.0)
        .case("selector", |case| upper(&case.0.1))
        .case("liars", |(_, liars)| format!("{liars} of {SITES}"))
        .columns(measured.map(named))
        .column("liars found", |row| {
            let (_, found, all) = found(row);
            format!("{found} of {all}")
        })
        .column("after, min", |row| match found(row) {
            (_, 0, _) => "-".to_owned(),
            (after, ..) => short(after),
        })
        .done()
}

/// That liars are found, and honest sites are not wronged.
pub fn claims(study: &Study<Case, RunMeasures>) -> Vec<Claim> {
    let runs = || study.rows.iter().flat_map(|row| &row.runs);
    let wronged: usize = runs().map(|run| run.doubts.wronged()).sum();
    let liars: Vec<Option<f64>> = runs().flat_map(|run| run.doubts.found()).collect();
    let found = liars.iter().flatten().count();
    vec![
        Claim::new(
            "no honest site is contradicted by jobs that ran there",
            format!("{wronged} in {} runs", runs().count()),
            wronged == 0,
        ),
        Claim::watched(
            "every site that lies is contradicted by jobs that ran there",
            format!("{found} of {}", liars.len()),
            found == liars.len(),
        ),
    ]
}
