//! What has come of a run.
//!
//! Invariant: an outcome is plain data that depends on the seed, the options and the planted fault
//! alone; it goes from thread to thread. Deliberately not here: how it is shown.

use std::collections::BTreeMap;

use fairmesh_cluster::Seed;
use fairmesh_model::MonoTime;
use serde::{Deserialize, Serialize};

use crate::invariants::Violation;
use crate::world::World;

/// Last events that go with a failure.
const EVENTS_SHOWN: usize = 20;

/// Something that must not be, and where and when it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The invariant.
    pub invariant: String,
    /// The node, if it is one.
    pub node: Option<usize>,
    /// Simulated time, milliseconds.
    pub at_ms: u64,
    /// What was seen, and what should have been.
    pub message: String,
    /// What happened last.
    pub last_events: Vec<String>,
}

impl Failure {
    pub(super) fn of(invariant: &'static str, violation: Violation, world: &World) -> Self {
        let lines = world.log().lines();
        Self {
            invariant: invariant.to_owned(),
            node: violation.node,
            at_ms: world.now().0,
            message: violation.message,
            last_events: lines[lines.len().saturating_sub(EVENTS_SHOWN)..].to_vec(),
        }
    }

    /// When.
    pub fn at(&self) -> MonoTime {
        MonoTime(self.at_ms)
    }
}

/// What was done and seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Steps of the world.
    pub steps: u64,
    /// Simulated time of all nodes together, milliseconds.
    pub node_ms: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Messages whose bytes were broken.
    pub garbage: u64,
    /// Checks by invariant.
    pub checks: BTreeMap<&'static str, u64>,
    /// Checks of liveness.
    pub liveness_checks: u64,
    /// From the heal until all views were one for good.
    pub healed_ms: Option<u64>,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: Seed,
    /// The hash of everything that happened.
    pub trace_hash: u128,
    /// What failed, if something did.
    pub failure: Option<Failure>,
    /// What was done and seen.
    pub stats: RunStats,
}
