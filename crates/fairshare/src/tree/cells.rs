//! The raw amounts booked on one entry, by span: what sums are recomputed from.
//!
//! Invariants: one cell a span, sorted; only what was added is taken out again; compacting changes no
//! weighted sum, because windows of an old day weigh what their day weighs.
//! Deliberately not here: amounts of what is booked below the entry.

use fairmesh_model::{Span, Window, mutant};

use super::amounts::{Change, InFlight, Reach, weighted};
use super::topology::Topology;

#[derive(Debug, Clone, Copy)]
struct Cell {
    code: u64,
    own: u64,
    remote: u64,
}

/// What is booked on one entry itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Booked {
    cells: Vec<Cell>,
    pub(crate) in_flight: InFlight,
}

impl Booked {
    /// Adds `amount` and returns what was really added: less, where a cell is full.
    pub(crate) fn add(&mut self, span: Span, amount: u64, reach: Reach) -> u64 {
        let code = span.code();
        let index = match self.cells.binary_search_by_key(&code, |cell| cell.code) {
            Ok(index) => index,
            Err(index) => {
                // Many accounts have one cell, and a vector begins with room for four.
                if self.cells.len() < 4 {
                    self.cells.reserve_exact(1);
                }
                self.cells.insert(
                    index,
                    Cell {
                        code,
                        own: 0,
                        remote: 0,
                    },
                );
                index
            }
        };
        let cell = &mut self.cells[index];
        let counter = match reach {
            Reach::Own => &mut cell.own,
            Reach::Remote => &mut cell.remote,
        };
        let before = *counter;
        *counter = before.saturating_add(amount);
        *counter - before
    }

    /// Takes out up to `amount` of what was added in `span` and returns how much that was. Windows that
    /// have given way to their day since are taken out of it, which weighs the same.
    pub(crate) fn take(&mut self, span: Span, day: Span, amount: u64, reach: Reach) -> u64 {
        let mut left = amount;
        let places = if span == day {
            [Some(span), None]
        } else {
            [Some(span), Some(day)]
        };
        for place in places.into_iter().flatten() {
            let code = place.code();
            let Ok(index) = self.cells.binary_search_by_key(&code, |cell| cell.code) else {
                continue;
            };
            let cell = &mut self.cells[index];
            let counter = match reach {
                Reach::Own => &mut cell.own,
                Reach::Remote => &mut cell.remote,
            };
            let taken = left.min(*counter);
            *counter -= taken;
            left -= taken;
        }
        amount - left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.in_flight == InFlight::default()
    }

    /// The weighted sums of all cells from the day `since` on, and of what is in flight, which is of now.
    pub(crate) fn weighted(
        &self,
        tree: &Topology,
        history: usize,
        references: &[Window],
        since: u32,
    ) -> Change {
        let length = tree.histories[history].length();
        let counts_now = length.day_of(references[history]) >= mutant!(RunningHasNoDay, since, 0);
        let in_flight = match counts_now {
            true => self.in_flight.weighted(tree.is_of_vo(history)),
            false => Change::default(),
        };
        let counting = self.cells.iter();
        let counting = counting.filter(|cell| span_of(cell.code).day(length) >= since);
        counting.fold(in_flight, |sum, cell| {
            let weights = tree.weights(history, span_of(cell.code), references);
            let change = weighted(cell.own, cell.remote, weights);
            Change {
                local: sum.local.wrapping_add(change.local),
                global: sum.global.wrapping_add(change.global),
            }
        })
    }

    /// Merges the windows of old days, and drops what weighs nothing any more. `references` must
    /// never move back afterwards.
    pub(crate) fn compact(&mut self, tree: &Topology, history: usize, references: &[Window]) {
        let length = tree.histories[history].length();
        let is_old = |day| {
            [history, tree.local]
                .iter()
                .all(|index| tree.histories[*index].is_old_day(day, references[*index]))
        };
        let alive = |cell: &Cell| tree.weights(history, span_of(cell.code), references) != (0, 0);
        let merges = |cell: &Cell| {
            let span = span_of(cell.code);
            matches!(span, Span::Window(_)) && is_old(span.day(length))
        };
        self.cells.retain(alive);
        if !self.cells.iter().any(merges) {
            return;
        }
        for cell in &mut self.cells {
            if merges(cell) {
                cell.code = Span::Day(span_of(cell.code).day(length)).code();
            }
        }
        self.cells.sort_by_key(|cell| cell.code);
        self.cells
            .dedup_by(|next, kept| next.code == kept.code && kept.absorb(next));
        self.cells.shrink_to_fit();
    }

    /// How many cells there are.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }
}

impl Cell {
    /// Takes in `other`; both saturate only beyond 584 million core-years in a day.
    fn absorb(&mut self, other: &Self) -> bool {
        self.own = self
            .own
            .saturating_add(mutant!(MergedDayLosesOwn, other.own, 0));
        self.remote = self.remote.saturating_add(other.remote);
        true
    }
}

fn span_of(code: u64) -> Span {
    Span::from_code(code).expect("stored from a span")
}
