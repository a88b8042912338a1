//! A pretended space-shared cluster, its scheduler, brokers and workloads.
//!
//! The node's `demo` and the simulator run jobs on it: recorded ones (`swf`, `trace`) or drawn ones
//! (`workload`, `lublin`, `broker`, `paper`). Its scheduler starts whatever the caller's priorities
//! say, so the caller can ask a real node for them.
//!
//! Invariant: everything here is a function of its arguments. One seed gives one stream of jobs,
//! and one order of calls gives one schedule, on any machine.
//!
//! Deliberately not here: a clock, files (parsing takes a `BufRead`), fairshare factors, and anything
//! that knows a node. Environment: section 5 of the FSGrid paper.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod broker;
pub mod cluster;
pub mod job;
pub mod lublin;
pub mod paper;
pub mod random;
pub mod swf;
pub mod trace;
pub mod workload;

mod fixed;
mod gamma;

pub use broker::{Broker, BrokerError};
pub use cluster::{Backfill, Cluster, Finished, JobPriority, Started, SubmitError};
pub use job::{AccountKey, Job, JobId};
pub use lublin::{LublinModel, LublinSpec, LublinWorkload, zipf_weights};
pub use random::{Seed, Stream};
pub use swf::{SwfError, SwfErrorKind, SwfHeader, SwfReader, SwfRecord};
pub use trace::{SkipReason, Trace, TraceArrivals, TraceBuilder, TraceError, TraceJob, TraceSite};
pub use workload::{Arrival, LeafLoad, Workload, WorkloadError, WorkloadSpec};
