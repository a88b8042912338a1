//! MetaCentrum's penalty.
//!
//! For one node of a job, and a machine class `i` that has all that the node asks for,
//! `PE_i = max(cpus/CPU_i, mem/RAM_i, gpus/GPU_i, disk/DISK_i) × CPU_i`, in CPUs; the job is charged
//! `nodes × min_i PE_i × SPEC(machine that ran it) × cost of its queue` while it runs. Dividing the
//! job's totals by its nodes and multiplying by them again cancels, so nodes matter only to what fits.
//!
//! Invariant: classes that do not fit are out before the least is taken, and a job that fits none
//! is an error. What a job does not ask for, and what the rule leaves out, plays no part.
//! Deliberately not here: which machines are free. The penalty must not depend on a scheduler's choice.
//! Source: Klusáček and Rudová, "Multi-Resource Aware Fairsharing for Heterogeneous Systems" (JSSPP 2014).

use ethnum::U256;
use fairmesh_model::{Factor, MachineClass, PriceList, mutant, mutated};

use super::{ChargeError, Job, Resources};
use crate::ratio;

/// Amounts asked for, each beside what one machine of a class has of it.
fn asked(
    held: Resources,
    class: &MachineClass,
    (gpu, disk): (bool, bool),
) -> impl Iterator<Item = (u64, u64)> {
    let pairs = [
        (true, held.cores, u64::from(class.cpus)),
        (true, held.mem_mib, class.mem_mib),
        (gpu, held.gpus, u64::from(class.gpus)),
        (disk, held.disk_mib, class.disk_mib),
    ];
    pairs
        .into_iter()
        .filter(|(counts, asked, _)| *counts && *asked > 0)
        .map(|(_, asked, has)| (asked, has))
}

/// The classes that have what one node of a job asks for, by name. `counts` says whether GPUs and
/// disk are looked at.
pub fn suitable(
    prices: &PriceList,
    held: Resources,
    counts: (bool, bool),
) -> impl Iterator<Item = (&str, &MachineClass)> {
    let nodes = u128::from(held.nodes.max(1));
    prices
        .machines
        .iter()
        .filter(move |(_, class)| {
            asked(held, class, counts)
                .all(|(asked, has)| u128::from(asked) <= nodes * u128::from(has))
        })
        .map(|(name, class)| (name.as_str(), class))
}

/// PE of a whole job on machines of `class`, which has all that it asks for, in CPUs, as a fraction.
fn equivalent(held: Resources, class: &MachineClass, counts: (bool, bool)) -> (U256, U256) {
    asked(held, class, counts)
        .map(|(asked, has)| (U256::from(asked), U256::from(has)))
        .max_by(|a, b| {
            let order = ratio::compare(*a, *b);
            mutant!(LeastResourceCounts, order, order.reverse())
        })
        .map_or((U256::ZERO, U256::ONE), |(asked, has)| {
            (asked * U256::from(class.cpus), has)
        })
}

/// The class on which a job is charged least, and its PE there in CPUs as a fraction; the first
/// name of several. `None` where no class fits.
pub fn cheapest(
    prices: &PriceList,
    held: Resources,
    counts: (bool, bool),
) -> Option<(&str, (U256, U256))> {
    suitable(prices, held, counts)
        .map(|(name, class)| (name, equivalent(held, class, counts)))
        .min_by(|a, b| {
            let order = ratio::compare(a.1, b.1);
            mutant!(DearestMachine, order, order.reverse())
        })
}

/// The rate of `job` in core-ms a ms, as a fraction with a numerator below 2^160.
pub(super) fn penalty(
    prices: &PriceList,
    job: &Job<'_>,
    counts: (bool, bool),
    factor_max: Factor,
) -> Result<(U256, U256), ChargeError> {
    if prices.machines.is_empty() {
        return Err(ChargeError::NoMachines);
    }
    let (_, (numerator, denominator)) =
        cheapest(prices, job.held, counts).ok_or_else(|| fits_nowhere(job.held, counts))?;
    let machines = suitable(prices, job.held, counts)
        .fold(0_u64, |sum, (_, class)| sum + u64::from(class.count));
    if u64::from(job.held.nodes) > machines {
        return Err(ChargeError::TooFewMachines {
            nodes: job.held.nodes,
            machines,
        });
    }
    let spec = speed(prices, job, counts)?;
    let spec = mutant!(MachinesAlike, spec, Factor::ONE);
    let queue = job.queue.filter(|_| !mutated!(QueueFree));
    let queue_cost = prices.queue_cost(queue);
    let product = |a: Factor, b: Factor| u64::from(a.millionths()) * u64::from(b.millionths());
    if product(spec, queue_cost) > product(factor_max, Factor::ONE) {
        return Err(ChargeError::FactorAboveMax {
            spec,
            queue_cost,
            factor_max,
        });
    }
    Ok((
        numerator * U256::from(product(spec, queue_cost)),
        denominator * U256::from(product(Factor::ONE, Factor::ONE)),
    ))
}

/// SPEC of the machine that ran the job; where that is not known, of the slowest that could have:
/// never more than the job owes.
fn speed(prices: &PriceList, job: &Job<'_>, counts: (bool, bool)) -> Result<Factor, ChargeError> {
    match job.machine {
        Some(name) => {
            let class = prices.machines.get(name);
            class
                .map(|class| class.spec)
                .ok_or_else(|| ChargeError::UnknownMachine(name.to_owned()))
        }
        None => Ok(suitable(prices, job.held, counts)
            .map(|(_, class)| class.spec)
            .min()
            .unwrap_or_default()),
    }
}

fn fits_nowhere(held: Resources, (gpu, disk): (bool, bool)) -> ChargeError {
    let each = |amount: u64| amount.div_ceil(u64::from(held.nodes.max(1)));
    let mut asked = format!("{} CPUs and {} MiB", each(held.cores), each(held.mem_mib));
    if gpu && held.gpus > 0 {
        asked += &format!(" and {} GPUs", each(held.gpus));
    }
    if disk && held.disk_mib > 0 {
        asked += &format!(" and {} MiB of disk", each(held.disk_mib));
    }
    ChargeError::FitsNowhere(asked)
}
