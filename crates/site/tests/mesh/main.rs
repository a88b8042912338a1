//! Stories of a mesh of sites, told on a network, a store and a clock in memory.
//!
//! Each story is one invariant of the design. None names a seed: the harness draws several, and
//! prints the one that failed.

mod ledger;
mod liar;
mod mesh;
mod node;
mod random;
mod vo;

mod stories;
