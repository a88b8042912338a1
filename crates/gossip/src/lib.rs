//! Sans-IO anti-entropy: whom to ask, what to send, what to refuse.
//!
//! A [`Replica`] is what a node holds of one VO. It takes documents from anywhere (and refuses
//! what the VO's charter does not vouch for) and answers what others lack. A [`Gossip`] decides
//! whom to ask and when, and carries one exchange with each peer at a time. Fresh documents are
//! pushed by somebody else (gossipsub in the node); that is for speed, this is for correctness.
//!
//! Invariant: a replica changes only by verified documents, in a way that does not depend on the
//! order in which they came; so two members that can exchange messages for long enough hold the
//! same, whatever was lost, repeated or reordered before.
//!
//! The protocol, its invariant and the alternatives are in `docs/gossip.md`. Scuttlebutt (van
//! Renesse and others, 2008) is the model: counters with one writer and versions without gaps need
//! no set reconciliation, the version vector says exactly what is missing.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod digest;
pub mod wire;

mod exchange;
mod replica;

pub use digest::Vector;
pub use exchange::{Answer, Arrival, Gossip, GossipStats, Intervals, Outgoing, RequestId};
pub use replica::{Absorbed, Refusal, Replica};
