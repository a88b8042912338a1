//! Quotas without a bank: the most that a project may spend on all sites of a VO together.
//!
//! A signed allocation gives each site initial rights ([`Grants`]). A site spends only its own rights and sends them
//! to other sites by rows that it alone writes ([`Row`]), so it decides alone, even without a network ([`Ledger`]).
//! [`price`] computes what a job holds and costs, [`decision`] what happens beyond the quota.
//!
//! Invariant: if every site keeps the rules, the sum of used rights never exceeds the sum of granted rights, in every
//! state of every replica, whatever is lost, repeated, reordered or partitioned. For every slice, granted = used +
//! held + spendable (perished, once the slice has ended) + in transit.
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
