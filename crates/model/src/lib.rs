//! The nouns of Fairmesh.
//!
//! Ids, units, time, windows, canonical CBOR, and the signed documents of virtual organisations. Every other crate speaks in these types.
//!
//! Invariant: a value of a type in this crate is valid. Whatever comes from outside passes a
//! checked constructor once, and nothing below has to ask again.
//!
//! Deliberately not here: which document is in force (`policy`), how counters merge (`usage`), and
//! anything that knows a clock, a disk or a peer.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod mutant;

pub mod chunks;
pub mod date;
pub mod factor;
pub mod hashing;
pub mod ids;
pub mod importance;
pub mod path;
pub mod severity;
pub mod time;
pub mod units;
pub mod visible;
pub mod weight;
pub mod window;

pub mod cbor;
pub mod documents;
pub mod record;
pub mod signed;

pub use chunks::Chunks;
pub use date::{Date, DateError};
pub use documents::{
    Allocation, AllocationSlice, ChargingRule, Charter, Discounts, Distance, DistanceError,
    HistoryRule, MachineClass, MemberSite, Named, PartOf, PolicyMount, PriceList, QuotaMode, Scope,
    Settlement, ShareEntry, ShareLine, ShareLineError, SharePolicy, ShareProblem, Snapshot,
    UsageMode, check_shares,
};
pub use factor::Factor;
pub use hashing::HashSecret;
pub use ids::{AllocationId, ContentHash, Incarnation, IncarnationId, KeyId, Seq, SiteId, VoId};
pub use importance::Importance;
pub use path::AccountPath;
pub use record::{Chunk, JobKey, Origin, Placement, RunningJob, Terms, UsageRecord};
pub use severity::Severity;
pub use signed::{Document, DocumentError, Role, Signed, SigningKey, Verified};
pub use time::{Millis, MonoTime, Now, WallTime};
pub use units::{CoreMillis, Counters, Share};
pub use visible::{clean, hides, is_visible};
pub use weight::{ShareRule, Weight, WeightError};
pub use window::{Span, Window, WindowLength};
