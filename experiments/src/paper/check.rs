//! What must hold: the paper's claims with bands, and what gossip may cost.
//!
//! Invariant: a check that has nothing to look at fails; every band is compared with every seed, unless
//! its name says that it is a mean. A number is compared as it is printed, so none fails beside its band.
//!
//! **Fairness error.** Two numbers, both over all samples after day one and all seeds: the RMS error of
//! the policy's entries, and the mean of the largest error among them. Of each, gossip may have 1.05
//! times what an all-knowing scheduler has whose table gets the same feeds at the same moments, so
//! that the ratio is the cost of gossip alone. Told beside it, without a band: the ratio to a scheduler
//! that sees everything at once, which is the cost of usage that is a minute old, wherever it is kept;
//! and the largest error at the end, with the standard error of the ratio. That is one moment of each
//! run, and what it is then depends on which jobs happen to have just begun: ten seeds do not tell a
//! twentieth.
//!
//! Deliberately not here: numbers that nobody promised; they are in the summary.

use serde::Serialize;

use fairmesh_model::UsageMode;

use super::chart::rms_at;
use super::experiment::{AGES_S, Case, Experiment, Knowledge, MODE_NAMES, MODES};
use super::measure::{EntryMeasures, RunMeasures, entries, largest_at_end, rms_of_all};
use super::outcome::Measures;

/// A promise, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What is promised.
    pub what: String,
    /// What was measured, with its unit.
    pub measured: String,
    /// The band.
    pub band: String,
    /// Whether it was kept.
    pub holds: bool,
}

/// What is promised of the largest error at the end, below the VOs: percentage points, by mode.
const LARGEST_AT_END: [f64; 3] = [1.5, 0.3, 0.05];

/// What is promised of the largest error of a VO's share at the end.
const LARGEST_OF_VOS: f64 = 0.15;

/// What is promised of the fairness error against the all-knowing scheduler's.
const GOSSIP_COSTS_AT_MOST: f64 = 1.05;

/// Seeds over which that is promised: with one, jobs that happen to begin elsewhere are a twentieth.
const SEEDS_OF_A_RATIO: usize = 10;

/// The band of what is no promise.
const TOLD_ONLY: &str = "told only";

/// All promises.
pub fn checks(measures: &Measures) -> Vec<Check> {
    let mut checks = errors_at_end(measures);
    checks.extend(orders(measures));
    checks.extend(half_of_the_sites(measures));
    checks.extend(idle_user(measures));
    checks.extend(costs_of_gossip(measures));
    checks
}

fn steady(mode: UsageMode, age: u64) -> Experiment {
    Experiment::new(Case::Steady, mode, Knowledge::Gossip(age))
}

/// A number that must not exceed a limit; what could not be measured does.
fn at_most(what: String, measured: Option<f64>, limit: f64) -> Check {
    Check {
        what,
        measured: measured.map_or("not run".to_owned(), |value| format!("{value:.4}")),
        band: format!("≤ {limit}"),
        holds: measured.is_some_and(|value| printed(value, 4) <= printed(limit, 4)),
    }
}

/// A number as it is printed with so many decimals, in units of the last one.
fn printed(value: f64, decimals: i32) -> i64 {
    (value * 10_f64.powi(decimals)).round() as i64
}

/// The worst over seeds, and over the entries that `of` picks, of a number.
fn worst(
    measures: &Measures,
    experiment: Experiment,
    of: &dyn Fn(usize) -> bool,
    value: &dyn Fn(&EntryMeasures) -> f64,
) -> Option<f64> {
    let runs = measures.get(&experiment)?.iter();
    let levels: Vec<usize> = entries().iter().map(|entry| entry.level).collect();
    let values = runs.flat_map(|run| run.entries.iter().zip(&levels));
    let values = values
        .filter(|(_, level)| of(**level))
        .map(|(of, _)| value(of));
    values.reduce(f64::max)
}

fn errors_at_end(measures: &Measures) -> Vec<Check> {
    let mut checks = Vec::new();
    let at_end = |of: &EntryMeasures| of.at_end.abs();
    for (mode, (name, limit)) in MODES.into_iter().zip(MODE_NAMES.iter().zip(LARGEST_AT_END)) {
        let experiment = steady(mode, AGES_S[0]);
        let below = worst(measures, experiment, &|level| level > 0, &at_end);
        let vos = worst(measures, experiment, &|level| level == 0, &at_end);
        let what = format!("{name} 60 s: largest error at the end");
        checks.push(at_most(
            format!("{what}, below the VOs (points)"),
            below,
            limit,
        ));
        checks.push(at_most(
            format!("{what}, VOs (points)"),
            vos,
            LARGEST_OF_VOS,
        ));
    }
    checks
}

/// RMS error of a level, all seeds together.
fn level_rms(measures: &Measures, experiment: Experiment, level: usize) -> Option<f64> {
    let runs = measures.get(&experiment)?;
    let squares: f64 = runs
        .iter()
        .map(|run| rms_at(&run.entries, level).powi(2))
        .sum();
    Some((squares / runs.len() as f64).sqrt())
}

fn orders(measures: &Measures) -> Vec<Check> {
    let [short, long] = AGES_S;
    let [historical, active, predictive] = MODES.map(|mode| steady(mode, short));
    let slow = steady(UsageMode::Predictive, long);
    let mut checks = Vec::new();
    for (level, name) in [(1, "projects"), (2, "users")] {
        let rms = |experiments: &[Experiment]| -> Vec<f64> {
            let rms = experiments.iter();
            rms.filter_map(|of| level_rms(measures, *of, level))
                .collect()
        };
        let modes = "predictive < active < historical at 60 s";
        let rows = [
            (modes, vec![predictive, active, historical]),
            ("predictive at 300 s < active at 60 s", vec![slow, active]),
        ];
        for (what, experiments) in rows {
            let values = rms(&experiments);
            let is_complete = values.len() == experiments.len();
            checks.push(Check {
                what: format!("RMS error after day one, {name}: {what}"),
                measured: spelled(&values, " < "),
                band: "in this order".to_owned(),
                holds: is_complete && values.windows(2).all(|pair| pair[0] < pair[1]),
            });
        }
    }
    checks
}

fn spelled(values: &[f64], between: &str) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    values.join(between)
}

/// The last-day rate of an entry must be within `band` of `target`, with every seed.
fn last_day(
    measures: &Measures,
    (experiment, what): (Experiment, &str),
    name: &str,
    (target, band): (f64, f64),
) -> Check {
    let index = entries().iter().position(|entry| entry.name == name);
    let runs = measures.get(&experiment).zip(index);
    let rates: Vec<f64> = runs.map_or(Vec::new(), |(runs, index)| {
        runs.iter().map(|run| run.entries[index].last_day).collect()
    });
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = rates.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_within = |rate: &f64| {
        printed(*rate, 3).abs_diff(printed(target, 3)) <= printed(band, 3).unsigned_abs()
    };
    Check {
        what: format!("{what}: {name} on the last day (percent)"),
        measured: match rates.is_empty() {
            true => "not run".to_owned(),
            false => format!("{least:.3} to {greatest:.3}"),
        },
        band: format!("{target} ± {band}"),
        holds: !rates.is_empty() && rates.iter().all(is_within),
    }
}

fn half_of_the_sites(measures: &Measures) -> Vec<Check> {
    let age = AGES_S[0];
    let of = |knowledge| Experiment::new(Case::Half, UsageMode::Predictive, knowledge);
    let alone = (
        of(Knowledge::OwnSite(age)),
        "half of the sites, own usage only",
    );
    let shared = (
        of(Knowledge::Gossip(age)),
        "half of the sites, Grid-wide usage",
    );
    vec![
        last_day(measures, alone, "P-A2", (15.0, 0.5)),
        last_day(measures, alone, "P-A3", (10.0, 0.5)),
        last_day(measures, shared, "P-A2", (30.0, 0.5)),
        last_day(measures, shared, "P-A3", (20.0, 0.5)),
    ]
}

fn idle_user(measures: &Measures) -> Vec<Check> {
    let knowledge = Knowledge::Gossip(AGES_S[0]);
    let idle = Experiment::new(Case::Idle, UsageMode::Predictive, knowledge);
    let idle = (idle, "U-B12 idle");
    vec![
        last_day(measures, idle, "U-B11", (65.0, 0.2)),
        last_day(measures, idle, "U-B13", (35.0, 0.2)),
        last_day(measures, idle, "P-B1", (60.0, 0.1)),
    ]
}

/// What is compared of a run with gossip and one under an all-knowing scheduler.
struct Error {
    name: &'static str,
    /// Of all seeds of an experiment.
    of: fn(&[RunMeasures]) -> f64,
}

const RMS: Error = Error {
    name: "RMS fairness error",
    of: |runs| rms_of_all(runs.iter().flat_map(|run| &run.entries)),
};

const LARGEST: Error = Error {
    name: "mean largest error",
    of: |runs| mean(&runs.iter().map(|run| run.mean_largest).collect::<Vec<_>>()),
};

fn costs_of_gossip(measures: &Measures) -> Vec<Check> {
    let mut checks = Vec::new();
    let age = AGES_S[0];
    for (mode, name) in MODES.into_iter().zip(MODE_NAMES) {
        let gossip = steady(mode, age);
        let same_feeds = gossip.under(Knowledge::Table(age));
        let rows = [
            (same_feeds, "same feeds", Some(GOSSIP_COSTS_AT_MOST)),
            (gossip.central(), "at once", None),
        ];
        for (other, than, limit) in rows {
            let runs = measures.get(&gossip).zip(measures.get(&other));
            let is_enough = runs.is_none_or(|(one, _)| one.len() >= SEEDS_OF_A_RATIO);
            let limit = limit.filter(|_| is_enough);
            for error in [RMS, LARGEST] {
                let what = format!(
                    "{name} {age} s: {}, gossip / all-knowing, {than}",
                    error.name
                );
                let errors = runs.map(|(one, other)| ((error.of)(one), (error.of)(other)));
                checks.push(ratio_check(what, errors, limit));
            }
        }
        let runs = measures.get(&gossip).zip(measures.get(&same_feeds));
        let what =
            format!("{name} {age} s: largest error at the end, gossip / all-knowing, same feeds");
        checks.push(at_end(
            what,
            runs.map(|(one, other)| (&one[..], &other[..])),
        ));
    }
    checks
}

/// The ratio of two fairness errors; without a limit it is told only.
fn ratio_check(what: String, errors: Option<(f64, f64)>, limit: Option<f64>) -> Check {
    let ratio = errors.map(|(one, other)| one / other);
    let measured = errors.zip(ratio).map(|((one, other), ratio)| {
        format!("{ratio:.3} ({} points)", spelled(&[one, other], " / "))
    });
    Check {
        what,
        measured: measured.unwrap_or("not run".to_owned()),
        band: limit.map_or(TOLD_ONLY.to_owned(), |limit| format!("≤ {limit}")),
        holds: ratio
            .is_some_and(|ratio| limit.is_none_or(|limit| printed(ratio, 3) <= printed(limit, 3))),
    }
}

/// The ratio of mean errors at the end, and its standard error: seed by seed both had the same load, so
/// it is that of the mean difference.
fn at_end(what: String, runs: Option<(&[RunMeasures], &[RunMeasures])>) -> Check {
    let measured = runs.filter(|(one, _)| one.len() > 1).map(|(one, other)| {
        let ends = |runs: &[RunMeasures]| -> Vec<f64> {
            runs.iter()
                .map(|run| largest_at_end(&run.entries))
                .collect()
        };
        let (one, other) = (ends(one), ends(other));
        let apart: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a - b).collect();
        let (by, count) = (mean(&apart), apart.len() as f64);
        let squares: Vec<f64> = apart.iter().map(|of| (of - by).powi(2)).collect();
        let standard_error = (mean(&squares) / (count - 1.0)).sqrt();
        let (one, other) = (mean(&one), mean(&other));
        format!(
            "{:.3} ± {:.3} ({} points)",
            one / other,
            standard_error / other,
            spelled(&[one, other], " / ")
        )
    });
    Check {
        what,
        holds: runs.is_some(),
        measured: measured.unwrap_or("not run with two seeds".to_owned()),
        band: TOLD_ONLY.to_owned(),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
