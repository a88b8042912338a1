//! Faults that can be planted in the crates and in the simulated node, and what finds each.
//!
//! One table (`mutants/table.csv`) names every fault, says what is wrong, and which invariant is meant
//! to find it. The hooks are one line each where the fault is (`fairmesh_model::mutant`). A fault that
//! nothing finds has its reason in the last column.
//!
//! Invariant: a fault is planted in all nodes of a run, and the run around it is the run of its seed.
//! Deliberately not here: faults that were real; those have tests where they were.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

#[cfg(feature = "mutants")]
pub mod hunt;

/// What is said where the code under test panics instead of an invariant.
pub const PANIC: &str = "panic";

/// What is said where a run takes more steps than any sound one.
pub const ENDLESS: &str = "endless";

/// Where a fault is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Units, time, encodings, signatures.
    Model,
    /// Which documents are in force.
    Policy,
    /// The share tree, its order, history and charging.
    Fairshare,
    /// Counters and their replication.
    Usage,
    /// Rights as counters, and how they move.
    Quota,
    /// Who is told what.
    Gossip,
    /// The site: marks, ledger, publication, restart.
    Site,
    /// The node's round: journal, store, replies.
    Round,
    /// The network between nodes.
    Network,
}

/// A fault that can be planted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mutant {
    /// Its name, as in its hooks.
    pub name: String,
    /// Where it is.
    pub layer: Layer,
    /// The invariant that is meant to find it.
    pub meant: String,
    /// The lie that shows it, if one does: all liars of its hunt tell it.
    pub lie: Option<String>,
    /// What is wrong.
    pub says: String,
    /// Why nothing finds it, if nothing does.
    pub survives: Option<String>,
}

/// What became of one fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunted {
    /// The fault.
    pub name: String,
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds in which its hooks were come by.
    pub reached: u64,
    /// What found it, in the last of the seeds.
    pub found: Option<Found>,
}

/// What found a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The invariant, or [`PANIC`], or [`ENDLESS`].
    pub by: String,
    /// The seed.
    pub seed: u64,
    /// What was seen.
    pub message: String,
}

/// All of them, layer by layer.
pub static TABLE: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
    let rows =
        csv::Reader::from_reader(include_str!("mutants/table.csv").as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().expect("the table is right")
});

#[cfg(test)]
mod tests;
