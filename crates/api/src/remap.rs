//! The answer about usage that today's rules map to another account.

use serde::{Deserialize, Serialize};

/// `fairmesh.remap/1`: what moved, or would move. What it says has moved is durable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemapBody {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The jobs ended at or after this moment.
    pub since_ms: u64,
    /// Jobs of the record log that were compared.
    pub read: u64,
    /// Jobs that moved, or would.
    pub jobs: u64,
    /// What their accounts are credited.
    pub credit_core_ms: String,
    /// What their new accounts are charged.
    pub charge_core_ms: String,
    /// In how many durable changes they moved: one for each ten thousand jobs or so.
    pub changes: u64,
    /// From where to where: the first hundred thousand pairs.
    pub moves: Vec<MoveBody>,
    /// Jobs older than any history that counts them.
    pub past: u64,
    /// Jobs that map to another account and stay, by reason.
    pub left: Vec<LeftBody>,
    /// Usage in this site's counters that no job of the record log explains, by account: it cannot move.
    pub uncovered: Vec<UncoveredBody>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AccountBody {
    /// The VO, by the owner's alias or else by its id; none for the site's own accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// Its path.
    pub path: String,
}

/// Jobs that move between two accounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MoveBody {
    /// The account that they were charged to.
    pub from: AccountBody,
    /// The account that they map to now.
    pub to: AccountBody,
    /// How many.
    pub jobs: u64,
    /// What the old account is credited.
    pub credit_core_ms: String,
    /// What the new account is charged.
    pub charge_core_ms: String,
}

/// Jobs that stay.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftBody {
    /// Why.
    pub reason: String,
    /// How many.
    pub jobs: u64,
}

/// Usage that the record log does not explain.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UncoveredBody {
    /// The account.
    pub account: AccountBody,
    /// The first day that has any, in UTC.
    pub first_day: String,
    /// The last one.
    pub last_day: String,
    /// How much.
    pub charge_core_ms: String,
}
