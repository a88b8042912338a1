//! A stream of drawn jobs: every leaf submits one at a steady pace.
//!
//! Invariant: arrivals come in order of time (ties: in the order of the leaves), and each leaf draws
//! run times, requests and sites from streams of its own, named after its account, so that adding a
//! leaf or changing its broker leaves the other draws as they were.
//!
//! Deliberately not here: bursts, days and nights; recorded logs have those (see [`crate::trace`]).
//! Section 5 of the FSGrid paper: a single-CPU job every 15 seconds per leaf, one hour long ± 40 %,
//! its wall-clock time over-estimated by 20 to 40 %, sent to a random site.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use fairmesh_model::{Millis, WallTime};

use crate::broker::{Broker, BrokerError};
use crate::job::{AccountKey, Job, JobId};
use crate::random::{Seed, Stream};

/// What all leaves have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// When the first jobs come.
    pub start: WallTime,
    /// Time between two jobs of one leaf; not zero.
    pub interval: Millis,
    /// Mean run time.
    pub run_mean: Millis,
    /// Run times are uniform within the mean ± so many thousandths of it; at most 1000.
    pub run_spread_permille: u32,
    /// Requested times exceed run times by at least so many thousandths.
    pub over_permille_min: u32,
    /// Requested times exceed run times by at most so many thousandths.
    pub over_permille_max: u32,
    /// Cores of each job.
    pub cores: u32,
    /// How many sites the brokers choose from.
    pub sites: usize,
}

/// One leaf's part in the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLoad {
    /// Who pays.
    pub account: AccountKey,
    /// Where its jobs go.
    pub broker: Broker,
    /// How long after the start its first job comes.
    pub delay: Millis,
    /// It submits nothing at or after this moment; `None` is for ever.
    pub until_excluded: Option<WallTime>,
}

/// A job that is submitted to a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: WallTime,
    /// Index of the leaf in the list that the workload was made of.
    pub leaf: usize,
    /// Index of the site.
    pub site: usize,
    /// The job; numbered from 0 in order of arrival.
    pub job: Job,
}

/// A load that cannot be drawn. The configuration is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Jobs would come infinitely fast.
    #[error("the interval between two jobs is zero")]
    NoInterval,
    /// Some run times would be negative.
    #[error("run times spread by {0} thousandths of the mean, which is more than the whole")]
    SpreadTooWide(u32),
    /// The least over-estimate is greater than the greatest.
    #[error("requests exceed run times by at least {min} and at most {max} thousandths")]
    EmptyRange {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// An account has two loads; they would draw the same numbers.
    #[error("the account {path} of VO {vo} has two loads", path = .0.path, vo = .0.vo)]
    RepeatedLeaf(AccountKey),
    /// The rate of arrivals is zero.
    #[error("the load is scaled to nothing")]
    NoLoad,
    /// The machine that jobs are sized for has no core.
    #[error("the machine that jobs are sized for has no core")]
    NoCores,
    /// No leaf would be dealt any job.
    #[error("no leaf has a weight above zero")]
    NoWeight,
    /// A leaf's broker has nowhere to send its jobs.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

/// The jobs, one by one; endless unless every leaf has an end.
#[derive(Debug, Clone)]
pub struct Workload {
    spec: WorkloadSpec,
    leaves: Vec<Leaf>,
    /// The next moment of each leaf that has one.
    next: BinaryHeap<Reverse<(WallTime, usize)>>,
    submitted: u64,
}

#[derive(Debug, Clone)]
struct Leaf {
    load: LeafLoad,
    run: Stream,
    request: Stream,
    site: Stream,
}

impl WorkloadSpec {
    /// The paper's load, from `start` on, over `sites` sites.
    pub fn paper(start: WallTime, sites: usize) -> Self {
        Self {
            start,
            interval: Millis::from_secs(15),
            run_mean: Millis::from_secs(3_600),
            run_spread_permille: 400,
            over_permille_min: 200,
            over_permille_max: 400,
            cores: 1,
            sites,
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (min, max) = (self.over_permille_min, self.over_permille_max);
        match self {
            _ if self.interval == Millis(0) => Err(WorkloadError::NoInterval),
            _ if self.run_spread_permille > 1_000 => {
                Err(WorkloadError::SpreadTooWide(self.run_spread_permille))
            }
            _ if min > max => Err(WorkloadError::EmptyRange { min, max }),
            _ => Ok(()),
        }
    }
}

impl LeafLoad {
    /// A leaf that submits from the beginning and for ever.
    pub fn steady(account: AccountKey, broker: Broker) -> Self {
        Self {
            account,
            broker,
            delay: Millis(0),
            until_excluded: None,
        }
    }
}

impl Workload {
    /// The load that `seed` makes of these leaves.
    pub fn new(
        seed: Seed,
        spec: WorkloadSpec,
        loads: Vec<LeafLoad>,
    ) -> Result<Self, WorkloadError> {
        spec.check()?;
        let mut accounts = BTreeSet::new();
        for load in &loads {
            load.broker.check(spec.sites)?;
            if !accounts.insert(&load.account) {
                return Err(WorkloadError::RepeatedLeaf(load.account.clone()));
            }
        }
        let leaves: Vec<_> = loads
            .into_iter()
            .map(|load| Leaf::new(seed, load))
            .collect();
        let mut workload = Self {
            spec,
            leaves,
            next: BinaryHeap::new(),
            submitted: 0,
        };
        for leaf in 0..workload.leaves.len() {
            let first = workload.spec.start.after(workload.leaves[leaf].load.delay);
            workload.plan(leaf, first);
        }
        Ok(workload)
    }

    fn plan(&mut self, leaf: usize, at: WallTime) {
        if self.leaves[leaf]
            .load
            .until_excluded
            .is_none_or(|until| at < until)
        {
            self.next.push(Reverse((at, leaf)));
        }
    }
}

impl Iterator for Workload {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let Reverse((at, index)) = self.next.pop()?;
        // A leaf whose clock is at the end of time has submitted its last job.
        if let Some(next) = at.0.checked_add(self.spec.interval.0) {
            self.plan(index, WallTime(next));
        }
        let id = JobId(self.submitted);
        self.submitted += 1;
        let (job, site) = self.leaves[index].draw(id, &self.spec);
        Some(Arrival {
            at,
            leaf: index,
            site,
            job,
        })
    }
}

impl Leaf {
    fn new(seed: Seed, load: LeafLoad) -> Self {
        let AccountKey { vo, path } = &load.account;
        let stream = |what: &str| seed.stream(&format!("workload {what} {vo} {path}"));
        let (run, request, site) = (stream("run"), stream("request"), stream("site"));
        Self {
            load,
            run,
            request,
            site,
        }
    }

    fn draw(&mut self, id: JobId, spec: &WorkloadSpec) -> (Job, usize) {
        let spread = permille(spec.run_mean.0, spec.run_spread_permille.into());
        let (low, high) = (
            spec.run_mean.0 - spread,
            spec.run_mean.0.saturating_add(spread),
        );
        let run = self.run.between(low, high);
        let (min, max) = (spec.over_permille_min.into(), spec.over_permille_max.into());
        let over = permille(run, self.request.between(min, max));
        let job = Job {
            id,
            account: self.load.account.clone(),
            cores: spec.cores,
            run: Millis(run),
            requested: Millis(run.saturating_add(over)),
        };
        (job, self.load.broker.pick(spec.sites, &mut self.site))
    }
}

/// So many thousandths of `amount`, rounded down and saturating.
pub(crate) fn permille(amount: u64, thousandths: u64) -> u64 {
    let product = u128::from(amount) * u128::from(thousandths) / 1_000;
    u64::try_from(product).unwrap_or(u64::MAX)
}
