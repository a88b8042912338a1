//! The draws against the model's own distributions. Expected numbers were computed in double
//! precision from the published parameters (incomplete gamma function, exact sums over sizes), apart
//! from this code; slack is about four standard errors of the sample.

use std::collections::BTreeMap;

use fairmesh_model::AccountPath;
use proptest::prelude::*;

use super::*;
use crate::broker::{Broker, BrokerError};
use crate::fixed::Fixed;

const START: WallTime = WallTime::from_unix_secs(1_100_000_000);

fn key(name: &str) -> AccountKey {
    AccountKey {
        vo: 0,
        path: AccountPath::parse(name).expect("valid"),
    }
}

fn leaves(count: u32) -> Vec<(LeafLoad, u32)> {
    let names = (1..=count).map(|number| key(&format!("/U-{number}")));
    let loads = names.map(|account| LeafLoad::steady(account, Broker::Random));
    loads.zip(zipf_weights(count)).collect()
}

fn spec() -> LublinSpec {
    LublinSpec::published(START, 128, 6)
}

fn workload(seed: u64, spec: LublinSpec) -> LublinWorkload {
    LublinWorkload::new(Seed(seed), spec, leaves(5)).expect("a good load")
}

/// How often each size came among 20,000 jobs, in thousandths.
fn sizes(model: &LublinModel, cores: u32) -> BTreeMap<u32, i64> {
    let draws = Draws::new(model, cores);
    let mut stream = Seed(5).stream("sizes");
    let mut sizes = BTreeMap::new();
    for _ in 0..20_000 {
        *sizes.entry(draws.cores(&mut stream)).or_insert(0) += 1;
    }
    sizes.values_mut().for_each(|jobs| *jobs /= 20);
    sizes
}

#[test]
fn sizes_are_as_the_model_has_them() {
    // The model, the machine, and sizes with their parts in thousandths.
    type Row = (LublinModel, u32, &'static [(u32, i64)]);
    let rows: [Row; 6] = [
        (
            LublinModel::ALL,
            128,
            &[
                (1, 244),
                (2, 116),
                (4, 149),
                (8, 141),
                (16, 138),
                (32, 33),
                (64, 33),
                (128, 16),
            ],
        ),
        (
            LublinModel::BATCH,
            128,
            &[
                (1, 293),
                (2, 47),
                (4, 157),
                (8, 156),
                (16, 155),
                (32, 98),
                (64, 42),
                (128, 21),
            ],
        ),
        (
            LublinModel::INTERACTIVE,
            128,
            &[
                (1, 154),
                (2, 135),
                (4, 249),
                (8, 157),
                (16, 76),
                (32, 75),
                (64, 0),
            ],
        ),
        (
            LublinModel::ALL,
            100,
            &[
                (1, 244),
                (2, 128),
                (4, 165),
                (8, 157),
                (16, 111),
                (32, 33),
                (64, 37),
            ],
        ),
        (
            LublinModel::ALL,
            16,
            &[(1, 244), (2, 611), (4, 36), (8, 34), (16, 17)],
        ),
        (LublinModel::ALL, 2, &[(1, 244), (2, 756)]),
    ];
    for (model, cores, expected) in rows {
        let found = sizes(&model, cores);
        assert!(found.keys().all(|size| (1..=cores).contains(size)));
        for (size, part) in expected {
            let found = found.get(size).copied().unwrap_or(0);
            assert!(
                (found - part).abs() <= 14,
                "{size} of {cores}: {found} for {part}"
            );
        }
    }
}

#[test]
fn powers_of_two_and_the_mean_of_the_logarithms_are_as_the_model_has_them() {
    let draws = Draws::new(&LublinModel::ALL, 128);
    let mut stream = Seed(6).stream("sizes");
    let (mut powers, mut log_sum) = (0, Fixed::ZERO);
    for _ in 0..20_000 {
        let cores = draws.cores(&mut stream);
        powers += i64::from(cores.is_power_of_two());
        log_sum = log_sum + Fixed::whole(i64::from(cores)).log2();
    }
    assert!((powers - 17_381).abs() <= 200, "{powers}");
    let mean = (log_sum / Fixed::whole(20)).round();
    assert!((mean - 2_321).abs() <= 50, "{mean} thousandths");
}

#[test]
fn machines_of_any_size_are_kept_to() {
    for cores in [1, 2, 3, 5, 1_000, 1 << 20, u32::MAX] {
        for model in [
            LublinModel::ALL,
            LublinModel::BATCH,
            LublinModel::INTERACTIVE,
        ] {
            let draws = Draws::new(&model, cores);
            let mut stream = Seed(1).stream("extremes");
            for _ in 0..500 {
                let size = draws.cores(&mut stream);
                assert!((1..=cores).contains(&size), "{size} of {cores}");
                let run = draws.run(size, &mut stream);
                assert!(run >= Millis::from_secs(1) && run <= Millis::from_secs(162_755));
            }
        }
    }
}

#[test]
fn run_times_grow_with_the_size_as_the_model_says() {
    // Size; thousandths of the jobs that end within 1 minute, 10 minutes, 1 hour and 4 hours; mean
    // run time in seconds.
    let rows = [
        (1, [461, 691, 753, 916], 3_596),
        (8, [438, 657, 717, 904], 4_075),
        (32, [361, 542, 593, 862], 5_718),
        (64, [258, 387, 427, 805], 7_906),
        (128, [53, 79, 96, 692], 12_280),
    ];
    let draws = Draws::new(&LublinModel::ALL, 128);
    for (cores, expected, mean) in rows {
        let mut stream = Seed(2).stream("runs");
        let runs: Vec<u64> = (0..20_000)
            .map(|_| draws.run(cores, &mut stream).0 / 1_000)
            .collect();
        let within = |seconds| runs.iter().filter(|run| **run < seconds).count() / 20;
        let found = [60, 600, 3_600, 14_400].map(within);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!(
                found.abs_diff(expected) <= 15,
                "{cores}: {found} for {expected}"
            );
        }
        let found = runs.iter().sum::<u64>() / 20_000;
        assert!(
            found.abs_diff(mean) * 25 <= mean,
            "{cores}: {found} s for {mean} s"
        );
    }
}

#[test]
fn median_run_times_of_batch_and_interactive_jobs_are_the_models() {
    // Size, and the median in seconds.
    let rows = [
        (LublinModel::ALL, 1, 79),
        (LublinModel::ALL, 128, 10_797),
        (LublinModel::BATCH, 1, 596),
        (LublinModel::BATCH, 128, 17_037),
        (LublinModel::INTERACTIVE, 1, 12),
        (LublinModel::INTERACTIVE, 32, 27),
    ];
    for (model, cores, median) in rows {
        let draws = Draws::new(&model, 128);
        let mut stream = Seed(3).stream("runs");
        let mut runs: Vec<_> = (0..20_000).map(|_| draws.run(cores, &mut stream)).collect();
        runs.sort_unstable();
        let found = runs[10_000].0 / 100;
        assert!(
            found.abs_diff(median * 10) * 12 <= median * 10 + 60,
            "{cores}: {found} for {median}"
        );
    }
}

#[test]
fn arrivals_follow_the_day() {
    // Thousandths of a day's jobs by hour.
    let expected = [
        20, 16, 13, 10, 8, 8, 16, 26, 37, 49, 59, 68, 73, 76, 76, 73, 69, 63, 57, 50, 43, 36, 30,
        25,
    ];
    // Gaps spread by seven times their mean, so it takes many to see the day behind them.
    let draws = Draws::new(&LublinModel::ALL, 128);
    let mut cycle = Cycle::new(LublinModel::ALL.day(), START);
    let mut stream = Seed(1).stream("arrivals");
    let (mut hours, mut before) = ([0_i64; 24], START);
    for _ in 0..500_000 {
        let gap = draws.busy_half_hours(&mut stream);
        let at = cycle.pass(gap, 1_000).expect("long before the end of time");
        assert!(at >= before, "time goes forward");
        hours[usize::try_from(at.0 / 3_600_000 % 24).expect("an hour")] += 1;
        before = at;
    }
    for (hour, (found, expected)) in hours.into_iter().zip(expected).enumerate() {
        let found = found / 500;
        assert!(
            (found - expected).abs() <= 8,
            "hour {hour}: {found} for {expected}"
        );
    }
    // The mean gap is 911 s: 95 jobs a day.
    let gap = before.since(START).0 / 500_000;
    assert!((875_000..950_000).contains(&gap), "{gap} ms");
}

#[test]
fn the_published_load_fills_a_machine_as_far_as_computed() {
    // Mean work of a job over mean gap and cores, in thousandths.
    for (cores, expected) in [(128, 722), (100, 600)] {
        let spec = LublinSpec {
            cores,
            load_permille: 2_000,
            ..spec()
        };
        let jobs: Vec<_> = workload(9, spec).take(60_000).collect();
        let work: u64 = jobs.iter().map(|arrival| arrival.job.core_ms().0).sum();
        let time = jobs[59_999].at.since(START).0;
        let found = work * 1_000 / (time * u64::from(cores)) / 2;
        assert!(found.abs_diff(expected) <= 50, "{found} for {expected}");
    }
}

#[test]
fn a_scaled_load_comes_faster_and_is_otherwise_the_same() {
    let plain: Vec<_> = workload(1, spec()).take(5_000).collect();
    for load_permille in [10, 2_000, 50_000] {
        let scaled = LublinSpec {
            load_permille,
            ..spec()
        };
        let scaled: Vec<_> = workload(1, scaled).take(5_000).collect();
        for (plain, scaled) in plain.iter().zip(&scaled) {
            assert_eq!(
                (&plain.job, plain.site, plain.leaf),
                (&scaled.job, scaled.site, scaled.leaf)
            );
        }
        let time = |jobs: &[Arrival]| jobs[4_999].at.since(START).0;
        let expected = time(&plain) * 1_000 / u64::from(load_permille);
        // Where in the day a run ends moves it by up to half a day, and so for the plain one.
        let slack = 43_200_000 * (1 + 1_000 / u64::from(load_permille));
        assert!(
            time(&scaled).abs_diff(expected) <= slack,
            "{load_permille}: {} for {expected}",
            time(&scaled)
        );
    }
}

#[test]
fn weights_deal_the_jobs_and_ends_end_them() {
    assert_eq!(zipf_weights(4), [1 << 20, 1 << 19, 349_525, 1 << 18]);
    let mut dealt = [0_i64; 5];
    for arrival in workload(4, spec()).take(20_000) {
        dealt[arrival.leaf] += 1;
        let (run, requested) = (arrival.job.run.0, arrival.job.requested.0);
        assert!(requested * 1_000 > run * 1_198 && requested * 1_000 <= run * 1_400);
    }
    for (found, expected) in dealt.into_iter().zip([438, 219, 146, 109, 88]) {
        assert!(
            (found / 20 - expected).abs() <= 12,
            "{found} for {expected}"
        );
    }
    let day = Millis::from_secs(86_400);
    let mut loads = leaves(2);
    loads[0].0.until_excluded = Some(START.after(day.times(10)));
    loads[1].0.delay = day.times(5);
    loads[1].0.until_excluded = Some(START.after(day.times(15)));
    loads[1].0.broker = Broker::Restricted(vec![3]);
    let load = LublinWorkload::new(Seed(4), spec(), loads).expect("a good load");
    let jobs: Vec<_> = load.collect();
    let day_of = |arrival: &Arrival| arrival.at.since(START).0 / day.0;
    assert!(jobs.iter().all(|it| it.leaf == 1 || day_of(it) < 10));
    let second = |it: &&Arrival| it.leaf == 1;
    assert!(
        jobs.iter()
            .filter(second)
            .all(|it| (5..15).contains(&day_of(it)) && it.site == 3)
    );
    assert!(
        jobs.iter()
            .zip(0..)
            .all(|(it, number)| it.job.id.0 == number)
    );
    assert_eq!(jobs.last().map(day_of), Some(14));
}

#[test]
fn loads_that_cannot_be_drawn_are_refused() {
    let rows = [
        (LublinSpec { cores: 0, ..spec() }, WorkloadError::NoCores),
        (
            LublinSpec {
                load_permille: 0,
                ..spec()
            },
            WorkloadError::NoLoad,
        ),
        (
            LublinSpec {
                over_permille_min: 401,
                ..spec()
            },
            WorkloadError::EmptyRange { min: 401, max: 400 },
        ),
        (
            LublinSpec { sites: 0, ..spec() },
            BrokerError::NoSites.into(),
        ),
    ];
    for (spec, error) in rows {
        let refused = LublinWorkload::new(Seed(1), spec, leaves(3));
        assert_eq!(refused.err(), Some(error));
    }
    let mut idle = leaves(1);
    idle[0].1 = 0;
    for nobody in [vec![], idle] {
        let refused = LublinWorkload::new(Seed(1), spec(), nobody);
        assert_eq!(refused.err(), Some(WorkloadError::NoWeight));
    }
    let twice = [leaves(1), leaves(1)].concat();
    let refused = LublinWorkload::new(Seed(1), spec(), twice);
    assert_eq!(
        refused.err(),
        Some(WorkloadError::RepeatedLeaf(key("/U-1")))
    );
}

#[test]
fn a_seed_means_the_same_in_every_release() {
    // Recorded when the model was first written: scenarios are known by their seeds.
    let jobs = workload(1, spec()).take(4);
    let found: Vec<_> = jobs
        .map(|it| {
            (
                it.at.since(START).0,
                it.leaf,
                it.site,
                it.job.cores,
                it.job.run.0,
            )
        })
        .collect();
    let expected = [
        (9_836, 4, 1, 16, 5_492_286),
        (20_657, 2, 3, 32, 3_696),
        (5_758_781, 0, 1, 4, 11_227_688),
        (6_002_205, 1, 2, 1, 2_114_640),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_end_of_time_ends_the_load() {
    let late = LublinSpec {
        start: WallTime(u64::MAX - 20_000_000),
        ..spec()
    };
    assert!(workload(1, late).count() < 1_000);
}

proptest! {
    #[test]
    fn one_seed_is_one_stream(seed: u64, load_permille in 1_u32..9_000, start in 0_u64..86_400_000) {
        let spec = LublinSpec { load_permille, start: START.after(Millis(start)), ..spec() };
        let first: Vec<_> = workload(seed, spec.clone()).take(50).collect();
        let second: Vec<_> = workload(seed, spec.clone()).take(50).collect();
        prop_assert!(first.iter().all(|arrival| arrival.at >= spec.start));
        prop_assert_eq!(&first, &second);
        let other: Vec<_> = workload(seed ^ 1, spec).take(50).collect();
        prop_assert_ne!(first, other);
    }
}
