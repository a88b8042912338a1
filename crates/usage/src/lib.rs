//! The grow-only usage CRDT of one virtual organisation.
//!
//! Each site writes only its own counters, as a chain of signed batches of absolute values; a node
//! joins what it hears of all sites. What two nodes hold of the same batches is identical, whatever
//! was lost, repeated or reordered on the way.
//!
//! Lattice: `VO = StreamId → Stream`, `Stream = (AccountPath × day) → (Hours ⊕ Day)`, where
//! `Hours = window → Counters` and `Day = Counters` join by maximum, column by column, and `⊕` is
//! the ordinal sum: every `Day` is above every `Hours`. Three facts cut streams down and only ever
//! move one way: the horizon (rises), the cap of a fork (falls) and the life below which a site
//! has declared its lives over (rises).
//!
//! Deliberately not here: peers, clocks, disks, signatures (only `Verified` documents come in), how
//! usage is weighed by its age (`fairshare`), and which sites may count at all (`policy`).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod capacity;
mod digest;
mod edit;
mod paths;
mod sheet;
mod sheets;

mod cut;
mod fork;
mod refused;
mod seals;
mod stream;

mod adopt;
mod checkpoint;
mod commit;
mod crdt;
mod delta;
mod in_flight;
mod query;
mod retire;
mod vo_usage;

pub use adopt::{CheckpointOffer, Sealed};
pub use capacity::Bound;
pub use checkpoint::Pruned;
pub use delta::{Delta, DeltaItem, VersionVector};
pub use edit::CellChange;
pub use fork::ForkProof;
pub use in_flight::InFlight;
pub use query::{LiveCell, StreamInfo};
pub use refused::{MergeRefused, Refused};
pub use retire::INCARNATIONS_MAX;
pub use vo_usage::{Applied, Stats, VoUsage};
