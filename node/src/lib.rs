//! The node: everything around the site that touches the world.
//!
//! The binary `fairmesh` is made of these rooms; they are a library so that tests and benchmarks
//! can enter them. The site itself, which decides everything, is in `crates/site`.

pub mod demo;
pub mod driver;
pub mod lookup;
pub mod network;
pub mod serve;
pub mod store;
