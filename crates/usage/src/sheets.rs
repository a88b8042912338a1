//! All live cells of one stream, and the rule by which old hours give way to a day.
//!
//! Lattice: per (path, day) the ordinal sum `Hours ⊕ Day`. `Hours` maps windows to counters and
//! joins pointwise by maximum, absent being zero; `Day` is one counter and joins by maximum; and
//! `Hours ⊔ Day = Day`. An ordinal sum of lattices is a lattice, so the join is commutative,
//! associative and idempotent: an hour that comes after its day is absorbed, a day that comes
//! after its hours replaces them.
//!
//! Forgetting is by rule: a span that ends at or before the horizon has no cell. A day ends no
//! earlier than its hours, so a forgotten day never lets an hour back in.
//!
//! Invariant: no sheet is empty, no hourly cell is zero, and no path has hours beside a day.

use std::collections::BTreeMap;
use std::ops::Range;

use fairmesh_model::cells::Cell;
use fairmesh_model::{Counters, Span, Window, WindowLength, mutated};

use crate::edit::{Edit, Joining, Rule};
use crate::paths::PathId;
use crate::sheet::Sheet;

/// Sheets by window and by day.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sheets {
    windows: BTreeMap<u32, Sheet>,
    days: BTreeMap<u32, Sheet>,
}

impl Sheets {
    /// Sheets in the order of their spans.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, &Sheet)> {
        let windows = self
            .windows
            .iter()
            .map(|(window, sheet)| (Span::Window(Window(*window)), sheet));
        windows.chain(
            self.days
                .iter()
                .map(|(day, sheet)| (Span::Day(*day), sheet)),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.days.is_empty()
    }

    pub(crate) fn sheet(&self, span: Span) -> Option<&Sheet> {
        match span {
            Span::Window(window) => self.windows.get(&window.0),
            Span::Day(day) => self.days.get(&day),
        }
    }

    /// Joins cells that ascend by span; `ids` names the paths that they index.
    pub(crate) fn join(
        &mut self,
        cells: &[Cell],
        ids: &[PathId],
        rule: Rule,
        joining: &mut Joining,
    ) {
        for run in cells.chunk_by(|a, b| a.span == b.span) {
            let rows = run
                .iter()
                .map(|cell| (ids[cell.path as usize], cell.counters));
            self.join_rows(run[0].span, rows, rule, joining);
        }
    }

    /// Joins rows of one span.
    pub(crate) fn join_rows(
        &mut self,
        span: Span,
        rows: impl ExactSizeIterator<Item = (PathId, Counters)>,
        rule: Rule,
        joining: &mut Joining,
    ) {
        if rule.has_forgotten(span) {
            joining.late += rows.len() as u64;
            return;
        }
        match span {
            Span::Window(window) => self.join_window(window, rows, rule.length, joining),
            Span::Day(day) => self.join_day(day, rows, rule.length, joining),
        }
    }

    /// Sets or removes one cell without any rule: to take an edit back.
    pub(crate) fn set(&mut self, span: Span, path: PathId, counters: Option<Counters>) {
        let (sheets, index) = match span {
            Span::Window(window) => (&mut self.windows, window.0),
            Span::Day(day) => (&mut self.days, day),
        };
        let sheet = sheets.entry(index).or_default();
        sheet.set(path, counters);
        if sheet.is_empty() {
            sheets.remove(&index);
        }
    }

    /// Drops the spans that `rule` has forgotten.
    pub(crate) fn forget(&mut self, rule: Rule, edits: &mut Vec<Edit>) {
        let mut drop_while = |sheets: &mut BTreeMap<u32, Sheet>, span: fn(u32) -> Span| {
            while let Some(first) = sheets.first_entry() {
                let span = span(*first.key());
                if !rule.has_forgotten(span) {
                    break;
                }
                let sheet = first.remove();
                edits.extend(sheet.rows().map(|(path, counters)| Edit {
                    span,
                    path,
                    before: Some(counters),
                    after: None,
                }));
            }
        };
        drop_while(&mut self.windows, |window| Span::Window(Window(window)));
        drop_while(&mut self.days, Span::Day);
    }

    /// The edits that lead from these cells to `target`: falling cells first.
    pub(crate) fn edits_to(&self, target: &Self) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (span, sheet) in self.iter() {
            let new = target.sheet(span);
            for (path, before) in sheet.rows() {
                let after = new.and_then(|sheet| sheet.get(path));
                if after != Some(before) {
                    edits.push(Edit {
                        span,
                        path,
                        before: Some(before),
                        after,
                    });
                }
            }
        }
        for (span, sheet) in target.iter() {
            let old = self.sheet(span);
            let added = sheet
                .rows()
                .filter(|(path, _)| !old.is_some_and(|sheet| sheet.contains(*path)));
            edits.extend(added.map(|(path, counters)| Edit {
                span,
                path,
                before: None,
                after: Some(counters),
            }));
        }
        edits
    }

    /// Per (day, path) of the days before `day_excluded`, the sum of the hours that are left.
    pub(crate) fn sums_of_hours(
        &self,
        day_excluded: u32,
        length: WindowLength,
    ) -> BTreeMap<(u32, PathId), Counters> {
        let mut sums: BTreeMap<(u32, PathId), Counters> = BTreeMap::new();
        for (window, sheet) in &self.windows {
            let day = length.day_of(Window(*window));
            if day >= day_excluded {
                break;
            }
            for (path, counters) in sheet.rows() {
                let sum = sums.entry((day, path)).or_default();
                *sum = sum.plus(counters);
            }
        }
        sums
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.iter()
            .map(|(_, sheet)| size_of::<Sheet>() + 8 + sheet.memory_bytes())
            .sum()
    }

    fn join_window(
        &mut self,
        window: Window,
        rows: impl Iterator<Item = (PathId, Counters)>,
        length: WindowLength,
        joining: &mut Joining,
    ) {
        let day = self.days.get(&length.day_of(window));
        let sheet = self.windows.entry(window.0).or_default();
        let mut hint = 0;
        for (path, counters) in rows {
            if day.is_some_and(|day| day.contains(path)) && !mutated!(HourBesideDay) {
                joining.absorbed += 1;
            } else if counters.is_zero() {
                // Zero is the bottom of an hour: no cell.
            } else if let Some((before, after)) = sheet.join(path, counters, &mut hint) {
                joining.edits.push(Edit {
                    span: Span::Window(window),
                    path,
                    before,
                    after: Some(after),
                });
            }
        }
        if sheet.is_empty() {
            self.windows.remove(&window.0);
        }
    }

    fn join_day(
        &mut self,
        day: u32,
        rows: impl Iterator<Item = (PathId, Counters)>,
        length: WindowLength,
        joining: &mut Joining,
    ) {
        let sheet = self.days.entry(day).or_default();
        let mut hint = 0;
        for (path, counters) in rows {
            let changed = sheet.join(path, counters, &mut hint);
            if matches!(changed, Some((None, _))) && !mutated!(DayBesideHours) {
                for (window, hours) in self.windows.range_mut(windows_of(day, length)) {
                    if let Some(before) = hours.remove(path) {
                        let span = Span::Window(Window(*window));
                        joining.edits.push(Edit {
                            span,
                            path,
                            before: Some(before),
                            after: None,
                        });
                    }
                }
            }
            if let Some((before, after)) = changed {
                joining.edits.push(Edit {
                    span: Span::Day(day),
                    path,
                    before,
                    after: Some(after),
                });
            }
        }
        let emptied: Vec<u32> = self
            .windows
            .range(windows_of(day, length))
            .filter(|(_, sheet)| sheet.is_empty())
            .map(|(window, _)| *window)
            .collect();
        emptied.iter().for_each(|window| {
            self.windows.remove(window);
        });
    }
}

/// The windows of a day; none for days beyond the last window.
fn windows_of(day: u32, length: WindowLength) -> Range<u32> {
    let start = u64::from(day).saturating_mul(length.per_day());
    let clamp = |window: u64| u32::try_from(window).unwrap_or(u32::MAX);
    clamp(start)..clamp(start.saturating_add(length.per_day()))
}

#[cfg(test)]
mod tests;
