//! Quotas without a bank: how much a project may spend at most, on all sites of a VO together.
//!
//! A signed allocation gives every site rights to begin with ([`Grants`]). A site spends its own rights only,
//! and moves them to others by rows that it alone writes ([`Row`]); so it decides alone, cut off or not
//! ([`Ledger`]). What a job holds and costs is in [`price`], what happens beyond the quota in [`decision`].
//!
//! Invariant: if every site keeps the rules, the sum of what is used is never above the sum of what is
//! granted, in every state of every replica, whatever is lost, repeated, reordered or cut off. Of every slice,
//! granted = used + held + spendable (perished, once the slice has ended) + on the way.
//!
//! Deliberately not here: heads, disks and clocks (`site`, `round`), and what a job is charged at the usual
//! price (`fairshare`).
//! Source: SGAS, in Gardfjäll's thesis (Umeå University), chapter 3, for what quotas do; Balegas et al.,
//! "Extending Eventually Consistent Cloud Databases for Enforcing Numeric Invariants", SRDS 2015, for bounded
//! counters.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod burn;
pub mod decision;
pub mod fit;
mod funded;
mod grants;
mod ledger;
mod mark;
mod message;
pub mod price;
mod row;
pub mod slices;
mod totals;

pub use funded::Funded;
pub use grants::{GrantError, Grants, SliceId};
pub use ledger::{Changes, Claim, Committed, HoldRequest, Ledger, Offer, Transfer, Want};
pub use mark::{Answer, Decider, Mark, Part, State, Verdict};
pub use message::{core_hours, length_of_time};
pub use row::{Cell, PARTNERS_MAX, Row, RowError};
pub use totals::Totals;
