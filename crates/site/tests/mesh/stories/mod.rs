//! The stories, one file each.

mod agreement;
mod charging;
mod clocks;
mod compaction;
mod corrections;
mod crashes;
mod descriptions;
mod faults;
mod fork;
mod hostile;
mod incarnations;
mod large_trees;
mod membership;
mod mounted_policies;
mod newcomer;
mod once;
mod partition;
mod policy_change;
mod predictive;
mod privacy;
mod quotas;
mod running;
mod same_heads;
mod scopes;
mod stores;
mod unmapped;
