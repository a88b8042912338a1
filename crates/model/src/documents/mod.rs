//! The documents that sites and VO authorities sign.
//!
//! Invariant: a decoded document satisfies its own `validate`. Whether it is *in force* is for the
//! `policy` crate to say, and whether a counter may be believed for the `usage` crate.

mod charter;
mod prices;
mod rules;
mod share_policy;
mod usage;

pub use charter::{CHARTER_SITES_MAX, Charter, MemberSite, Role};
pub use prices::{
    HOSTS_MAX, MACHINE_CLASSES_MAX, MachineClass, PriceList, QUEUES_MAX, SiteDescription,
};
pub use rules::{ChargingRule, Discounts, Distance, HistoryRule, Terms, UsageMode};
pub use share_policy::{POLICY_ENTRIES_MAX, ShareEntry, SharePolicy};
pub use usage::{
    BATCH_BYTES_MAX, Checkpoint, InFlightSheet, PathCells, SEAL_BYTES_MAX, Seal, SealRef,
    UsageBatch,
};
