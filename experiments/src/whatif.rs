//! Recorded load under an old and a new policy: who gains, who loses, when.
//!
//! The jobs of a trace are submitted anew, as they were, to pretended clusters whose schedulers go by
//! the order that their own nodes' views give: a Grid of sites that gossip, as in [`crate::paper`].
//! Nodes are told each minute of the jobs that have ended at their cluster. For large traces one site
//! that is told everything can stand for them all: it leaves out what gossip costs, under both
//! policies alike.
//!
//! Invariant: the two runs differ in their policy and in nothing else; jobs that do not fit are left
//! out of both.
//!
//! Deliberately not here: users who react. Submit times are the log's, whatever jobs wait.

mod compare;
mod policy;
mod replay;
mod source;
#[cfg(test)]
mod tests;

pub use compare::{AccountChange, Comparison, compare, figure};
pub use policy::{equal_shares, of_policy, read_policy, targets};
pub use replay::{AccountUse, Capacity, Replayed, replay};
pub use source::Knowledge;
