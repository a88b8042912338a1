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
//! | [`campaign`] | runs that are spread over many processes, and putting them together |
//! | [`check`] | one seed: faults, heal, and the end; and many of them |
//! | [`facts`] | what a run knows that no node says |
//! | [`scenario`] | stories written down in TOML |
//! | [`liar`] | members that lie: what they do, and what must hold |
//! | [`report`] | what is left of a run that failed |
//! | [`grid`] | clusters whose schedulers ask their own site's node who is next |
//! | [`central`] | the all-knowing scheduler that gossip is measured against |
//! | [`paper`] | the FSGrid paper's evaluation: runs, measures, checks, figures |
//! | [`experiment`] | what the experiments below have in common |
//! | [`quotas`] | what quotas do in a Grid: experiments |
//! | [`whatif`] | recorded load under an old and a new policy |
//! | [`charging`] | recorded jobs under two rules of charging |
//! | [`placement`] | where jobs should run: the experiments of two papers |
//! | [`scale`] | how far and how fast a change travels among a thousand sites |
//! | [`figures`] | one figure as a table and as a picture |
//! | [`cli`] | the commands |
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

pub mod campaign;

pub mod central;
pub mod charging;
pub mod experiment;
pub mod figures;
pub mod grid;
pub mod paper;
pub mod placement;
mod progress;
pub mod quotas;
pub mod scale;
pub mod whatif;

pub mod cli;

pub use network::{LinkSpec, NetworkSpec};
pub use node::{SimNode, StopReason};
pub use world::{
    Action, Counts, Jobs, Percent, Planned, StepInfo, StepKind, Tamper, World, WorldSpec,
};
