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

// Values.
mod audit;
mod charge;
mod checks;
mod config;
mod document;
mod event;
mod identity;
mod kinds;
mod moved;
mod notice;
mod reach;
mod refund;
mod store;
mod tickets;
mod time;
mod view;
mod work;

// Parts.
mod adoptions;
mod advert;
mod cx;
mod forward;
mod inbox;
mod instalments;
mod jobs;
mod mounts;
mod own;
mod parts;
mod peers;
mod published;
mod quota;
mod recovered;
mod requests;
mod running;
mod shares;
mod vo;
mod vos;

// Handlers, which borrow parts.
mod absorb;
mod again;
mod clocks;
mod correct;
mod describe;
mod documents;
mod gc;
mod members;
mod publish;
mod receive;
mod reconfigure;
mod remap;
mod report;
mod reporting;
mod restore;
mod running_list;
mod terms;
mod trees;
mod twin;
mod usage;

// Questions, which read them.
mod estimate;
mod query;
mod questions;
mod tables;
mod weighed;

mod site;

pub use adoptions::{Adoption, BroughtBy};
pub use advert::part::{Advert, read as read_advert};
pub use advert::{AdvertAnswer, AdvertCall, AdvertRules, Occupancy, WAITING_MAX};
pub use audit::AuditEntry;
pub use config::{Charging, IdleRules, OwnerQuota, SiteConfig, Timing};
pub use cx::SiteStats;
pub use estimate::Estimate;
pub use event::{Correction, Effect, Event, Reply, Reported, Verdict};
pub use forward::calls::{
    ForwardAnswer, ForwardCall, ForwardReply, ForwardedJob, HereJob, Settlement, Withdrawn,
};
pub use forward::offer::{JobRequest, KEY_BYTES_MAX, Offer, RUN_BYTES_MAX, is_key};
pub use forward::rows::{Stage, Withdrawal};
pub use forward::wire::{
    End, HandOffReply, Message, Take, brings_job, read_forward, read_forward_reply,
};
pub use forward::{ForwardRules, ForwardStats};
pub use identity::{Account, IdentityMap, Pattern, People, Person, Rule, Taken, Words};
pub use instalments::replaces as replaces_instalments;
pub use kinds::Description;
pub use notice::Notice;
pub use parts::Parts;
pub use query::{Health, Holding, PeerStatus, UsageCell, Viewed, VoStatus};
pub use quota::QuotaStats;
pub use quota::calls::{HoldCall, QuotaAnswer, QuotaCall, QuotaReply};
pub use quota::prices::Bands;
pub use quota::query::Quote;
pub use quota::transfers::Moved;
pub use quota::wire::{read_given, read_want};
pub use reach::{Reach, marks_lost};
pub use refund::{Refund, Relocation};
pub use remap::Remapper;
pub use remap::change::{Fate, MOVES_MAX, Move, Moved as MovedSums, Remap};
pub use remap::cover::Uncovered;
pub use restore::{Row, Tell};
pub use site::Site;
pub use store::{HeadId, JobMark, SITE_KEY, Table, Write, job_key};
pub use tables::{KnownUsage, PublishedTables};
pub use tickets::{Channel, PushToken, Ticket};
pub use view::{Coverage, Divided, View};
pub use weighed::{SiteUsage, WeighedUsage};
pub use work::{Done, Work};
