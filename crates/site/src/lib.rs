//! The whole site as one state machine.
//!
//! An [`Event`] and the time go in, [`Effect`]s come out: the node carries them out with libp2p, a
//! disk and sockets, the simulator with pretended ones. Both run exactly this.
//!
//! Invariants:
//! - a report is acknowledged only behind the `Persist` that keeps its counters and its job's mark
//!   together, so it is counted once, whatever is lost or repeated;
//! - only this site's own counters change by its own doing, and they only grow;
//! - two sites that hold the same documents and heads of a VO compute the same numbers for it, seen
//!   from the same window.
//!
//! Deliberately not here: sockets, files, clocks, randomness (the seed and the incarnation are
//! handed in) and everything about people (tables, configuration files).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod advert;
mod charge;
mod config;
mod identity;
mod kinds;
mod moved;
mod notice;
mod store;
mod time;
mod twin;
mod view;

mod own;
mod published;
mod quota;
mod vo;

mod event;
mod shares;

mod adoptions;
mod again;
mod audit;
mod correct;
mod describe;
mod document;
mod documents;
mod estimate;
mod forward;
mod heads;
mod inbox;
mod instalments;
mod mounts;
mod query;
mod recovered;
mod refusal;
mod remap;
mod report;
mod requests;
mod restore;
mod running;
mod site;
mod tables;
mod weighed;
mod work;

pub use adoptions::{Adoption, BroughtBy};
pub use advert::{
    Advert, AdvertAnswer, AdvertCall, AdvertRules, Occupancy, WAITING_MAX, read_advert,
};
pub use audit::AuditEntry;
pub use config::{Charging, IdleRules, OwnerQuota, SiteConfig, Timing};
pub use correct::Refund;
pub use estimate::Estimate;
pub use event::{Channel, Correction, Effect, Event, PushToken, Reply, Reported, Ticket, Verdict};
pub use fairmesh_broker as broker;
pub use fairmesh_gossip as gossip;
pub use fairmesh_quota as rights;
pub use forward::{
    Came, End, Errand, ForwardAnswer, ForwardCall, ForwardReply, ForwardRules, ForwardStats,
    ForwardedJob, HereJob, KEY_BYTES_MAX, Message, Offer, RUN_BYTES_MAX, Stage, Take, Told,
    Withdrawal, Withdrawn, brings_job, is_key, read_forward, read_forward_told,
};
pub use identity::{Account, IdentityMap, Pattern, People, Person, Rule, Taken, Words};
pub use instalments::replaces as replaces_instalments;
pub use kinds::Description;
pub use notice::Notice;
pub use query::{Health, Holding, PeerStatus, UsageCell, Viewed, VoStatus};
pub use quota::{
    Bands, HoldCall, Moved, QuotaAnswer, QuotaCall, QuotaReply, QuotaStats, Quote, read_given,
    read_want,
};
pub use recovered::{Reach, marks_lost};
pub use remap::{
    Fate, MOVES_MAX, Move, Moved as MovedSums, Relocation, Remap, Remapper, Uncovered,
};
pub use restore::{Row, Tell};
pub use site::{Site, SiteStats};
pub use store::{HeadId, JobMark, SITE_KEY, Table, Write, job_key};
pub use tables::{KnownUsage, PublishedTables};
pub use view::{Coverage, Divided, View};
pub use weighed::{SiteUsage, WeighedUsage};
pub use work::{Done, Work};
