//! Swarm testing: each seed draws a Grid of its own, its load, and what goes wrong in it.
//!
//! Each kind of fault is on or off by a coin, so that faults which would drown each other are also
//! tried alone; of those that are on each seed draws how often they happen. (Groce and others, "Swarm
//! Testing", 2012.)
//!
//! Invariant: options are all that a run depends on beside its seed; they print as TOML and a run
//! from what was printed is the same run. Deliberately not here: doing it (`check`).

mod draw;
mod drawn;
mod faults;
mod hunted;
mod listed;
mod load;
mod options;
mod pace;
mod steered;

pub use drawn::Drawn;
pub(crate) use faults::plan_faults;
pub(crate) use load::{Feeds, Offer};
pub use options::credit::QuotaOptions;
pub(crate) use options::credit::{QuotaStep, plan_credit};
pub use options::lines::WeightsOption;
pub use options::{
    ChargingOption, FaultOptions, HistoryOption, LinkOptions, LoadOptions, LocalLevels,
    LocalOptions, ModeOption, Options, TimingOptions, VoOptions,
};
