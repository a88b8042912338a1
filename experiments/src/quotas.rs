//! What quotas without a bank do in a Grid: how strict they are, what a cut costs, how rights follow demand.
//!
//! | module | what it is |
//! |---|---|
//! | [`load`] | jobs of projects, each at its own rate |
//! | [`credit`] | who may say whether a job runs |
//! | [`mesh`] | real ledgers that tell each other of rights, over a plain network |
//! | [`bank`] | what they are compared with: one server that everybody has to ask |
//! | [`field`] | clusters, whose jobs ask before they are queued |
//! | [`strictness`] | experiment E1: modes, from strict to advisory |
//! | [`hoarding`] | experiment E2: credit that is saved, and slices that take it back |
//! | [`cut`] | experiment E3: sites, and a bank, that are cut off |
//! | [`skew`] | experiment E4: demand at one site, and where rights go |
//! | [`liars`] | experiment E5: members that show rights that they have not |
//! | [`factor`] | experiment E7: how much is held of what a job may cost |
//! | [`fairshare`] | experiment E6: a quota that ends, and what fairshare makes of it |
//! | [`prices`] | experiment E9: prices that follow load, and users who follow prices |
//!
//! All but E5 and E6 run `fairmesh_quota`'s ledgers, the code that decides at a site, with messages between them that
//! are delivered whole after a fixed time; heads, disks and sessions are those of real sites only in E5, E6 and in
//! the stories of `simnet check`. Jobs ask when they are submitted. Without fairshare, jobs start in the order
//! in which they came.
//!
//! Invariant: a run is a function of its specification and its seed; what must hold is computed from what was
//! measured, and said either way.
//! Deliberately not here: throughput and the cost of a call, which need a machine (`docs/quotas.md`).

pub mod bank;
pub mod credit;
pub mod cut;
pub mod factor;
pub mod fairshare;
pub mod field;
pub mod hoarding;
pub mod liars;
pub mod load;
mod market;
pub mod mesh;
pub mod prices;
pub mod skew;
pub mod strictness;

use crate::experiment::{Experiment, Extent};

/// All of them, by name.
pub const EXPERIMENTS: [Experiment; 8] = [
    ("strictness", strictness::run),
    ("hoarding", hoarding::run),
    ("cut", cut::run),
    ("skew", skew::run),
    ("liars", liars::run),
    ("factor", factor::run),
    ("fairshare", fairshare::run),
    ("prices", prices::run),
];
