//! What is counted for one VO, and which of it has changed since it was published.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::PartKey;
use fairmesh_model::{AccountPath, Counters, Incarnation, Span, VoId, WallTime, WindowLength};
use fairmesh_usage::{Cell, Slice};

use crate::identity::Account;
use crate::store::{Table, Write, ledger_key, ledger_value};

/// An account in an incarnation.
pub(super) type Of = (AccountPath, Incarnation);

/// What is counted for one VO, or for the site's own accounts.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) by_span: BTreeMap<Span, BTreeMap<Of, Counters>>,
    /// Spans that changed since the last head.
    pub(super) dirty: BTreeSet<Span>,
    /// Cells that changed and that no peer is known to hold as they are.
    pub(super) alone: BTreeSet<(Span, Of)>,
    /// The tables that the last head named, by span.
    pub(super) tables: BTreeMap<Span, BTreeSet<Slice>>,
    /// Parts of the other kinds, as they are to be and as the last head named them.
    pub(super) running: BTreeMap<PartKey, Vec<u8>>,
    pub(super) description: BTreeMap<PartKey, Vec<u8>>,
    pub(super) named: BTreeMap<PartKey, Vec<u8>>,
}

impl Cells {
    pub(super) fn touch(&mut self, span: Span, of: Of) {
        self.dirty.insert(span);
        self.alone.insert((span, of));
    }

    pub(super) fn delete(&mut self, vo: VoId, (span, of): &(Span, Of)) -> Write {
        if let Some(of_span) = self.by_span.get_mut(span) {
            of_span.remove(of);
        }
        self.by_span.retain(|_, of_span| !of_span.is_empty());
        self.alone.remove(&(*span, of.clone()));
        self.dirty.insert(*span);
        Write::delete(Table::Ledger, key_of(Some(vo), *span, of))
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
        let first = window.window_at(Span::Day(day).start(window));
        let end = window.window_at(Span::Day(day).end(window));
        let windows = self.by_span.range(Span::Window(first)..Span::Window(end));
        let whole = self.by_span.get_key_value(&Span::Day(day));
        windows
            .chain(whole)
            .flat_map(|(span, of_span)| cells_of(*span, of_span))
            .collect()
    }

    /// The parts of the other kinds, in the order of their names: kinds come first in them.
    pub(super) fn others(&self) -> impl Iterator<Item = (&PartKey, &Vec<u8>)> {
        self.running.iter().chain(&self.description)
    }
}

pub(super) fn cells_of(
    span: Span,
    of_span: &BTreeMap<Of, Counters>,
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
