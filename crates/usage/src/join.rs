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

/// A row: what is summed up, and the sum.
type Row<K> = (K, Counters);

/// What the cells join to. They are all those of one site and one day, or all of one window of a day
/// that no table has as a whole.
pub fn join_cells<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Cells<P> {
    joined(cells, length).into_iter().collect()
}

/// Sums over the incarnations of what the cells join to, by span and account, in that order.
pub fn join<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Vec<Row<(Span, P)>> {
    let cells = joined(cells, length).into_iter();
    let cells = cells.map(|((_, span, path), counters)| ((span, path), counters));
    let plus = mutant!(IncarnationsJoined, Counters::plus, Counters::join);
    merged(cells.collect(), plus)
}

fn joined<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Vec<Row<(Incarnation, Span, P)>> {
    let cells = cells.into_iter();
    let cells =
        cells.map(|(incarnation, span, path, counters)| ((incarnation, span, path), counters));
    let join = |a: Counters, b| mutant!(FormsAddedUp, a.join(b), a.plus(b));
    let joined = merged(cells.collect(), join);
    let mut spans = joined.iter().map(|((_, span, _), _)| *span);
    let day = spans.find(|span| matches!(span, Span::Day(_)));
    match day {
        Some(day) if !mutated!(DayBesideHours) => as_day(joined, day, length),
        _ => joined,
    }
}

/// One row for each key, in order. Some thousand rows are sorted faster than they find their places in a
/// tree one by one.
fn merged<K: Ord>(
    mut rows: Vec<Row<K>>,
    merge: impl Fn(Counters, Counters) -> Counters,
) -> Vec<Row<K>> {
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows.dedup_by(|(next, of_next), (kept, of_kept)| {
        let is_same = next == kept;
        if is_same {
            *of_kept = merge(*of_kept, *of_next);
        }
        is_same
    });
    rows
}

fn as_day<P: Ord + Clone>(
    cells: Vec<Row<(Incarnation, Span, P)>>,
    day: Span,
    length: WindowLength,
) -> Vec<Row<(Incarnation, Span, P)>> {
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
    whole.into_iter().collect()
}
