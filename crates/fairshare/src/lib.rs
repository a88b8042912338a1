//! Grid-wide fairshare, in whole numbers: share tree + usage → deviation vectors, priorities, ranks,
//! explanations; and what a job is charged.
//!
//! Invariant: nothing here rounds unless it says so, and nothing depends on the machine, the order in
//! which deltas came, a clock or a random number. Two sites with the same documents, the same usage
//! and the same reference window compute the same bits.
//!
//! Deliberately not here: which usage is true (`usage`), which policy is in force (`policy`), and
//! which site's usage caused what (the caller knows; the tree holds sums).
//! Source: Elmroth and Gardfjäll, "Design and Evaluation of a Decentralized System for Grid-wide
//! Fairshare Scheduling", e-Science 2005, pages 221–229 (FSGrid).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod charging;
pub mod deviation;
pub mod explain;
pub mod history;
pub mod order;
pub mod others;
pub mod projection;
pub mod ranking;
pub mod target;
pub mod tree;

mod digit;
mod ratio;

pub use charging::{
    ChargeError, Job, Rate, Resources, Tariff, charge, rate, split_amount, split_counters,
};
pub use deviation::{Class, Deviation, DeviationVector, Level};
pub use explain::{Explanation, explain};
pub use history::{OLD_DAYS, WeightTable, horizon_windows};
pub use order::{Bands, Order};
pub use others::{Others, others};
pub use projection::{Context, JobPriority, Priority, Projection};
pub use ranking::{RankedEntry, Ranking};
pub use target::Target;
pub use tree::{
    BuildError, EntryId, EntryKind, EntrySpec, InFlight, Reach, Resolved, Snapshot, Sums,
    TreeReader, TreeSpec, TreeWriter, UsageItem,
};
