//! MetaCentrum's penalty.
//!
//! For one node of a job, and a suitable machine class `i`,
//! `PE_i = max(cpus/CPU_i, mem/RAM_i, gpus/GPU_i, disk/DISK_i) × CPU_i`, in CPUs; the job is charged
//! `nodes × min_i PE_i × SPEC(machine that ran it) × factors of its queue and QOS` while it runs. Dividing the
//! job's totals by its nodes and multiplying by them again cancels, so nodes matter only to what fits.
//! Where GPUs have a weight they are no part of the machine: `gpus × weight` is added to the least `PE_i`,
//! for the cores and the memory beside GPUs that are taken can still be used.
//!
//! Invariant: classes that are not suitable are out before the least is taken, and a job that none suits
//! is an error. What a job does not ask for, and what the rule leaves out, plays no part.
//! Deliberately not here: which machines are free. The penalty must not depend on a scheduler's choice.
//! Source: Klusáček and Rudová, "Multi-Resource Aware Fairsharing for Heterogeneous Systems" (JSSPP 2014);
//! the weight of GPUs is our own.

use ethnum::U256;
use fairmesh_model::{Factor, MachineClass, PriceList, mutant};

use super::factors::Factors;
use super::suitable::{Counted, asked, fits_nowhere, suitable};
use super::{ChargeError, Fraction, Job, Rate, Resources, speed};
use crate::ratio;

/// PE of a whole job on machines of `class`, which has all that it asks for, in CPUs, as a fraction.
fn equivalent(held: Resources, class: &MachineClass, counted: Counted) -> Fraction {
    asked(held, class, counted)
        .map(|(asked, has)| (U256::from(asked), U256::from(has)))
        .max_by(|a, b| {
            let order = ratio::compare(*a, *b);
            mutant!(LeastResourceCounts, order, order.reverse())
        })
        .map_or((U256::ZERO, U256::ONE), |(asked, has)| {
            (asked * U256::from(class.cpus), has)
        })
}

/// The suitable class on which a job is charged least, and its PE there in CPUs as a fraction; the first
/// name of several. With `beside` GPUs decide what is suitable, and are no part of PE. `None` where no class
/// is suitable.
pub fn cheapest<'a>(
    prices: &'a PriceList,
    job: &'a Job<'_>,
    counted: Counted,
    beside: bool,
) -> Option<(&'a str, (U256, U256))> {
    let part = Counted {
        gpu: counted.gpu && !beside,
        ..counted
    };
    suitable(prices, job, counted)
        .map(|(name, class)| (name, equivalent(job.held, class, part)))
        .min_by(|a, b| {
            let order = ratio::compare(a.1, b.1);
            mutant!(DearestMachine, order, order.reverse())
        })
}

/// Adds the rate of `job`, whose nodes are alike.
pub(super) fn add(
    prices: &PriceList,
    job: &Job<'_>,
    (counted, gpu_weight, factor_max): (Counted, Option<u32>, Factor),
    rate: &mut Rate,
) -> Result<(), ChargeError> {
    let spec = speed::of(prices, job, counted)?;
    let (_, machine) = cheapest(prices, job, counted, gpu_weight.is_some())
        .ok_or_else(|| fits_nowhere(job, counted))?;
    let machines =
        suitable(prices, job, counted).fold(0_u64, |sum, (_, class)| sum + u64::from(class.count));
    if u64::from(job.held.nodes) > machines {
        return Err(ChargeError::TooFewMachines {
            nodes: job.held.nodes,
            machines,
        });
    }
    let factors = Factors {
        spec,
        ..Factors::of_terms(prices, job)
    };
    let factors = factors.check(factor_max)?;
    rate.add(factors.times(machine));
    if let Some(weight) = gpu_weight.filter(|_| job.held.gpus > 0) {
        let gpus = U256::from(job.held.gpus) * U256::from(weight);
        rate.add(factors.times((gpus, U256::new(1_000))));
    }
    Ok(())
}
