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
use fairmesh_usage::{Capacity, Cell, Excess, Slice, cut, join_cells};

use crate::identity::Account;
use crate::kinds::{Description, description_parts, running_parts, usage_key};
use crate::published::Sums;
use crate::store::{LedgerRow, Table, Write};
use cells::{Cells, Of, cells_of, key_of, set};

/// Marks the incarnation of cells that were counted while the clock was ahead and were given a place
/// later. No start of a node has a number as high.
const PLACED: u64 = 1 << 63;

/// Own counters of all VOs and of the local accounts.
#[derive(Debug)]
pub(crate) struct Own {
    incarnation: Incarnation,
    cells: BTreeMap<Option<VoId>, Cells>,
}

/// What changes to the cells are to be kept, and in which spans they are.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) writes: Vec<Write>,
    pub(crate) spans: BTreeSet<Span>,
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
    /// day takes in the windows that are left of it.
    pub(crate) fn add(
        &mut self,
        account: &Account,
        span: Span,
        amount: Counters,
        window: WindowLength,
    ) -> Counted {
        let mut counted = Counted::default();
        let day = Span::Day(span.day(window));
        let is_whole = self.has_day(account.vo, day);
        if span == day && !is_whole {
            counted = self.merge_days(account.vo, window, |of| of == day);
        }
        let span = if is_whole { day } else { span };
        let incarnation = self.incarnation_of(account.vo);
        let cells = self.cells.entry(account.vo).or_default();
        let of = (account.path.clone(), incarnation);
        let cell = cells
            .by_span
            .entry(span)
            .or_default()
            .entry(of.clone())
            .or_default();
        *cell = cell.plus(amount);
        let write = set(
            account.vo,
            span,
            &of,
            mutant!(LedgerKeepsLast, *cell, amount),
        );
        if *cell == amount || !mutated!(GrowthUnpublished) {
            cells.touch(span, of);
        }
        if !mutated!(LedgerUnwritten) {
            counted.writes.push(write);
        }
        counted.spans.insert(span);
        counted
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
                counted.writes.push(cells.delete(vo, key));
                counted.spans.insert(key.0);
            }
            for ((span, of), counters) in joined {
                let before = held.get(&(span, of.clone())).copied();
                if before != Some(counters) {
                    if of.1.0 & PLACED != 0 {
                        let more = placed.entry(of.clone()).or_default();
                        *more = more.plus(counters.minus(before.unwrap_or_default()));
                    }
                    counted.writes.push(set(Some(vo), span, &of, counters));
                    cells
                        .by_span
                        .entry(span)
                        .or_default()
                        .insert(of.clone(), counters);
                    cells.touch(span, of);
                    counted.spans.insert(span);
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
        cells
            .by_span
            .entry(row.span)
            .or_default()
            .insert(of.clone(), row.counters);
        cells.touch(row.span, of);
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
            let of_span = mutant!(
                HoursStay,
                cells.by_span.remove(&span),
                cells.by_span.get(&span).cloned()
            );
            for (of, counters) in of_span.unwrap_or_default() {
                cells.alone.remove(&(span, of.clone()));
                if !mutated!(HourRowsStay) {
                    counted
                        .writes
                        .push(Write::delete(Table::Ledger, key_of(vo, span, &of)));
                }
                let cell = cells
                    .by_span
                    .entry(day)
                    .or_default()
                    .entry(of.clone())
                    .or_default();
                *cell = cell.plus(counters);
                if !mutated!(DayUnwritten) {
                    counted.writes.push(set(vo, day, &of, *cell));
                }
                cells.touch(day, of);
            }
            cells.dirty.insert(span);
            counted.spans.extend([span, day]);
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
            if !mutated!(PlacedTwice) {
                counted.writes.push(cells.delete(vo, &(span, of)));
            }
            let of_place = cells.by_span.entry(place).or_default();
            let cell = of_place.entry(placed.clone()).or_default();
            *cell = cell.plus(counters);
            counted.writes.push(set(Some(vo), place, &placed, *cell));
            cells.touch(place, placed);
            counted.spans.extend([span, place]);
        }
        counted
    }

    /// Whether anything lies in spans that begin later than `latest`.
    pub(crate) fn is_ahead_of(&self, vo: VoId, latest: WallTime, window: WindowLength) -> bool {
        self.spans(Some(vo))
            .iter()
            .any(|span| span.start(window) > latest)
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
            counted.spans.insert(span);
            if left.is_zero() {
                counted.writes.push(cells.delete(vo, &(span, ahead)));
            } else {
                counted.writes.push(set(Some(vo), span, &ahead, left));
                cells
                    .by_span
                    .entry(span)
                    .or_default()
                    .insert(ahead.clone(), left);
                cells.touch(span, ahead);
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
            for (of, _) in cells.by_span.remove(&span).unwrap_or_default() {
                cells.alone.remove(&(span, of.clone()));
                counted
                    .writes
                    .push(Write::delete(Table::Ledger, key_of(vo, span, &of)));
            }
            cells.dirty.insert(span);
            counted.spans.insert(span);
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
        is_news
    }

    /// Takes what the site's machines cost.
    pub(crate) fn describe(&mut self, vo: VoId, description: &Description) {
        let cells = self.cells.entry(Some(vo)).or_default();
        cells.description = description_parts(description);
    }

    /// Whether anything of the VO differs from what the last head named.
    pub(crate) fn has_unpublished(&self, vo: VoId) -> bool {
        let Some(cells) = self.cells.get(&Some(vo)) else {
            return false;
        };
        !cells.dirty.is_empty() || cells.others().ne(&cells.named)
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

    /// What counts of the cells of a VO in `spans`, or of all, by span and account; and where it is more
    /// than the site can have run.
    pub(crate) fn sums(
        &self,
        vo: VoId,
        spans: Option<&BTreeSet<Span>>,
        capacity: Capacity,
        window: WindowLength,
    ) -> (Sums<AccountPath>, Vec<Excess>) {
        let mut sums = Sums::new();
        let all: BTreeSet<Span> = match spans {
            Some(spans) => spans.clone(),
            None => self.spans(Some(vo)).into_iter().collect(),
        };
        for span in all {
            for (_, _, path, counters) in self.cells_in(Some(vo), span) {
                let sum: &mut Counters = sums.entry((span, path)).or_default();
                *sum = sum.plus(counters);
            }
        }
        let excess = mutant!(
            ClampsOthersOnly,
            capacity.clamp(&mut sums, window),
            Vec::new()
        );
        (sums, excess)
    }

    /// Whether a span of a VO stays within the site's capacity with `more` in it, so that what is added
    /// there counts as it is.
    pub(crate) fn has_room(
        &self,
        vo: VoId,
        span: Span,
        more: Counters,
        capacity: Capacity,
        window: WindowLength,
    ) -> bool {
        let cells = self
            .cells
            .get(&Some(vo))
            .and_then(|cells| cells.by_span.get(&span));
        let counted = cells.into_iter().flat_map(BTreeMap::values).chain([&more]);
        let total = counted.fold([0u128; 2], |[charge, cpu], counters| {
            [
                charge + u128::from(counters.charge),
                cpu + u128::from(counters.cpu_ms),
            ]
        });
        capacity.is_within(span, total, window)
    }

    /// Whether counting in `span` would make a whole day of windows.
    pub(crate) fn would_merge(&self, vo: VoId, span: Span, window: WindowLength) -> bool {
        let is_day = matches!(span, Span::Day(_)) && !self.has_day(Some(vo), span);
        is_day
            && self
                .spans(Some(vo))
                .iter()
                .any(|held| held.day(window) == span.day(window))
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
