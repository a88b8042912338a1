//! What happens to a cell: inside as an [`Edit`], to the outside as a [`CellChange`].
//!
//! Invariant: edits are exact inverses of themselves with `before` and `after` swapped, so that a
//! refused batch is undone by playing its edits backwards.

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, Counters, Millis, Span, StreamId, WallTime, WindowLength, mutant,
};

use crate::paths::PathId;

/// One cell's counters before and after a change. Sums over cells stay exact when every change is
/// applied as `after − before`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellChange {
    /// When the usage lies.
    pub span: Span,
    /// Whose usage.
    pub path: AccountPath,
    /// Who counted it.
    pub stream: StreamId,
    /// Absolute counters before; zero where there was no cell.
    pub before: Counters,
    /// Absolute counters after; zero where there is no cell any more.
    pub after: Counters,
}

/// A change by path id. `None` is "no cell", which differs from a day cell of zero: that one still
/// stands above all hours of its day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edit {
    pub(crate) span: Span,
    pub(crate) path: PathId,
    pub(crate) before: Option<Counters>,
    pub(crate) after: Option<Counters>,
}

impl Edit {
    /// The edit that takes this one back.
    pub(crate) const fn undone(self) -> Self {
        Self {
            before: self.after,
            after: self.before,
            ..self
        }
    }
}

/// What decides which cells are live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) length: WindowLength,
    /// Spans that end at or before this moment are forgotten.
    pub(crate) horizon: WallTime,
}

impl Rule {
    /// Whether cells of `span` are no longer kept.
    pub(crate) fn has_forgotten(self, span: Span) -> bool {
        let day_early = Millis(mutant!(ForgottenADayEarly, 0, DAY_MS));
        span.end(self.length) <= self.horizon.after(day_early)
    }
}

/// A join under way: what it did so far, and what it ignored by rule.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    pub(crate) edits: Vec<Edit>,
    /// Paths that were looked up; those that end without a cell are given back.
    pub(crate) paths: Vec<PathId>,
    pub(crate) late: u64,
    pub(crate) absorbed: u64,
}
