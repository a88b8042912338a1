use fairmesh_model::AccountPath;
use proptest::prelude::*;

use super::*;
use crate::paper;

const START: WallTime = WallTime::from_unix_secs(1_100_000_000);

fn paper_load(seed: u64) -> Workload {
    let spec = WorkloadSpec::paper(START, paper::SITES);
    Workload::new(Seed(seed), spec, paper::leaf_loads()).expect("the paper's load is valid")
}

fn account(name: &str) -> AccountKey {
    AccountKey {
        vo: 0,
        path: AccountPath::parse(name).expect("valid"),
    }
}

#[test]
fn the_papers_load_is_as_the_paper_says() {
    let leaves = paper::leaves().len();
    let arrivals: Vec<_> = paper_load(1).take(leaves * 2_000).collect();
    let mut sites = [0_usize; paper::SITES];
    let mut total_run_s = 0;
    for (number, arrival) in arrivals.iter().enumerate() {
        let round = (number / leaves) as u64;
        assert_eq!(arrival.at, START.after(Millis::from_secs(15).times(round)));
        assert_eq!(
            (arrival.leaf, arrival.job.id.0),
            (number % leaves, number as u64)
        );
        let (run, requested) = (arrival.job.run.0, arrival.job.requested.0);
        assert!((2_160_000..=5_040_000).contains(&run), "{run}");
        assert!(requested * 1_000 > run * 1_199 && requested * 1_000 <= run * 1_400);
        assert_eq!(arrival.job.cores, 1);
        sites[arrival.site] += 1;
        total_run_s += run / 1_000;
    }
    let mean = total_run_s / arrivals.len() as u64;
    assert!((3_550..3_650).contains(&mean), "mean run time {mean} s");
    let expected = arrivals.len() / paper::SITES;
    let even = |jobs: &usize| (expected * 9 / 10..expected * 11 / 10).contains(jobs);
    assert!(sites.iter().all(even), "{sites:?}");
}

#[test]
fn a_leaf_submits_within_its_time_and_to_its_sites() {
    let spec = WorkloadSpec::paper(START, 6);
    let early = LeafLoad {
        until_excluded: Some(START.after(Millis::from_secs(45))),
        ..LeafLoad::steady(account("/early"), Broker::Random)
    };
    let late = LeafLoad {
        delay: Millis::from_secs(40),
        until_excluded: Some(START.after(Millis::from_secs(71))),
        ..LeafLoad::steady(account("/late"), Broker::Restricted(vec![5]))
    };
    let arrivals: Vec<_> = Workload::new(Seed(1), spec, vec![late, early])
        .expect("valid")
        .collect();
    let times: Vec<_> = arrivals
        .iter()
        .map(|it| (it.at.since(START).0 / 1_000, it.leaf))
        .collect();
    assert_eq!(times, [(0, 1), (15, 1), (30, 1), (40, 0), (55, 0), (70, 0)]);
    assert!(
        arrivals
            .iter()
            .filter(|arrival| arrival.leaf == 0)
            .all(|arrival| arrival.site == 5)
    );
}

#[test]
fn loads_that_cannot_be_drawn_are_refused() {
    let good = WorkloadSpec::paper(START, 6);
    let rows = [
        (
            WorkloadSpec {
                interval: Millis(0),
                ..good.clone()
            },
            WorkloadError::NoInterval,
        ),
        (
            WorkloadSpec {
                run_spread_permille: 1_001,
                ..good.clone()
            },
            WorkloadError::SpreadTooWide(1_001),
        ),
        (
            WorkloadSpec {
                over_permille_min: 401,
                ..good.clone()
            },
            WorkloadError::EmptyRange { min: 401, max: 400 },
        ),
        (
            WorkloadSpec {
                sites: 0,
                ..good.clone()
            },
            BrokerError::NoSites.into(),
        ),
    ];
    for (spec, error) in rows {
        let refused = Workload::new(Seed(1), spec, paper::leaf_loads());
        assert_eq!(refused.err(), Some(error));
    }
    let leaf = LeafLoad::steady(account("/a"), Broker::Random);
    let twice = Workload::new(Seed(1), good, vec![leaf.clone(), leaf]);
    assert_eq!(
        twice.err(),
        Some(WorkloadError::RepeatedLeaf(account("/a")))
    );
}

#[test]
fn the_end_of_time_ends_the_load() {
    let spec = WorkloadSpec::paper(WallTime(u64::MAX - 20_000), 1);
    let leaf = LeafLoad::steady(account("/a"), Broker::Random);
    assert_eq!(
        Workload::new(Seed(1), spec, vec![leaf])
            .expect("valid")
            .count(),
        2
    );
}

proptest! {
    #[test]
    fn one_seed_is_one_stream(seed: u64) {
        let first: Vec<_> = paper_load(seed).take(300).collect();
        let second: Vec<_> = paper_load(seed).take(300).collect();
        prop_assert_eq!(&first, &second);
        let other: Vec<_> = paper_load(seed ^ 1).take(300).collect();
        prop_assert_ne!(first, other);
    }

    #[test]
    fn another_leaf_or_broker_shifts_nobody_elses_draws(seed: u64, left_out in 0_usize..7) {
        let spec = WorkloadSpec::paper(START, paper::SITES);
        let mut fewer = paper::leaf_loads();
        let gone = fewer.remove(left_out).account;
        fewer[0].broker = Broker::Restricted(vec![2]);
        let changed = fewer[0].account.clone();
        let draws = |load: Workload, account: &AccountKey| -> Vec<_> {
            let of_account = load.filter(|arrival| arrival.job.account == *account);
            of_account.take(20).map(|it| (it.at, it.site, it.job.run, it.job.requested)).collect()
        };
        let fewer_load = Workload::new(Seed(seed), spec, fewer.clone()).expect("valid");
        for leaf in fewer.iter().filter(|leaf| leaf.account != changed) {
            prop_assert_ne!(&leaf.account, &gone);
            let expected = draws(paper_load(seed), &leaf.account);
            prop_assert_eq!(draws(fewer_load.clone(), &leaf.account), expected);
        }
        let runs = |load: Workload| draws(load, &changed).into_iter().map(|it| (it.2, it.3)).collect::<Vec<_>>();
        prop_assert_eq!(runs(fewer_load), runs(paper_load(seed)));
    }
}
