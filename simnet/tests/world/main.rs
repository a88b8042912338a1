//! Stories about the simulated world itself: what it is built for must hold before anything is
//! built on it.
//!
//! Invariant: a story never names a seed; it is told with several, and a failure says which.

mod calm;
mod disks;
mod life;
mod members;
mod networks;
mod pushes;
mod quotas;
mod support;
