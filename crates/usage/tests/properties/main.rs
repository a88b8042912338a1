//! Properties of the usage CRDT, checked on random histories through its public interface.

mod support;

mod anti_entropy;
mod capacity;
mod checkpoints;
mod forks;
mod laws;
mod retire;
