//! Real nodes as processes, for tests: configured by files, spoken to over their sockets, killed.
//!
//! Invariant: a node that is dropped is killed, and its folder goes with the test's. Ports and paths
//! are the system's choice. Deliberately not here: what a test is about.

pub mod arc;
pub mod bench;
pub mod beside;
pub mod condor;
pub mod decoders;
pub mod disk;
pub mod greedy;
pub mod gridengine;
pub mod hostile;
pub mod hours;
pub mod namespaces;
pub mod queue;
pub mod quota;
pub mod scripted;
pub mod session;
pub mod slurm;
pub mod story;
pub mod twins;

mod http;
mod process;
mod vo;
mod wire;

pub use http::{Answer, Call, request};
pub use process::{Node, Site};
pub use vo::{Vo, records, records_of_now};
pub use wire::Wire;
