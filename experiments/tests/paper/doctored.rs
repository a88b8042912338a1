//! Every check fails when the numbers that it looks at are worse, and only then.

use fairmesh_experiments::paper::check::{Check, checks};
use fairmesh_experiments::paper::experiment::{Case, Experiment, Knowledge, MODES};
use fairmesh_experiments::paper::measure::{EntryMeasures, RunMeasures, entries};
use fairmesh_experiments::paper::outcome::Measures;

/// Errors of each mode, from historical to predictive.
const GOOD: [f64; 3] = [1.0, 0.2, 0.02];

fn rate(experiment: &Experiment, name: &str) -> f64 {
    let case = match experiment.knowledge {
        Knowledge::OwnSite(_) => return if name == "P-A2" { 15.0 } else { 10.0 },
        _ => experiment.case,
    };
    let entry = entries().into_iter().find(|entry| entry.name == name);
    let is_sibling = case == Case::Idle && matches!(name, "U-B11" | "U-B13");
    entry.expect("an entry of the policy").target + if is_sibling { 15.0 } else { 0.0 }
}

/// What is done to the measures of a run.
type Change = fn(&mut RunMeasures);

/// Measures with which everything holds.
fn good() -> Measures {
    let of = |experiment: &Experiment| {
        let mode = MODES.iter().position(|mode| *mode == experiment.mode());
        let error = GOOD[mode.expect("one of three")];
        let entry = |level: usize, name: &str| EntryMeasures {
            rms: error,
            largest: error * 3.0,
            at_end: if level == 0 { -0.01 } else { -error },
            last_day: rate(experiment, name),
            ..EntryMeasures::default()
        };
        let entries = entries();
        let run = entries.iter().map(|of| entry(of.level, &of.name));
        let run = RunMeasures {
            entries: run.collect(),
            mean_largest: error,
        };
        vec![run; 10]
    };
    let all = Experiment::all().into_iter();
    all.map(|experiment| (experiment, of(&experiment)))
        .collect()
}

/// What fails after a change of one entry's measures with the second seed.
fn failing(experiment: Experiment, name: &str, change: impl Fn(&mut EntryMeasures)) -> Vec<String> {
    let mut measures = good();
    let index = entries().iter().position(|entry| entry.name == name);
    let run = &mut measures.get_mut(&experiment).expect("it is run")[1];
    change(&mut run.entries[index.expect("an entry of the policy")]);
    let failed = checks(&measures).into_iter().filter(|check| !check.holds);
    failed.map(|check| check.what).collect()
}

fn steady(mode: usize, knowledge: Knowledge) -> Experiment {
    Experiment::new(Case::Steady, MODES[mode], knowledge)
}

#[test]
fn all_checks_hold_of_good_numbers_and_fail_of_none() {
    let all = checks(&good());
    let failed: Vec<&Check> = all.iter().filter(|check| !check.holds).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let none = checks(&Measures::new());
    assert_eq!(none.len(), all.len());
    assert!(none.iter().all(|check| !check.holds));
}

#[test]
fn one_seed_with_a_large_error_at_the_end_is_enough() {
    let limits = [1.5, 0.3, 0.05];
    for (mode, limit) in limits.into_iter().enumerate() {
        let experiment = steady(mode, Knowledge::Gossip(60));
        let worse = move |of: &mut EntryMeasures| of.at_end = -1.01 * limit;
        let failed = failing(experiment, "P-A3", worse);
        assert!(
            failed.iter().any(|what| what.contains("below the VOs")),
            "{failed:?}"
        );
        let failed = failing(experiment, "VO-B", |of| of.at_end = 0.151);
        assert!(
            failed.iter().any(|what| what.contains("end, VOs")),
            "{failed:?}"
        );
    }
}

#[test]
fn the_order_of_modes_is_checked_at_each_level() {
    for (name, level) in [("P-A1", "projects"), ("U-B12", "users")] {
        let predictive = steady(2, Knowledge::Gossip(60));
        let failed = failing(predictive, name, |of| of.rms = 2.0);
        let of_level = |what: &String| what.contains(level) && what.contains("at 60 s");
        assert!(failed.iter().any(of_level), "{failed:?}");
        let slow = steady(2, Knowledge::Gossip(300));
        let failed = failing(slow, name, |of| of.rms = 2.0);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].contains(level) && failed[0].contains("300"));
    }
}

#[test]
fn rates_of_the_last_day_are_checked() {
    let predictive = |case, knowledge| Experiment::new(case, MODES[2], knowledge);
    let rows = [
        (predictive(Case::Half, Knowledge::OwnSite(60)), "P-A2", 15.6),
        (predictive(Case::Half, Knowledge::OwnSite(60)), "P-A3", 9.4),
        (predictive(Case::Half, Knowledge::Gossip(60)), "P-A2", 29.4),
        (predictive(Case::Half, Knowledge::Gossip(60)), "P-A3", 20.6),
        (predictive(Case::Idle, Knowledge::Gossip(60)), "U-B11", 64.7),
        (predictive(Case::Idle, Knowledge::Gossip(60)), "U-B13", 35.3),
        (predictive(Case::Idle, Knowledge::Gossip(60)), "P-B1", 60.2),
    ];
    for (experiment, name, rate) in rows {
        let failed = failing(experiment, name, |of| of.last_day = rate);
        assert_eq!(failed.len(), 1, "{name} {rate}: {failed:?}");
        assert!(failed[0].contains(name));
    }
}

#[test]
fn what_is_printed_as_the_end_of_a_band_is_within_it() {
    let idle = Experiment::new(Case::Idle, MODES[2], Knowledge::Gossip(60));
    for (rate, fails) in [
        (60.1, 0),
        (60.1004, 0),
        (59.8996, 0),
        (60.1006, 1),
        (59.8994, 1),
    ] {
        let failed = failing(idle, "P-B1", |of| of.last_day = rate);
        assert_eq!(failed.len(), fails, "{rate}: {failed:?}");
    }
}

#[test]
fn gossip_may_cost_little() {
    for mode in 0..MODES.len() {
        let table = steady(mode, Knowledge::Table(60));
        let rows: [(&str, Change); 2] = [
            ("mean largest", |of| of.mean_largest *= 0.94),
            ("RMS", |of| {
                of.entries.iter_mut().for_each(|of| of.rms *= 0.94)
            }),
        ];
        for (name, change) in rows {
            let mut measures = good();
            let runs = measures.get_mut(&table).expect("it is run").iter_mut();
            runs.for_each(change);
            let failed = checks(&measures).into_iter().filter(|check| !check.holds);
            let failed: Vec<String> = failed.map(|check| check.what).collect();
            assert_eq!(failed.len(), 1, "{failed:?}");
            assert!(failed[0].contains(name) && failed[0].contains("same feeds"));
        }
    }
}

#[test]
fn what_gossip_costs_is_told_only_of_fewer_than_ten_seeds() {
    let table = steady(2, Knowledge::Table(60));
    let mut measures = good();
    let runs = measures.get_mut(&table).expect("it is run").iter_mut();
    runs.for_each(|of| of.mean_largest *= 0.9);
    let bad = |measures: &Measures| checks(measures).iter().filter(|check| !check.holds).count();
    assert_eq!(bad(&measures), 1);
    measures.values_mut().for_each(|runs| runs.truncate(9));
    assert_eq!(bad(&measures), 0);
    let all = checks(&measures);
    let told = all.iter().find(|check| check.measured.starts_with("1.111"));
    assert_eq!(told.map(|check| &check.band[..]), Some("told only"));
}
