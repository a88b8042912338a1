//! Gossip that takes a tenth of a second gives what one table gives; no gossip does not.

use fairmesh_cluster::Seed;
use fairmesh_experiments::grid::UsageSeries;
use fairmesh_experiments::paper::experiment::{Case, Experiment, Knowledge, MODES};
use fairmesh_model::UsageMode;
use simnet::vo::HOUR;

use crate::support::{small, steady};

fn series(experiment: Experiment) -> UsageSeries {
    let series = experiment.run(small(6), Seed(1), &|| {});
    series.expect("a valid load")
}

/// The greatest difference of what a leaf has used, in hours of one core, that is in jobs.
fn jobs_apart(one: &UsageSeries, other: &UsageSeries) -> f64 {
    let samples = one.samples.iter().zip(&other.samples);
    let leaves = samples.flat_map(|(a, b)| a.used.iter().zip(&b.used));
    let apart = leaves.map(|(a, b)| a.abs_diff(*b) as f64 / HOUR.0 as f64);
    apart.fold(0.0, f64::max)
}

#[test]
fn quick_gossip_is_as_good_as_one_table_with_the_same_feeds() {
    for mode in MODES {
        let gossip = series(steady(mode, Knowledge::Gossip(60)));
        let table = series(steady(mode, Knowledge::Table(60)));
        let apart = jobs_apart(&gossip, &table);
        assert!(apart < 5.0, "{mode:?}: {apart} jobs of 1,200");
        let used = gossip
            .samples
            .last()
            .map(|sample| sample.used.iter().sum::<u64>());
        assert!(used > Some(1_000 * HOUR.0), "{used:?}");
    }
}

#[test]
fn sites_that_hear_nobody_differ_from_those_that_do() {
    let half = |knowledge| Experiment::new(Case::Half, UsageMode::Predictive, knowledge);
    let alone = series(half(Knowledge::OwnSite(60)));
    let table = series(half(Knowledge::Table(60)));
    let gossip = series(half(Knowledge::Gossip(60)));
    assert!(jobs_apart(&gossip, &table) < 5.0);
    assert!(jobs_apart(&alone, &table) > 50.0);
}
