//! Two sites for some hours.

use fairmesh_experiments::paper::experiment::{Case, Experiment, Extent, Knowledge};
use fairmesh_model::{Millis, UsageMode};

/// A Grid that runs in a second.
pub(crate) fn small(hours: u64) -> Extent {
    Extent {
        sites: 2,
        duration: Millis::from_secs(hours * 3_600),
    }
}

pub(crate) fn steady(mode: UsageMode, knowledge: Knowledge) -> Experiment {
    Experiment::new(Case::Steady, mode, knowledge)
}
