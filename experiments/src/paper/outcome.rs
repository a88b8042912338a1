//! All runs of all seeds, and what they come to.
//!
//! Invariant: an outcome depends on the experiments, the extent and the seeds, not on how many
//! threads ran them nor in which order they ended.
//!
//! Deliberately not here: bands ([`super::check`]) and pictures ([`super::chart`]).

use std::collections::BTreeMap;

use fairmesh_cluster::{Seed, WorkloadError};
use serde::{Deserialize, Serialize};

use super::experiment::{Experiment, Extent};
use super::measure::{EntryMeasures, RunMeasures, entries, measure};
use crate::figures::Spread;
use crate::grid::UsageSeries;
use simnet::check::pool;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was used, when.
    pub series: UsageSeries,
    /// What was measured of it.
    pub measures: RunMeasures,
}

/// All runs, by experiment and then by seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was simulated.
    pub extent: Extent,
    /// The seeds, in the order of the runs.
    pub seeds: Vec<u64>,
    /// The runs of each experiment, one for each seed.
    pub runs: BTreeMap<Experiment, Vec<Run>>,
}

/// Measures by experiment and seed: all that checks look at.
pub type Measures = BTreeMap<Experiment, Vec<RunMeasures>>;

/// What was measured of one run, wherever it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was run.
    pub experiment: Experiment,
    /// Its seed.
    pub seed: u64,
    /// What was measured.
    pub measures: RunMeasures,
}

/// One line of the summary: an entry in an experiment, over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub experiment: Experiment,
    /// Name of the entry.
    pub entry: String,
    /// Target share of its parent, in percent.
    pub target: f64,
    /// Hours until within ±1 percentage point, among the seeds that got there.
    pub settled_1_h: Option<Spread>,
    /// Hours until within ±2 percentage points.
    pub settled_2_h: Option<Spread>,
    /// RMS error after day one, percentage points.
    pub rms: Option<Spread>,
    /// Largest error after day one.
    pub largest: Option<Spread>,
    /// Error at the end, without sign.
    pub at_end: Option<Spread>,
    /// Share on the last day, in percent.
    pub last_day: Option<Spread>,
}

/// Who is told how far the runs are.
pub trait Witness: Sync {
    /// A simulated day of a run is over.
    fn day(&self) {}

    /// A run is over.
    fn run(&self, _experiment: &Experiment, _seed: u64, _measures: &RunMeasures) {}
}

/// Nobody.
impl Witness for () {}

impl Outcome {
    /// Runs everything on so many threads. `witness` is told of each simulated day of each run, and of
    /// each run when it has ended, in any order.
    pub fn of(
        experiments: &[Experiment],
        extent: Extent,
        seeds: &[u64],
        threads: usize,
        witness: &dyn Witness,
    ) -> Result<Self, WorkloadError> {
        let tasks = experiments.iter();
        let tasks: Vec<(Experiment, u64)> = tasks
            .flat_map(|experiment| seeds.iter().map(|seed| (*experiment, *seed)))
            .collect();
        let done: Vec<Result<_, WorkloadError>> = each(&tasks, threads, |(experiment, seed)| {
            let series = experiment.run(extent, Seed(*seed), &|| witness.day())?;
            let measures = measure(&series);
            witness.run(experiment, *seed, &measures);
            Ok(Run { series, measures })
        });
        let mut runs: BTreeMap<Experiment, Vec<Run>> = BTreeMap::new();
        for ((experiment, _), run) in tasks.iter().zip(done) {
            runs.entry(*experiment).or_default().push(run?);
        }
        Ok(Self {
            extent,
            seeds: seeds.to_vec(),
            runs,
        })
    }

    /// What checks look at.
    pub fn measures(&self) -> Measures {
        let of_runs = |runs: &Vec<Run>| runs.iter().map(|run| run.measures.clone()).collect();
        let runs = self.runs.iter();
        runs.map(|(experiment, runs)| (*experiment, of_runs(runs)))
            .collect()
    }

    /// What was measured, run by run.
    pub fn measured(&self) -> Vec<Measured> {
        let of_runs = |(experiment, runs): (&Experiment, &Vec<Run>)| {
            let runs = self.seeds.iter().zip(runs.clone());
            let measured = runs.map(|(seed, run)| Measured {
                experiment: *experiment,
                seed: *seed,
                measures: run.measures,
            });
            measured.collect::<Vec<_>>()
        };
        self.runs.iter().flat_map(of_runs).collect()
    }

    /// Jobs that ended in all runs.
    pub fn jobs(&self) -> u64 {
        let runs = self.runs.values().flatten();
        runs.map(|run| run.series.jobs).sum()
    }
}

/// Does `work` on every task, on so many threads; what it gave, in the order of the tasks.
pub(super) fn each<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let one = |index: usize| {
        // Hundreds of thousands of heads, each read and checked by every site.
        fairmesh_model::signed::remember_verdicts();
        fairmesh_model::signed::remember_documents();
        work(&tasks[index])
    };
    let mut done = Vec::with_capacity(tasks.len());
    pool::in_order(tasks.len(), threads, one, |_, result| {
        done.push(result);
        true
    });
    done
}

/// The summary, experiment by experiment.
pub fn summary(measures: &Measures) -> Vec<Row> {
    let mut rows = Vec::new();
    for (experiment, seeds) in measures {
        for (index, entry) in entries().into_iter().enumerate() {
            let of = |value: &dyn Fn(&EntryMeasures) -> f64| {
                let values: Vec<f64> = seeds
                    .iter()
                    .map(|seed| value(&seed.entries[index]))
                    .collect();
                Spread::of(&values)
            };
            rows.push(Row {
                experiment: *experiment,
                target: entry.target,
                entry: entry.name,
                settled_1_h: of(&|of| of.settled_1_h.unwrap_or(f64::NAN)),
                settled_2_h: of(&|of| of.settled_2_h.unwrap_or(f64::NAN)),
                rms: of(&|of| of.rms),
                largest: of(&|of| of.largest),
                at_end: of(&|of| of.at_end.abs()),
                last_day: of(&|of| of.last_day),
            });
        }
    }
    rows
}
