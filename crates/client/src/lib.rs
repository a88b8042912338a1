//! How a batch scheduler asks a Fairmesh node for priorities.
//!
//! [`protocol`] is the format of `lookup.sock`, byte by byte, pure and shared with the node;
//! [`client`] is the blocking client on top of it that schedulers link; [`points`] says what a factor comes to in
//! a scheduler's own numbers.
//!
//! Invariant: nothing here waits for the network of other sites. A node answers from the view that
//! it holds, and every answer carries that view's age, so the caller decides what is too old.
//!
//! Deliberately not here: writing anything to a node (that is `control.sock`), and how a factor is
//! computed (`fairmesh-fairshare`).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod protocol;

pub mod client;
pub mod points;

pub use client::{Client, ClientError, Roster, no_node_at};
pub use points::{FACTOR_NEUTRAL, Own, Scale};
pub use protocol::{Answer, FACTOR_MAX, LOOKUP_BATCH_MAX, Names, ROWS_OF_ANY_NAMES, View, Who};
