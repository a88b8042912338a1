//! Recorded load under an old and a new policy: who gains, who loses, when.
//!
//! The jobs of a trace are submitted anew, as they were, to pretended clusters whose schedulers go by
//! the order that one site's view gives. That site is told of every job that ends anywhere, once a
//! minute: what gossip adds to that is measured elsewhere ([`crate::paper`]), and would be the same
//! under both policies.
//!
//! Invariant: the two runs differ in their policy and in nothing else; jobs that do not fit are left
//! out of both.
//!
//! Deliberately not here: users who react. Submit times are the log's, whatever jobs wait.

mod compare;
mod policy;
mod replay;
#[cfg(test)]
mod tests;

pub use compare::{AccountChange, Comparison, compare, figure};
pub use policy::{equal_shares, read_policy, targets};
pub use replay::{AccountUse, Capacity, Replayed, replay};
