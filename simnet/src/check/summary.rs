//! What many runs have shown, added up.
//!
//! Invariant: sums do not depend on the order of the runs, and the bound that is claimed is the rule
//! of three: where none of `n` seeds failed, fewer than 3/n of all do, with 95 % confidence.
//!
//! Deliberately not here: running them, and printing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Failure, Outcome};
use crate::invariants::LIVENESS;
use crate::swarm::Options;

/// Milliseconds of a year.
const YEAR_MS: f64 = 365.25 * 86_400_000.0;

/// A seed that has failed, and all that it takes to run it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The seed.
    pub seed: u64,
    /// The options of the run, in TOML.
    pub options: String,
    /// What failed.
    pub failure: Failure,
}

/// The sums.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those that failed, and how.
    pub failed: Vec<Failed>,
    /// Simulated time of all nodes together, milliseconds.
    pub node_ms: u64,
    /// Steps.
    pub steps: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Checks by invariant.
    pub checks: BTreeMap<String, u64>,
    /// Times from the heal until all views were one for good, ascending, milliseconds.
    pub healed_ms: Vec<u64>,
}

impl Summary {
    /// Takes one run in, which was made with these options.
    pub fn add(&mut self, outcome: &Outcome, options: &Options) {
        let stats = &outcome.stats;
        self.seeds += 1;
        self.node_ms += stats.node_ms;
        self.steps += stats.steps;
        for (kind, count) in &stats.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for (name, count) in &stats.checks {
            *self.checks.entry((*name).to_owned()).or_default() += count;
        }
        *self.checks.entry(LIVENESS.to_owned()).or_default() += stats.liveness_checks;
        insert(&mut self.healed_ms, stats.healed_ms);
        if let Some(failure) = &outcome.failure {
            self.failed.push(Failed {
                seed: outcome.seed.0,
                options: options.to_toml(),
                failure: failure.clone(),
            });
        }
    }

    /// Takes the sums of other seeds in.
    pub fn join(&mut self, more: Self) {
        self.seeds += more.seeds;
        self.node_ms += more.node_ms;
        self.steps += more.steps;
        self.failed.extend(more.failed);
        for (sums, more) in [
            (&mut self.faults, more.faults),
            (&mut self.checks, more.checks),
        ] {
            for (name, count) in more {
                *sums.entry(name).or_default() += count;
            }
        }
        self.healed_ms.extend(more.healed_ms);
        self.healed_ms.sort_unstable();
    }

    /// Simulated years of one node.
    pub fn node_years(&self) -> f64 {
        self.node_ms as f64 / YEAR_MS
    }

    /// Fewer than one seed in so many fails, with 95 % confidence; `None` where one has.
    pub fn one_in(&self) -> Option<u64> {
        (self.failed.is_empty() && self.seeds >= 3).then_some(self.seeds / 3)
    }
}

/// The value below which `percent` of ascending values lie; `None` of nothing.
pub fn percentile(ascending: &[u64], percent: usize) -> Option<u64> {
    let last = ascending.len().checked_sub(1)?;
    ascending.get((last * percent).div_ceil(100)).copied()
}

fn insert(ascending: &mut Vec<u64>, value: Option<u64>) {
    if let Some(value) = value {
        let at = ascending.partition_point(|other| *other < value);
        ascending.insert(at, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values() {
        let values = [1, 2, 3, 4, 100];
        let of = |percent| percentile(&values, percent);
        assert_eq!((of(50), of(95), of(100)), (Some(3), Some(100), Some(100)));
        assert_eq!(percentile(&[], 50), None);
    }
}
