//! Sites that say that all of their CPUs are free: what it costs whoever believes them, and what gives them away.
//!
//! A liar says nothing false that a member could refuse by itself: its numbers fit each other. Two things speak
//! against it. A host whose own jobs have run there since before the view was made, and still do, knows that more is
//! held than the site says: a proof. And attempts that should have started at once wait.
//!
//! Invariant: the sites that lie, and everything else, are the same for every selector.

use fairmesh_broker::Selector;

use super::Extent;
use super::gruber::short;
use super::hosts::{HOSTS_MAX, Setup, run};
use super::measure::{Measure, RunMeasures};
use super::site::{Faults, SITES};
use crate::experiment::{Claim, Outcome, Table, each, mean};

/// How many of the sites lie.
pub const LIARS: [usize; 4] = [0, 1, 3, 6];

const SELECTORS: [Selector; 3] = [Selector::LeastUsed, Selector::Random, Selector::Observant];

/// Runs of one selector, number of hosts and of liars.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    hosts: usize,
    selector: Selector,
    liars: usize,
    runs: Vec<RunMeasures>,
}

/// Runs all of it.
pub fn rows(extent: &Extent) -> Vec<Row> {
    let mut keys = Vec::new();
    for hosts in [1, HOSTS_MAX] {
        for selector in SELECTORS {
            keys.extend(LIARS.map(|liars| (hosts, selector, liars)));
        }
    }
    let runs = each(
        extent.threads,
        &extent.seeds,
        &keys,
        |(hosts, selector, liars), seed| {
            run(Setup {
                liars: *liars,
                jobs: extent.jobs,
                ..Setup::new(seed, Faults::Benign, *selector, *hosts)
            })
        },
    );
    let row = |((hosts, selector, liars), runs)| Row {
        hosts,
        selector,
        liars,
        runs,
    };
    keys.into_iter().zip(runs).map(row).collect()
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let rows = rows(extent);
    Outcome {
        tables: vec![table(&rows)],
        claims: claims(&rows),
        ..Outcome::default()
    }
}

impl Row {
    /// Its runs.
    pub fn runs(&self) -> &[RunMeasures] {
        &self.runs
    }

    fn mean(&self, of: impl Fn(&RunMeasures) -> f64) -> f64 {
        mean(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// Minutes until a liar was contradicted, in the mean of those that were; how many were, of how many.
    fn found(&self) -> (f64, usize, usize) {
        let all: Vec<Option<f64>> = self
            .runs
            .iter()
            .flat_map(|run| run.doubts.found())
            .collect();
        let found: Vec<f64> = all.iter().copied().flatten().collect();
        (mean(&found), found.len(), all.len())
    }

    fn wronged(&self) -> usize {
        self.runs.iter().map(|run| run.doubts.wronged()).sum()
    }
}

/// All rows, in the mean of all seeds.
pub fn table(rows: &[Row]) -> Table {
    let head = [
        "hosts",
        "selector",
        "liars",
        "Comp %",
        "Replan",
        "Delay s",
        "Time h",
        "attempts sent to liars",
        "late at liars",
        "late elsewhere",
        "liars found",
        "after, min",
    ];
    let mut table = Table::new("liars", "Sites that lie, in the mean of all seeds", head);
    for row in rows {
        let of = |measure: Measure| short(row.mean(|run| measure.of(run)));
        let late = |of: fn((u64, u64)) -> u64| {
            short(row.mean(|run| of(run.doubts.late_by_honesty()) as f64))
        };
        let (after, found, all) = row.found();
        table.row([
            row.hosts.to_string(),
            row.selector.to_string().to_uppercase(),
            format!("{} of {SITES}", row.liars),
            of(Measure::Comp),
            of(Measure::Replan),
            of(Measure::Delay),
            of(Measure::Time),
            short(row.mean(|run| run.sent_to_liars as f64)),
            late(|late| late.0),
            late(|late| late.1),
            format!("{found} of {all}"),
            if found == 0 {
                "-".to_owned()
            } else {
                short(after)
            },
        ]);
    }
    table
}

/// That liars are found, and honest sites are not wronged.
pub fn claims(rows: &[Row]) -> Vec<Claim> {
    let wronged: usize = rows.iter().map(Row::wronged).sum();
    let runs: usize = rows.iter().map(|row| row.runs.len()).sum();
    let (found, all) = rows
        .iter()
        .map(Row::found)
        .fold((0, 0), |sum, (_, found, all)| (sum.0 + found, sum.1 + all));
    vec![
        Claim::new(
            "no honest site is contradicted by jobs that ran there",
            format!("{wronged} in {runs} runs"),
            wronged == 0,
        ),
        Claim::watched(
            "every site that lies is contradicted by jobs that ran there",
            format!("{found} of {all}"),
            found == all,
        ),
    ]
}
