//! The share tree: an immutable topology, and usage sums that one task writes and many read.
//!
//! Invariants: the sums of an entry include those of everything below it; all sums that a reader
//! sees are of one moment and one reference window per history; a reader never makes the writer
//! wait. A changed policy means a new tree, fed anew: nothing here is copied or edited in place.
//! Deliberately not here: which policy is in force (`policy`) and which usage is true (`usage`).
//! Source: FSGrid (local and global levels in one tree).

pub mod spec;

pub mod reader;
pub mod writer;

mod amounts;
mod build;
mod cells;
mod digest;
mod entry;
mod siblings;
mod snapshot;
mod sums;
mod topology;
mod unlisted;

pub use amounts::{InFlight, Reach, Sums};
pub use entry::{EntryId, EntryKind};
pub use reader::TreeReader;
pub use snapshot::Snapshot;
pub use spec::{BuildError, EntrySpec, TreeSpec};
pub use topology::Resolved;
pub use writer::{TreeWriter, UsageItem};

#[cfg(test)]
mod tests;
