//! The program `fairmesh`: its commands, and `run`, which assembles a node from the library `fairmesh-node`.
//!
//! It is a library so that tests and benchmarks can call commands. `main.rs` calls `cli::main`.

#![warn(clippy::print_stderr)]

/// A line on standard error, as `eprintln!`, which panics if standard error cannot be written.
macro_rules! note {
    ($($line:tt)*) => {
        fairmesh_node::log::note(format_args!($($line)*))
    };
}

pub mod cli;
mod manual;

mod attempt;
mod callout;

pub mod ask;
pub mod output;
pub mod top;

pub mod bugreport;
pub mod doctor;
pub mod init;
pub mod run;

pub mod emulate;
pub mod policy_cmd;
pub mod quota_cmd;

pub mod forward;
pub mod place;
pub mod queue;
pub mod sla;

pub mod arc;
pub mod condor;
pub mod gridengine;
pub mod lsf;
pub mod pbs;
pub mod schedulers;
pub mod slurm;

pub mod demo;
