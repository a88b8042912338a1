//! The oracle shown right: on the published vectors, and against the code that it judges, on random
//! trees, usage and prices.
//!
//! Invariant: the two are compared without rounding; where they differ one of them is wrong.
#![allow(
    clippy::disallowed_methods,
    reason = "a test over files has to find them"
)]

mod costs;
mod imports;
mod tables;
mod trees;
mod vectors;
