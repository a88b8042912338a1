//! The experiments on quotas, end to end, on Grids of a fiftieth and a hundredth of the size.
//!
//! Deliberately not here: figures; those are what `simnet quotas` says of larger Grids.

use fairmesh_cluster::Seed;
use fairmesh_experiments::experiment::{Extent, Outcome};
use fairmesh_experiments::quotas::field::{FieldMeasures, FieldSpec, run};
use fairmesh_experiments::quotas::load::Load;
use fairmesh_experiments::quotas::mesh::{Grant, Mesh};
use fairmesh_experiments::quotas::{cut, factor, hoarding, liars, prices, skew, strictness};
use fairmesh_model::{Millis, QuotaMode};
use simnet::vo::{DAY, HOUR};

fn small(divisor: u64) -> Extent {
    Extent {
        seeds: vec![7],
        divisor,
        jobs: 0,
        // A fault is planted in one thread.
        threads: 1,
    }
}

fn must_hold(outcome: &Outcome, words: &str) {
    let mut claims = outcome.claims.iter();
    let claim = claims.find(|claim| claim.what.contains(words));
    let claim = claim.unwrap_or_else(|| panic!("nothing is said of `{words}`"));
    assert!(claim.holds, "{}: {}", claim.what, claim.measured);
}

#[test]
fn strict_quotas_are_not_passed_and_softer_ones_use_more() {
    let outcome = strictness::run(&small(50));
    must_hold(&outcome, "nobody runs beyond his grant");
    must_hold(&outcome, "strict <= soft");
    let folder = tempfile::tempdir().expect("a folder");
    let written = outcome.write("strictness", folder.path());
    written.expect("it is written");
    let files = std::fs::read_dir(folder.path())
        .expect("it is there")
        .count();
    assert_eq!(
        files, 7,
        "two tables, the claims, two pictures with their numbers"
    );
}

#[test]
fn nothing_is_overspent_in_any_cut() {
    let outcome = cut::run(&small(100));
    must_hold(&outcome, "rights at sites: nothing is over-spent");
    must_hold(&outcome, "bank, refuse: nothing is over-spent");
}

#[test]
fn nothing_is_owed_where_all_that_a_job_may_cost_is_held() {
    let outcome = factor::run(&small(100));
    must_hold(&outcome, "20 to 40 % too long: nothing is owed");
    must_hold(&outcome, "0 to 300 % too long: nothing is owed");
    must_hold(&outcome, "20 to 40 % too long: the less is held");
}

#[test]
fn slices_take_back_what_is_saved() {
    let outcome = hoarding::run_of(&small(25), &[4], DAY.times(36));
    must_hold(&outcome, "one slice: after month 10 twice as much");
    must_hold(&outcome, "windows: the peak of the imbalance falls");
    must_hold(&outcome, "windows: the peak of waits falls");
}

#[test]
fn rights_go_where_jobs_are_submitted() {
    let outcome = skew::run(&small(10));
    must_hold(&outcome, "one slice, another site each day: at least 99 %");
    must_hold(&outcome, "without transfers less than half");
}

#[test]
fn liars_make_others_spend_no_more_than_they_had() {
    let outcome = liars::run(&small(1));
    must_hold(&outcome, "do not have, 1 of 6: nothing is over-spent");
    must_hold(
        &outcome,
        "vouching for the other, 2 of 6: nothing is over-spent",
    );
    must_hold(
        &outcome,
        "both sides of a cut, 2 of 6: no more is over-spent than the liars had",
    );
    must_hold(
        &outcome,
        "each member at once, 2 of 6: no more is over-spent than the liars had",
    );
    must_hold(
        &outcome,
        "each member at once, 1 of 6: every honest site knows",
    );
}

#[cfg(feature = "mutants")]
#[test]
fn what_no_member_witnesses_is_spent_by_each() {
    let planted = fairmesh_model::mutant::plant("WitnessesUnasked");
    let outcome = liars::run(&small(1));
    drop(planted);
    let words = "each member at once, 1 of 6: no more is over-spent";
    let claim = outcome
        .claims
        .iter()
        .find(|claim| claim.what.contains(words));
    assert!(!claim.expect("it is said").holds);
}

#[test]
fn users_who_follow_prices_shorten_everybodys_waits() {
    let outcome = prices::run(&small(10));
    must_hold(
        &outcome,
        "75 % used to one site, jobs for 80 %: with prices by load jobs wait less",
    );
}

/// Two sites of four cores, and one project that asks for twice what it was granted.
fn one_project(seed: u64) -> FieldMeasures {
    let mut mesh = Mesh::new(
        &[Grant::whole(150 * HOUR.0, DAY.times(2), QuotaMode::Strict)],
        &[1, 1],
    );
    let spec = FieldSpec {
        cuts: vec![(Millis(HOUR.0), vec![0, 1]), (DAY, vec![0, 0])],
        ..FieldSpec::new(2, 4, vec![Load::even(300, DAY.times(2))], DAY.times(2))
    };
    run(&spec, Seed(seed), &mut mesh)
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let text = |seed| format!("{:?}", one_project(seed).projects);
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    assert_eq!(one_project(1).over_use(), 0.0);
}

/// A site that holds more than it has: what the experiment says must show it.
#[cfg(feature = "mutants")]
#[test]
fn a_sum_that_is_passed_is_seen() {
    let _planted = fairmesh_model::mutant::plant("HeldUnchecked");
    assert!(one_project(1).over_use() > 0.0);
}
