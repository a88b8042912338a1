//! The node: everything around the site that touches the world.
//!
//! The binary `fairmesh` is made of these rooms; they are a library so that tests and benchmarks
//! can enter them. The site itself, which decides everything, is in `crates/site`.

#![warn(clippy::print_stderr)]

/// A record allocates more than it computes: a report takes a fifth more CPU with glibc's (docs/benchmarks.md). Here and
/// not in the program, so that benchmarks measure what the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A line on standard error, as `eprintln!`, which panics if standard error cannot be written.
macro_rules! note {
    ($($line:tt)*) => {
        $crate::log::note(format_args!($($line)*))
    };
}

pub mod log;

pub mod driver;
pub mod network;
pub mod store;

mod manual;
pub mod privacy;
pub mod sockets;

pub mod lookup;
pub mod record_log;
pub mod refused;
pub mod serve;

pub mod arc;
pub mod ask;
pub mod cli;
pub mod control;
pub mod metrics;
mod page;

pub mod bugreport;
pub mod condor;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod emulate;
pub mod finding;
pub mod forward;
pub mod gridengine;
pub mod init;
pub mod lsf;
pub mod output;
pub mod pbs;
pub mod place;
pub mod policy_cmd;
pub mod queue;
pub mod quota_cmd;
pub mod run;
pub mod schedulers;
pub mod sla;
pub mod slurm;
pub mod top;
pub mod words;
