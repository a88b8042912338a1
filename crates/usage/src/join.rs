//! What a site's tables say together.
//!
//! Cells of one (incarnation, account, span) that come in several forms join by maximum, column by
//! column: all forms are prefixes of one history. Where any table has a day as a whole, everything of
//! that day counts as the day: of an incarnation and an account the larger of the day and the sum of its
//! windows, for a day's cell is what its windows were when it was written, and more.
//!
//! Invariant: a function of the set of cells that are offered, whatever the order, and of one cell
//! twice as of one.

use std::collections::BTreeMap;

use fairmesh_model::{Counters, Incarnation, Span, WindowLength, mutant, mutated};

/// A cell: incarnation, span, account and counters.
pub type Cell<P> = (Incarnation, Span, P, Counters);

/// Counters by incarnation, span and account.
pub type Cells<P> = BTreeMap<(Incarnation, Span, P), Counters>;

/// What the cells join to. They are all those of one site and one day, or all of one window of a day
/// that no table has as a whole.
pub fn join_cells<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Cells<P> {
    let mut joined = Cells::new();
    let mut day = None;
    for (incarnation, span, path, counters) in cells {
        if let Span::Day(_) = span {
            day = Some(span);
        }
        let cell: &mut Counters = joined.entry((incarnation, span, path)).or_default();
        *cell = mutant!(FormsAddedUp, cell.join(counters), cell.plus(counters));
    }
    match day {
        Some(day) if !mutated!(DayBesideHours) => as_day(joined, day, length),
        _ => joined,
    }
}

/// Sums over the incarnations of what the cells join to, by span and account.
pub fn join<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> BTreeMap<(Span, P), Counters> {
    let mut sums: BTreeMap<(Span, P), Counters> = BTreeMap::new();
    for ((_, span, path), counters) in join_cells(cells, length) {
        let sum = sums.entry((span, path)).or_default();
        *sum = sum.plus(counters);
    }
    sums
}

fn as_day<P: Ord + Clone>(cells: Cells<P>, day: Span, length: WindowLength) -> Cells<P> {
    let mut windows: BTreeMap<(Incarnation, P), Counters> = BTreeMap::new();
    let mut whole = Cells::new();
    for ((incarnation, span, path), counters) in cells {
        if span.day(length) == day.day(length) && span != day {
            let sum = windows.entry((incarnation, path)).or_default();
            *sum = sum.plus(counters);
        } else {
            whole.insert((incarnation, span, path), counters);
        }
    }
    for ((incarnation, path), sum) in windows {
        let cell = whole.entry((incarnation, day, path)).or_default();
        *cell = mutant!(DaysAddedUp, cell.join(sum), cell.plus(sum));
    }
    whole
}
