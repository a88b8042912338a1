//! Own usage: the only writer and, beside what is published, the only copy of this site's counters.
//!
//! Cells are counted under the incarnation that runs. Those of earlier incarnations stay as the store has them,
//! published or not, and are published again with the first head of this one. What this site had published and its
//! store does not know (a restored backup, a wiped disk) is joined in when a peer has it. Two days after its end a day
//! takes its windows in. Cells of the site's own accounts, which nobody else holds, stand under the length of their
//! windows in the place of an incarnation: a start with other windows moves them.
//!
//! Invariant: what was ever published is at most what is kept here, cell by cell, but for what this
//! site does not know of itself yet; an account's day is counted in its windows or as a whole, never
//! both.

mod cells;

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::{PART_BYTES_MAX, PartKey};
use fairmesh_model::{
    AccountPath, Counters, Incarnation, Span, VoId, WallTime, WindowLength, mutant, mutated,
};
use fairmesh_usage::{Cell, Slice, cut, join_cells};

use crate::identity::Account;
use crate::kinds::usage_key;
use crate::published::Sums;
use crate::reach::Reaches;
use crate::store::{Write, ledger_row};
pub(crate) use cells::{Bounds, Counted, OfSpan, clamped};
use cells::{Cells, Changing, Of, cells_of, cells_of_account};

/// Marks the incarnation of cells that were counted while the clock was ahead and were given a place
/// later. No start of a node has a number as high.
const PLACED: u64 = 1 << 63;

/// Own counters of all VOs and of the local accounts.
#[derive(Debug)]
pub(crate) struct Own {
    incarnation: Incarnation,
    /// Of the local accounts.
    local_window: WindowLength,
    cells: BTreeMap<Option<VoId>, Cells>,
    /// Until when they reach.
    pub(crate) reach: BTreeMap<Option<VoId>, Reaches>,
}

impl Own {
    /// Nothing, counted under `incarnation`, or locally in windows of `local_window`.
    pub(crate) fn new(incarnation: Incarnation, local_window: WindowLength) -> Self {
        Self {
            incarnation,
            local_window,
            cells: BTreeMap::new(),
            reach: BTreeMap::new(),
        }
    }

    /// The incarnation that counts now.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Counts in a span that is the [`Own::place`] for it. Returns what is to be kept.
    pub(crate) fn add(&mut self, account: &Account, span: Span, amount: Counters) -> Option<Write> {
        if amount.is_zero() {
            return None;
        }
        let of = (account.path.clone(), self.incarnation_of(account.vo));
        let cells = self.cells.entry(account.vo).or_default();
        let cell = cells.add(span, of.clone(), amount);
        let row = mutant!(LedgerKeepsLast, cell, amount);
        (!mutated!(LedgerUnwritten)).then(|| ledger_row(account.vo, span, &of, row))
    }

    /// Joins in what this site had published: cell by cell the maximum. Of each day that is touched `offered` has all
    /// that was published: windows are weighed in sum against a day that has taken its own in. Where it has anything
    /// that was given a place, it has all of all days.
    pub(crate) fn absorb(
        &mut self,
        vo: VoId,
        offered: Vec<Cell<AccountPath>>,
        window: WindowLength,
    ) -> Counted {
        let has_places = offered.iter().any(|cell| is_placed(cell.0));
        let mut by_day: BTreeMap<u32, Vec<Cell<AccountPath>>> = BTreeMap::new();
        for span in self.spans(Some(vo)).filter(|_| has_places) {
            by_day.entry(span.day(window)).or_default();
        }
        for cell in offered {
            by_day.entry(cell.1.day(window)).or_default().push(cell);
        }
        let mut change = self.changing(Some(vo));
        let mut placed: BTreeMap<Of, Placed> = BTreeMap::new();
        for (day, offered) in by_day {
            let held = change.cells.of_day(day, window);
            let mut joined = join_cells(held.iter().chain(&offered).cloned(), window);
            if has_places {
                let [known, offered] = [&held, &offered].map(|of| in_spans_of(&joined, of, window));
                for (key, counters) in &joined {
                    let (incarnation, span, path) = key;
                    let of = (path.clone(), counted_under(*incarnation));
                    let of_one = placed.entry(of).or_default();
                    if is_placed(*incarnation) {
                        of_one.more = of_one.more.plus(counters.minus(known[key]));
                    }
                    of_one.published.push((*span, *incarnation, offered[key]));
                }
            }
            // A window that the day has taken in counts nothing beside it.
            for (incarnation, span, path, _) in held {
                joined.entry((incarnation, span, path)).or_default();
            }
            for ((incarnation, span, path), counters) in joined {
                let of = (path, incarnation);
                if change.cells.get(span, &of) != counters {
                    change.set(span, of, counters);
                }
            }
        }
        for ((path, _), of_one) in placed {
            of_one.forget(&mut change, &path);
        }
        change.counted
    }

    /// Takes a row of the store.
    pub(crate) fn restore(&mut self, (vo, cell): (Option<VoId>, Cell<AccountPath>)) {
        if vo.is_none() && mutated!(LocalUnread) {
            return;
        }
        let (incarnation, span, path, counters) = cell;
        let cells = self.cells.entry(vo).or_default();
        cells.put(span, (path, incarnation), counters);
    }

    /// All rows of the store were taken.
    pub(crate) fn pack(&mut self) {
        for cells in self.cells.values_mut() {
            let spans: Vec<Span> = cells.by_span.keys().copied().collect();
            spans.into_iter().for_each(|span| cells.pack(span));
        }
    }

    /// Moves what local accounts have used in windows of another length to those of now, each to where its middle lies.
    /// Cells of earlier releases, which say no length, are taken to be of this one.
    pub(crate) fn move_windows(&mut self) -> Counted {
        let (length, current) = (self.local_window, self.incarnation_of(None));
        let others = self.cells(None).filter(|cell| cell.0 != current);
        let others: Vec<Cell<AccountPath>> = others.collect();
        let mut change = self.changing(None);
        let mut moved: BTreeMap<(Incarnation, Span, AccountPath), Counters> = BTreeMap::new();
        for (of, span, path, counters) in others {
            change.set(span, (path.clone(), of), Counters::default());
            let was = WindowLength::from_millis(of.0).unwrap_or(length);
            let place = match span {
                Span::Window(window) => {
                    let (start, end) = (was.start_of(window), was.end_of(window));
                    Span::Window(length.window_at(WallTime(start.0.midpoint(end.0 - 1))))
                }
                day @ Span::Day(_) => day,
            };
            let sum = moved.entry((of, place, path)).or_default();
            *sum = sum.plus(counters);
        }
        // Behind a backup that was put back beside a newer journal they are there in both: they are joined.
        for ((_, place, path), sum) in moved {
            let of = (path, current);
            let cell = change.cells.get(place, &of).join(sum);
            change.set(place, of, cell);
        }
        change.counted
    }

    /// Makes whole days of the days that `which` names: each takes its windows in.
    pub(crate) fn merge_days(
        &mut self,
        vo: Option<VoId>,
        window: WindowLength,
        which: impl Fn(Span) -> bool,
    ) -> Counted {
        let of_day = |span: Span| Span::Day(span.day(window));
        let spans = self.spans(vo);
        let windows = spans.filter(|span| *span != of_day(*span) && which(of_day(*span)));
        let windows: Vec<Span> = windows.collect();
        let whole: BTreeSet<Span> = windows.iter().copied().map(of_day).collect();
        let mut change = self.changing(vo);
        let mut days: BTreeMap<(Span, Of), Counters> = BTreeMap::new();
        for span in windows {
            let of_span = mutant!(
                HoursStay,
                change.take_span(span),
                change.cells.by_span[&span].clone()
            );
            for (of, counters) in of_span.iter() {
                let sum = days.entry((of_day(span), of.clone())).or_default();
                *sum = sum.plus(*counters);
            }
        }
        // A cell of a day has taken its windows in already: where both are there, as after a backup that
        // was put back beside a newer journal, they are joined and not added up.
        for ((day, of), sum) in days {
            let cell = change.cells.get(day, &of).join(sum);
            change.set(day, of, cell);
        }
        whole.into_iter().for_each(|day| change.cells.pack(day));
        let mut counted = change.counted;
        if mutated!(HourRowsStay) {
            counted.writes.retain(|write| write.value.is_some());
        }
        if mutated!(DayUnwritten) {
            counted.writes.retain(|write| write.value.is_none());
        }
        counted
    }

    /// Counts what lies in spans that begin later than `latest` in the last one that does not: the clock
    /// was ahead when it was counted. A span in which an earlier incarnation counted, too, waits until
    /// `all` may be placed: its own heads may have placed it already.
    pub(crate) fn settle_future(
        &mut self,
        vo: VoId,
        latest: WallTime,
        window: WindowLength,
        all: bool,
    ) -> Counted {
        let place = Span::Window(window.window_at(latest));
        let current = self.incarnation;
        let mut change = self.changing(Some(vo));
        let ahead = change.cells.ahead_of(latest, window);
        let others = ahead.iter().filter(|(_, of, _)| !all && of.1 != current);
        let waits: BTreeSet<Span> = others.map(|(span, ..)| *span).collect();
        for (span, of, counters) in ahead {
            if waits.contains(&span) {
                continue;
            }
            let placed = (of.0.clone(), Incarnation(of.1.0 | PLACED));
            change.add(place, placed, counters);
            if !mutated!(PlacedTwice) {
                change.set(span, of, Counters::default());
            }
        }
        change.counted
    }

    /// Whether anything lies in spans that begin later than `latest`.
    pub(crate) fn is_ahead_of(&self, vo: VoId, latest: WallTime, window: WindowLength) -> bool {
        let mut spans = self.spans(Some(vo));
        spans.any(|span| span.start(window) > latest)
    }

    /// Drops what ended by `horizon`, which weighs nothing any more.
    pub(crate) fn forget(
        &mut self,
        vo: Option<VoId>,
        horizon: WallTime,
        window: WindowLength,
    ) -> Counted {
        let past = self.spans(vo).filter(|span| span.end(window) <= horizon);
        let past: Vec<Span> = past.collect();
        let mut change = self.changing(vo);
        for span in past {
            change.take_span(span);
        }
        change.counted
    }

    /// Takes the parts of a kind other than usage, as they are to be from now on.
    pub(crate) fn set_parts(&mut self, vo: VoId, kind: u8, parts: BTreeMap<PartKey, Vec<u8>>) {
        let cells = self.cells.entry(Some(vo)).or_default();
        let held = cells.others.entry(kind).or_default();
        let gone = held.keys().filter(|key| !parts.contains_key(*key));
        let gone = gone.map(|key| (key.clone(), None));
        let news = parts
            .iter()
            .filter(|(key, bytes)| held.get(*key) != Some(*bytes));
        let news = news.map(|(key, bytes)| (key.clone(), Some(bytes.clone())));
        cells.pending.extend(gone.chain(news));
        *held = parts;
    }

    /// Takes one part of a kind other than usage, or lets go of it.
    pub(crate) fn set_part(&mut self, vo: VoId, key: PartKey, bytes: Option<Vec<u8>>) {
        let cells = self.cells.entry(Some(vo)).or_default();
        let held = cells.others.entry(key.kind()).or_default();
        if held.get(&key) == bytes.as_ref() {
            return;
        }
        match &bytes {
            Some(bytes) => held.insert(key.clone(), bytes.clone()),
            None => held.remove(&key),
        };
        cells.pending.insert(key, bytes);
    }

    /// Whether anything of the VO differs from what the last head named.
    pub(crate) fn has_unpublished(&self, vo: VoId) -> bool {
        let cells = self.cells.get(&Some(vo));
        cells.is_some_and(|cells| !cells.dirty.is_empty() || !cells.pending.is_empty())
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
            let others = cells.others.values().flatten();
            let others = others.map(|(key, bytes)| (key.clone(), Some(bytes.clone())));
            cells.pending = others.collect();
        }
        let mut changes = std::mem::take(&mut cells.pending);
        // A span that was published and has given its cells to another goes from the head at once.
        let waits = |span: &Span| span.start(window) > latest && cells.by_span.contains_key(span);
        let (wait, changed): (BTreeSet<Span>, BTreeSet<Span>) = std::mem::take(&mut cells.dirty)
            .into_iter()
            .partition(waits);
        cells.dirty = wait;
        for span in changed {
            let of_span = cells.by_span.get(&span).into_iter();
            let of_span = of_span.flat_map(|of_span| of_span.iter());
            let of_span =
                of_span.map(|((path, incarnation), counters)| (path, *incarnation, *counters));
            let tables = cut(span, of_span, PART_BYTES_MAX);
            let names: BTreeSet<Slice> = tables.iter().map(|(slice, _)| *slice).collect();
            let before = cells.tables.insert(span, names).unwrap_or_default();
            let before = before.into_iter().filter(|_| !mutated!(OldSlicesStay));
            changes.extend(before.map(|slice| (usage_key(slice), None)));
            changes.extend(
                tables
                    .into_iter()
                    .map(|(slice, bytes)| (usage_key(slice), Some(bytes))),
            );
        }
        cells.tables.retain(|_, slices| !slices.is_empty());
        changes.into_iter().collect()
    }

    /// A peer holds all that was published of the VO, which is not all of the spans that were `left_out`, and has not
    /// changed since.
    pub(crate) fn landed(&mut self, vo: VoId, left_out: &BTreeSet<Span>) {
        if let Some(cells) = self.cells.get_mut(&Some(vo)) {
            let dirty = &cells.dirty;
            let stays = |span: &Span| dirty.contains(span) || left_out.contains(span);
            cells.alone.retain(|(span, _)| stays(span));
        }
    }

    /// Nobody is known to hold these spans any more.
    pub(crate) fn hold_alone(&mut self, vo: VoId, spans: &BTreeSet<Span>) {
        let cells = self.cells.entry(Some(vo)).or_default();
        for span in spans {
            let of_span = cells.by_span.get(span).into_iter();
            let of_span = of_span.flat_map(|of_span| of_span.keys());
            cells.alone.extend(of_span.map(|of| (*span, of.clone())));
        }
    }

    /// The next head has these spans again, as far as they are counted.
    pub(crate) fn publish_again(&mut self, vo: VoId, mut spans: BTreeSet<Span>) {
        spans.retain(|span| self.has(Some(vo), *span));
        let cells = self.cells.entry(Some(vo)).or_default();
        cells.dirty.append(&mut spans);
    }

    /// The rows, as the store has them, of all counters that nobody but this site is known to hold.
    pub(crate) fn rows_held_alone(&self) -> Vec<Write> {
        let rows = self.cells.iter().flat_map(|(vo, cells)| {
            let alone = cells.alone.iter();
            alone.map(|(span, of)| ledger_row(*vo, *span, of, cells.get(*span, of)))
        });
        rows.collect()
    }

    /// Everything that is counted for a VO, or locally, by span.
    pub(crate) fn cells(&self, vo: Option<VoId>) -> impl Iterator<Item = Cell<AccountPath>> + '_ {
        let spans = self.by_span(vo).iter();
        spans.flat_map(|(span, of_span)| cells_of(*span, of_span))
    }

    /// Those of one span.
    pub(crate) fn cells_in(
        &self,
        vo: Option<VoId>,
        span: Span,
    ) -> impl Iterator<Item = Cell<AccountPath>> + '_ {
        let of_span = self.by_span(vo).get(&span).into_iter();
        of_span.flat_map(move |of_span| cells_of(span, of_span))
    }

    /// All of them, by span, not copied.
    pub(crate) fn shared(&self, vo: Option<VoId>) -> BTreeMap<Span, OfSpan> {
        self.by_span(vo).clone()
    }

    /// What counts of the cells of a VO, or of the site's own accounts, in `spans`, by span and account.
    pub(crate) fn sums_in(
        &self,
        vo: Option<VoId>,
        spans: &BTreeSet<Span>,
        bounds: Option<Bounds>,
    ) -> Sums<AccountPath> {
        let by_span = self.by_span(vo);
        let held = spans.iter().filter_map(|span| by_span.get_key_value(span));
        clamped(held, bounds)
    }

    /// Whether any span of a VO says more than the site can have run.
    pub(crate) fn is_over(&mut self, vo: VoId, bounds: Bounds) -> bool {
        let cells = self.cells.get_mut(&Some(vo));
        cells.is_some_and(|cells| cells.is_over(bounds))
    }

    /// What is counted of an account in a span, over all incarnations.
    pub(crate) fn counted_in(&self, account: &Account, span: Span) -> Counters {
        let of_span = self.by_span(account.vo).get(&span).into_iter();
        let cells = of_span.flat_map(|of_span| cells_of_account(of_span, &account.path));
        cells.fold(Counters::default(), |sum, (_, counters)| {
            sum.plus(*counters)
        })
    }

    /// CPU time that is counted for a VO in the spans that begin at `since` or later, core-milliseconds.
    pub(crate) fn cpu_ms_since(&mut self, vo: VoId, since: WallTime, window: WindowLength) -> u128 {
        let Some(cells) = self.cells.get_mut(&Some(vo)) else {
            return 0;
        };
        let spans = cells.by_span.keys().copied();
        let spans: Vec<Span> = spans.filter(|span| span.start(window) >= since).collect();
        spans
            .into_iter()
            .map(|span| cells.total(span).cpu_ms())
            .sum()
    }

    /// Whether what is added to a span just adds to what counts of its account: nothing of the span is
    /// taken back, and all of it stays within what bounds it.
    pub(crate) fn just_adds(
        &mut self,
        account: &Account,
        span: Span,
        more: Counters,
        bounds: Option<Bounds>,
    ) -> bool {
        if more.refunds > 0 || self.counted_in(account, span).refunds > 0 {
            return false;
        }
        bounds.is_none_or(|bounds| {
            let cells = self.cells.entry(account.vo).or_default();
            let mut total = cells.total(span);
            total.add(more);
            bounds.capacity.is_within(span, total, bounds.window)
        })
    }

    /// Where what is counted for `span` goes: to the day, where that is counted as a whole.
    pub(crate) fn place(&self, vo: Option<VoId>, span: Span, window: WindowLength) -> Span {
        let day = Span::Day(span.day(window));
        if self.has(vo, day) { day } else { span }
    }

    /// Whether anything is counted in a span.
    pub(crate) fn has(&self, vo: Option<VoId>, span: Span) -> bool {
        self.by_span(vo).contains_key(&span)
    }

    /// The spans in which anything is counted.
    pub(crate) fn spans(&self, vo: Option<VoId>) -> impl Iterator<Item = Span> {
        self.by_span(vo).keys().copied()
    }

    fn by_span(&self, vo: Option<VoId>) -> &BTreeMap<Span, OfSpan> {
        static NOTHING: BTreeMap<Span, OfSpan> = BTreeMap::new();
        self.cells.get(&vo).map_or(&NOTHING, |cells| &cells.by_span)
    }

    fn changing(&mut self, vo: Option<VoId>) -> Changing<'_> {
        Changing::of(vo, self.cells.entry(vo).or_default())
    }

    /// Local counters stay in one incarnation for ever, as nobody else holds a copy; it says the length of their
    /// windows.
    fn incarnation_of(&self, vo: Option<VoId>) -> Incarnation {
        if vo.is_some() {
            self.incarnation
        } else {
            Incarnation(self.local_window.millis().0)
        }
    }
}

/// The incarnation under which a cell was counted, placed or not.
pub(crate) fn counted_under(cell: Incarnation) -> Incarnation {
    Incarnation(cell.0 & !PLACED)
}

/// Whether a cell was given a place.
pub(crate) fn is_placed(cell: Incarnation) -> bool {
    cell.0 & PLACED != 0
}

/// What heads of this site say of one account in one incarnation, placed or not.
#[derive(Debug, Default)]
struct Placed {
    /// How much more of it was given a place than was known.
    more: Counters,
    published: Vec<(Span, Incarnation, Counters)>,
}

impl Placed {
    /// What was found to be placed is not to be placed again, nor to count where it was: the head that has it has all
    /// else of its incarnation, so it goes from what is held beyond that. It may lie in a window that has come since,
    /// or have another place already, if the clock went back twice.
    fn forget(self, change: &mut Changing<'_>, path: &AccountPath) {
        let mut more = self.more;
        for (span, incarnation, published) in self.published {
            let of = (path.clone(), incarnation);
            let held = change.cells.get(span, &of);
            let beyond = held.minus(published);
            let goes = beyond.minus(beyond.minus(more));
            if !goes.is_zero() {
                change.set(span, of, held.minus(goes));
                more = more.minus(goes);
            }
        }
    }
}

/// What these cells come to in the spans that they and others were joined to.
fn in_spans_of(
    joined: &fairmesh_usage::Cells<AccountPath>,
    cells: &[Cell<AccountPath>],
    window: WindowLength,
) -> fairmesh_usage::Cells<AccountPath> {
    let spans = joined.keys().cloned();
    let nothing = spans.map(|(of, span, path)| (of, span, path, Counters::default()));
    join_cells(nothing.chain(cells.iter().cloned()), window)
}

#[cfg(test)]
mod tests;
