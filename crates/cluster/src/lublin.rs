//! A stream of jobs drawn from a published statistical model of rigid jobs on supercomputers.
//!
//! Invariant: one seed gives one stream, on any machine; when, how wide, how long and whose a job is
//! come from streams of their own, so that another scale of load, broker or weight leaves the sizes
//! and run times as they were.
//!
//! Jobs come in one process for the whole Grid; each is dealt to a leaf by the leaves' weights, and
//! the leaf's broker sends it to a site.
//!
//! Source: Lublin & Feitelson, "The workload on parallel supercomputers: modeling the
//! characteristics of rigid jobs", JPDC 63(11), 2003. Deliberately not here: users (the model has
//! none, hence the weights), sessions, and weekdays.

mod cycle;
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use fairmesh_model::{Millis, WallTime};

pub use model::LublinModel;

use crate::job::{AccountKey, Job, JobId};
use crate::random::{Seed, Stream};
use crate::workload::{Arrival, LeafLoad, WorkloadError, permille};
use cycle::Cycle;
use model::Draws;

/// A load by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LublinSpec {
    /// The published parameters.
    pub model: LublinModel,
    /// The first job comes some time after this moment. Hours of the day are UTC's.
    pub start: WallTime,
    /// Cores of the machine that jobs are sized for: none is wider. On a Grid, those of the
    /// smallest site that jobs are sent to. Not zero.
    pub cores: u32,
    /// Jobs come so many thousandths as often as in the model, whose rate is that of one machine: a
    /// job each 911 s in the mean ([`LublinModel::ALL`]), which loads 128 cores to 72 %, and 100
    /// cores to 60 %. So six sites of 100 cores take 10,000 thousandths to be full. Not zero.
    pub load_permille: u32,
    /// Requested times exceed run times by at least so many thousandths.
    pub over_permille_min: u32,
    /// Requested times exceed run times by at most so many thousandths.
    pub over_permille_max: u32,
    /// How many sites the brokers choose from.
    pub sites: usize,
}

impl LublinSpec {
    /// The model's own load for a machine of `cores`, with the FSGrid paper's requested times.
    pub fn published(start: WallTime, cores: u32, sites: usize) -> Self {
        Self {
            model: LublinModel::ALL,
            start,
            cores,
            load_permille: 1_000,
            over_permille_min: 200,
            over_permille_max: 400,
            sites,
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (min, max) = (self.over_permille_min, self.over_permille_max);
        match self {
            _ if self.cores == 0 => Err(WorkloadError::NoCores),
            _ if self.load_permille == 0 => Err(WorkloadError::NoLoad),
            _ if min > max => Err(WorkloadError::EmptyRange { min, max }),
            _ => Ok(()),
        }
    }
}

/// The jobs, one by one; endless unless every leaf has an end.
#[derive(Debug, Clone)]
pub struct LublinWorkload {
    spec: LublinSpec,
    draws: Draws,
    cycle: Cycle,
    leaves: Vec<Leaf>,
    weights: Vec<u32>,
    arrive: Stream,
    size: Stream,
    run: Stream,
    deal: Stream,
    submitted: u64,
}

#[derive(Debug, Clone)]
struct Leaf {
    load: LeafLoad,
    request: Stream,
    site: Stream,
}

impl LublinWorkload {
    /// The load that `seed` makes of these leaves, each with its weight: the part of the jobs that
    /// it is dealt. A job dealt to a leaf before its delay is over or after its end is not submitted,
    /// and nobody else gets it.
    pub fn new(
        seed: Seed,
        spec: LublinSpec,
        loads: Vec<(LeafLoad, u32)>,
    ) -> Result<Self, WorkloadError> {
        spec.check()?;
        let mut accounts = BTreeSet::new();
        for (load, _) in &loads {
            load.broker.check(spec.sites)?;
            if !accounts.insert(&load.account) {
                return Err(WorkloadError::RepeatedLeaf(load.account.clone()));
            }
        }
        let weights: Vec<u32> = loads.iter().map(|(_, weight)| *weight).collect();
        if weights.iter().all(|weight| *weight == 0) {
            return Err(WorkloadError::NoWeight);
        }
        let leaves = loads.into_iter().map(|(load, _)| Leaf::new(seed, load));
        Ok(Self {
            draws: Draws::new(&spec.model, spec.cores),
            cycle: Cycle::new(spec.model.day(), spec.start),
            leaves: leaves.collect(),
            weights,
            arrive: seed.stream("lublin arrive"),
            size: seed.stream("lublin size"),
            run: seed.stream("lublin run"),
            deal: seed.stream("lublin deal"),
            submitted: 0,
            spec,
        })
    }

    /// Whether every leaf that is dealt jobs has come to its end by `at`.
    fn is_over(&self, at: WallTime) -> bool {
        let mut dealt = self.leaves.iter().zip(&self.weights);
        dealt.all(|(leaf, weight)| {
            *weight == 0 || leaf.load.until_excluded.is_some_and(|until| at >= until)
        })
    }
}

impl Iterator for LublinWorkload {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let busy_half_hours = self.draws.busy_half_hours(&mut self.arrive);
            let at = self.cycle.pass(busy_half_hours, self.spec.load_permille)?;
            if self.is_over(at) {
                return None;
            }
            let cores = self.draws.cores(&mut self.size);
            let run = self.draws.run(cores, &mut self.run);
            let index = self.deal.weighted(&self.weights);
            let leaf = &mut self.leaves[index];
            if !leaf.submits_at(at, self.spec.start) {
                continue;
            }
            let id = JobId(self.submitted);
            self.submitted += 1;
            return Some(Arrival {
                at,
                leaf: index,
                site: leaf.load.broker.pick(self.spec.sites, &mut leaf.site),
                job: leaf.job(id, cores, run, &self.spec),
            });
        }
    }
}

impl Leaf {
    fn new(seed: Seed, load: LeafLoad) -> Self {
        let AccountKey { vo, path } = &load.account;
        let stream = |what: &str| seed.stream(&format!("lublin {what} {vo} {path}"));
        let (request, site) = (stream("request"), stream("site"));
        Self {
            load,
            request,
            site,
        }
    }

    fn submits_at(&self, at: WallTime, start: WallTime) -> bool {
        let until = self.load.until_excluded;
        at >= start.after(self.load.delay) && until.is_none_or(|until| at < until)
    }

    fn job(&mut self, id: JobId, cores: u32, run: Millis, spec: &LublinSpec) -> Job {
        let (min, max) = (spec.over_permille_min.into(), spec.over_permille_max.into());
        let over = permille(run.0, self.request.between(min, max));
        Job {
            id,
            account: self.load.account.clone(),
            cores,
            run,
            requested: Millis(run.0.saturating_add(over)),
        }
    }
}

/// Weights of `count` leaves by Zipf's law with exponent 1, the first being the heaviest: 2^20,
/// 2^20/2, 2^20/3 and so on. A few users make most of the load on most recorded logs.
pub fn zipf_weights(count: u32) -> Vec<u32> {
    (1..=count).map(|rank| ((1 << 20) / rank).max(1)).collect()
}
