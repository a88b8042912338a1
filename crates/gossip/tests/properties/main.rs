//! The lattice's laws, and replicas that exchange what they hold under loss.

mod exchange;
mod fetching;
mod lattice;
mod limits;
mod support;
mod vectors;
