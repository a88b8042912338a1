//! A head that changes few accounts of many.
//!
//! Of a site that claims no more than its capacity nothing is scaled, so an account moves only if a table that speaks
//! of it comes or goes. Then only these accounts are joined, and of the others it is enough to know what they sum up
//! to. A head that changes one row of a site of a hundred thousand costs the rows of one table, and a look at the
//! accounts' numbers.
//!
//! Invariant: what comes of it is what [`super::Sum`] makes of the same tables.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Counters, SiteId, Span, mutated};
use fairmesh_usage::{Capacity, PathId, PathSet, Slice, Table, Total, join};

use super::{Forms, Published, Sums, Update, cells_of, gross, net};
use crate::moved::moved;

impl Published {
    /// Takes tables in the place of those that are held of their slices, of `spans` that are joined together. Gives
    /// them back where accounts move of which no table changes.
    pub(super) fn update_few(
        &mut self,
        site: SiteId,
        spans: &BTreeSet<Span>,
        tables: Forms,
        capacity: Capacity,
    ) -> Result<Update, Forms> {
        let Some(whole) = self.whole_days(site, spans, &tables) else {
            return Err(tables);
        };
        let accounts = self.accounts_of(site, &tables);
        let held = self.tables_in(site, spans);
        let before = self.sums_among(held, &accounts, &whole);
        let stays = self.tables_in(site, spans);
        let stays = stays.filter(|(slice, _)| !tables.contains_key(slice));
        let come = tables
            .iter()
            .flat_map(|(slice, forms)| forms.iter().map(|table| (*slice, table)));
        let after = self.sums_among(stays.chain(come), &accounts, &whole);
        let Some(totals) = self.totals_after(site, (&before, &after), capacity) else {
            return Err(tables);
        };
        let retired = self.put_tables(site, tables);
        let of = self.sites.entry(site).or_default();
        of.over.retain(|span| !totals.contains_key(span));
        of.totals
            .extend(totals.into_iter().filter(|_| !mutated!(FewTotalsStale)));
        Ok(Update {
            moved: moved(net(&before), net(&after)),
            taken_back: gross(&before).saturating_sub(gross(&after)),
            retired,
        })
    }

    /// The days of `spans` that a table has as a whole; `None` where that changes of one of them.
    fn whole_days(
        &self,
        site: SiteId,
        spans: &BTreeSet<Span>,
        tables: &Forms,
    ) -> Option<BTreeSet<u32>> {
        let days: BTreeSet<u32> = spans.iter().map(|span| span.day(self.length)).collect();
        let mut whole = BTreeSet::new();
        for day in days {
            let of_day = || Slice::all_of(Span::Day(day));
            let held = self.sites.get(&site).map(|of| &of.tables);
            let mut held = held.into_iter().flat_map(|held| held.range(of_day()));
            let is_whole = held.clone().next().is_some();
            let come = tables.range(of_day()).any(|(_, forms)| !forms.is_empty());
            let stays = held.any(|(slice, _)| !tables.contains_key(slice));
            if is_whole != (come || stays) {
                return None;
            }
            whole.extend(is_whole.then_some(day));
        }
        Some(whole)
    }

    /// The accounts of which the tables speak, and those in whose place they come.
    fn accounts_of(&self, site: SiteId, tables: &Forms) -> PathSet {
        let mut accounts = PathSet::default();
        let held = self.sites.get(&site).map(|of| &of.tables);
        for (slice, forms) in tables {
            let before = held.and_then(|held| held.get(slice)).into_iter().flatten();
            before
                .chain(forms)
                .for_each(|table| table.list_in(&mut accounts));
        }
        accounts
    }

    /// What tables join to of some accounts, where these days count as a whole, also for accounts of which no table
    /// has the day.
    fn sums_among<'a>(
        &self,
        tables: impl Iterator<Item = (Slice, &'a Table)>,
        accounts: &PathSet,
        whole: &BTreeSet<u32>,
    ) -> Sums<PathId> {
        let tables = tables.filter(|(_, table)| table.names_any(accounts));
        let mut days = cells_of(tables, self.length, |id| accounts.contains(id));
        for (day, cells) in &mut days {
            if let Some((incarnation, _, id, _)) = cells.first().copied()
                && whole.contains(day)
            {
                cells.push((incarnation, Span::Day(*day), id, Counters::default()));
            }
        }
        let joined = days
            .into_values()
            .flat_map(|cells| join(cells, self.length));
        let mut sums: Sums<PathId> = joined.collect();
        sums.sort_unstable_by_key(|(cell, _)| *cell);
        sums
    }

    /// What all accounts of a site sum up to in the spans where some move; `None` where that is not known before, or
    /// is more than the site's capacity before or after.
    fn totals_after(
        &self,
        site: SiteId,
        (before, after): (&Sums<PathId>, &Sums<PathId>),
        capacity: Capacity,
    ) -> Option<BTreeMap<Span, Total>> {
        let held = self.sites.get(&site);
        let is_within = |span, total| capacity.is_within(span, total, self.length);
        let mut totals = BTreeMap::new();
        for ((span, _), _) in before.iter().chain(after) {
            if totals.contains_key(span) {
                continue;
            }
            let known = held.and_then(|of| of.totals.get(span)).copied();
            // It is not where tables were read for a tree that is not fed yet.
            let spans = BTreeSet::from([*span]);
            let is_new = || self.tables_in(site, &spans).next().is_none();
            let known = known.or_else(|| is_new().then(Total::default))?;
            if !is_within(*span, known) {
                return None;
            }
            totals.insert(*span, known);
        }
        for ((span, _), counters) in before {
            totals
                .get_mut(span)
                .expect("it was listed")
                .remove(*counters);
        }
        for ((span, _), counters) in after {
            totals.get_mut(span).expect("it was listed").add(*counters);
        }
        let fits = totals.iter().all(|(span, total)| is_within(*span, *total));
        fits.then_some(totals)
    }
}
