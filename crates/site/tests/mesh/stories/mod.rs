//! The stories, one file each.

mod agreement;
mod charging;
mod clocks;
mod compaction;
mod crashes;
mod descriptions;
mod fork;
mod hostile;
mod lives;
mod membership;
mod newcomer;
mod once;
mod partition;
mod policy_change;
mod predictive;
mod privacy;
mod same_batches;
mod stores;
mod unmapped;
