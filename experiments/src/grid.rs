//! Clusters whose schedulers ask for fairshare priorities, run beside the world that gives them.
//!
//! Section 5 of the FSGrid paper: sites of so many single-core CPUs, jobs that brokers deal to them,
//! and at each site a scheduler that starts the job of the account which *its own* source of
//! priorities puts first. A source is either the site's own node in a gossiping [`World`]
//! ([`Gossip`]) or somebody who knows everything at once ([`crate::central::Central`]); all else is
//! the same, so that what gossip costs is a difference of two runs.
//!
//! Invariant: a run is a function of its specification, its seed and its source. Schedulers go by the
//! exact order of the deviation vectors, unless [`GridSpec::served`] says otherwise.
//!
//! Deliberately not here: what is made of the usage that was measured ([`crate::paper`]).
//!
//! [`World`]: simnet::World

mod gossip;
mod rank;
mod served;
mod usage_table;

use std::collections::BTreeMap;

use fairmesh_cluster::{
    AccountKey, Arrival, Backfill, Cluster, Finished, Job, JobPriority, LeafLoad, Seed, Workload,
    WorkloadError, WorkloadSpec, paper,
};
use fairmesh_model::{HistoryRule, Millis, UsageMode, WallTime, WindowLength};

use simnet::vo::START;

pub use gossip::Gossip;
pub(crate) use gossip::timing;
pub use rank::{places, rank};
pub use served::Served;
pub use usage_table::UsageTable;

/// All usage weighs the same, as in the paper's figures: longer than any run here.
pub const HISTORY: HistoryRule = HistoryRule::None { horizon: 60 * 24 };

/// Windows in which usage is counted.
pub const WINDOW: WindowLength = WindowLength::HOUR;

/// A Grid and its load.
#[derive(Debug, Clone)]
pub struct GridSpec {
    /// How many sites.
    pub sites: usize,
    /// CPUs of each.
    pub cores: u32,
    /// What running jobs count for.
    pub usage_mode: UsageMode,
    /// How old usage gets before schedulers see what came after it; see [`Gossip`].
    pub view_age: Millis,
    /// Whether usage is gossiped. Without, each site goes by its own.
    pub is_shared: bool,
    /// Who submits what, where.
    pub loads: Vec<LeafLoad>,
    /// How long the run is.
    pub duration: Millis,
    /// Time between two samples of what was used.
    pub sample: Millis,
    /// What schedulers are given of their node's order.
    pub served: Served,
    /// How schedulers weigh it against the time that a job has waited.
    pub weights: JobPriority,
    /// What happens behind a job that does not fit.
    pub backfill: Backfill,
    /// Cores of jobs, by leaf: those of the first list for the first leaf, one after the other, and
    /// again from the first list for leaves beyond the last.
    pub widths: &'static [&'static [u32]],
    /// Whether a site that is sent a job passes it on to the one where the fewest wait.
    pub passes_on: bool,
}

impl GridSpec {
    /// The paper's Grid: six sites, seven accounts that always have work.
    pub fn paper(usage_mode: UsageMode, view_age: Millis, duration: Millis) -> Self {
        Self {
            sites: paper::SITES,
            cores: paper::CORES_PER_SITE,
            usage_mode,
            view_age,
            is_shared: true,
            loads: paper::leaf_loads(),
            duration,
            sample: Millis::from_secs(600),
            served: Served::Exact,
            weights: JobPriority::FAIRSHARE_ONLY,
            backfill: Backfill::Off,
            widths: &[&[1]],
            passes_on: false,
        }
    }
}

/// Where schedulers get the order of accounts from.
pub trait UsageSource {
    /// Lets time pass.
    fn advance(&mut self, now: WallTime);

    /// A job has ended at a site.
    fn finished(&mut self, site: usize, job: &Finished);

    /// It is time to tell what has happened since the last time; every [`GridSpec::view_age`].
    /// `used` is what was truly used by now.
    fn refresh(&mut self, now: WallTime, used: &UsageTable, clusters: &[Cluster]);

    /// The accounts' places in a site's order: the greater is served first, equal ones take turns.
    /// `used` is what was truly used, which only the all-knowing may look at.
    fn order(
        &mut self,
        site: usize,
        now: WallTime,
        used: &UsageTable,
        accounts: &[AccountKey],
    ) -> BTreeMap<AccountKey, u64>;

    /// Whether a job may be queued at all: where there are quotas, a site has the last word.
    fn admits(&mut self, _site: usize, _now: WallTime, _job: &Job) -> bool {
        true
    }
}

/// What was used by a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Time since the beginning.
    pub at: Millis,
    /// Core-milliseconds held by jobs of each leaf so far, those that still run included.
    pub used: Vec<u64>,
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSeries {
    /// The accounts, in the order of [`Sample::used`].
    pub leaves: Vec<AccountKey>,
    /// From the beginning to the end, evenly.
    pub samples: Vec<Sample>,
    /// Jobs that ended.
    pub jobs: u64,
}

struct Grid<'a> {
    spec: &'a GridSpec,
    clusters: Vec<Cluster>,
    used: UsageTable,
    source: &'a mut dyn UsageSource,
    /// Sites where something happened that a scheduling pass may follow.
    is_touched: Vec<bool>,
    jobs: u64,
}

/// Runs the load that `seed` draws under the priorities of `source`. `on_day` is told of each
/// simulated day that has passed.
pub fn run(
    spec: &GridSpec,
    seed: Seed,
    source: &mut dyn UsageSource,
    on_day: &dyn Fn(),
) -> Result<UsageSeries, WorkloadError> {
    let workload = WorkloadSpec::paper(START, spec.sites);
    let mut arrivals = Workload::new(seed, workload, spec.loads.clone())?.peekable();
    let leaves: Vec<AccountKey> = spec.loads.iter().map(|load| load.account.clone()).collect();
    let mut grid = Grid {
        spec,
        clusters: vec![Cluster::new(spec.cores, spec.backfill); spec.sites],
        used: UsageTable::new(spec.sites, &leaves),
        source,
        is_touched: vec![false; spec.sites],
        jobs: 0,
    };
    let end = START.after(spec.duration);
    let mut samples = Vec::new();
    let mut next_sample = START;
    let mut next_refresh = START.after(spec.view_age).before(LEAD);
    loop {
        let arrives = arrivals.peek().map_or(end, |arrival| arrival.at);
        let now = [arrives, next_refresh, next_sample, grid.next_end(end)];
        let now = now.into_iter().min().unwrap_or(end);
        if now > end {
            break;
        }
        grid.source.advance(now);
        grid.finish(now);
        if now >= next_refresh {
            grid.source.refresh(now, &grid.used, &grid.clusters);
            next_refresh = next_refresh.after(spec.view_age);
        }
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now && now < end) {
            grid.submit(now, arrival);
        }
        grid.schedule(now);
        if now >= next_sample {
            let at = now.since(START);
            samples.push(grid.sample(now));
            next_sample = next_sample.after(spec.sample);
            if at.0 > 0 && at.0.is_multiple_of(simnet::vo::DAY.0) {
                on_day();
            }
        }
        if now == end {
            break;
        }
    }
    Ok(UsageSeries {
        leaves,
        samples,
        jobs: grid.jobs,
    })
}

/// By how much feeds come before the batch that carries what they said.
pub(crate) const LEAD: Millis = Millis(1);

impl Grid<'_> {
    fn next_end(&self, end: WallTime) -> WallTime {
        let ends = self.clusters.iter().filter_map(Cluster::next_event);
        ends.min().unwrap_or(end).min(end)
    }

    fn submit(&mut self, now: WallTime, mut arrival: Arrival) {
        let widths = self.spec.widths[arrival.leaf % self.spec.widths.len()];
        // Leaves submit in turn, so this is the leaf's own next width.
        let turn = arrival.job.id.0 as usize / self.spec.loads.len();
        arrival.job.cores = widths[turn % widths.len()];
        let mut site = arrival.site;
        if self.spec.passes_on {
            let waiting = |site: &usize| self.clusters[*site].queued();
            site = (0..self.clusters.len()).min_by_key(waiting).unwrap_or(site);
        }
        if !self.source.admits(site, now, &arrival.job) {
            return;
        }
        self.is_touched[site] = true;
        let submitted = self.clusters[site].submit_at(now, arrival.job);
        submitted.expect("jobs of one number each that are no wider than a site fit");
    }

    fn finish(&mut self, now: WallTime) {
        for (site, cluster) in self.clusters.iter_mut().enumerate() {
            for job in cluster.finish(now) {
                self.is_touched[site] = true;
                self.jobs += 1;
                self.used.finished(site, &job);
                self.source.finished(site, &job);
            }
        }
    }

    fn schedule(&mut self, now: WallTime) {
        for (site, cluster) in self.clusters.iter_mut().enumerate() {
            let is_touched = std::mem::take(&mut self.is_touched[site]);
            if !is_touched || cluster.queued() == 0 || cluster.cores_used() == cluster.cores() {
                continue;
            }
            let accounts: Vec<AccountKey> = cluster.pending_accounts().cloned().collect();
            let order = self.source.order(site, now, &self.used, &accounts);
            for started in cluster.schedule_by(now, &order, &self.spec.weights) {
                self.used.started(site, &started);
            }
        }
    }

    fn sample(&self, now: WallTime) -> Sample {
        let leaves = 0..self.used.leaves();
        Sample {
            at: now.since(START),
            used: leaves.map(|leaf| self.used.used(leaf, now)).collect(),
        }
    }
}
