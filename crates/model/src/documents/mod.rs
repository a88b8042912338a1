//! The documents that VO authorities sign, and what a site says about its machines.
//!
//! Invariant: a decoded document satisfies its own `validate`. Whether it is *in force* is for the
//! `policy` crate to say. Deliberately not here: what sites sign (`gossip`'s heads).

mod charter;
mod prices;
mod rules;
mod share_policy;

pub use charter::{CHARTER_SITES_MAX, Charter, MemberSite, Role};
pub use prices::{HOSTS_MAX, LABELS_MAX, MACHINE_CLASSES_MAX, MachineClass, PriceList, QUEUES_MAX};
pub use rules::{ChargingRule, Discounts, Distance, HistoryRule, Terms, UsageMode};
pub use share_policy::{POLICY_ENTRIES_MAX, ShareEntry, SharePolicy};
