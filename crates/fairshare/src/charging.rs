//! What a job is charged: a rate in exact fractions, which any length of wall-clock time turns into
//! counters.
//!
//! Invariants: nothing is rounded but the counters of a whole length of time, which are rounded
//! down, so that the counters of two moments differ by what was used between them, to the unit; sums
//! saturate, they never wrap; a job that no declared machine could run is an error and never free.
//! Deliberately not here: which document the rule, the discounts and the price list come from.
//! Source: FSGrid (CPU time); Slurm's TRES billing weights; MetaCentrum's penalty.

mod penalty;
mod split;

use ethnum::U256;
use fairmesh_model::{
    ChargingRule, Counters, Discounts, Factor, Millis, Placement, PriceList, Share, Terms,
    UsageRecord, mutant, mutated,
};

pub use penalty::{cheapest, suitable};
pub use split::{split_amount, split_counters};

/// What a job held, all the time it ran, of all its nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Cores.
    pub cores: u64,
    /// GPUs.
    pub gpus: u64,
    /// Memory in MiB.
    pub mem_mib: u64,
    /// Scratch disk in MiB.
    pub disk_mib: u64,
    /// Nodes that it is spread over evenly; 0 counts as 1.
    pub nodes: u32,
}

impl From<&UsageRecord> for Resources {
    fn from(record: &UsageRecord) -> Self {
        Self {
            cores: u64::from(record.cores),
            gpus: u64::from(record.gpus),
            mem_mib: record.mem_mib,
            disk_mib: record.placement.disk_mib,
            nodes: record.placement.nodes,
        }
    }
}

/// What a job held, and where and on which terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Job<'a> {
    /// What it held.
    pub held: Resources,
    /// Its queue.
    pub queue: Option<&'a str>,
    /// The class of the machine that ran it, as the price list names it.
    pub machine: Option<&'a str>,
    /// On which terms it ran.
    pub terms: Terms,
}

impl<'a> Job<'a> {
    /// The job of a report; `machine` is the class of what the report names.
    pub fn of(record: &'a UsageRecord, machine: Option<&'a str>) -> Self {
        let Placement { queue, terms, .. } = &record.placement;
        Self {
            held: Resources::from(record),
            queue: queue.as_deref(),
            machine,
            terms: *terms,
        }
    }
}

/// What charges are made by: a VO's rule and discounts, and the price list of the site.
#[derive(Debug, Clone, Copy)]
pub struct Tariff<'a> {
    /// The rule.
    pub rule: &'a ChargingRule,
    /// What use on other than the usual terms is charged.
    pub discounts: &'a Discounts,
    /// Machines and queues.
    pub prices: &'a PriceList,
}

/// Why a job cannot be charged. Nothing was counted; the report or the price list is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// The rule asks for machine classes, and the site has none.
    #[error("the VO charges by machine, and this site's price list names none: add [[machine]]")]
    NoMachines,
    /// No class has what one node of the job asked for.
    #[error("no machine class of this site has {0}: is the price list complete?")]
    FitsNowhere(String),
    /// The job has more nodes than all the classes that could run one of them.
    #[error("{nodes} nodes are more than the {machines} machines that could run one of them")]
    TooFewMachines {
        /// Nodes of the job.
        nodes: u32,
        /// Machines of the classes that fit.
        machines: u64,
    },
    /// It ran on a machine of a class that is not on the price list.
    #[error("machine `{0}` is of no class on this site's price list")]
    UnknownMachine(String),
    /// SPEC × queue cost is more than the charter allows.
    #[error("SPEC {spec} × queue cost {queue_cost} is above the {factor_max} that the VO allows")]
    FactorAboveMax {
        /// SPEC of the machine that ran the job.
        spec: Factor,
        /// Cost of its queue.
        queue_cost: Factor,
        /// The charter's limit.
        factor_max: Factor,
    },
}

/// What a job is charged in a millisecond, as an exact fraction of a core-millisecond, and what it
/// holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    held: Resources,
    /// Below 2^190, so that no wall-clock time makes it overflow.
    numerator: U256,
    /// Above 0.
    denominator: U256,
}

impl Rate {
    /// The counters of `wall`. `jobs` is 0: the caller knows whether the job has ended. Fractions of
    /// a core-ms are cut, and what is too large for a counter stays at its largest value.
    pub fn counters(&self, wall: Millis) -> Counters {
        let for_wall = |amount: u64| u128::from(amount) * u128::from(wall.0);
        let charge = self.numerator * U256::from(wall.0) / self.denominator;
        Counters {
            charge: u64::try_from(charge).unwrap_or(u64::MAX),
            cpu_ms: saturate(for_wall(self.held.cores)),
            gpu_ms: saturate(for_wall(self.held.gpus)),
            mem_mib_s: saturate(for_wall(self.held.mem_mib) / 1_000),
            jobs: 0,
            refunds: 0,
        }
    }

    fn discounted(self, share: Share) -> Self {
        if share == Share::WHOLE || mutated!(DiscountIgnored) {
            return self;
        }
        Self {
            numerator: self.numerator * U256::from(share.units()),
            denominator: self.denominator * U256::from(Share::ONE),
            ..self
        }
    }
}

/// What `job` is charged in a millisecond.
///
/// # Errors
/// Only by the penalty rule: where the price list does not say what the job costs.
pub fn rate(tariff: Tariff<'_>, job: &Job<'_>) -> Result<Rate, ChargeError> {
    let held = job.held;
    let (numerator, denominator) = match *tariff.rule {
        ChargingRule::CpuTime => (U256::from(held.cores), U256::ONE),
        ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            max,
        } => {
            let term = |weight: u32, amount: u64| U256::from(weight) * U256::from(amount);
            let gpu = mutant!(GpusFree, gpu, 0);
            // In 1,024ths of a thousandth of a core, so that MiB need no division.
            let terms = [
                term(cpu, held.cores) << 10,
                term(gpu, held.gpus) << 10,
                term(mem_gib, held.mem_mib),
            ];
            let join = if max != mutated!(WeightsJoinedWrong) {
                |a: U256, b: U256| a.max(b)
            } else {
                |a: U256, b: U256| a + b
            };
            let sum = terms.into_iter().fold(U256::ZERO, join);
            (sum, U256::from(1_000_u32 << 10))
        }
        ChargingRule::Penalty {
            gpu,
            disk,
            factor_max,
        } => penalty::penalty(tariff.prices, job, (gpu, disk), factor_max)?,
    };
    let rate = Rate {
        held,
        numerator,
        denominator,
    };
    Ok(rate.discounted(tariff.discounts.of(job.terms)))
}

/// The counters of a job that ran for `wall`.
///
/// # Errors
/// As [`rate`].
pub fn charge(tariff: Tariff<'_>, job: &Job<'_>, wall: Millis) -> Result<Counters, ChargeError> {
    Ok(rate(tariff, job)?.counters(wall))
}

fn saturate(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
