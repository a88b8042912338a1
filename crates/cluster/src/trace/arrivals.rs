//! A trace as a stream of jobs to be scheduled anew: submit times and requests are the log's, starts
//! are whatever the scheduler at hand makes of them.
//!
//! Invariant: every job of the trace is either yielded once, at its submit time and to its node, or
//! counted under a reason; jobs come in the trace's order, numbered from 0.
//!
//! Deliberately not here: feedback. Users of the log waited for their results before they submitted
//! more (Feitelson, "Resampling with feedback", 2016); replayed submit times do not.

use std::collections::BTreeMap;

use super::{SkipReason, Trace};
use crate::job::{AccountKey, JobId};
use crate::workload::Arrival;

/// The jobs of a trace by submit time. [`Arrival::site`] is the node; [`Arrival::leaf`] is the index
/// of the account in [`Trace::accounts`].
#[derive(Debug, Clone)]
pub struct TraceArrivals<'a> {
    trace: &'a Trace,
    cores: Vec<u32>,
    leaves: BTreeMap<AccountKey, usize>,
    /// Index of the next job.
    next: usize,
    submitted: u64,
    skipped: BTreeMap<SkipReason, u64>,
}

impl<'a> TraceArrivals<'a> {
    pub(super) fn new(trace: &'a Trace, cores: &[u32]) -> Self {
        let mut cores = cores.to_vec();
        cores.resize(trace.nodes.get().max(cores.len()), 0);
        let too_wide = trace.jobs.iter().filter(|job| job.cores > cores[job.node]);
        let skipped = match too_wide.count() {
            0 => BTreeMap::new(),
            count => BTreeMap::from([(SkipReason::WiderThanNode, count as u64)]),
        };
        Self {
            trace,
            leaves: trace.accounts().into_iter().zip(0..).collect(),
            cores,
            next: 0,
            submitted: 0,
            skipped,
        }
    }

    /// Jobs of the whole trace that are not yielded, by reason; known from the beginning.
    pub fn skipped(&self) -> &BTreeMap<SkipReason, u64> {
        &self.skipped
    }
}

impl Iterator for TraceArrivals<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let recorded = self.trace.jobs.get(self.next)?;
            self.next += 1;
            if recorded.cores > self.cores[recorded.node] {
                continue;
            }
            // The log's numbers may repeat after a restart; those of one cluster may not.
            let mut job = recorded.to_job();
            job.id = JobId(self.submitted);
            self.submitted += 1;
            return Some(Arrival {
                at: recorded.submit,
                leaf: self.leaves[&job.account],
                site: recorded.node,
                job,
            });
        }
    }
}
