//! What the house rules (`tests/tests/tidy`) and `cargo xtask house` both know of the sources.

pub mod imports;
