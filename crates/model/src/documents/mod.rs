//! The documents that VO authorities sign, and what a site says about its machines.
//!
//! Invariant: a decoded document satisfies its own `validate`. Whether it is *in force* is for the
//! `policy` crate to say. Deliberately not here: what sites sign (`gossip`'s heads).

mod allocation;
mod charter;
mod level;
mod prices;
mod rules;
mod share_policy;
mod share_rules;
mod snapshot;

pub use allocation::{
    AMOUNT_MAX, Allocation, AllocationSlice, PARTS_MAX, PartOf, QuotaMode, SLICES_MAX, Settlement,
};
pub use charter::{CHARTER_SITES_MAX, Charter, MemberSite, READERS_MAX};
pub use level::{Distance, DistanceError, Scope};
pub use prices::{HOSTS_MAX, LABELS_MAX, MACHINE_CLASSES_MAX, MachineClass, PriceList, QUEUES_MAX};
pub use rules::{ChargingRule, Discounts, HistoryRule, UsageMode};
pub use share_policy::{POLICY_ENTRIES_MAX, PolicyMount, ShareEntry, SharePolicy};
pub use share_rules::{
    FORMER_PATHS_MAX, LEVEL_TOTAL_MAX, ShareLine, ShareLineError, ShareProblem, check_shares, gcd,
};
pub use snapshot::{NAMES_MAX, Named, Snapshot, VALID_MAX};
