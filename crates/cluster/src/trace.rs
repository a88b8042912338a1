//! A recorded job log as a load on a Grid: who ran what where, and what it must add up to.
//!
//! Invariant: every record is either one `TraceJob` or counted in `skipped` under a reason; and the
//! same records give the same trace, whatever order their partitions and groups first appear in.
//!
//! A log's partitions are sites, dealt over the nodes of the Grid at hand; its groups are VOs; its
//! users are leaves right below their VO. Logs know no shares, so a replay has to invent them.
//!
//! Deliberately not here: reading files, and scheduling. A trace keeps the recorded starts and ends;
//! [`Trace::arrivals`] is for those who want to schedule the load anew.

mod arrivals;
mod builder;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;
use std::num::NonZeroUsize;

use fairmesh_model::{AccountPath, CoreMillis, Millis, WallTime};

pub use arrivals::TraceArrivals;
pub use builder::{TRACE_JOBS_MAX, TraceBuilder};

use crate::job::{AccountKey, Job, JobId};
use crate::swf::{SwfError, SwfReader};

/// A log, ready to be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In order of submit time; jobs submitted together keep the log's order.
    pub jobs: Vec<TraceJob>,
    /// The log's partitions, in order of number.
    pub sites: Vec<TraceSite>,
    /// Names of the VOs, in order of group number: `VO-<group>`, or one `all` where the log knows
    /// no groups.
    pub vos: Vec<String>,
    /// How many nodes the sites were dealt over.
    pub nodes: NonZeroUsize,
    /// Records that are no load, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
}

/// A partition of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSite {
    /// From the header, or else made of the number: unique within a trace only if the header's
    /// names are.
    pub name: String,
    /// The number in the records; `None` collects the jobs that name none.
    pub partition: Option<u64>,
    /// The node that stands for it.
    pub node: usize,
    /// What was used there.
    pub load: CoreMillis,
}

/// A job that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    /// The log's job number.
    pub job: u64,
    /// Index of its VO in [`Trace::vos`].
    pub vo: usize,
    /// Its account within the VO: `/U-<user>`, or `/U-unknown`.
    pub account: AccountPath,
    /// Index of its partition in [`Trace::sites`].
    pub site: usize,
    /// The node that stands for its site.
    pub node: usize,
    /// Submit time. Like start and end it counts from the log's `UnixStartTime`, or from the Unix
    /// epoch where the log does not say.
    pub submit: WallTime,
    /// Start time.
    pub start: WallTime,
    /// End time; may equal the start.
    pub end: WallTime,
    /// The wall-clock time that the user asked for.
    pub requested: Option<Millis>,
    /// Cores held from start to end; not zero.
    pub cores: u32,
}

/// Why a record is no load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// Its run time is unknown: it never ran, or never ended within the log.
    NoRunTime,
    /// Neither allocated nor requested processors are known.
    NoProcessors,
    /// More processors than a machine has (2^32 or more).
    TooManyProcessors,
    /// More cores than the node has that it would be scheduled on anew (see [`Trace::arrivals`]).
    WiderThanNode,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRunTime => "no run time",
            Self::NoProcessors => "no number of processors",
            Self::TooManyProcessors => "more processors than a machine has",
            Self::WiderThanNode => "more processors than their site",
        })
    }
}

/// Why a log was refused. The log is at fault.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line could not be read.
    #[error(transparent)]
    Line(#[from] SwfError),
    /// More than [`TRACE_JOBS_MAX`] jobs.
    #[error("the log has more than {TRACE_JOBS_MAX} jobs; cut it into slices")]
    TooManyJobs,
}

impl Trace {
    /// Reads a whole log and deals its sites over `nodes`; the first bad line refuses it. To go on
    /// past bad lines, feed a [`TraceBuilder`] from a [`SwfReader`].
    pub fn read(input: impl BufRead, nodes: NonZeroUsize) -> Result<Self, TraceError> {
        let mut reader = SwfReader::new(input);
        let mut builder = TraceBuilder::default();
        for record in reader.by_ref() {
            builder.add(&record?)?;
        }
        Ok(builder.finish(reader.header(), nodes))
    }

    /// Core-milliseconds by VO and account: what any accounting of this trace must arrive at.
    pub fn usage(&self) -> BTreeMap<AccountKey, CoreMillis> {
        let mut usage = BTreeMap::<_, CoreMillis>::new();
        for job in &self.jobs {
            let sum = usage.entry(job.account_key()).or_default();
            *sum = sum.plus(job.core_ms());
        }
        usage
    }

    /// Core-milliseconds of the whole trace.
    pub fn total(&self) -> CoreMillis {
        self.jobs.iter().map(TraceJob::core_ms).sum()
    }

    /// The accounts that ran jobs, in order.
    pub fn accounts(&self) -> BTreeSet<AccountKey> {
        self.jobs.iter().map(TraceJob::account_key).collect()
    }

    /// The part of the trace that was submitted from `from` on and before `to_excluded`: same sites
    /// and VOs, loads of the part. Its `skipped` is empty, because records that are no load have no
    /// part of the time.
    #[must_use]
    pub fn slice(&self, from: WallTime, to_excluded: WallTime) -> Self {
        let within = |job: &&TraceJob| from <= job.submit && job.submit < to_excluded;
        let jobs: Vec<_> = self.jobs.iter().filter(within).cloned().collect();
        let mut sites = self.sites.clone();
        for site in &mut sites {
            site.load = CoreMillis(0);
        }
        for job in &jobs {
            let load = &mut sites[job.site].load;
            *load = load.plus(job.core_ms());
        }
        Self {
            jobs,
            sites,
            vos: self.vos.clone(),
            nodes: self.nodes,
            skipped: BTreeMap::new(),
        }
    }

    /// The jobs as they were submitted, to be scheduled anew on nodes of so many cores: `cores` by
    /// node. A job that is wider than its node is left out, and counted in
    /// [`TraceArrivals::skipped`]; a node without a number has no core.
    pub fn arrivals(&self, cores: &[u32]) -> TraceArrivals<'_> {
        TraceArrivals::new(self, cores)
    }

    /// For each node, the most cores that were in use on it at one time: the least capacity that
    /// the recorded schedule needs.
    pub fn peak_cores(&self) -> Vec<u64> {
        let mut changes = BTreeMap::<(usize, WallTime), (u64, u64)>::new();
        for job in self.jobs.iter().filter(|job| job.start < job.end) {
            changes.entry((job.node, job.start)).or_default().0 += u64::from(job.cores);
            changes.entry((job.node, job.end)).or_default().1 += u64::from(job.cores);
        }
        let mut in_use = vec![0_u64; self.nodes.get()];
        let mut peaks = in_use.clone();
        for ((node, _), (started, ended)) in changes {
            in_use[node] = in_use[node] - ended + started;
            peaks[node] = peaks[node].max(in_use[node]);
        }
        peaks
    }
}

impl TraceJob {
    /// Who pays.
    pub fn account_key(&self) -> AccountKey {
        AccountKey {
            vo: self.vo,
            path: self.account.clone(),
        }
    }

    /// From start to end.
    pub fn run(&self) -> Millis {
        self.end.since(self.start)
    }

    /// Cores times run time; zero for a job of no length.
    pub fn core_ms(&self) -> CoreMillis {
        crate::job::core_ms(self.cores, self.run())
    }

    /// The job as it was submitted, to be scheduled anew. Where the log has no requested time, the
    /// scheduler is told the true one.
    pub fn to_job(&self) -> Job {
        let run = self.run();
        let requested = self.requested.unwrap_or(run);
        Job {
            id: JobId(self.job),
            account: self.account_key(),
            cores: self.cores,
            run,
            requested,
        }
    }
}
