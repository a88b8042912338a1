//! Recorded jobs under two rules of charging: who pays more, and for what.
//!
//! The log is one of MetaCentrum's with memory requests on every job (21 columns: those of the
//! Standard Workload Format, the nodes, the queue, the resource string). Each job is charged by
//! cores × wall-clock and by the penalty, both by the code that sites run.
//!
//! Invariant: every line of the log is a job of both sums, or counted as one that fits no machine,
//! that did not run, or that could not be read; nothing is left out in silence.
//! Deliberately not here: schedules. A charge is what a job did cost, not what it would have done.

mod log;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::BufRead;

use fairmesh_fairshare::{Job, Resources, Tariff, charge};
use fairmesh_model::{ChargingRule, Discounts, Factor, Millis, PriceList, Terms};

pub use log::{LoggedJob, machines};
pub use picture::{by_memory, by_user};

/// The penalty over CPUs and memory: the log knows of nothing else.
const PENALTY: ChargingRule = ChargingRule::Penalty {
    gpu: false,
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
        for line in log.lines() {
            let line = line?;
            if line.starts_with(';') || line.trim().is_empty() {
                continue;
            }
            match LoggedJob::parse(&line) {
                None => comparison.unreadable += 1,
                Some(job) if job.run_s == 0 || job.cores == 0 => comparison.not_run += 1,
                Some(job) => comparison.take(&job, prices),
            }
        }
        Ok(comparison)
    }

    fn take(&mut self, job: &LoggedJob, prices: &PriceList) {
        let wall = Millis::from_secs(job.run_s);
        let logged = Job {
            held: Resources {
                cores: job.cores,
                mem_mib: job.mem_mib,
                nodes: job.nodes,
                ..Resources::default()
            },
            queue: None,
            machine: None,
            terms: Terms::Regular,
        };
        let charged = |rule: &ChargingRule| {
            let tariff = Tariff {
                rule,
                discounts: &Discounts::NONE,
                prices,
            };
            charge(tariff, &logged, wall).map(|counters| u128::from(counters.charge))
        };
        let cpu_time = charged(&ChargingRule::CpuTime).unwrap_or_default();
        let Ok(penalty) = charged(&PENALTY) else {
            self.misfits.0 += 1;
            self.misfits.1 += cpu_time;
            return;
        };
        let sums = Sums {
            jobs: 1,
            cpu_time,
            penalty,
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
