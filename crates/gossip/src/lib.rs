//! Replication: every site signs one head over all that it publishes in a VO.
//!
//! *A replica that holds a site's head holds exactly what the site has published, no more and no less.* A site's data
//! is cut into parts and listed in a manifest, whose root the site signs ([`Head`]). A node keeps each member's
//! uncovered heads with their parts ([`Replica`]). Pushes and anti-entropy complete the replicas ([`Gossip`]).
//!
//! Invariant: nothing unverified is kept, nothing half-received counts, and two replicas that were offered each other's
//! heads are equal.
//!
//! Deliberately not here: what parts mean (their kinds), documents beyond their hashes and bytes,
//! clocks, disks, sockets.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod bounded;
mod content;
mod digest;
mod exchange;
mod head;
mod next;
mod part;
mod patch;
mod refusal;
mod replica;
mod sum;
pub mod wire;

pub use digest::{Tag, Vector, VectorFrame};
pub use exchange::{Arrival, Exchanges, Gossip, GossipStats, Intervals, Outgoing, Shared};
pub use head::{COVERS_MAX, HEADS_MAX, Head, HeadSet, Offered, covers};
pub use next::NextHead;
pub use part::{
    HEAD_BYTES_MAX, HEAD_ROWS_MAX, KEY_BYTES_MAX, ManifestRow, PART_BYTES_MAX, PARTS_MAX, PartKey,
};
pub use refusal::Refusal;
pub use replica::{
    Absorbed, Change, HEADS_A_MINUTE_MAX, HeldRow, Kinds, REMOVED_SITES_MAX, ReceivedAt, Replica,
};
pub use sum::HeadsSum;
