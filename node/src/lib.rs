//! The daemon: everything around the site that touches the world. `fairmesh run` assembles a node from these rooms.
//!
//! The site itself, which decides everything, is in `crates/site`; the commands are in `cli/`.
//! Invariant: nothing here knows a command.

#![warn(clippy::print_stderr)]

/// A record allocates more than it computes: a report takes a fifth more CPU with glibc's (docs/benchmarks.md). Here
/// and not in the program, so that benchmarks measure what the program has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod driver;
pub mod network;
pub mod store;

pub mod privacy;
pub mod projection;
pub mod sockets;
pub mod users;

pub mod lookup;
pub mod record_log;
pub mod refused;
pub mod serve;

pub mod control;
pub mod page;

pub mod config;
pub mod log;
pub mod words;
