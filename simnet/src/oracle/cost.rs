//! What a job costs, as an exact fraction of a core-millisecond each millisecond.
//!
//! Invariant: nothing is rounded but the counters of a length of time since the job's start, for each thing
//! that is charged on its own, and those downwards; so what was used between two moments is a difference of
//! two such numbers.
//! Source: FSGrid (CPU time); Slurm's TRES billing weights; Klusáček and Rudová, JSSPP
//! 2014 (MetaCentrum's penalty); `docs/charging.md`.

use std::collections::BTreeMap;

use fairmesh_model::{
    ChargingRule, Counters, Discounts, Factor, MachineClass, PriceList, Share, UsageRecord,
};
use num_bigint::BigInt;
use num_rational::BigRational;

/// What a job holds, and costs in a millisecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Core-milliseconds a millisecond, of each thing that is charged on its own.
    pub rates: Vec<BigRational>,
    cores: u64,
    gpus: u64,
    mem_mib: u64,
}

/// Nodes that hold alike: what they hold together, and the class that they are.
#[derive(Clone, Copy)]
struct Nodes<'a> {
    nodes: u32,
    cores: u64,
    gpus: u64,
    mem_mib: u64,
    disk_mib: u64,
    class: Option<&'a str>,
}

/// What is asked of machines by name, and what a price list has of them.
#[derive(Clone, Copy)]
struct Market<'a> {
    prices: &'a PriceList,
    queue: Option<&'a str>,
    qos: Option<&'a str>,
    properties: &'a [String],
}

impl Cost {
    /// The cost of a job, where `class_of` knows the classes of machines; `None` where the price list does
    /// not say it, or the VO does not allow it.
    pub fn of<'a>(
        record: &'a UsageRecord,
        (rule, discounts): (&ChargingRule, &Discounts),
        prices: &'a PriceList,
        class_of: impl Fn(Option<&'a str>) -> Option<&'a str>,
    ) -> Option<Self> {
        let place = &record.placement;
        let whole = Nodes {
            nodes: place.nodes,
            cores: u64::from(record.cores),
            gpus: u64::from(record.gpus),
            mem_mib: record.mem_mib,
            disk_mib: place.disk_mib,
            class: class_of(place.machine.as_deref()),
        };
        let of_chunks = place.chunks.iter().map(|chunk| Nodes {
            nodes: chunk.nodes,
            cores: u64::from(chunk.cores),
            gpus: u64::from(chunk.gpus),
            mem_mib: chunk.mem_mib,
            disk_mib: chunk.disk_mib,
            class: class_of(chunk.machine.as_deref()),
        });
        let by_totals = matches!(
            rule,
            ChargingRule::CpuTime | ChargingRule::Weights { spec_max: None, .. }
        );
        let apart: Vec<Nodes<'_>> = match by_totals || place.chunks.is_empty() {
            true => vec![whole],
            false => of_chunks.collect(),
        };
        let market = Market {
            prices,
            queue: place.queue.as_deref(),
            qos: place.qos.as_deref(),
            properties: &place.properties,
        };
        let share = discounts.of(place.terms);
        let share = ratio(u64::from(share.units()), u64::from(Share::ONE));
        let mut rates = Vec::new();
        for nodes in apart {
            let full = market.cost(nodes, rule)?;
            let terms = market.of_terms() * &share;
            rates.extend(full.into_iter().map(|rate| rate * &terms));
        }
        let energy = energy_rate(record, rule).map(|rate| rate * market.of_terms() * &share);
        rates.extend(energy);
        Some(Self {
            rates,
            cores: whole.cores,
            gpus: whole.gpus,
            mem_mib: whole.mem_mib,
        })
    }

    /// The counters of the first `ms` of the job. It has not ended in them.
    pub fn of_first(&self, ms: u64) -> Counters {
        let charges = self.rates.iter();
        let charge: BigInt = charges.map(|rate| rate.numer() * ms / rate.denom()).sum();
        let times = |held: u64, per: u128| {
            let used = u128::from(held) * u128::from(ms) / per;
            u64::try_from(used).unwrap_or(u64::MAX)
        };
        Counters {
            charge: u64::try_from(charge).unwrap_or(u64::MAX),
            cpu_ms: times(self.cores, 1),
            gpu_ms: times(self.gpus, 1),
            mem_mib_s: times(self.mem_mib, 1_000),
            jobs: 0,
            refunds: 0,
        }
    }
}

impl Market<'_> {
    /// Factor of the queue × factor of the quality of service; 1 for each that the price list does not have.
    fn of_terms(&self) -> BigRational {
        let of = |costs: &BTreeMap<String, Factor>, name: Option<&str>| {
            let cost = name.and_then(|name| costs.get(name));
            millionths(cost.copied().unwrap_or(Factor::ONE))
        };
        of(&self.prices.queues, self.queue) * of(&self.prices.qos, self.qos)
    }

    /// What nodes that hold alike cost in full, on the usual terms.
    fn cost(&self, of: Nodes<'_>, rule: &ChargingRule) -> Option<Vec<BigRational>> {
        Some(match rule {
            ChargingRule::CpuTime => vec![ratio(of.cores, 1)],
            ChargingRule::NormalisedTime { spec_max } => {
                vec![ratio(of.cores, 1) * self.speed(of, (false, false), *spec_max)?]
            }
            ChargingRule::Weights {
                cpu,
                gpu,
                mem_gib,
                max,
                spec_max,
                ..
            } => {
                let terms = [
                    ratio(of.cores, 1_000) * ratio(u64::from(*cpu), 1),
                    ratio(of.gpus, 1_000) * ratio(u64::from(*gpu), 1),
                    ratio(of.mem_mib, 1_024_000) * ratio(u64::from(*mem_gib), 1),
                ];
                let held = match max {
                    true => terms.into_iter().max()?,
                    false => terms.into_iter().sum(),
                };
                vec![match spec_max {
                    Some(spec_max) => held * self.speed(of, (*gpu > 0, false), *spec_max)?,
                    None => held,
                }]
            }
            ChargingRule::Penalty {
                gpu,
                gpu_weight,
                disk,
                factor_max,
            } => self.penalty(of, (*gpu, *gpu_weight, *disk), *factor_max)?,
        })
    }

    /// SPEC of the machine that ran it, or of the slowest that could have.
    fn speed(&self, of: Nodes<'_>, counts: (bool, bool), most: Factor) -> Option<BigRational> {
        let spec = match of.class {
            Some(name) => self.prices.machines.get(name)?.spec,
            None => self.fitting(of, counts).map(|class| class.spec).min()?,
        };
        (spec <= most).then(|| millionths(spec))
    }

    /// The classes that have what one of the nodes asks for.
    fn fitting(&self, of: Nodes<'_>, counts: (bool, bool)) -> impl Iterator<Item = &MachineClass> {
        let classes = self.prices.machines.values();
        classes.filter(move |class| {
            let mut asked = self.properties.iter();
            let serves = |queue| class.queues.is_empty() || class.queues.contains(queue);
            parts(of, class, counts)
                .iter()
                .all(|part| *part <= ratio(1, 1))
                && asked.all(|name| class.properties.contains(name))
                && self.queue.is_none_or(serves)
        })
    }

    /// `nodes × min over classes that fit of PE(one node) × SPEC`, which is allowed up to `factor_max` with the factors of
    /// queue and quality of service. PE is the largest part
    /// of a machine that is asked for, in CPUs; and GPUs beside it, where they have a weight.
    fn penalty(
        &self,
        of: Nodes<'_>,
        (gpu, gpu_weight, disk): (bool, Option<u32>, bool),
        factor_max: Factor,
    ) -> Option<Vec<BigRational>> {
        let in_cpus = |class: &MachineClass| {
            let parts = parts(of, class, (gpu && gpu_weight.is_none(), disk));
            let part = parts.into_iter().max().unwrap_or_else(|| ratio(0, 1));
            part * ratio(u64::from(class.cpus), 1)
        };
        let least = self.fitting(of, (gpu, disk)).map(in_cpus).min()?;
        let machines = self.fitting(of, (gpu, disk));
        if u64::from(of.nodes) > machines.map(|class| u64::from(class.count)).sum() {
            return None;
        }
        let spec = self.speed(of, (gpu, disk), Factor::MAX)?;
        if &spec * self.of_terms() > millionths(factor_max) {
            return None;
        }
        let of_machine = least * ratio(u64::from(of.nodes.max(1)), 1) * &spec;
        let beside = gpu_weight.map(|weight| ratio(of.gpus * u64::from(weight), 1_000) * &spec);
        Some([Some(of_machine), beside].into_iter().flatten().collect())
    }
}

/// The parts of a machine that one of the nodes asks for; one that has none of it has not enough.
fn parts(of: Nodes<'_>, class: &MachineClass, (gpu, disk): (bool, bool)) -> Vec<BigRational> {
    let asked = [
        (true, of.cores, u64::from(class.cpus)),
        (true, of.mem_mib, class.mem_mib),
        (gpu, of.gpus, u64::from(class.gpus)),
        (disk, of.disk_mib, class.disk_mib),
    ];
    let asked = asked
        .iter()
        .filter(|(counts, asked, _)| *counts && *asked > 0);
    let nodes = u64::from(of.nodes.max(1));
    asked
        .map(|(_, asked, has)| match has {
            0 => ratio(2, 1),
            has => ratio(*asked, nodes) / ratio(*has, 1),
        })
        .collect()
}

/// What a job's energy costs, evenly over its time: the weight of a kWh is in thousandths of a core-hour.
fn energy_rate(record: &UsageRecord, rule: &ChargingRule) -> Option<BigRational> {
    let ChargingRule::Weights { energy_kwh, .. } = rule else {
        return None;
    };
    let ran_ms = record.end.since(record.start).0;
    let kwh = ratio(record.placement.energy_j, 3_600_000);
    let core_ms = kwh * ratio(u64::from(*energy_kwh) * 3_600_000, 1_000);
    (ran_ms > 0).then(|| core_ms / ratio(ran_ms, 1))
}

fn millionths(factor: Factor) -> BigRational {
    ratio(u64::from(factor.millionths()), 1_000_000)
}

/// An exact fraction.
pub fn ratio(numerator: u64, denominator: u64) -> BigRational {
    BigRational::new(BigInt::from(numerator), BigInt::from(denominator))
}
