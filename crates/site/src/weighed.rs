//! The weighted usage behind an entry of the share tree, by site: what an explanation says of where it comes from.
//!
//! A site hands out what its tree is fed from, shared and not copied, with the sums of the entries in question at that
//! moment. Whoever explains them works the parts out elsewhere.
//!
//! Invariant: while the tree in force is that of the documents in force, the parts of an entry add up to its sum, to
//! the last bit: they are joined, clamped, placed, dated and weighed as the tree's own cells are. Deliberately not
//! here: names of sites, and what is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::history::ONE;
use fairmesh_fairshare::tree::Sums;
use fairmesh_fairshare::{EntryId, WeightTable};
use fairmesh_model::{AccountPath, Counters, SiteId, Span, VoId, Window};
use fairmesh_usage::Capacity;

use crate::identity::Account;
use crate::own::{Bounds, OfSpan, clamped};
use crate::parts::Parts;
use crate::running::Place;
use crate::tables::PublishedTables;
use crate::view::View;
use crate::vo::Vo;

/// What counts of a site's usage, and what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteUsage {
    /// What counts: clamped, and weighted by age; in core-ms × 2^-32.
    pub weighted: u128,
    /// As the site published it: not clamped, unweighted, over all that is held of the entry's period.
    pub raw: Counters,
}

/// How usage is weighted, seen from one window.
#[derive(Debug, Clone)]
struct Weights {
    table: WeightTable,
    reference: Window,
}

/// What is held of a VO that is mounted.
#[derive(Debug, Clone)]
struct OfVo {
    weights: Weights,
    bounds: Bounds,
    own: BTreeMap<Span, OfSpan>,
    others: Option<PublishedTables>,
    capacities: BTreeMap<SiteId, Capacity>,
    /// What running jobs are still expected to be charged.
    expected: Vec<(SiteId, Expected)>,
}

/// What running jobs of a site are still expected to be charged, by account.
type Expected = Arc<[(AccountPath, u64)]>;

/// All that weighted usage is made of, at one moment.
#[derive(Debug, Clone)]
pub struct WeighedUsage {
    site: SiteId,
    view: Arc<View>,
    sums: BTreeMap<AccountPath, Sums>,
    local: Weights,
    own_local: BTreeMap<Span, OfSpan>,
    running: Vec<(Place, u64)>,
    vos: BTreeMap<VoId, OfVo>,
}

impl Parts {
    /// What the weighted usage of these entries is made of. O(tables), and what runs here.
    pub fn weighed_usage(&self, entries: &[AccountPath]) -> WeighedUsage {
        let view = Arc::clone(&self.shares.tree.view);
        let reader = view.reader();
        let sum = |path: &AccountPath| Some((path.clone(), reader.sums(reader.entry(path)?)));
        let (rule, window) = (self.cx.config.local_history, self.cx.config.local_window);
        let local = Weights {
            table: WeightTable::new(rule, window),
            reference: reader.local_reference(),
        };
        let meets = |mount: &AccountPath| {
            let mut entries = entries.iter();
            entries.any(|entry| entry.starts_with(mount) || mount.starts_with(entry))
        };
        let mounted = view.mounts().iter().filter(|(_, mount)| meets(mount));
        let vos = mounted.filter_map(|(vo, _)| Some((*vo, self.held_for_weights(*vo)?)));
        let running = self.jobs.running.rows();
        WeighedUsage {
            site: self.cx.id,
            sums: entries.iter().filter_map(sum).collect(),
            local,
            own_local: self.own.shared(None),
            running: running
                .map(|(place, charge)| (place.clone(), charge))
                .collect(),
            vos: vos.collect(),
            view: Arc::clone(&view),
        }
    }

    fn held_for_weights(&self, vo: VoId) -> Option<OfVo> {
        let held: &Vo = self.vos.get(&vo)?;
        let charter = held.charter()?;
        let others = self.tables(vo, |site| site != self.cx.id);
        let sites = held.published.sites();
        let capacities = sites.iter().map(|site| (*site, held.capacity(*site)));
        let expected = sites.iter();
        let expected = expected.map(|site| (*site, held.published.expected_shared(*site)));
        Some(OfVo {
            weights: Weights {
                table: WeightTable::new(charter.history, charter.window),
                reference: self.reference(vo)?,
            },
            bounds: held.bounds(),
            own: self.own.shared(Some(vo)),
            others,
            capacities: capacities.collect(),
            expected: expected.collect(),
        })
    }
}

impl WeighedUsage {
    /// The view that the sums are of.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The sums of an entry that was asked for.
    pub fn sums(&self, entry: &AccountPath) -> Option<Sums> {
        self.sums.get(entry).copied()
    }

    /// What an entry's usage comes from, by site: of all sites, as its global sum, or of this one alone, as its local
    /// sum. Takes as long as there are cells; ends early where it is not `wanted` any more, with a part of it.
    pub fn by_site(
        &self,
        entry: &AccountPath,
        global: bool,
        wanted: impl Fn() -> bool,
    ) -> BTreeMap<SiteId, SiteUsage> {
        let reader = self.view.reader();
        let Some(entry) = reader.entry(entry) else {
            return BTreeMap::new();
        };
        let mut parts = SiteSums {
            usage: self,
            entry,
            first_day: reader.since(entry).map_or(0, |since| since.0),
            global,
            places: BTreeMap::new(),
            sites: BTreeMap::new(),
        };
        for ((span, path), counters) in clamped(self.own_local.iter(), None) {
            parts.add(self.site, None, span, &path, [counters; 2]);
        }
        for (vo, held) in &self.vos {
            parts.add_own(*vo, held);
            if global && let Some(others) = &held.others {
                parts.add_others(*vo, held, others, &wanted);
            }
        }
        parts.add_running();
        parts.sites
    }
}

/// The sums of one entry while they are added up.
struct SiteSums<'a> {
    usage: &'a WeighedUsage,
    entry: EntryId,
    /// The first day that counts for the entry.
    first_day: u32,
    global: bool,
    /// Where accounts count: the VO of the entry, for those that are at or below the explained one.
    places: BTreeMap<(Option<VoId>, AccountPath), Option<Option<VoId>>>,
    sites: BTreeMap<SiteId, SiteUsage>,
}

impl SiteSums<'_> {
    fn add_own(&mut self, vo: VoId, held: &OfVo) {
        let published = clamped(held.own.iter(), None);
        let counted = clamped(held.own.iter(), Some(held.bounds));
        let rows = published.into_iter().zip(counted);
        for (((span, path), before), (_, after)) in rows {
            self.add(self.usage.site, Some(vo), span, &path, [before, after]);
        }
    }

    fn add_others(
        &mut self,
        vo: VoId,
        held: &OfVo,
        others: &PublishedTables,
        wanted: &impl Fn() -> bool,
    ) {
        let capacity = |site: SiteId| {
            let known = held.capacities.get(&site).copied();
            known.unwrap_or(Capacity::of_cores(0))
        };
        let mut rows = Vec::new();
        let name = |path: &str| {
            let path = wanted().then(|| AccountPath::parse(path).ok())??;
            self.place(Some(vo), &path)?;
            Some(path)
        };
        others.each_clamped(capacity, name, |site, span, path, counters| {
            rows.push((site, span, path, counters));
        });
        for (site, span, path, counters) in rows {
            self.add(site, Some(vo), span, &path, counters);
        }
    }

    /// What running jobs count for, in no counter.
    fn add_running(&mut self) {
        if !self.global {
            for (place, charge) in &self.usage.running {
                let Account { vo, path } = &place.account;
                let Some(of) = self.place(*vo, path) else {
                    continue;
                };
                let weight = match place.span {
                    Some(span) if self.counts(of, span) => self.weight(of, span),
                    None if self.counts_now(of) => u128::from(ONE),
                    _ => continue,
                };
                self.weigh(self.usage.site, *charge, weight);
            }
            return;
        }
        for (vo, held) in &self.usage.vos {
            if !self.counts_now(Some(*vo)) {
                continue;
            }
            for (site, rows) in &held.expected {
                for (path, charge) in rows.iter() {
                    if self.place(Some(*vo), path).is_some() {
                        self.weigh(*site, *charge, u128::from(ONE));
                    }
                }
            }
        }
    }

    fn add(
        &mut self,
        site: SiteId,
        vo: Option<VoId>,
        span: Span,
        path: &AccountPath,
        [published, counted]: [Counters; 2],
    ) {
        let Some(of) = self.place(vo, path) else {
            return;
        };
        // The owner's own entries are in no global sum.
        if (self.global && of.is_none()) || !self.counts(of, span) {
            return;
        }
        let weight = self.weight(of, span);
        self.weigh(site, counted.net(), weight);
        let sum = self.sites.entry(site).or_default();
        sum.raw = sum.raw.plus(published);
    }

    fn weigh(&mut self, site: SiteId, charge: u64, weight: u128) {
        let sum = self.sites.entry(site).or_default();
        sum.weighted = sum.weighted.wrapping_add(u128::from(charge) * weight);
    }

    /// The VO of the entry that an account counts at, none for the owner's own; nothing if that is not at or below the
    /// explained entry.
    fn place(&mut self, vo: Option<VoId>, path: &AccountPath) -> Option<Option<VoId>> {
        let key = (vo, path.clone());
        if let Some(known) = self.places.get(&key) {
            return *known;
        }
        let view = &self.usage.view;
        let is_placed = vo.is_none_or(|vo| view.mounts().contains_key(&vo));
        let place = is_placed.then(|| {
            let account = Account {
                vo,
                path: path.clone(),
            };
            let (reader, at) = (view.reader(), view.locate(&account).entry);
            let is_within = reader.is_within(at, self.entry);
            is_within.then(|| vo_at(view, reader.path(at)))
        });
        let place = place.flatten();
        self.places.insert(key, place);
        place
    }

    /// Whether usage of that time, at an entry of this VO, belongs to the period of the explained entry.
    fn counts(&self, vo: Option<VoId>, span: Span) -> bool {
        span.day(self.weights(vo).table.length()) >= self.first_day
    }

    /// Whether usage of now does.
    fn counts_now(&self, vo: Option<VoId>) -> bool {
        let weights = self.weights(vo);
        weights.table.length().day_of(weights.reference) >= self.first_day
    }

    /// How usage that is booked at an entry of this VO is kept and weighted.
    fn weights(&self, vo: Option<VoId>) -> &Weights {
        let of_vo = vo.and_then(|vo| self.usage.vos.get(&vo));
        of_vo.map_or(&self.usage.local, |held| &held.weights)
    }

    /// The weight of usage that is counted at an entry of this VO.
    fn weight(&self, vo: Option<VoId>, span: Span) -> u128 {
        let local = &self.usage.local;
        let of_vo = vo.and_then(|vo| self.usage.vos.get(&vo));
        let weight = match (of_vo, self.global) {
            (Some(held), true) => held.weights.of(span),
            (Some(held), false) => local.of(local.table.convert(span, held.bounds.window)),
            (None, _) => local.of(span),
        };
        u128::from(weight)
    }
}

impl Weights {
    fn of(&self, span: Span) -> u64 {
        self.table.weight_of_span(span, self.reference)
    }
}

/// The VO whose entry stands at a path of the site's tree.
fn vo_at(view: &View, path: &AccountPath) -> Option<VoId> {
    let mounts = view.mounts().iter();
    let above = mounts.filter(|(_, mount)| path.starts_with(mount));
    above
        .max_by_key(|(_, mount)| mount.depth())
        .map(|(vo, _)| *vo)
}
