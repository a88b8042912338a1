//! Joining a site's tables.
//!
//! Several forms of a cell of one (incarnation, account, span) join by maximum, column by column: all forms are
//! prefixes of one history. If any table has a day as a whole, all cells of that day count as the day. For an
//! incarnation and an account the larger of the day and the sum of its windows counts, because a day's cell contains
//! its windows as they were when the day was written, and possibly more.
//!
//! Invariant: the result depends on the set of cells only, not on their order or repetition.

use std::collections::BTreeMap;

use fairmesh_model::{Counters, Incarnation, Span, WindowLength, mutant, mutated};

/// A cell: incarnation, span, account and counters. The counters are absolute, not increments.
pub type Cell<P> = (Incarnation, Span, P, Counters);

/// Counters by incarnation, span and account.
pub type Cells<P> = BTreeMap<(Incarnation, Span, P), Counters>;

/// A row: a key, and the counters merged for it.
type Row<K> = (K, Counters);

/// Joins cells. They must be all cells of one site and one day, or of one window of a day that no table has as a whole:
/// otherwise a day would miss some of its windows.
pub fn join_cells<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Cells<P> {
    joined(cells, length).into_iter().collect()
}

/// Joins cells as [`join_cells`] and sums over the incarnations; sorted by span, then account.
pub fn join<P: Ord + Clone>(
    cells: impl IntoIterator<Item = Cell<P>>,
    length: WindowLength,
) -> Vec<Row<(Span, P)>> {
    let cells = joined(cells, length).into_iter();
    let cells = cells.map(|((_, span, path), counters)| ((span, path), counters));
    // Within an incarnation forms are joined; across incarnations counters add up, because each start counts from 0.
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

/// Merges the rows of each key; sorted by key. Sorting some thousand rows is faster than inserting them into a tree.
fn merged<K: Ord>(
    mut rows: Vec<Row<K>>,
    merge: impl Fn(Counters, Counters) -> Counters,
) -> Vec<Row<K>> {
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows.dedup_by(|(next, added), (kept, counters)| {
        let is_same = next == kept;
        if is_same {
            *counters = merge(*counters, *added);
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
        // The maximum, not the sum: the day already contains its windows.
        let cell = whole.entry((incarnation, day, path)).or_default();
        *cell = mutant!(DaysAddedUp, cell.join(sum), cell.plus(sum));
    }
    whole.into_iter().collect()
}
