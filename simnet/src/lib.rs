//! Fairmesh sites under simulated time, broken networks, broken disks and real load.
//!
//! The sites are the real ones (`fairmesh-site`); what is simulated is everything around them. From
//! the bottom up:
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`] | one site's clock: it jumps and drifts |
//! | [`disk`] | one site's store: it fills, flips, is wiped and comes back from backups |
//! | [`network`] | sessions, links and eager push |
//! | [`queue`] | what happens next, in the order of time |
//! | [`node`] | one site with its disk, its clock and what it said |
//! | [`vo`] | VOs, their documents and site configurations, from small numbers |
//! | [`length`] | lengths of time as people write them |
//! | [`event_log`] | what happened last, and one hash of everything |
//! | [`world`] | all of it: one queue of events, one seed |
//! | [`swarm`] | what one seed draws: sites, VOs, load, faults and their rates |
//! | [`oracle`] | an independent ledger of all that was acknowledged |
//! | [`invariants`] | what must hold after every step, one file each |
//! | [`mutants`] | faults planted on purpose, to show that each invariant finds its own |
//! | [`check`] | one seed: faults, heal, and the end; and many of them |
//! | [`facts`] | what a run knows that no node says |
//! | [`scenario`] | stories written down in TOML |
//! | [`liar`] | members that lie: what they do, and what must hold |
//! | [`report`] | what is left of a run that failed |
//! | [`progress`] | how far long work is |
//! | [`output`] | standard output, whose reader may have had enough |
//!
//! Invariant: one seed gives one trace, byte for byte, on any machine. Nothing here reads a clock,
//! a disk or a socket of the machine, and nothing is iterated whose order is not defined.
//!
//! Deliberately not here: how real sockets, files and schedulers behave; the node's own tests run
//! those.

pub mod clock;
pub mod disk;
pub mod event_log;
pub mod length;
pub mod network;
pub mod node;
pub mod queue;
pub mod vo;
pub mod world;

pub mod check;
pub mod facts;
pub mod invariants;
pub mod liar;
pub mod mutants;
pub mod oracle;
pub mod report;
pub mod scenario;
pub mod swarm;

pub mod output;
pub mod progress;

pub use network::{LinkSpec, NetworkSpec};
pub use node::{SimNode, StopReason};
pub use world::{
    Action, Counts, Jobs, Percent, Planned, StepInfo, StepKind, Tamper, World, WorldSpec,
};
