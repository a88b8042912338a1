//! Tables of usage counters of one site in one VO.
//!
//! A cell counts what one account used in one span of time, under one incarnation of the site's node;
//! it is absolute and only grows. Cells travel in tables, one for each span and slice of accounts
//! ([`Table`]). Where a site's tables are here in several forms, cells join by maximum ([`join()`]);
//! where they claim more than the site can have run, every reader scales them down by one rule
//! ([`Capacity`]).
//!
//! Invariant: whoever joins and clamps the same tables gets the same numbers, in whatever order they
//! came; no number exceeds what some form of a table says.
//!
//! Deliberately not here: peers, signatures and disks, and how usage is weighed by its age
//! (`fairshare`): decay is computed when read.
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

mod capacity;
mod columns;
mod join;
mod paths;
mod slice;
mod table;

pub use capacity::{Capacity, Total};
pub use columns::TableError;
pub use join::{Cell, Cells, join, join_cells};
pub use paths::{PathId, PathSet, Paths};
pub use slice::{Slice, cut};
pub use table::{Table, check, named_cells};
