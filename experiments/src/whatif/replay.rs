//! One trace under one policy.
//!
//! Invariant: schedulers know what had ended by the last full minute at their own cluster, what
//! gossip has brought of the others' (or, if all is known, of those too), and the requested times; a
//! run is a function of its arguments. Deliberately not here: what differs between runs.

use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Backfill, Cluster, Finished, SkipReason, Trace};
use fairmesh_model::{JobKey, UsageRecord, WallTime};
use fairmesh_policy::SitePolicy;

use super::source::{Knowledge, Order, REFRESH, Source, origin, source};
use simnet::vo::DAY;

/// How many cores the nodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Percent of the cores that the load would keep busy if it came evenly; above 100 jobs pile up.
    pub utilisation_percent: u64,
}

/// What became of one account.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccountUse {
    /// Core-milliseconds held, by day from the first submit time on.
    pub by_day: BTreeMap<u64, u64>,
    /// Jobs that started.
    pub jobs: u64,
    /// What they waited, milliseconds.
    pub waited_ms: u64,
}

/// What became of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// By account.
    pub accounts: BTreeMap<AccountKey, AccountUse>,
    /// Cores by node.
    pub cores: Vec<u32>,
    /// Jobs that were left out, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Jobs that ran.
    pub jobs: u64,
}

impl Capacity {
    /// Cores by node: wide enough for the widest job, and for the load.
    pub fn cores(self, trace: &Trace) -> Vec<u32> {
        let mut widest = vec![1_u32; trace.nodes.get()];
        let mut load = vec![0_u128; trace.nodes.get()];
        for job in &trace.jobs {
            widest[job.node] = widest[job.node].max(job.cores);
            load[job.node] += u128::from(job.core_ms().0);
        }
        let first = trace.jobs.first().map_or(WallTime(0), |job| job.submit);
        let last = trace.jobs.last().map_or(WallTime(0), |job| job.submit);
        let span = u128::from(last.since(first).0.max(1));
        let percent = u128::from(self.utilisation_percent.max(1));
        let needed = |load: u128| {
            let cores = load * 100 / span / percent + 1;
            u32::try_from(cores).unwrap_or(u32::MAX)
        };
        let nodes = widest.into_iter().zip(load);
        nodes
            .map(|(widest, load)| widest.max(needed(load)))
            .collect()
    }
}

/// Replays a trace under a policy, to the end of its last job; `submitted` is called for each.
pub fn replay(
    trace: &Trace,
    policy: &SitePolicy,
    capacity: Capacity,
    knowledge: Knowledge,
    submitted: impl Fn(),
) -> Replayed {
    let cores = capacity.cores(trace);
    let mut arrivals = trace.arrivals(&cores).peekable();
    let Some(first) = arrivals.peek().map(|arrival| arrival.at) else {
        return Replayed::nothing(trace, cores);
    };
    let source = source(knowledge, trace, policy, &cores, first);
    let mut run = Run::new(trace, source, &cores, first);
    let skipped = trace.arrivals(&cores).skipped().clone();
    loop {
        let ends = run.clusters.iter().filter_map(Cluster::next_event);
        let arrives = arrivals.peek().map(|arrival| arrival.at);
        let Some(now) = ends.chain(arrives).min() else {
            break;
        };
        run.source.advance(now);
        run.finish(now);
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            submitted();
            run.submitted.insert((arrival.site, arrival.job.id.0), now);
            let cluster = &mut run.clusters[arrival.site];
            if cluster.submit_at(now, arrival.job).is_ok() {
                run.is_touched[arrival.site] = true;
            }
        }
        run.schedule(now);
    }
    Replayed {
        accounts: run.accounts,
        cores,
        skipped,
        jobs: run.jobs,
    }
}

struct Run<'a> {
    trace: &'a Trace,
    first: WallTime,
    clusters: Vec<Cluster>,
    is_touched: Vec<bool>,
    submitted: BTreeMap<(usize, u64), WallTime>,
    accounts: BTreeMap<AccountKey, AccountUse>,
    source: Box<dyn Source + 'a>,
    /// By node, as of the last refresh; taken when it is first needed.
    orders: Vec<Option<Order>>,
    /// Jobs that have ended since the last refresh, by node.
    ended: Vec<Vec<UsageRecord>>,
    refreshed: WallTime,
    jobs: u64,
}

impl<'a> Run<'a> {
    fn new(trace: &'a Trace, source: Box<dyn Source + 'a>, cores: &[u32], first: WallTime) -> Self {
        let nodes = cores.len();
        let accounts = trace.accounts().into_iter();
        Self {
            trace,
            first,
            clusters: cores
                .iter()
                .map(|cores| Cluster::new(*cores, Backfill::Easy))
                .collect(),
            is_touched: vec![false; nodes],
            submitted: BTreeMap::new(),
            accounts: accounts
                .map(|account| (account, AccountUse::default()))
                .collect(),
            source,
            orders: vec![None; nodes],
            ended: vec![Vec::new(); nodes],
            refreshed: first,
            jobs: 0,
        }
    }

    fn finish(&mut self, now: WallTime) {
        for node in 0..self.clusters.len() {
            for finished in self.clusters[node].finish(now) {
                self.is_touched[node] = true;
                self.jobs += 1;
                self.ended[node].push(record(self.trace, node, &finished));
            }
        }
        if now.since(self.refreshed) >= REFRESH {
            self.refresh(now);
        }
    }

    fn refresh(&mut self, now: WallTime) {
        self.refreshed = now;
        let nodes = self.ended.len();
        let ended = std::mem::replace(&mut self.ended, vec![Vec::new(); nodes]);
        self.source.tell(now, ended);
        self.orders.fill(None);
    }

    fn schedule(&mut self, now: WallTime) {
        for node in 0..self.clusters.len() {
            if !std::mem::take(&mut self.is_touched[node]) {
                continue;
            }
            let order = self.orders[node].get_or_insert_with(|| self.source.order(node));
            for started in self.clusters[node].schedule(now, order) {
                let submitted = self.submitted.remove(&(node, started.job.id.0));
                let end = started.end();
                let account = self.accounts.entry(started.job.account).or_default();
                account.jobs += 1;
                account.waited_ms += submitted.map_or(0, |at| now.since(at).0);
                account.hold(self.first, (now, end), started.job.cores);
            }
        }
    }
}

impl AccountUse {
    /// Counts cores that are held, day by day.
    fn hold(&mut self, first: WallTime, (from, to): (WallTime, WallTime), cores: u32) {
        let (mut at, end) = (from.since(first).0, to.since(first).0);
        while at < end {
            let day = at / DAY.0;
            let until = end.min((day + 1) * DAY.0);
            *self.by_day.entry(day).or_default() += (until - at) * u64::from(cores);
            at = until;
        }
    }

    /// Core-hours of all days below `days`.
    pub fn core_hours(&self, days: u64) -> f64 {
        let sum: u64 = self.by_day.range(..days).map(|(_, held)| held).sum();
        sum as f64 / 3_600_000.0
    }

    /// Mean wait of its jobs, in hours.
    pub fn wait_hours(&self) -> f64 {
        match self.jobs {
            0 => 0.0,
            jobs => self.waited_ms as f64 / jobs as f64 / 3_600_000.0,
        }
    }
}

impl Replayed {
    fn nothing(trace: &Trace, cores: Vec<u32>) -> Self {
        Self {
            accounts: BTreeMap::new(),
            skipped: trace.arrivals(&cores).skipped().clone(),
            cores,
            jobs: 0,
        }
    }
}

fn record(trace: &Trace, node: usize, finished: &Finished) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: format!("node-{node}"),
            job: finished.job.id.to_string(),
            instance: 0,
        },
        origin: origin(trace, &finished.job.account),
        start: finished.start,
        end: finished.end,
        cores: finished.job.cores,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}
