//! The paper's Grid under the paper's load, with priorities from an all-knowing book-keeper: the
//! pieces fit together, and usage goes where the targets say.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_cluster::{
    AccountKey, Arrival, Backfill, Cluster, Finished, JobId, Seed, Workload, WorkloadSpec, paper,
};
use fairmesh_model::{CoreMillis, Millis, Share, WallTime};

const START: WallTime = WallTime::from_unix_secs(1_100_000_000);
const HOUR: Millis = Millis::from_secs(3_600);

/// Charges at start, so that a burst of starts is seen at once.
#[derive(Default)]
struct Books {
    targets: BTreeMap<AccountKey, Share>,
    charged: BTreeMap<AccountKey, CoreMillis>,
    started: BTreeSet<JobId>,
    finished: Vec<Finished>,
}

impl Books {
    /// The less of its target an account has had, the higher.
    fn priorities(&self) -> BTreeMap<AccountKey, u64> {
        let priority = |(account, target): (&AccountKey, &Share)| {
            let used = self.charged.get(account).copied().unwrap_or_default();
            (
                account.clone(),
                u64::MAX - used.0 / u64::from(target.units() / 1_000_000),
            )
        };
        self.targets.iter().map(priority).collect()
    }

    fn step(&mut self, cluster: &mut Cluster, now: WallTime) {
        self.finished.extend(cluster.finish(now));
        for started in cluster.schedule(now, &self.priorities()) {
            let charged = self.charged.entry(started.job.account.clone()).or_default();
            *charged = charged.plus(started.job.core_ms());
            assert!(self.started.insert(started.job.id), "a job starts once");
        }
        assert!(cluster.cores_used() <= paper::CORES_PER_SITE);
    }
}

/// Plays `hours` of arrivals, and then lets everything that was submitted end.
fn play(
    seed: u64,
    backfill: Backfill,
    hours: u64,
) -> (Books, Vec<Arrival>, BTreeMap<AccountKey, CoreMillis>) {
    let spec = WorkloadSpec::paper(START, paper::SITES);
    let load = Workload::new(Seed(seed), spec, paper::leaf_loads()).expect("the paper's load");
    let end = START.after(HOUR.times(hours));
    let arrivals: Vec<_> = load.take_while(|arrival| arrival.at < end).collect();
    let mut books = Books {
        targets: paper::leaves().into_iter().collect(),
        ..Books::default()
    };
    let mut sites = vec![Cluster::new(paper::CORES_PER_SITE, backfill); paper::SITES];
    for arrival in &arrivals {
        while let Some((site, at)) = next_end(&sites, arrival.at) {
            books.step(&mut sites[site], at);
        }
        sites[arrival.site]
            .submit(arrival.job.clone())
            .expect("a good job");
        books.step(&mut sites[arrival.site], arrival.at);
    }
    let while_contended = books.charged.clone();
    while let Some((site, at)) = next_end(&sites, WallTime(u64::MAX)) {
        books.step(&mut sites[site], at);
    }
    (books, arrivals, while_contended)
}

fn next_end(sites: &[Cluster], until: WallTime) -> Option<(usize, WallTime)> {
    let ends = sites
        .iter()
        .enumerate()
        .filter_map(|(site, it)| Some((site, it.next_event()?)));
    ends.filter(|(_, at)| *at <= until)
        .min_by_key(|(site, at)| (*at, *site))
}

#[test]
fn every_job_runs_once_and_no_core_second_is_lost() {
    for backfill in [Backfill::Off, Backfill::Easy] {
        let (books, arrivals, _) = play(1, backfill, 4);
        assert_eq!(books.started.len(), arrivals.len());
        assert_eq!(books.finished.len(), arrivals.len());
        let asked: CoreMillis = arrivals.iter().map(|arrival| arrival.job.core_ms()).sum();
        let held = books
            .finished
            .iter()
            .map(|done| CoreMillis(done.end.since(done.start).0 * u64::from(done.job.cores)));
        assert_eq!(held.sum::<CoreMillis>(), asked);
    }
}

#[test]
fn usage_goes_where_the_targets_say_for_all_who_ask_for_their_share() {
    let (books, _, charged) = play(2, Backfill::Off, 24);
    let total: CoreMillis = charged.values().copied().sum();
    for (account, target) in &books.targets {
        let actual = Share::from_ratio(charged[account].0, total.0);
        let off = actual.units().abs_diff(target.units());
        assert!(
            off < Share::ONE / 50,
            "{account:?} has {actual} of {target} percent"
        );
    }
}
