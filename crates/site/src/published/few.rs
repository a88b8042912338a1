//! A head that changes few accounts of many.
//!
//! Of a site that claims no more than its capacity nothing is scaled, so an account moves only if a table that speaks
//! of it comes or goes. Then only these accounts are joined, and of the others it is enough to know what they sum up
//! to. A head that changes one row of a site of a hundred thousand costs the rows of one table, and a look at the
//! accounts' numbers.
//!
//! Invariant: what comes of it is what [`Published::update_all`] makes of the same tables.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Counters, SiteId, Span};
use fairmesh_usage::{Capacity, Cell, PathId, PathSet, Slice, Table, Total, join};

use super::{Forms, Published, Sums, Update, gross, net};
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
        of.totals.extend(totals);
        of.over.retain(|span| !spans.contains(span));
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

    fn tables_in<'a>(
        &'a self,
        site: SiteId,
        spans: &BTreeSet<Span>,
    ) -> impl Iterator<Item = (Slice, &'a Table)> {
        let tables = self.sites.get(&site).into_iter().flat_map(|of| {
            let spans = spans.iter();
            spans.flat_map(|span| of.tables.range(Slice::all_of(*span)))
        });
        tables.flat_map(|(slice, forms)| forms.iter().map(|table| (*slice, table)))
    }

    /// What tables join to of some accounts, where these days count as a whole, also for accounts of which no table
    /// has the day.
    fn sums_among<'a>(
        &self,
        tables: impl Iterator<Item = (Slice, &'a Table)>,
        accounts: &PathSet,
        whole: &BTreeSet<u32>,
    ) -> Sums<PathId> {
        let mut days: BTreeMap<u32, Vec<Cell<PathId>>> = BTreeMap::new();
        for (slice, table) in tables.filter(|(_, table)| table.names_any(accounts)) {
            let cells = table.cells().filter(|(_, id, _)| accounts.contains(*id));
            let cells =
                cells.map(|(incarnation, id, counters)| (incarnation, slice.span, id, counters));
            days.entry(slice.span.day(self.length))
                .or_default()
                .extend(cells);
        }
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

#[cfg(test)]
mod tests {
    use fairmesh_gossip::{PartKey, Replica};
    use fairmesh_model::{
        AccountPath, HashSecret, Incarnation, SigningKey, VoId, WallTime, Window, WindowLength,
    };
    use fairmesh_usage::cut;
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::{SiteKinds, usage_key};
    use crate::moved::Moved;

    const LENGTH: WindowLength = WindowLength::HOUR;

    /// A table of a day, or of one of its hours: which of the two halves of the accounts it says it is of, and cells.
    type Change = (Option<u32>, bool, Vec<(u8, u8, u64, u64)>);

    fn change() -> impl Strategy<Value = Change> {
        let span = prop_oneof![3 => (0..3u32).prop_map(Some), 1 => Just(None)];
        let cells = proptest::collection::vec((0..6u8, 1..3u8, 0..90u64, 0..20u64), 0..6);
        (span, any::<bool>(), cells)
    }

    /// The name and the bytes of a table; no bytes of one that goes.
    fn part((hour, half, cells): &Change) -> (PartKey, Option<Vec<u8>>) {
        let span = hour.map_or(Span::Day(10), |hour| Span::Window(Window(240 + hour)));
        let mut name = Slice::first_of(span).to_bytes();
        name.extend([1, 0, u8::from(*half)]);
        let slice = Slice::from_bytes(&name).expect("one of two halves");
        let minutes = |minutes: u64| minutes * 60_000;
        let cells: BTreeMap<(AccountPath, Incarnation), Counters> = cells
            .iter()
            .map(|(account, incarnation, charge, refunds)| {
                let path = AccountPath::parse(&format!("/u{account}")).expect("a path");
                let counters = Counters {
                    charge: minutes(*charge),
                    cpu_ms: minutes(*charge),
                    refunds: minutes(*refunds).min(minutes(*charge)),
                    ..Counters::default()
                };
                ((path, Incarnation(u64::from(*incarnation))), counters)
            })
            .collect();
        let cells = cells
            .iter()
            .map(|((path, of), counters)| (path, *of, *counters));
        let table = cut(span, cells, 1 << 16).pop().map(|(_, bytes)| bytes);
        (usage_key(slice), table)
    }

    /// What moved, by the accounts' names.
    fn named(of: &Published, update: &Update) -> Vec<Moved<(Span, String)>> {
        let name = |moved: &Moved<(Span, PathId)>| Moved {
            key: (moved.key.0, of.paths.path(moved.key.1).to_string()),
            before: moved.before,
            after: moved.after,
        };
        let mut all: Vec<_> = update.moved.iter().map(name).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    #[test]
    fn one_row_is_taken_by_itself_and_a_scaled_one_is_not() {
        let key = SigningKey::from_secret(&[1; 32]);
        let site = key.site_id();
        let mut replica = Replica::new(VoId::from_bytes([7; 32]), site);
        let mut published = Published::new(LENGTH, HashSecret::new(3));
        let mut is_few = |charge, cores| {
            let changes = vec![part(&(Some(1), false, vec![(0, 1, charge, 0)]))];
            let (of, at) = (Incarnation(1), WallTime(20 * 86_400_000));
            let kinds = SiteKinds { length: LENGTH };
            let (change, _) = replica.publish(&kinds, &key, of, at, changes);
            let (spans, tables) = published.read_parts(&replica, site, &change.parts);
            let capacity = Capacity::of_cores(cores);
            match published.update_few(site, &spans, tables, capacity) {
                Ok(update) => {
                    published.finish(update);
                    true
                }
                Err(tables) => {
                    let update = published.update_all(site, &spans, tables, capacity);
                    published.finish(update);
                    false
                }
            }
        };
        let taken = [(10, 1), (20, 1), (90, 1), (30, 1), (40, 1)];
        let taken = taken.map(|(charge, cores)| is_few(charge, cores));
        assert_eq!(
            taken,
            [true, true, false, false, true],
            "an hour of one core is 60"
        );
    }

    proptest! {
        /// However a site cuts its tables, whether it claims more than it has, and whatever comes as whole days.
        #[test]
        fn a_few_accounts_move_as_all_of_them_would(
            heads in proptest::collection::vec(proptest::collection::vec(change(), 1..4), 1..12),
            cores in 1..12u32,
        ) {
            let key = SigningKey::from_secret(&[1; 32]);
            let site = key.site_id();
            let mut replica = Replica::new(VoId::from_bytes([7; 32]), site);
            let new = || Published::new(LENGTH, HashSecret::new(3));
            let (mut few, mut all) = (new(), new());
            let capacity = Capacity::of_cores(cores);
            for head in heads {
                let changes: BTreeMap<PartKey, Option<Vec<u8>>> = head.iter().map(part).collect();
                let held = replica.part_keys(site);
                let is_news = |(key, bytes): &(PartKey, Option<Vec<u8>>)| bytes.is_some() || held.contains(key);
                let changes: Vec<_> = changes.into_iter().filter(is_news).collect();
                let kinds = SiteKinds { length: LENGTH };
                let at = WallTime(20 * 86_400_000);
                let (change, _) = replica.publish(&kinds, &key, Incarnation(1), at, changes);
                let quick = few.update(&replica, site, &change.parts, capacity);
                let (spans, tables) = all.read_parts(&replica, site, &change.parts);
                let slow = all.update_all(site, &spans, tables, capacity);
                prop_assert_eq!(named(&few, &quick), named(&all, &slow));
                prop_assert_eq!(quick.taken_back, slow.taken_back);
                few.finish(quick);
                all.finish(slow);
                let totals = |of: &Published| {
                    let totals = of.sites.get(&site).map(|of| of.totals.clone()).unwrap_or_default();
                    let some = totals.into_iter().filter(|(_, total)| *total != Total::default());
                    some.collect::<Vec<_>>()
                };
                prop_assert_eq!(totals(&few), totals(&all));
                prop_assert_eq!(few.is_over(site), all.is_over(site));
            }
        }
    }
}
