//! Heads that change many accounts: counted in steps, between events.
//!
//! A head is in force at once. What it changed of usage is listed by the names of its tables and counted day by day,
//! some tables in a step; what comes first is read before what goes, so that an account that moves to another table is
//! never without its usage. Sites take turns. Where accounts move of which no table changes, a day is counted as a
//! whole: at once if it is small, else beside the site (`large`).
//!
//! Invariant: once nothing is behind, what counts is what one step would have made of it, whatever came between two
//! steps; until then the tables that are held are those that count.

use std::collections::BTreeSet;
use std::ops::Bound;

use fairmesh_gossip::{PartKey, Replica};
use fairmesh_model::SiteId;
use fairmesh_usage::{Capacity, Slice, Table};

use super::large::{Large, Step, entries};
use super::{Forms, Published};
use crate::kinds::{usage_key, usage_slice};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Sites of which something can be counted.
    ready: BTreeSet<SiteId>,
    /// Sites that have come to a day that is too large for now.
    waiting: BTreeSet<SiteId>,
    last: Option<SiteId>,
    /// The day that is counted beside the site.
    pub(super) large: Option<Large>,
}

impl Turns {
    fn next(&self) -> Option<SiteId> {
        let after = |last| self.ready.range((Bound::Excluded(last), Bound::Unbounded));
        let next = self.last.and_then(|last| after(last).next());
        next.or_else(|| self.ready.first()).copied()
    }
}

impl Published {
    /// Heads of a site changed these parts: what of them is usage is to be counted.
    pub(crate) fn note(&mut self, site: SiteId, parts: &[PartKey]) {
        let mut slices = parts.iter().filter_map(usage_slice).peekable();
        if slices.peek().is_some() {
            self.sites.entry(site).or_default().behind.extend(slices);
            self.turns.ready.insert(site);
        }
    }

    /// Whether something is held that is not counted.
    pub(crate) fn is_behind(&self) -> bool {
        let turns = &self.turns;
        turns.large.is_some() || !turns.ready.is_empty() || !turns.waiting.is_empty()
    }

    /// Whether a step can do something.
    pub(crate) fn is_ready(&self) -> bool {
        let large = self.turns.large.as_ref();
        !self.turns.ready.is_empty() || large.is_some_and(|large| !large.is_summing())
    }

    /// Whether a day of a site is about to move: then no other tree can be fed with the site's usage.
    pub(crate) fn is_moving(&self, site: SiteId) -> bool {
        let large = self.turns.large.as_ref();
        large.is_some_and(|large| large.site == site)
    }

    /// Sites that waited can go on.
    pub(crate) fn wake(&mut self) {
        let waiting = std::mem::take(&mut self.turns.waiting);
        self.turns.ready.extend(waiting);
    }

    /// Counts some of what is behind, about as much as sweeping `room` entries takes, and takes that from `room`.
    /// Of which site, and what was done; `None` where nothing can be. Unless `may_begin` no large day is begun.
    pub(crate) fn step(
        &mut self,
        replica: &Replica,
        capacity: impl Fn(SiteId) -> Capacity,
        room: &mut usize,
        may_begin: bool,
    ) -> Option<(SiteId, Step)> {
        if let Some(large) = self.turns.large.take() {
            if !large.is_summing() {
                let site = large.site;
                return Some((site, self.go_on(replica, large, capacity(site), room)));
            }
            self.turns.large = Some(large);
        }
        let site = self.turns.next()?;
        self.turns.last = Some(site);
        Some((
            site,
            self.count(replica, site, capacity(site), room, may_begin),
        ))
    }

    /// Counts some tables of the first day that is behind.
    fn count(
        &mut self,
        replica: &Replica,
        site: SiteId,
        capacity: Capacity,
        room: &mut usize,
        may_begin: bool,
    ) -> Step {
        if self.is_moving(site) {
            return self.wait(site);
        }
        let mut left = self.first_day(replica, site);
        let (taken, rest) = fill(&mut left, *room);
        let spans = self.with_days(site, taken.iter().map(|slice| slice.span).collect());
        let tables = self.read_tables(replica, site, taken.iter().copied());
        let tables = match self.update_few(site, &spans, tables, capacity) {
            Ok(update) => {
                *room = rest;
                self.counted(site, taken);
                return Step::Counted(update);
            }
            Err(tables) => tables,
        };
        let come: usize = left.iter().map(|(_, entries)| entries).sum();
        let left: Vec<Slice> = left.into_iter().map(|(slice, _)| slice).collect();
        let slices = taken.iter().chain(&left);
        let spans = self.with_days(site, slices.clone().map(|slice| slice.span).collect());
        let held = self
            .tables_in(site, &spans)
            .map(|(_, table)| entries(table.bytes_len()));
        let all = come + held.sum::<usize>();
        let is_small = all <= rest;
        if !is_small && (self.turns.large.is_some() || !may_begin) {
            self.release(tables);
            return self.wait(site);
        }
        self.counted(site, slices.copied().collect());
        let large = Large::read(site, spans, tables, left);
        if is_small {
            *room = rest - all;
            return Step::Counted(self.count_at_once(replica, large, capacity));
        }
        *room = rest;
        self.turns.large = Some(large);
        Step::Nothing
    }

    /// A site waits until a large day is counted.
    fn wait(&mut self, site: SiteId) -> Step {
        self.turns.ready.remove(&site);
        self.turns.waiting.insert(site);
        Step::Nothing
    }

    /// The tables of the first day that is behind, and as how many entries each counts; those that come are last.
    fn first_day(&self, replica: &Replica, site: SiteId) -> Vec<(Slice, usize)> {
        let Some(of) = self.sites.get(&site) else {
            return Vec::new();
        };
        let day = of.behind.first().map(|slice| slice.span.day(self.length));
        // Windows are before days, so a day's tables are not side by side.
        let of_day = |slice: &&Slice| Some(slice.span.day(self.length)) == day;
        let table = |slice: &Slice| {
            let forms = replica.variants(site, &usage_key(*slice));
            let come: usize = forms.iter().map(|bytes| bytes.len()).sum();
            let held = of.tables.get(slice).into_iter().flatten();
            let held: usize = held.map(Table::bytes_len).sum();
            (come > 0, *slice, entries(come + held))
        };
        let mut tables: Vec<_> = of.behind.iter().filter(of_day).map(table).collect();
        tables.sort_unstable();
        let tables = tables.into_iter();
        tables.map(|(_, slice, entries)| (slice, entries)).collect()
    }

    /// These tables of a site are not behind any more.
    fn counted(&mut self, site: SiteId, slices: Vec<Slice>) {
        let Some(of) = self.sites.get_mut(&site) else {
            return;
        };
        for slice in slices {
            of.behind.remove(&slice);
        }
        if of.behind.is_empty() {
            self.turns.ready.remove(&site);
        }
    }

    /// Releases tables that were read.
    pub(super) fn release(&mut self, tables: Forms) {
        for table in tables.into_values().flatten() {
            table.release(&mut self.paths);
        }
    }

    /// Nothing of a site is to be counted any more. Returns tables that were read and do not count yet.
    pub(super) fn forget_turn(&mut self, site: SiteId) -> Vec<Vec<Table>> {
        self.turns.ready.remove(&site);
        self.turns.waiting.remove(&site);
        let large = self.turns.large.take_if(|large| large.site == site);
        if large.is_some() {
            self.wake();
        }
        large.map(Large::into_tables).unwrap_or_default()
    }
}

/// Takes tables from the end that fit into `room`, one at least. Gives them, and the room that is left.
fn fill(tables: &mut Vec<(Slice, usize)>, room: usize) -> (Vec<Slice>, usize) {
    let (mut taken, mut rest) = (Vec::new(), room);
    while let Some((slice, entries)) =
        tables.pop_if(|(_, entries)| taken.is_empty() || *entries <= rest)
    {
        taken.push(slice);
        rest = rest.saturating_sub(entries);
    }
    (taken, rest)
}
