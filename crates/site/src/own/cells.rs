//! What is counted for one VO, and which of it has changed since it was published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::PartKey;
use fairmesh_model::{
    AccountPath, Counters, Incarnation, Span, VoId, WallTime, WindowLength, mutated,
};
use fairmesh_usage::{Capacity, Cell, Slice, Total};

use crate::published::Sums;
use crate::store::{Write, ledger_row};

/// An account in an incarnation.
pub(super) type Of = (AccountPath, Incarnation);

/// The cells of one span, shared with whoever reads them elsewhere: a change copies them while somebody does.
pub(crate) type OfSpan = Arc<BTreeMap<Of, Counters>>;

/// What is counted for one VO, or for the site's own accounts.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) by_span: BTreeMap<Span, OfSpan>,
    /// What spans that were looked at say in all, while nothing but plain counting changes them.
    totals: BTreeMap<Span, Total>,
    /// Spans that changed since the last head.
    pub(super) dirty: BTreeSet<Span>,
    /// Cells that changed and that no peer is known to hold as they are.
    pub(super) alone: BTreeSet<(Span, Of)>,
    /// The tables that the last head named, by span.
    pub(super) tables: BTreeMap<Span, BTreeSet<Slice>>,
    /// Parts of the other kinds, by kind, and what of them is not as the last head named it.
    pub(super) others: BTreeMap<u8, BTreeMap<PartKey, Vec<u8>>>,
    pub(super) pending: BTreeMap<PartKey, Option<Vec<u8>>>,
}

/// What bounds the usage of a VO: the capacity that its charter declares, over the length of its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) capacity: Capacity,
    pub(crate) window: WindowLength,
}

impl Cells {
    /// The name of a cell with the text that this span or the one before has of its account: each record and each row
    /// of the store brings a text of its own, and an account has cells in many spans.
    fn with_shared_text(&self, span: Span, of: Of) -> Of {
        let cells = self.by_span.get(&span);
        if let Some((held, _)) = cells.and_then(|cells| cells.get_key_value(&of)) {
            return held.clone();
        }
        let before = self.by_span.range(..span).next_back();
        let held = before.and_then(|(_, cells)| cells_of_account(cells, &of.0).next());
        let path = held.map(|((path, _), _)| path.clone());
        (path.unwrap_or(of.0), of.1)
    }

    /// Adds to a cell. Returns it as it stands.
    pub(super) fn add(&mut self, span: Span, of: Of, amount: Counters) -> Counters {
        let of = self.with_shared_text(span, of);
        let of_span = Arc::make_mut(self.by_span.entry(span).or_default());
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
        if cell == amount || !mutated!(GrowthUnpublished) {
            self.dirty.insert(span);
            self.alone.insert((span, of));
        }
        cell
    }

    /// A cell as it stands; of nothing where there is none.
    pub(super) fn get(&self, span: Span, of: &Of) -> Counters {
        let of_span = self.by_span.get(&span);
        let cell = of_span.and_then(|of_span| of_span.get(of));
        cell.copied().unwrap_or_default()
    }

    /// Sets a cell; one that counts nothing goes.
    pub(super) fn put(&mut self, span: Span, of: Of, counters: Counters) {
        let of = self.with_shared_text(span, of);
        let of_span = Arc::make_mut(self.by_span.entry(span).or_default());
        let cell = (span, of);
        if counters.is_zero() {
            of_span.remove(&cell.1);
            self.alone.remove(&cell);
        } else {
            of_span.insert(cell.1.clone(), counters);
            self.alone.insert(cell);
        }
        if of_span.is_empty() {
            self.by_span.remove(&span);
        }
        self.totals.remove(&span);
        self.dirty.insert(span);
    }

    /// Makes the nodes of a span's map full: cells that come in their order, as rows of the store do, fill half of
    /// each.
    pub(super) fn pack(&mut self, span: Span) {
        if let Some(of_span) = self.by_span.get_mut(&span) {
            let of_span = Arc::make_mut(of_span);
            *of_span = std::mem::take(of_span).into_iter().collect();
        }
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

    /// Whether any span says more than the site can have run. Adds up those that changed.
    pub(super) fn is_over(&mut self, bounds: Bounds) -> bool {
        let spans: Vec<Span> = self.by_span.keys().copied().collect();
        let is_over = |span| {
            let total = self.total(span);
            !bounds.capacity.is_within(span, total, bounds.window)
        };
        spans.into_iter().any(is_over)
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
}

/// What changes to the cells are to be kept, and what the spans were that they are in.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) writes: Vec<Write>,
    before: BTreeMap<Span, OfSpan>,
}

impl Counted {
    /// The spans that changed.
    pub(crate) fn spans(&self) -> BTreeSet<Span> {
        self.before.keys().copied().collect()
    }

    /// What counted in these spans before, by span and account.
    pub(crate) fn sums_before(&self, bounds: Option<Bounds>) -> Sums<AccountPath> {
        clamped(self.before.iter(), bounds)
    }
}

/// Cells that change, and what has changed of them.
pub(super) struct Changing<'a> {
    vo: Option<VoId>,
    pub(super) cells: &'a mut Cells,
    pub(super) counted: Counted,
}

impl<'a> Changing<'a> {
    pub(super) fn of(vo: Option<VoId>, cells: &'a mut Cells) -> Self {
        let counted = Counted::default();
        Self { vo, cells, counted }
    }

    /// Sets a cell; one that counts nothing goes.
    pub(super) fn set(&mut self, span: Span, of: Of, counters: Counters) {
        let as_it_is = || self.cells.by_span.get(&span).cloned().unwrap_or_default();
        self.counted.before.entry(span).or_insert_with(as_it_is);
        let row = ledger_row(self.vo, span, &of, counters);
        self.counted.writes.push(row);
        self.cells.put(span, of, counters);
    }

    /// Adds to a cell.
    pub(super) fn add(&mut self, span: Span, of: Of, amount: Counters) {
        let sum = self.cells.get(span, &of).plus(amount);
        self.set(span, of, sum);
    }

    /// Takes all cells of a span out.
    pub(super) fn take_span(&mut self, span: Span) -> OfSpan {
        let of_span = self.cells.by_span.get(&span).cloned().unwrap_or_default();
        for of in of_span.keys() {
            self.set(span, of.clone(), Counters::default());
        }
        of_span
    }
}

/// What counts of the cells of whole spans.
pub(crate) fn clamped<'a>(
    spans: impl Iterator<Item = (&'a Span, &'a OfSpan)>,
    bounds: Option<Bounds>,
) -> Sums<AccountPath> {
    let of_span = |(span, of_span): (&'a Span, &'a OfSpan)| {
        let sums = sums_of(of_span);
        sums.map(|(path, counters)| ((*span, path.clone()), counters))
    };
    let mut sums: Sums<AccountPath> = spans.flat_map(of_span).collect();
    if let Some(bounds) = bounds.filter(|_| !mutated!(ClampsOthersOnly)) {
        bounds.capacity.clamp(&mut sums, bounds.window);
    }
    sums
}

/// The cells of an account in a span, of all incarnations.
pub(super) fn cells_of_account<'a>(
    of_span: &'a BTreeMap<Of, Counters>,
    path: &AccountPath,
) -> impl Iterator<Item = (&'a Of, &'a Counters)> + use<'a> {
    let all = (path.clone(), Incarnation(0))..=(path.clone(), Incarnation(u64::MAX));
    of_span.range(all)
}

/// The sums of a span's cells over the incarnations, account by account.
fn sums_of(of_span: &OfSpan) -> impl Iterator<Item = (&AccountPath, Counters)> {
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
