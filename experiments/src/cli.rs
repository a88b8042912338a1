//! The command lines of the experiments: `simnet paper`, `quotas`, `placement`, `whatif`, `charging`, `scale`.

pub mod charging;
pub mod experiments;
pub mod paper;
pub mod scale;
pub mod whatif;
