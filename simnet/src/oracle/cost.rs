//! What a job costs, as an exact fraction of a core-millisecond each millisecond.
//!
//! Invariant: nothing is rounded but the counters of a length of time since the job's start, and
//! those downwards; so what was used between two moments is a difference of two such numbers.
//! Source: FSGrid (CPU time); Slurm's TRES billing weights; Klusáček and Rudová, JSSPP
//! 2014 (MetaCentrum's penalty); `docs/charging.md`.

use fairmesh_model::{ChargingRule, Counters, Discounts, Factor, PriceList, Share, UsageRecord};
use num_bigint::BigInt;
use num_rational::BigRational;

/// What a job holds, and costs in a millisecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Core-milliseconds a millisecond.
    pub rate: BigRational,
    cores: u64,
    gpus: u64,
    mem_mib: u64,
}

impl Cost {
    /// The cost of a job that ran on a machine of `class`; `None` where the price list does not say
    /// it, or the VO does not allow it.
    pub fn of(
        record: &UsageRecord,
        (rule, discounts): (&ChargingRule, &Discounts),
        prices: &PriceList,
        class: Option<&str>,
    ) -> Option<Self> {
        let (cores, gpus) = (u64::from(record.cores), u64::from(record.gpus));
        let full = match rule {
            ChargingRule::CpuTime => ratio(cores, 1),
            ChargingRule::Weights {
                cpu,
                gpu,
                mem_gib,
                max,
            } => {
                let terms = [
                    ratio(cores, 1_000) * ratio(u64::from(*cpu), 1),
                    ratio(gpus, 1_000) * ratio(u64::from(*gpu), 1),
                    ratio(record.mem_mib, 1_024_000) * ratio(u64::from(*mem_gib), 1),
                ];
                if *max {
                    terms.into_iter().max()?
                } else {
                    terms.into_iter().sum()
                }
            }
            ChargingRule::Penalty {
                gpu,
                disk,
                factor_max,
            } => penalty(record, (*gpu, *disk), *factor_max, prices, class)?,
        };
        let share = discounts.of(record.placement.terms);
        Some(Self {
            rate: full * ratio(u64::from(share.units()), u64::from(Share::ONE)),
            cores,
            gpus,
            mem_mib: record.mem_mib,
        })
    }

    /// The counters of the first `ms` of the job. It has not ended in them.
    pub fn of_first(&self, ms: u64) -> Counters {
        let charge = self.rate.numer() * ms / self.rate.denom();
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

/// `nodes × min over classes that fit of PE(one node) × SPEC × queue`, where PE is the largest part
/// of a machine that is asked for, in CPUs.
fn penalty(
    record: &UsageRecord,
    (gpu, disk): (bool, bool),
    factor_max: Factor,
    prices: &PriceList,
    class: Option<&str>,
) -> Option<BigRational> {
    let place = &record.placement;
    let nodes = u64::from(place.nodes.max(1));
    let mut least: Option<BigRational> = None;
    let mut slowest: Option<Factor> = None;
    let mut machines = 0;
    for class in prices.machines.values() {
        let asked = [
            (true, u64::from(record.cores), u64::from(class.cpus)),
            (true, record.mem_mib, class.mem_mib),
            (gpu, u64::from(record.gpus), u64::from(class.gpus)),
            (disk, place.disk_mib, class.disk_mib),
        ];
        let asked = asked
            .iter()
            .filter(|(counts, asked, _)| *counts && *asked > 0);
        if asked
            .clone()
            .any(|(_, asked, has)| *has == 0 || ratio(*asked, nodes) > ratio(*has, 1))
        {
            continue;
        }
        let part = asked
            .map(|(_, asked, has)| ratio(*asked, nodes) / ratio(*has, 1))
            .max();
        let cpus = part.unwrap_or_else(|| ratio(0, 1)) * ratio(u64::from(class.cpus), 1);
        least = Some(least.map_or(cpus.clone(), |least| least.min(cpus)));
        slowest = Some(slowest.map_or(class.spec, |slowest| slowest.min(class.spec)));
        machines += u64::from(class.count);
    }
    if u64::from(place.nodes) > machines {
        return None;
    }
    let spec = match class {
        Some(name) => prices.machines.get(name)?.spec,
        None => slowest?,
    };
    let queue = place
        .queue
        .as_ref()
        .and_then(|queue| prices.queues.get(queue));
    let factor = millionths(spec) * millionths(queue.copied().unwrap_or(Factor::ONE));
    (factor <= millionths(factor_max)).then_some(least? * ratio(nodes, 1) * factor)
}

fn millionths(factor: Factor) -> BigRational {
    ratio(u64::from(factor.millionths()), 1_000_000)
}

/// An exact fraction.
pub(super) fn ratio(numerator: u64, denominator: u64) -> BigRational {
    BigRational::new(BigInt::from(numerator), BigInt::from(denominator))
}
