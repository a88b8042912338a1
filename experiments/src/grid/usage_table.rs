//! What was truly used, to the millisecond, by site and leaf.
//!
//! Invariant: usage by a moment is the sum over all jobs of cores × time held by then; looking it up
//! costs O(1), whatever the number of running jobs.
//!
//! Deliberately not here: windows, decay, and anything that a site may not know.

use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Finished, Job, Started};
use fairmesh_model::{UsageMode, WallTime};

/// One leaf at one site.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    /// Core-milliseconds of jobs that have ended.
    ended: u64,
    /// Cores of running jobs.
    cores: u64,
    /// Sum of cores × start over running jobs; as milliseconds since 1970 they would overflow 64
    /// bits with ten million cores.
    cores_start: u128,
    /// Sum of cores × requested time over running jobs.
    cores_requested: u64,
}

/// The table.
#[derive(Debug, Clone)]
pub struct UsageTable {
    leaf_of: BTreeMap<AccountKey, usize>,
    /// By site, then leaf.
    rows: Vec<Vec<Row>>,
}

impl UsageTable {
    /// Nothing used yet.
    pub fn new(sites: usize, leaves: &[AccountKey]) -> Self {
        Self {
            leaf_of: leaves.iter().cloned().zip(0..).collect(),
            rows: vec![vec![Row::default(); leaves.len()]; sites],
        }
    }

    /// The same sites and leaves, with nothing used.
    pub fn emptied(&self) -> Self {
        let row = |rows: &Vec<Row>| vec![Row::default(); rows.len()];
        Self {
            leaf_of: self.leaf_of.clone(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.leaf_of.len()
    }

    /// The accounts with their numbers.
    pub fn accounts(&self) -> impl Iterator<Item = (&AccountKey, usize)> {
        self.leaf_of.iter().map(|(account, leaf)| (account, *leaf))
    }

    /// A job has started at a site.
    pub fn started(&mut self, site: usize, started: &Started) {
        let (row, job) = (self.row(site, &started.job), &started.job);
        let cores = u64::from(job.cores);
        row.cores += cores;
        row.cores_start += u128::from(cores) * u128::from(started.start.0);
        row.cores_requested += cores * job.requested.0;
    }

    /// A job has ended at a site.
    pub fn finished(&mut self, site: usize, finished: &Finished) {
        let (row, job) = (self.row(site, &finished.job), &finished.job);
        let cores = u64::from(job.cores);
        row.cores -= cores;
        row.cores_start -= u128::from(cores) * u128::from(finished.start.0);
        row.cores_requested -= cores * job.requested.0;
        row.ended += job.core_ms().0;
    }

    /// What a leaf has used at all sites by now.
    pub fn used(&self, leaf: usize, now: WallTime) -> u64 {
        self.counted_everywhere(leaf, UsageMode::Active, now)
    }

    /// As [`UsageTable::counted`], summed over all sites.
    pub fn counted_everywhere(&self, leaf: usize, mode: UsageMode, now: WallTime) -> u64 {
        let sites = 0..self.rows.len();
        sites.map(|site| self.counted(site, leaf, mode, now)).sum()
    }

    /// What a leaf's jobs at a site count for in `mode`: of those that run nothing, what they have
    /// used, or all that they asked for.
    pub fn counted(&self, site: usize, leaf: usize, mode: UsageMode, now: WallTime) -> u64 {
        let row = &self.rows[site][leaf];
        let running = match mode {
            UsageMode::Historical => 0,
            UsageMode::Active => {
                let elapsed = u128::from(row.cores) * u128::from(now.0) - row.cores_start;
                u64::try_from(elapsed).expect("less than all that was ever used")
            }
            UsageMode::Predictive => row.cores_requested,
        };
        row.ended + running
    }

    fn row(&mut self, site: usize, job: &Job) -> &mut Row {
        let leaf = self.leaf_of[&job.account];
        &mut self.rows[site][leaf]
    }
}
