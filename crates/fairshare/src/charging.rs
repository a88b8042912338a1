//! What a job is charged: a rate in exact fractions, which any length of wall-clock time turns into
//! counters.
//!
//! Invariants: nothing is rounded but the counters of a whole length of time, which are rounded
//! down, so that the counters of two moments differ by what was used between them, to the unit; sums
//! saturate, they never wrap; a job that no declared machine could run is an error and never free.
//! Deliberately not here: which document the rule, the discounts and the price list come from.
//! Source: FSGrid (CPU time); Slurm's TRES billing weights; MetaCentrum's penalty, and its SPEC.

mod factors;
mod penalty;
mod speed;
mod split;
mod suitable;

use ethnum::U256;
use fairmesh_model::{
    ChargingRule, Chunk, Counters, Discounts, Factor, Millis, Placement, PriceList, Share, Terms,
    UsageRecord, mutant, mutated,
};

use factors::Factors;
pub use penalty::cheapest;
pub use split::{split_amount, split_counters};
pub use suitable::{Counted, suitable};

/// What a job held, all the time it ran, of all its nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Number of cores.
    pub cores: u64,
    /// Number of GPUs.
    pub gpus: u64,
    /// Memory in MiB.
    pub mem_mib: u64,
    /// Scratch disk in MiB.
    pub disk_mib: u64,
    /// Nodes that this is spread over evenly; 0 counts as 1.
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

impl From<&Chunk> for Resources {
    fn from(chunk: &Chunk) -> Self {
        Self {
            cores: u64::from(chunk.cores),
            gpus: u64::from(chunk.gpus),
            mem_mib: chunk.mem_mib,
            disk_mib: chunk.disk_mib,
            nodes: chunk.nodes,
        }
    }
}

/// What a job held, and where and on which terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job<'a> {
    /// Cores, GPUs and memory that it occupied.
    pub held: Resources,
    /// Its queue or partition.
    pub queue: Option<&'a str>,
    /// Its quality of service.
    pub qos: Option<&'a str>,
    /// The class of the machine that ran it, as the price list names it.
    pub machine: Option<&'a str>,
    /// On which terms it ran.
    pub terms: Terms,
    /// What it asked of machines by name.
    pub properties: &'a [String],
    /// Energy that it used, joules, and in how long.
    pub energy: (u64, Millis),
    /// What groups of its nodes held, and the class that ran each, where they were not alike.
    pub chunks: Vec<(Resources, Option<&'a str>)>,
}

impl<'a> Job<'a> {
    /// The job of a report; `class_of` says of which class a machine is that the report names.
    pub fn of(
        record: &'a UsageRecord,
        class_of: impl Fn(Option<&'a str>) -> Option<&'a str>,
    ) -> Self {
        let Placement {
            queue,
            qos,
            machine,
            terms,
            properties,
            chunks,
            energy_j,
            ..
        } = &record.placement;
        let chunk = |chunk: &'a Chunk| (Resources::from(chunk), class_of(chunk.machine.as_deref()));
        Self {
            held: Resources::from(record),
            queue: queue.as_deref(),
            qos: qos.as_deref(),
            machine: class_of(machine.as_deref()),
            terms: *terms,
            properties,
            energy: (*energy_j, record.end.since(record.start)),
            chunks: chunks.iter().map(chunk).collect(),
        }
    }

    /// A chunk of it as a job of its own.
    fn part(&self, (held, machine): (Resources, Option<&'a str>)) -> Self {
        Self {
            held,
            machine,
            chunks: Vec::new(),
            ..*self
        }
    }
}

/// What charges are made by: a VO's rule and discounts, and the price list of the site.
#[derive(Debug, Clone, Copy)]
pub struct Tariff<'a> {
    /// The charging rule of the charter.
    pub rule: &'a ChargingRule,
    /// What use on other than the usual terms is charged.
    pub discounts: &'a Discounts,
    /// The owner's prices of machine classes and queues.
    pub prices: &'a PriceList,
}

/// Why a job cannot be charged. Nothing was counted; the report or the price list is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChargeError {
    /// The rule asks for machine classes, and the site has none.
    #[error("jobs are charged by machine, and this site's price list names none: add [[machine]]")]
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
    /// SPEC × the factors of queue and QOS is more than the charter allows.
    #[error(
        "SPEC {spec} × queue factor {queue} × QOS factor {qos} is above the {factor_max} that the VO allows"
    )]
    FactorAboveMax {
        /// SPEC of the machine that ran the job.
        spec: Factor,
        /// Factor of its queue.
        queue: Factor,
        /// Factor of its quality of service.
        qos: Factor,
        /// The charter's limit on the product of factors.
        factor_max: Factor,
    },
}

/// Core-milliseconds in a millisecond. The numerator is below 2^240, so that no factor makes it overflow. The
/// denominator is above 0 and below 2^192, so that a numerator times a wall-clock time that overflows 2^256 is a charge
/// above 2^64.
type Fraction = (U256, U256);

/// What a job is charged in a millisecond, as a sum of exact fractions of a core-millisecond, and what it
/// holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    held: Resources,
    first: Fraction,
    /// Of a job that is charged in parts. They are not added up: with the product of their denominators
    /// for one, no integer would hold a few of them.
    more: Vec<Fraction>,
}

impl Rate {
    const fn of_nothing(held: Resources) -> Self {
        Self {
            held,
            first: (U256::ZERO, U256::ONE),
            more: Vec::new(),
        }
    }

    fn add(&mut self, fraction: Fraction) {
        if self.first.0 == U256::ZERO {
            self.first = fraction;
        } else {
            self.more.push(fraction);
        }
    }

    /// The counters of `wall`. `jobs` is 0: the caller knows whether the job has ended. What is left of a
    /// core-ms in each fraction is cut, and what is too large for a counter stays at its largest value.
    pub fn counters(&self, wall: Millis) -> Counters {
        let for_wall = |amount: u64| u128::from(amount) * u128::from(wall.0);
        let fractions = [&self.first].into_iter().chain(&self.more);
        let charges = fractions.map(|(numerator, denominator)| {
            let charge = numerator.checked_mul(U256::from(wall.0));
            let charge = charge.map(|charge| charge / denominator);
            charge.map_or(u64::MAX, |charge| u64::try_from(charge).unwrap_or(u64::MAX))
        });
        Counters {
            charge: charges.fold(0, u64::saturating_add),
            cpu_ms: saturate(for_wall(self.held.cores)),
            gpu_ms: saturate(for_wall(self.held.gpus)),
            mem_mib_s: saturate(for_wall(self.held.mem_mib) / 1_000),
            jobs: 0,
            refunds: 0,
        }
    }

    fn discounted(mut self, share: Share) -> Self {
        if share == Share::WHOLE || mutated!(DiscountIgnored) {
            return self;
        }
        for (numerator, denominator) in [&mut self.first].into_iter().chain(&mut self.more) {
            *numerator *= U256::from(share.units());
            *denominator *= U256::from(Share::ONE);
        }
        self
    }
}

/// What `job` is charged in a millisecond. A rule that looks at machines charges each chunk as a job of its
/// own, for machines are as unlike as what is asked of them; the others charge totals.
///
/// # Errors
/// Only by rules that look at machines: where the price list does not say what the job costs.
pub fn rate(tariff: Tariff<'_>, job: &Job<'_>) -> Result<Rate, ChargeError> {
    let mut rate = Rate::of_nothing(job.held);
    let by_chunk = tariff.rule.looks_at_machines() && !mutated!(ChunksAsOne);
    if by_chunk && !job.chunks.is_empty() {
        for chunk in &job.chunks {
            add_part(tariff, &job.part(*chunk), &mut rate)?;
        }
    } else {
        add_part(tariff, job, &mut rate)?;
    }
    add_energy(tariff, job, &mut rate);
    Ok(rate.discounted(tariff.discounts.of(job.terms)))
}

/// Adds what a job whose nodes are alike is charged.
fn add_part(tariff: Tariff<'_>, job: &Job<'_>, rate: &mut Rate) -> Result<(), ChargeError> {
    let (fraction, counted) = match *tariff.rule {
        ChargingRule::CpuTime | ChargingRule::NormalisedTime { .. } => {
            let counted = Counted {
                gpu: false,
                disk: false,
            };
            ((U256::from(job.held.cores), U256::ONE), counted)
        }
        ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            max,
            ..
        } => {
            let counted = Counted {
                gpu: gpu > 0,
                disk: false,
            };
            (weighted(job.held, [cpu, gpu, mem_gib], max), counted)
        }
        ChargingRule::Penalty {
            gpu,
            gpu_weight,
            disk,
            factor_max,
        } => {
            let counted = Counted { gpu, disk };
            let gpu_weight = mutant!(GpuWeightIgnored, gpu_weight, None);
            let by = (counted, gpu_weight, factor_max);
            return penalty::add(tariff.prices, job, by, rate);
        }
    };
    let mut factors = Factors::of_terms(tariff.prices, job);
    if let Some(spec_max) = tariff.rule.spec_max() {
        let spec = speed::of(tariff.prices, job, counted)?;
        factors.spec = Factors::of_speed(spec).check(spec_max)?.spec;
    }
    rate.add(factors.times(fraction));
    Ok(())
}

/// Adds what the energy that a job used is charged, evenly over its time: a joule is a thousandth of the weight, in
/// core-milliseconds.
fn add_energy(tariff: Tariff<'_>, job: &Job<'_>, rate: &mut Rate) {
    let ((joules, wall), ChargingRule::Weights { energy_kwh, .. }) = (job.energy, tariff.rule)
    else {
        return;
    };
    let charge = U256::from(joules) * U256::from(*energy_kwh);
    if charge > U256::ZERO && wall > Millis(0) {
        let fraction = (charge, U256::from(wall.0) * U256::from(1_000_u32));
        let factored = Factors::of_terms(tariff.prices, job).times(fraction);
        rate.add(mutant!(EnergyWithoutFactors, factored, fraction));
    }
}

/// The largest of weighted amounts, or their sum; the numerator is below 2^108.
fn weighted(held: Resources, [cpu, gpu, mem_gib]: [u32; 3], max: bool) -> Fraction {
    let term = |weight: u32, amount: u64| U256::from(weight) * U256::from(amount);
    let gpu = mutant!(GpusFree, gpu, 0);
    // In 1,024ths of a thousandth of a core, so that MiB need no division.
    let terms = [
        term(cpu, held.cores) << 10,
        term(gpu, held.gpus) << 10,
        term(mem_gib, held.mem_mib) << mutant!(MemoryInMib, 0, 10),
    ];
    let join = if max != mutated!(WeightsJoinedWrong) {
        |a: U256, b: U256| a.max(b)
    } else {
        |a: U256, b: U256| a + b
    };
    let sum = terms.into_iter().fold(U256::ZERO, join);
    (sum, U256::from(1_000_u32 << 10))
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
