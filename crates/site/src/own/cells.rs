//! What is counted for one VO, and which of it has changed since it was published.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::PartKey;
use fairmesh_model::{
    AccountPath, Counters, Incarnation, Span, VoId, WallTime, WindowLength, mutated,
};
use fairmesh_usage::{Capacity, Cell, Slice, Total};

use crate::identity::Account;
use crate::store::{Table, Write, ledger_key, ledger_value};

/// An account in an incarnation.
pub(super) type Of = (AccountPath, Incarnation);

/// The cells of one span.
pub(crate) type OfSpan = BTreeMap<Of, Counters>;

/// What is counted for one VO, or for the site's own accounts.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) by_span: BTreeMap<Span, OfSpan>,
    /// What spans that were looked at say in all, while nothing but plain counting changes them.
    totals: BTreeMap<Span, Total>,
    full: Full,
    /// Spans that changed since the last head.
    pub(super) dirty: BTreeSet<Span>,
    /// Cells that changed and that no peer is known to hold as they are.
    pub(super) alone: BTreeSet<(Span, Of)>,
    /// The tables that the last head named, by span.
    pub(super) tables: BTreeMap<Span, BTreeSet<Slice>>,
    /// Parts of the other kinds, as they are to be and as the last head named them.
    pub(super) running: BTreeMap<PartKey, Vec<u8>>,
    pub(super) description: BTreeMap<PartKey, Vec<u8>>,
    pub(super) audit: BTreeMap<PartKey, Vec<u8>>,
    pub(super) named: BTreeMap<PartKey, Vec<u8>>,
    /// Whether they may differ.
    pub(super) others_changed: bool,
}

/// Which spans say more than the site can have run, as far as they were judged.
#[derive(Debug, Default)]
struct Full {
    /// By which capacity.
    capacity: Option<Capacity>,
    over: BTreeSet<Span>,
    /// Spans that changed since.
    unjudged: BTreeSet<Span>,
}

impl Cells {
    /// Adds to a cell. Returns it as it stands.
    pub(super) fn add(&mut self, span: Span, of: Of, amount: Counters) -> Counters {
        let of_span = self.by_span.entry(span).or_default();
        let cell = of_span.entry(of.clone()).or_default();
        *cell = cell.plus(amount);
        let cell = *cell;
        // What was taken back is taken from the account's sum: then the total does not just add up.
        let plain = cells_of_account(of_span, &of.0).all(|(_, held)| held.refunds == 0);
        match self.totals.get_mut(&span).filter(|_| plain) {
            Some(total) => total.add(amount),
            None => {
                self.totals.remove(&span);
            }
        }
        self.full.unjudged.insert(span);
        if cell == amount || !mutated!(GrowthUnpublished) {
            self.dirty.insert(span);
            self.alone.insert((span, of));
        }
        cell
    }

    /// Sets a cell.
    pub(super) fn put(&mut self, span: Span, of: Of, counters: Counters) {
        self.by_span
            .entry(span)
            .or_default()
            .insert(of.clone(), counters);
        self.changed(span);
        self.alone.insert((span, of));
    }

    /// Takes all cells of a span out.
    pub(super) fn remove_span(&mut self, span: Span) -> OfSpan {
        let of_span = self.by_span.remove(&span).unwrap_or_default();
        for of in of_span.keys() {
            self.alone.remove(&(span, of.clone()));
        }
        self.changed(span);
        of_span
    }

    pub(super) fn delete(&mut self, vo: VoId, (span, of): &(Span, Of)) -> Write {
        if let Some(of_span) = self.by_span.get_mut(span) {
            of_span.remove(of);
            if of_span.is_empty() {
                self.by_span.remove(span);
            }
        }
        self.alone.remove(&(*span, of.clone()));
        self.changed(*span);
        Write::delete(Table::Ledger, key_of(Some(vo), *span, of))
    }

    fn changed(&mut self, span: Span) {
        self.totals.remove(&span);
        self.full.unjudged.insert(span);
        self.dirty.insert(span);
    }

    /// What a span says in all.
    pub(super) fn total(&mut self, span: Span) -> Total {
        let Some(of_span) = self.by_span.get(&span) else {
            return Total::default();
        };
        let sum = || {
            let mut total = Total::default();
            sums_of(of_span).for_each(|(_, counters)| total.add(counters));
            total
        };
        *self.totals.entry(span).or_insert_with(sum)
    }

    /// Whether any span says more than the site can have run. Looks at those that changed.
    pub(super) fn is_over(&mut self, capacity: Capacity, window: WindowLength) -> bool {
        if self.full.capacity.replace(capacity) != Some(capacity) {
            self.full.unjudged.extend(self.by_span.keys().copied());
            self.full.over.clear();
        }
        for span in std::mem::take(&mut self.full.unjudged) {
            if capacity.is_within(span, self.total(span), window) {
                self.full.over.remove(&span);
            } else {
                self.full.over.insert(span);
            }
        }
        !self.full.over.is_empty()
    }

    /// The spans of a day in which anything is counted.
    pub(super) fn spans_of_day(&self, day: u32, window: WindowLength) -> Vec<Span> {
        let first = window.window_at(Span::Day(day).start(window));
        let end = window.window_at(Span::Day(day).end(window));
        let windows = self.by_span.range(Span::Window(first)..Span::Window(end));
        let whole = self.by_span.get_key_value(&Span::Day(day));
        windows.chain(whole).map(|(span, _)| *span).collect()
    }

    /// Cells of spans that begin later than `latest`.
    pub(super) fn ahead_of(
        &self,
        latest: WallTime,
        window: WindowLength,
    ) -> Vec<(Span, Of, Counters)> {
        let ahead = self
            .by_span
            .iter()
            .filter(|(span, _)| span.start(window) > latest);
        let cells = ahead.flat_map(|(span, of_span)| {
            of_span
                .iter()
                .map(|(of, counters)| (*span, of.clone(), *counters))
        });
        cells.collect()
    }

    pub(super) fn of_day(&self, day: u32, window: WindowLength) -> Vec<Cell<AccountPath>> {
        let spans = self.spans_of_day(day, window).into_iter();
        spans
            .flat_map(|span| cells_of(span, &self.by_span[&span]))
            .collect()
    }

    /// The parts of the other kinds, in the order of their names: kinds come first in them.
    pub(super) fn others(&self) -> impl Iterator<Item = (&PartKey, &Vec<u8>)> {
        let parts = self.running.iter().chain(&self.description);
        parts.chain(&self.audit)
    }
}

/// The cells of an account in a span, of all incarnations.
pub(super) fn cells_of_account<'a>(
    of_span: &'a OfSpan,
    path: &AccountPath,
) -> impl Iterator<Item = (&'a Of, &'a Counters)> + use<'a> {
    let all = (path.clone(), Incarnation(0))..=(path.clone(), Incarnation(u64::MAX));
    of_span.range(all)
}

/// The sums of a span's cells over the incarnations, account by account.
pub(super) fn sums_of(of_span: &OfSpan) -> impl Iterator<Item = (&AccountPath, Counters)> {
    let mut cells = of_span.iter().peekable();
    std::iter::from_fn(move || {
        let ((path, _), counters) = cells.next()?;
        let mut sum = *counters;
        while let Some((_, more)) = cells.next_if(|((next, _), _)| next == path) {
            sum = sum.plus(*more);
        }
        Some((path, sum))
    })
}

pub(super) fn cells_of(
    span: Span,
    of_span: &OfSpan,
) -> impl Iterator<Item = Cell<AccountPath>> + '_ {
    let cell = move |((path, incarnation), counters): (&Of, &Counters)| {
        (*incarnation, span, path.clone(), *counters)
    };
    of_span.iter().map(cell)
}

pub(super) fn key_of(vo: Option<VoId>, span: Span, (path, incarnation): &Of) -> Vec<u8> {
    let path = path.clone();
    ledger_key(&Account { vo, path }, *incarnation, span)
}

pub(super) fn set(vo: Option<VoId>, span: Span, of: &Of, counters: Counters) -> Write {
    Write::set(
        Table::Ledger,
        key_of(vo, span, of),
        ledger_value(&of.0, counters),
    )
}
