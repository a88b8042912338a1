//! All scenario files hold, with more than one seed; wrong ones are refused with their line.
//!
//! Invariant: a file in `configs/scenarios` that is not run here does not exist.
//! Deliberately not here: many seeds (`simnet run --seeds`).

mod files;
mod planted;
mod refused;
mod reports;
