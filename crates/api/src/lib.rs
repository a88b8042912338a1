//! The answers of a node's `control.sock`: one type for each, its JSON and its schema, which the server writes and the
//! commands and loops read; the client that asks; and the words that both use.
//!
//! Invariant: an answer begins with its schema, `fairmesh.<what>/1`; within a version fields are
//! only added. Amounts that may exceed 2^53, and everything with decimals, are decimal strings; a
//! share or deviation is a percentage; times are milliseconds since the Unix epoch.
//! Deliberately not here: making an answer (`node/src/control`) and printing it (`cli`).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

use serde::{Deserialize, Serialize};

pub mod client;
pub mod finding;
pub mod loops;
pub mod record_log;
pub mod routes;
pub mod words;

mod accounting;
mod corrections;
mod forward;
mod grid;
mod mesh;
pub mod peer_state;
mod place;
mod prices;
mod quota;
mod refused;
mod remap;
#[cfg(test)]
mod schemas;
mod tree;

pub use accounting::{AccountCharge, AccountingBody, GroupBody, SummaryBody, TotalsBody};
pub use corrections::{AdoptionBody, AuditBody, CorrectionsBody, RefundBody, TakenBackBody};
pub use forward::{
    ForwardAsk, ForwardBody, ForwardSettledBody, ForwardedBody, HereBody, HereJobBody, SettledAsk,
    TriedBody, WithdrawAsk, WithdrawnBody,
};
pub use grid::{Grid, GridError};
pub use mesh::{
    AccountUsageBody, DocumentBody, DocumentsBody, HeadBody, NodeBody, PeerBody, PeersBody,
    PublishedBody, SnapshotBody, StatusBody, VoBody, WithoutLineBody,
};
pub use peer_state::PeerState;
pub use place::{
    GridDiskBody, GridSiteBody, GridStandingBody, MetBody, OccupancyAsk, OccupancyBody, PlaceAsk,
    PlaceBody, PlacedBody, RefusedBody, RequireAsk, SitesBody, SlaBody, StagedAsk, StandingBody,
    WaitingAsk,
};
pub use prices::{HostsBody, MachineBody, PricesBody, QosBody, QueueBody, SitePricesBody};
pub use quota::{
    HoldBody, QuotaAccountBody, QuotaBody, QuotaDocumentBody, QuotaHistoryBody, QuotaJobBody,
    QuotaPartBody, QuotaSliceBody, QuotaSummaryBody, QuotaTotalsBody, QuotaTransferBody,
    QuotaUserBody, QuoteBody, QuotesBody, SettledBody,
};
pub use refused::{RefusedJobBody, RefusedJobsBody, RejectsBody, WaitingBody};
pub use remap::{AccountBody, LeftBody, MoveBody, RemapBody, UncoveredBody};
pub use tree::{
    CauseBody, CauseOfSite, ComparisonBody, CountersBody, ExplainBody, LedgerBody, LevelBody,
    NamedCounters, NamesakeBody, NamesakesBody, OriginBody, OthersCounters, PriorityBody, Refusal,
    ReportBody, ShareBody, SharesBody, UnmappedBody, UnmappedOrigin, UsageBody,
};

/// What every answer is wrapped in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answer<T> {
    /// `fairmesh.<what>/1`.
    pub schema: String,
    /// What it rests on.
    #[serde(flatten)]
    pub rests_on: RestsOn,
    /// The answer.
    #[serde(flatten)]
    pub body: T,
}

/// What an answer rests on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RestsOn {
    /// When it was made, by the node's clock, for people.
    pub as_of: String,
    /// The same, in milliseconds since the Unix epoch.
    pub as_of_ms: u64,
    /// Who contributed.
    pub coverage: CoverageBody,
    /// The documents and counters of each VO.
    pub views: Vec<ViewBody>,
}

/// Who contributed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CoverageBody {
    /// Member sites of which anything is held.
    pub sites_known: u32,
    /// Member sites.
    pub sites_total: u32,
    /// The site whose data were signed longest ago, though nothing may have happened there since.
    pub oldest: Option<OldestBody>,
    /// The site of which it is longest ago that what is held was current: that it signed it, or that an exchange
    /// with it found nothing to pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalest: Option<OldestBody>,
    /// Share of the declared capacity whose usage is known, percent.
    pub capacity_known: String,
}

/// A site, and an age.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OldestBody {
    /// Its id.
    pub site: String,
    /// Its name in a charter.
    pub name: Option<String>,
    /// How long ago.
    pub age_ms: u64,
}

/// What is held of a VO: two nodes with equal views compute equal numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ViewBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub name: Option<String>,
    /// Version of the charter in force; 0 for none.
    pub charter_version: u64,
    /// Whether that charter lists this site. If not, no other site counts what it uses.
    #[serde(default = "yes")]
    pub is_member: bool,
    /// Hash over the documents in force.
    pub documents: Option<String>,
    /// Digest of the counters.
    pub counters: Option<String>,
    /// When the first of those documents expires; it stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Why nobody vouches that those documents are the newest, where the VO has somebody who should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// A node of an earlier release does not report it.
fn yes() -> bool {
    true
}

/// A failure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// What is wrong.
    pub error: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
