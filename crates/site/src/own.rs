//! Own usage: the only writer and, beside what is published, the only copy of this site's counters.
//!
//! Cells are counted under the incarnation that runs. Those of earlier incarnations stay as the store
//! has them, published or not, and are published again with the first head of this one. What this site
//! had published and its store does not know (a restored backup, a wiped disk) is joined in when a peer
//! has it. Two days after its end a day takes its windows in.
//!
//! Invariant: what was ever published is at most what is kept here, cell by cell, but for what this
//! site does not know of itself yet; an account's day is counted in its windows or as a whole, never
//! both.

mod cells;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::{PART_BYTES_MAX, PartKey};
use fairmesh_model::{
    AccountPath, CoreMillis, Counters, Incarnation, Span, VoId, WallTime, WindowLength, mutant,
    mutated,
};
use fairmesh_usage::{Capacity, Cell, Slice, cut, join_cells};

use crate::identity::Account;
use crate::kinds::{Description, description_parts, running_parts, usage_key};
use crate::published::Sums;
use crate::store::{LedgerRow, Table, Write};
use cells::{Cells, Of, OfSpan, cells_of, cells_of_account, key_of, set, sums_of};

/// Marks the incarnation of cells that were counted while the clock was ahead and were given a place
/// later. No start of a node has a number as high.
const PLACED: u64 = 1 << 63;

/// Own counters of all VOs and of the local accounts.
#[derive(Debug)]
pub(crate) struct Own {
    incarnation: Incarnation,
    cells: BTreeMap<Option<VoId>, Cells>,
}

/// What changes to the cells are to be kept, and what the spans were that they are in.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) writes: Vec<Write>,
    before: BTreeMap<Span, OfSpan>,
}

impl Counted {
    /// A span is about to change.
    fn note(&mut self, cells: &Cells, span: Span) {
        let as_it_is = || cells.by_span.get(&span).cloned().unwrap_or_default();
        self.before.entry(span).or_insert_with(as_it_is);
    }

    /// The spans that changed.
    pub(crate) fn spans(&self) -> BTreeSet<Span> {
        self.before.keys().copied().collect()
    }

    /// What counted in these spans before, by span and account.
    pub(crate) fn sums_before(
        &self,
        capacity: Capacity,
        window: WindowLength,
    ) -> Sums<AccountPath> {
        clamped(self.before.iter(), capacity, window)
    }
}

/// What counts of the cells of whole spans.
fn clamped<'a>(
    spans: impl Iterator<Item = (&'a Span, &'a OfSpan)>,
    capacity: Capacity,
    window: WindowLength,
) -> Sums<AccountPath> {
    let of_span = |(span, of_span): (&'a Span, &'a OfSpan)| {
        let sums = sums_of(of_span);
        sums.map(|(path, counters)| ((*span, path.clone()), counters))
    };
    let mut sums: Sums<AccountPath> = spans.flat_map(of_span).collect();
    if !mutated!(ClampsOthersOnly) {
        capacity.clamp(&mut sums, window);
    }
    sums
}

impl Own {
    /// Nothing, counted under `incarnation`.
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            cells: BTreeMap::new(),
        }
    }

    /// The incarnation that counts now.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Counts. What comes for a window of a day that is counted as a whole goes to the day, and a whole
    /// day takes in the windows that are left of it. Returns what is to be kept, and where it was
    /// counted.
    pub(crate) fn add(
        &mut self,
        account: &Account,
        span: Span,
        amount: Counters,
        window: WindowLength,
    ) -> (Vec<Write>, Span) {
        let mut writes = Vec::new();
        let day = Span::Day(span.day(window));
        let is_whole = self.has_day(account.vo, day);
        if span == day && !is_whole {
            writes = self.merge_days(account.vo, window, |of| of == day).writes;
        }
        let span = if is_whole { day } else { span };
        let of = (account.path.clone(), self.incarnation_of(account.vo));
        let cells = self.cells.entry(account.vo).or_default();
        let cell = cells.add(span, of.clone(), amount);
        let row = mutant!(LedgerKeepsLast, cell, amount);
        if !mutated!(LedgerUnwritten) {
            writes.push(set(account.vo, span, &of, row));
        }
        (writes, span)
    }

    /// Joins in what this site had published: cell by cell the maximum.
    pub(crate) fn absorb(
        &mut self,
        vo: VoId,
        offered: Vec<Cell<AccountPath>>,
        latest: WallTime,
        window: WindowLength,
    ) -> Counted {
        let mut by_day: BTreeMap<u32, Vec<Cell<AccountPath>>> = BTreeMap::new();
        for cell in offered {
            by_day.entry(cell.1.day(window)).or_default().push(cell);
        }
        let mut counted = Counted::default();
        let mut placed: BTreeMap<Of, Counters> = BTreeMap::new();
        for (day, offered) in by_day {
            let cells = self.cells.entry(Some(vo)).or_default();
            let held = cells.of_day(day, window);
            let mut joined: BTreeMap<(Span, Of), Counters> = BTreeMap::new();
            for ((incarnation, span, path), counters) in
                join_cells(held.iter().cloned().chain(offered), window)
            {
                joined.insert((span, (path, incarnation)), counters);
            }
            let held = held
                .into_iter()
                .map(|(incarnation, span, path, counters)| ((span, (path, incarnation)), counters));
            let held: BTreeMap<(Span, Of), Counters> = held.collect();
            for key in held.keys().filter(|key| !joined.contains_key(*key)) {
                counted.note(cells, key.0);
                counted.writes.push(cells.delete(vo, key));
            }
            for ((span, of), counters) in joined {
                let before = held.get(&(span, of.clone())).copied();
                if before != Some(counters) {
                    if of.1.0 & PLACED != 0 {
                        let more = placed.entry(of.clone()).or_default();
                        *more = more.plus(counters.minus(before.unwrap_or_default()));
                    }
                    counted.note(cells, span);
                    counted.writes.push(set(Some(vo), span, &of, counters));
                    cells.put(span, of, counters);
                }
            }
        }
        for (of, amount) in placed {
            self.forget_placed(vo, &of, amount, (latest, window), &mut counted);
        }
        counted
    }

    /// Takes a row of the store.
    pub(crate) fn restore(&mut self, row: LedgerRow) {
        if row.account.vo.is_none() && mutated!(LocalUnread) {
            return;
        }
        let cells = self.cells.entry(row.account.vo).or_default();
        let of = (row.account.path, row.incarnation);
        cells.put(row.span, of, row.counters);
    }

    /// Makes whole days of the days that `which` names: each takes its windows in.
    pub(crate) fn merge_days(
        &mut self,
        vo: Option<VoId>,
        window: WindowLength,
        which: impl Fn(Span) -> bool,
    ) -> Counted {
        let mut counted = Counted::default();
        let Some(cells) = self.cells.get_mut(&vo) else {
            return counted;
        };
        let of_day = |span: &Span| Span::Day(span.day(window));
        let windows = cells
            .by_span
            .keys()
            .filter(|span| matches!(span, Span::Window(_)));
        let windows: Vec<Span> = windows
            .filter(|span| which(of_day(span)))
            .copied()
            .collect();
        for span in windows {
            let day = of_day(&span);
            counted.note(cells, day);
            counted.note(cells, span);
            let of_span = mutant!(
                HoursStay,
                cells.remove_span(span),
                cells.by_span[&span].clone()
            );
            for (of, counters) in of_span {
                if !mutated!(HourRowsStay) {
                    counted
                        .writes
                        .push(Write::delete(Table::Ledger, key_of(vo, span, &of)));
                }
                let cell = cells.add(day, of.clone(), counters);
                if !mutated!(DayUnwritten) {
                    counted.writes.push(set(vo, day, &of, cell));
                }
            }
        }
        counted
    }

    /// Counts what lies in spans that begin later than `latest` in the last one that does not: the clock
    /// was ahead when it was counted. What an earlier incarnation left there waits until `all` may be
    /// placed: its own heads may have placed it already.
    pub(crate) fn settle_future(
        &mut self,
        vo: VoId,
        latest: WallTime,
        window: WindowLength,
        all: bool,
    ) -> Counted {
        let place = Span::Window(window.window_at(latest));
        let current = self.incarnation;
        let mut counted = Counted::default();
        let Some(cells) = self.cells.get_mut(&Some(vo)) else {
            return counted;
        };
        for (span, of, counters) in cells.ahead_of(latest, window) {
            if !all && of.1 != current {
                continue;
            }
            let placed = (of.0.clone(), Incarnation(of.1.0 | PLACED));
            counted.note(cells, place);
            counted.note(cells, span);
            if !mutated!(PlacedTwice) {
                counted.writes.push(cells.delete(vo, &(span, of)));
            }
            let cell = cells.add(place, placed.clone(), counters);
            counted.writes.push(set(Some(vo), place, &placed, cell));
        }
        counted
    }

    /// Whether anything lies in spans that begin later than `latest`.
    pub(crate) fn is_ahead_of(&self, vo: VoId, latest: WallTime, window: WindowLength) -> bool {
        let cells = self.cells.get(&Some(vo));
        let mut spans = cells.into_iter().flat_map(|cells| cells.by_span.keys());
        spans.any(|span| span.start(window) > latest)
    }

    /// What was found to be placed by `amount` more is not to be placed again.
    fn forget_placed(
        &mut self,
        vo: VoId,
        of: &Of,
        mut amount: Counters,
        (latest, window): (WallTime, WindowLength),
        counted: &mut Counted,
    ) {
        let counted_as = (of.0.clone(), Incarnation(of.1.0 & !PLACED));
        let cells = self.cells.entry(Some(vo)).or_default();
        for (span, ahead, counters) in cells.ahead_of(latest, window) {
            if ahead != counted_as {
                continue;
            }
            let left = counters.minus(amount);
            amount = amount.minus(counters);
            counted.note(cells, span);
            if left.is_zero() {
                counted.writes.push(cells.delete(vo, &(span, ahead)));
            } else {
                counted.writes.push(set(Some(vo), span, &ahead, left));
                cells.put(span, ahead, left);
            }
        }
    }

    /// Drops what ended by `horizon`, which weighs nothing any more.
    pub(crate) fn forget(
        &mut self,
        vo: Option<VoId>,
        horizon: WallTime,
        window: WindowLength,
    ) -> Counted {
        let mut counted = Counted::default();
        let Some(cells) = self.cells.get_mut(&vo) else {
            return counted;
        };
        let past = cells
            .by_span
            .keys()
            .filter(|span| span.end(window) <= horizon);
        let past: Vec<Span> = past.copied().collect();
        for span in past {
            let gone = cells.remove_span(span);
            let rows = gone.keys();
            let rows = rows.map(|of| Write::delete(Table::Ledger, key_of(vo, span, of)));
            counted.writes.extend(rows);
            counted.before.insert(span, gone);
        }
        counted
    }

    /// Takes what running jobs of a VO are still expected to be charged. Returns whether that is news.
    pub(crate) fn expect(
        &mut self,
        vo: VoId,
        expected: &BTreeMap<AccountPath, CoreMillis>,
    ) -> bool {
        let cells = self.cells.entry(Some(vo)).or_default();
        let parts = running_parts(expected);
        let is_news = cells.running != parts;
        cells.running = parts;
        cells.others_changed |= is_news;
        is_news
    }

    /// Takes what the site's machines cost.
    pub(crate) fn describe(&mut self, vo: VoId, description: &Description) {
        let cells = self.cells.entry(Some(vo)).or_default();
        let parts = description_parts(description);
        cells.others_changed |= cells.description != parts;
        cells.description = parts;
    }

    /// Takes what the site has taken back.
    pub(crate) fn audit(&mut self, vo: VoId, parts: BTreeMap<PartKey, Vec<u8>>) {
        let cells = self.cells.entry(Some(vo)).or_default();
        cells.others_changed |= cells.audit != parts;
        cells.audit = parts;
    }

    /// Whether anything of the VO differs from what the last head named.
    pub(crate) fn has_unpublished(&self, vo: VoId) -> bool {
        let Some(cells) = self.cells.get(&Some(vo)) else {
            return false;
        };
        !cells.dirty.is_empty() || cells.others_changed
    }

    /// The parts that changed since the last head, for the next one; all where it is the first of this
    /// incarnation.
    pub(crate) fn take_changes(
        &mut self,
        vo: VoId,
        all: bool,
        latest: WallTime,
        window: WindowLength,
    ) -> Vec<(PartKey, Option<Vec<u8>>)> {
        let cells = self.cells.entry(Some(vo)).or_default();
        if all {
            cells.dirty.extend(cells.by_span.keys().copied());
            cells.tables.clear();
            cells.named.clear();
        }
        let mut changes = BTreeMap::new();
        let waits = |span: &Span| span.start(window) > latest;
        let (wait, changed): (BTreeSet<Span>, BTreeSet<Span>) = std::mem::take(&mut cells.dirty)
            .into_iter()
            .partition(waits);
        cells.dirty = wait;
        for span in changed {
            let of_span = cells.by_span.get(&span).into_iter().flatten();
            let of_span =
                of_span.map(|((path, incarnation), counters)| (path, *incarnation, *counters));
            let tables = cut(span, of_span, PART_BYTES_MAX);
            let names: BTreeSet<Slice> = tables.iter().map(|(slice, _)| *slice).collect();
            let before = cells.tables.insert(span, names).unwrap_or_default();
            changes.extend(before.into_iter().map(|slice| (usage_key(slice), None)));
            changes.extend(
                tables
                    .into_iter()
                    .map(|(slice, bytes)| (usage_key(slice), Some(bytes))),
            );
        }
        cells.tables.retain(|_, slices| !slices.is_empty());
        let others: BTreeMap<PartKey, Vec<u8>> = cells
            .others()
            .map(|(key, bytes)| (key.clone(), bytes.clone()))
            .collect();
        let gone = cells.named.keys().filter(|key| !others.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), None)));
        let news = others
            .iter()
            .filter(|(key, bytes)| cells.named.get(*key) != Some(*bytes));
        changes.extend(news.map(|(key, bytes)| (key.clone(), Some(bytes.clone()))));
        cells.named = others;
        cells.others_changed = false;
        changes.into_iter().collect()
    }

    /// A peer holds all that was published of the VO and has not changed since.
    pub(crate) fn landed(&mut self, vo: VoId) {
        if let Some(cells) = self.cells.get_mut(&Some(vo)) {
            let dirty = &cells.dirty;
            cells.alone.retain(|(span, _)| dirty.contains(span));
        }
    }

    /// The rows, as the store has them, of all counters that nobody but this site is known to hold.
    pub(crate) fn rows_held_alone(&self) -> Vec<Write> {
        let rows = self.cells.iter().flat_map(|(vo, cells)| {
            let of_vo = cells.alone.iter().filter(|_| vo.is_some());
            let of_vo = of_vo.filter_map(move |(span, of)| {
                let counters = cells.by_span.get(span)?.get(of)?;
                Some(set(*vo, *span, of, *counters))
            });
            let local = cells.by_span.iter().filter(|_| vo.is_none());
            let local = local.flat_map(|(span, of_span)| {
                of_span
                    .iter()
                    .map(|(of, counters)| set(None, *span, of, *counters))
            });
            of_vo.chain(local)
        });
        rows.collect()
    }

    /// Everything that is counted for a VO, or locally, by span.
    pub(crate) fn cells(&self, vo: Option<VoId>) -> impl Iterator<Item = Cell<AccountPath>> + '_ {
        let spans = self
            .cells
            .get(&vo)
            .into_iter()
            .flat_map(|cells| &cells.by_span);
        spans.flat_map(|(span, of_span)| cells_of(*span, of_span))
    }

    /// What is counted in a span.
    pub(crate) fn cells_in(
        &self,
        vo: Option<VoId>,
        span: Span,
    ) -> impl Iterator<Item = Cell<AccountPath>> + '_ {
        let of_span = self
            .cells
            .get(&vo)
            .and_then(|cells| cells.by_span.get(&span));
        of_span
            .into_iter()
            .flat_map(move |of_span| cells_of(span, of_span))
    }

    /// What counts of the cells of a VO in `spans`, by span and account.
    pub(crate) fn sums_in(
        &self,
        vo: VoId,
        spans: &BTreeSet<Span>,
        capacity: Capacity,
        window: WindowLength,
    ) -> Sums<AccountPath> {
        let cells = self.cells.get(&Some(vo)).map(|cells| &cells.by_span);
        let held = spans
            .iter()
            .filter_map(|span| Some((span, cells?.get(span)?)));
        clamped(held, capacity, window)
    }

    /// Whether any span of a VO says more than the site can have run.
    pub(crate) fn is_over(&mut self, vo: VoId, capacity: Capacity, window: WindowLength) -> bool {
        let cells = self.cells.get_mut(&Some(vo));
        cells.is_some_and(|cells| cells.is_over(capacity, window))
    }

    /// What is counted of an account in a span, over all incarnations.
    pub(crate) fn counted_in(&self, account: &Account, span: Span) -> Counters {
        let of_span = self
            .cells
            .get(&account.vo)
            .and_then(|cells| cells.by_span.get(&span));
        let cells = of_span.map(|of_span| cells_of_account(of_span, &account.path));
        let cells = cells.into_iter().flatten();
        cells.fold(Counters::default(), |sum, (_, counters)| {
            sum.plus(*counters)
        })
    }

    /// Whether what is added to a span just adds to what counts of its account: nothing of the span is
    /// taken back, and all of it stays within the site's capacity.
    pub(crate) fn just_adds(
        &mut self,
        account: &Account,
        span: Span,
        more: Counters,
        capacity: Capacity,
        window: WindowLength,
    ) -> bool {
        if more.refunds > 0 || self.counted_in(account, span).refunds > 0 {
            return false;
        }
        let cells = self.cells.entry(account.vo).or_default();
        let mut total = cells.total(span);
        total.add(more);
        capacity.is_within(span, total, window)
    }

    /// The spans that counting in `span` may change: all of a day that becomes whole.
    pub(crate) fn changed_by(
        &self,
        vo: Option<VoId>,
        span: Span,
        window: WindowLength,
    ) -> BTreeSet<Span> {
        let place = self.place(vo, span, window);
        let cells = self.cells.get(&vo).filter(|_| place == span);
        let merged = match (cells, span) {
            (Some(cells), Span::Day(day)) => cells.spans_of_day(day, window),
            _ => Vec::new(),
        };
        merged.into_iter().chain([place]).collect()
    }

    /// Where what is counted for `span` goes.
    pub(crate) fn place(&self, vo: Option<VoId>, span: Span, window: WindowLength) -> Span {
        let day = Span::Day(span.day(window));
        if self.has_day(vo, day) { day } else { span }
    }

    /// The spans in which anything is counted.
    pub(crate) fn spans(&self, vo: Option<VoId>) -> Vec<Span> {
        let cells = self.cells.get(&vo);
        cells
            .map(|cells| cells.by_span.keys().copied().collect())
            .unwrap_or_default()
    }

    fn has_day(&self, vo: Option<VoId>, day: Span) -> bool {
        self.cells
            .get(&vo)
            .is_some_and(|cells| cells.by_span.contains_key(&day))
    }

    /// Local counters live in one incarnation for ever: nobody else holds a copy.
    fn incarnation_of(&self, vo: Option<VoId>) -> Incarnation {
        if vo.is_some() {
            self.incarnation
        } else {
            Incarnation(0)
        }
    }
}

#[cfg(test)]
mod tests;
