//! Answers about jobs that were taken back.

use serde::{Deserialize, Serialize};

use super::{AccountBody, Refusal};

/// `fairmesh.corrections/1`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CorrectionsBody {
    /// Lines that were not blank.
    pub read: u64,
    /// The jobs that were taken back.
    pub taken_back: Vec<TakenBackBody>,
    /// What they had been charged and are charged no more.
    pub charge_core_ms: String,
    /// Jobs that were refused.
    pub refused: u64,
    /// The first of them.
    pub refusals: Vec<Refusal>,
}

/// A job that was taken back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TakenBackBody {
    /// Its cluster.
    pub cluster: String,
    /// Its id.
    pub job: String,
    /// Which run.
    pub instance: u64,
    /// What was taken back.
    pub charge_core_ms: String,
}

/// `fairmesh.audit/1`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditBody {
    /// What was taken back, the oldest first.
    pub refunds: Vec<RefundBody>,
    /// Documents that came into force here, the oldest first; of each VO the last thousand. No snapshots.
    #[serde(default)]
    pub documents: Vec<AdoptionBody>,
    /// Whether there were older ones that are not listed.
    pub more: bool,
}

/// A document that came into force here.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AdoptionBody {
    /// When, by this site's clock.
    pub at_ms: u64,
    /// The VO.
    pub vo: String,
    /// Which document: kind, version and what it divides or grants.
    pub document: String,
    /// Hash of its payload.
    pub hash: String,
    /// Who brought it: another site, or a user of this one, by the kernel's word.
    pub by: String,
}

/// What was taken back at once of an account.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefundBody {
    /// The site that took it back.
    pub site: String,
    /// Its name in a charter.
    pub site_name: Option<String>,
    /// When, by that site's clock; of several jobs the last one.
    pub at_ms: u64,
    /// The VO; none for the site's own accounts.
    pub vo: Option<String>,
    /// The account.
    pub path: String,
    /// How many jobs.
    pub jobs: u64,
    /// The job, where it is this site's own: other sites are told of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The job's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Which run of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u64>,
    /// Where the usage moved, if it did and this is the site's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<AccountBody>,
    /// What was taken back.
    pub charge_core_ms: String,
    /// Who did it.
    pub by: String,
    /// Why.
    pub why: String,
}
