//! Which machine classes could have run a job.
//!
//! Invariant: a class is suitable if it has all that one node of the job asks for and that counts: CPUs and
//! memory always, its queue and properties always, GPUs and disk where the rule looks at them. Whether its
//! machines are free plays no part. A job that no class suits is an error with its words in it.
//! Source: the suitable machines of MetaCentrum's penalty (Klusáček and Rudová, JSSPP 2014).

use fairmesh_model::{MachineClass, PriceList, mutant};

use super::{ChargeError, Job, Resources};

/// What a rule looks at beside CPUs and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Whether GPUs count.
    pub gpu: bool,
    /// Whether scratch disk counts.
    pub disk: bool,
}

/// Amounts asked for, each beside what one machine of a class has of it.
pub(super) fn asked(
    held: Resources,
    class: &MachineClass,
    counted: Counted,
) -> impl Iterator<Item = (u64, u64)> + use<> {
    let pairs = [
        (true, held.cores, u64::from(class.cpus)),
        (true, held.mem_mib, class.mem_mib),
        (counted.gpu, held.gpus, u64::from(class.gpus)),
        (counted.disk, held.disk_mib, class.disk_mib),
    ];
    pairs
        .into_iter()
        .filter(|(counts, asked, _)| *counts && *asked > 0)
        .map(|(_, asked, has)| (asked, has))
}

/// The classes that have what one node of a job asks for, by name.
pub fn suitable<'a>(
    prices: &'a PriceList,
    job: &'a Job<'_>,
    counted: Counted,
) -> impl Iterator<Item = (&'a str, &'a MachineClass)> {
    let nodes = u128::from(mutant!(NodesAsOne, job.held.nodes.max(1), 1));
    let is_large = move |class: &MachineClass| {
        asked(job.held, class, counted)
            .all(|(asked, has)| u128::from(asked) <= nodes * u128::from(has))
    };
    let queue = mutant!(AnyQueueTaken, job.queue, None);
    let properties = mutant!(PropertiesIgnored, job.properties, &[]);
    let takes = move |class: &MachineClass| class.takes(queue, properties);
    prices
        .machines
        .iter()
        .filter(move |(_, class)| is_large(class) && takes(class))
        .map(|(name, class)| (name.as_str(), class))
}

/// The error of a job that no class suits.
pub(super) fn fits_nowhere(job: &Job<'_>, counted: Counted) -> ChargeError {
    let held = job.held;
    let each = |amount: u64| amount.div_ceil(u64::from(held.nodes.max(1)));
    let mut asked = format!("{} CPUs and {} MiB", each(held.cores), each(held.mem_mib));
    if counted.gpu && held.gpus > 0 {
        asked += &format!(" and {} GPUs", each(held.gpus));
    }
    if counted.disk && held.disk_mib > 0 {
        asked += &format!(" and {} MiB of disk", each(held.disk_mib));
    }
    for property in job.properties {
        asked += &format!(" and `{property}`");
    }
    if let Some(queue) = job.queue {
        asked += &format!(" for queue `{queue}`");
    }
    ChargeError::FitsNowhere(asked)
}
