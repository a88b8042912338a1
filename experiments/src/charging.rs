//! Recorded jobs under several rules of charging: who pays more, and for what.
//!
//! The log is one of MetaCentrum's with memory requests on every job (21 columns: those of the
//! Standard Workload Format, the nodes, the queue, the resource string). Each job is charged by
//! cores × wall-clock and by the penalty, both by the code that sites run; and beside them by two rules
//! that the penalty is an answer to, which that code gives under other lists of machines: the dominant
//! part of the whole system as if it were one machine (DRF), and the part of the machine that ran it.
//!
//! Invariant: every line of the log is a job of both sums, or counted as one that fits no machine,
//! that did not run, or that could not be read; nothing is left out in silence.
//! Deliberately not here: schedules. A charge is what a job did cost, not what it would have done.

mod log;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use fairmesh_fairshare::{Job, Resources, Tariff, charge};
use fairmesh_model::{ChargingRule, Discounts, Factor, MachineClass, Millis, PriceList};

pub use log::{LoggedJob, machines};
pub use picture::{by_memory, by_rule, by_user};

/// The penalty over CPUs and memory: the log knows of nothing else.
const PENALTY: ChargingRule = ChargingRule::Penalty {
    gpu: false,
    gpu_weight: None,
    disk: false,
    factor_max: Factor::ONE,
};

/// Upper ends of the classes of memory asked for per core, GiB; the last class is open. 7.5 is what
/// a core of the smaller machines has.
pub const MEMORY_CLASSES_GIB: [u64; 6] = [1, 2, 4, 8, 16, 64];

/// What some jobs were charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Jobs.
    pub jobs: u64,
    /// By cores × wall-clock, core-ms.
    pub cpu_time: u128,
    /// By the penalty, core-ms.
    pub penalty: u128,
    /// By the dominant part of the whole system, core-ms.
    pub dominant: u128,
    /// By the part of the machine that ran it, core-ms.
    pub machine: u128,
    /// Memory asked for × wall-clock, MiB-ms.
    pub memory: u128,
}

/// What a log comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Of jobs that were charged.
    pub total: Sums,
    /// By user number.
    pub users: BTreeMap<u64, Sums>,
    /// By memory asked for per core, in the order of [`MEMORY_CLASSES_GIB`] and one more.
    pub memory: Vec<Sums>,
    /// Jobs that no machine could have run, and their core-ms.
    pub misfits: (u64, u128),
    /// Jobs without run time or cores.
    pub not_run: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.cpu_time += other.cpu_time;
        self.penalty += other.penalty;
        self.dominant += other.dominant;
        self.machine += other.machine;
        self.memory += other.memory;
    }
}

impl Comparison {
    /// Charges every job of a log by both rules.
    ///
    /// # Errors
    /// That the log could not be read on.
    pub fn read(log: impl BufRead, prices: &PriceList) -> std::io::Result<Self> {
        let mut comparison = Self {
            memory: vec![Sums::default(); MEMORY_CLASSES_GIB.len() + 1],
            ..Self::default()
        };
        let mut jobs = Vec::new();
        for line in log.lines() {
            let line = line?;
            if line.starts_with(';') || line.trim().is_empty() {
                continue;
            }
            match LoggedJob::parse(&line) {
                None => comparison.unreadable += 1,
                Some(job) if job.run_s == 0 || job.cores == 0 => comparison.not_run += 1,
                Some(job) => jobs.push(job),
            }
        }
        let lists = Lists::of(prices, &jobs);
        jobs.iter().for_each(|job| comparison.take(job, &lists));
        Ok(comparison)
    }

    fn take(&mut self, job: &LoggedJob, lists: &Lists<'_>) {
        let wall = Millis::from_secs(job.run_s);
        let logged = Job {
            held: Resources {
                cores: job.cores,
                mem_mib: job.mem_mib,
                nodes: job.nodes,
                ..Resources::default()
            },
            ..Job::default()
        };
        let charged = |rule: &ChargingRule, prices: &PriceList| {
            let tariff = Tariff {
                rule,
                discounts: &Discounts::NONE,
                prices,
            };
            charge(tariff, &logged, wall).map(|counters| u128::from(counters.charge))
        };
        let cpu_time = charged(&ChargingRule::CpuTime, lists.all).unwrap_or_default();
        let Ok(penalty) = charged(&PENALTY, lists.all) else {
            self.misfits.0 += 1;
            self.misfits.1 += cpu_time;
            return;
        };
        let sums = Sums {
            jobs: 1,
            cpu_time,
            penalty,
            dominant: charged(&PENALTY, &lists.whole).unwrap_or(penalty),
            // What asked for more than its machine has held all of it.
            machine: lists.machine(job).map_or(penalty, |(list, cpus)| {
                let whole = u128::from(cpus) * u128::from(job.nodes) * u128::from(wall.0);
                charged(&PENALTY, list).unwrap_or(whole)
            }),
            memory: u128::from(job.mem_mib) * u128::from(wall.0),
        };
        self.total.add(sums);
        self.users.entry(job.user).or_default().add(sums);
        let class = MEMORY_CLASSES_GIB
            .iter()
            .position(|gib| job.mem_mib <= (gib << 10) * job.cores);
        self.memory[class.unwrap_or(MEMORY_CLASSES_GIB.len())].add(sums);
    }
}

/// Lists of machines that make other rules of the penalty.
struct Lists<'a> {
    all: &'a PriceList,
    /// A machine that has what all of them have.
    whole: PriceList,
    /// Each class alone, those with few CPUs first.
    alone: Vec<(u32, PriceList)>,
    /// Most cores that any job held of a node: which class it is, for the log does not say.
    held_most: BTreeMap<u64, u64>,
}

impl<'a> Lists<'a> {
    fn of(all: &'a PriceList, jobs: &[LoggedJob]) -> Self {
        let classes = || all.machines.values();
        let list = |class: MachineClass| PriceList {
            machines: BTreeMap::from([("machine".to_owned(), class)]),
            ..PriceList::default()
        };
        let whole = MachineClass {
            // A job of several nodes asks for as many machines, of which each has all.
            count: classes().map(|of| of.count).sum(),
            cpus: classes().map(|of| of.cpus * of.count).sum(),
            mem_mib: classes().map(|of| of.mem_mib * u64::from(of.count)).sum(),
            gpus: 0,
            disk_mib: 0,
            spec: Factor::ONE,
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        };
        let mut alone: Vec<_> = classes().map(|of| (of.cpus, list(of.clone()))).collect();
        alone.sort_by_key(|(cpus, _)| *cpus);
        let mut held_most = BTreeMap::new();
        for (node, held) in jobs.iter().map(|job| job.first) {
            let most: &mut u64 = held_most.entry(node).or_default();
            *most = held.max(*most);
        }
        Self {
            all,
            whole: list(whole),
            alone,
            held_most,
        }
    }

    /// The class that ran a job, alone, and its CPUs.
    fn machine(&self, job: &LoggedJob) -> Option<(&PriceList, u32)> {
        let most = *self.held_most.get(&job.first.0)?;
        let mut alone = self.alone.iter();
        let class = alone.find(|(cpus, _)| u64::from(*cpus) >= most)?;
        Some((&class.1, class.0))
    }
}
