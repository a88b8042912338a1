//! Tables of usage counters of one site in one VO.
//!
//! A cell counts what one account used in one span of time, under one incarnation of the site's node. It is absolute
//! and only grows. Cells are sent in tables, one for each span and slice of accounts ([`Table`]). Several forms of a
//! site's tables join by maximum, cell by cell ([`join()`]). If they claim more than the site can have run, every
//! reader scales them down by one rule ([`Capacity`]).
//!
//! Invariant: all readers that join and clamp the same tables get the same numbers, whatever the order of arrival. No
//! number exceeds that of some form of a table.
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
