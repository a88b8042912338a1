//! MetaCentrum's log of 21 columns, and the list of its machines.
//!
//! Invariant: a line that lacks a number is no job. Requested memory is in bytes and per node, as
//! this log has it (the Standard Workload Format says KiB per processor).
//! Deliberately not here: the format's other columns.

use std::collections::BTreeSet;

use anyhow::Context as _;
use fairmesh_model::{Factor, MachineClass, PriceList};

/// Columns, counted from 0.
const RUN: usize = 3;
const CORES: usize = 4;
const MEMORY: usize = 9;
const USER: usize = 11;
const NODES: usize = 18;

/// What charging asks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedJob {
    /// Seconds from start to end; 0 if it did not run.
    pub run_s: u64,
    /// Cores of all nodes.
    pub cores: u64,
    /// Memory asked for on all nodes, MiB.
    pub mem_mib: u64,
    /// Nodes.
    pub nodes: u32,
    /// The user's number.
    pub user: u64,
    /// The first of its nodes, and the cores that it held there.
    pub first: (u64, u64),
}

impl LoggedJob {
    /// Reads a line; `None` if it is no job.
    pub fn parse(line: &str) -> Option<Self> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |column: usize| columns.get(column)?.parse::<u64>().ok();
        let listed = columns.get(NODES)?.strip_prefix('{')?.strip_suffix('}')?;
        let nodes: BTreeSet<&str> = listed.split(',').filter(|node| !node.is_empty()).collect();
        let first = listed.split(',').next()?;
        let held = listed.split(',').filter(|node| *node == first).count();
        let nodes = u32::try_from(nodes.len().max(1)).ok()?;
        Some(Self {
            // -1 is "not known", here of jobs that never started.
            run_s: u64::try_from(columns.get(RUN)?.parse::<i64>().ok()?).unwrap_or(0),
            cores: number(CORES)?,
            mem_mib: number(MEMORY)?.div_ceil(1 << 20) * u64::from(nodes),
            nodes,
            user: number(USER)?,
            first: (first.parse().unwrap_or(0), held as u64),
        })
    }
}

/// Reads lines of `id name nodes CPUs speed KiB`.
///
/// # Errors
/// The first line that is none.
pub fn machines(text: &str) -> anyhow::Result<PriceList> {
    let mut prices = PriceList::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = || format!("`{line}` is not `id name nodes CPUs speed KiB`");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, name, count, cpus, spec, kib] = words[..] else {
            anyhow::bail!(wrong());
        };
        let class = MachineClass {
            count: count.parse().with_context(wrong)?,
            cpus: cpus.parse().with_context(wrong)?,
            mem_mib: kib.parse::<u64>().with_context(wrong)? >> 10,
            gpus: 0,
            disk_mib: 0,
            spec: Factor::parse(spec).with_context(wrong)?,
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        };
        prices.machines.insert(name.to_owned(), class);
    }
    prices.validate().map_err(anyhow::Error::msg)?;
    Ok(prices)
}
