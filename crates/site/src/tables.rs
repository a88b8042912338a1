//! What the sites of a VO have published of usage, and what this site knows beside it, to be read on any thread.
//!
//! A site hands out the tables as they came, shared and not copied, and whoever wants sums of them works these out
//! elsewhere: what people ask about a hundred thousand accounts costs the site's own thread nothing but the list.
//!
//! Invariant: sums are of what the uncovered heads say, joined as they are for the share tree; they are not clamped,
//! except where that is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fairmesh_model::{AccountPath, Counters, SiteId, Span, VoId, WindowLength};
use fairmesh_usage::{Capacity, Cell, join, named_cells};

use crate::kinds::usage_slice;
use crate::own::{OfSpan as OwnOfSpan, clamped};
use crate::parts::Parts;
use crate::query::UsageCell;
use crate::vo::Vo;

/// The tables of a span, each in the forms that a site's heads have; one, at rest.
type OfSpan = (Span, Vec<Arc<[u8]>>);

/// All tables of usage of a VO, by site and day.
#[derive(Debug, Clone)]
pub struct PublishedTables {
    length: WindowLength,
    days: BTreeMap<(SiteId, u32), Vec<OfSpan>>,
}

/// What is known of usage in a VO, or of the site's own accounts: this site's counters as they are, and what others
/// have published.
#[derive(Debug, Clone)]
pub struct KnownUsage {
    site: SiteId,
    own: BTreeMap<Span, OwnOfSpan>,
    others: Option<PublishedTables>,
}

impl Parts {
    /// What all sites of a VO, this one too, have published of usage: O(tables).
    pub fn published_tables(&self, vo: VoId) -> Option<PublishedTables> {
        self.tables(vo, |_| true)
    }

    /// What is known of usage in a VO, or of the site's own accounts, as the sites published it: not clamped. Own
    /// usage that is not published yet is included. O(tables).
    pub fn known_usage(&self, vo: Option<VoId>) -> KnownUsage {
        KnownUsage {
            site: self.cx.id,
            own: self.own.shared(vo),
            others: vo.and_then(|vo| self.tables(vo, |site| site != self.cx.id)),
        }
    }

    /// The same of some days since the epoch, in a VO. O(tables).
    pub fn known_usage_in(&self, vo: VoId, days: &Range<u32>) -> KnownUsage {
        let mut known = self.known_usage(Some(vo));
        let length = self.window_of(vo);
        let counts = |span: &Span| length.is_some_and(|length| days.contains(&span.day(length)));
        known.own.retain(|span, _| counts(span));
        if let Some(others) = &mut known.others {
            others.days.retain(|(_, day), _| days.contains(day));
        }
        known
    }

    pub(crate) fn tables(&self, vo: VoId, of: impl Fn(SiteId) -> bool) -> Option<PublishedTables> {
        let held = self.vos.get(&vo)?;
        let length = held.window();
        let mut days: BTreeMap<(SiteId, u32), Vec<OfSpan>> = BTreeMap::new();
        let mut sites: Vec<SiteId> = held.replica.heads().map(|head| head.body().site).collect();
        sites.dedup();
        for site in sites.into_iter().filter(|site| of(*site)) {
            for key in held.replica.part_keys(site) {
                let Some(slice) = usage_slice(&key) else {
                    continue;
                };
                let forms = held.replica.variants(site, &key).into_iter();
                let of_day = days.entry((site, slice.span.day(length))).or_default();
                of_day.push((slice.span, forms.cloned().collect()));
            }
        }
        Some(PublishedTables { length, days })
    }

    /// What of the cells of VOs counts, by site, account and span: scaled down to the capacity of each site.
    pub fn counted_cells(&self) -> Vec<UsageCell> {
        let of_vo = |(id, held): (&VoId, &Vo)| {
            let cell = |site, (span, path), counters| UsageCell {
                vo: Some(*id),
                site,
                path,
                span,
                counters,
            };
            let own = clamped(self.own.shared(Some(*id)).iter(), Some(held.bounds())).into_iter();
            let own = own.map(|(of, counters)| cell(self.cx.id, of, counters));
            let others = held.published.sites().into_iter().flat_map(|site| {
                let sums = held
                    .published
                    .clamped_sums(site, held.capacity(site))
                    .into_iter();
                sums.map(move |((span, id), counters)| {
                    let path = held.published.paths.path(id).clone();
                    cell(site, (span, path), counters)
                })
            });
            own.chain(others).collect::<Vec<_>>()
        };
        self.vos.iter().flat_map(of_vo).collect()
    }

    /// The spans in which accounts of the site's own have used anything.
    pub fn local_spans(&self) -> (WindowLength, Vec<Span>) {
        (
            self.vos.window(&self.cx.config, None),
            self.own.spans(None).collect(),
        )
    }

    /// What accounts of the site's own have used in a span: O(accounts that have).
    pub fn local_cells(&self, span: Span) -> Vec<(AccountPath, Counters)> {
        let cells = self.own.cells_in(None, span);
        cells
            .map(|(_, _, path, counters)| (path, counters))
            .collect()
    }
}

impl PublishedTables {
    /// The windows that usage is counted in.
    pub fn length(&self) -> WindowLength {
        self.length
    }

    /// Sums by site, span and what `name` calls an account; those that it gives no name are left out.
    pub fn sums<K: Ord + Clone>(
        &self,
        name: impl Fn(&str) -> Option<K>,
    ) -> BTreeMap<(SiteId, Span, K), Counters> {
        let mut sums: BTreeMap<(SiteId, Span, K), Counters> = BTreeMap::new();
        self.each(name, |site, span, name, counters| {
            let sum = sums.entry((site, span, name)).or_default();
            *sum = sum.plus(counters);
        });
        sums
    }

    /// What the sites have published of the accounts that `name` gives a name, and what counts of it: scaled down
    /// where a site says more of a span than its capacity. Takes as long as there are cells.
    pub(crate) fn each_clamped<K: Clone>(
        &self,
        capacity: impl Fn(SiteId) -> Capacity,
        mut name: impl FnMut(&str) -> Option<K>,
        mut add: impl FnMut(SiteId, Span, K, [Counters; 2]),
    ) {
        for ((site, _), spans) in &self.days {
            let (names, cells) = numbered_cells(spans, &mut name);
            let published = join(cells, self.length);
            let mut counted = published.clone();
            // A sum of a span is of all its accounts, also of those that are not asked for.
            capacity(*site).clamp(&mut counted, self.length);
            for (((span, account), before), (_, after)) in published.into_iter().zip(counted) {
                if let Some(name) = &names[account] {
                    add(*site, span, name.clone(), [before, after]);
                }
            }
        }
    }

    /// The same, in parts that add up.
    fn each<K: Ord + Clone>(
        &self,
        name: impl Fn(&str) -> Option<K>,
        mut add: impl FnMut(SiteId, Span, K, Counters),
    ) {
        for ((site, _), spans) in &self.days {
            if is_plain(spans) {
                for (span, forms) in spans {
                    for (_, name, counters) in named_cells(&forms[0], &name) {
                        add(*site, *span, name, counters);
                    }
                }
                continue;
            }
            let named = |path: &str| Some((Arc::<str>::from(path), name(path)?));
            let cells = spans.iter().flat_map(|(span, forms)| {
                let cells = forms.iter().flat_map(|bytes| named_cells(bytes, named));
                cells.map(|(incarnation, path, counters)| (incarnation, *span, path, counters))
            });
            let cells: Vec<Cell<(Arc<str>, K)>> = cells.collect();
            for ((span, (_, name)), counters) in join(cells, self.length) {
                add(*site, span, name, counters);
            }
        }
    }
}

impl KnownUsage {
    /// Hands on what each site has used, in parts that add up, by what `name` calls an account; those that it gives no
    /// name are left out. Takes as long as there are cells.
    pub fn each<K: Ord + Clone>(
        &self,
        name: impl Fn(&str) -> Option<K>,
        mut add: impl FnMut(SiteId, K, Counters),
    ) {
        for ((path, _), counters) in self.own.values().flat_map(|of_span| of_span.iter()) {
            if let Some(name) = name(path.as_str()) {
                add(self.site, name, *counters);
            }
        }
        if let Some(others) = &self.others {
            others.each(name, |site, _, name, counters| add(site, name, counters));
        }
    }
}

/// The cells of a day with numbers in the place of accounts, and the names of these. An account has one number, so that
/// its forms can be joined and its incarnations added up.
fn numbered_cells<K: Clone>(
    spans: &[OfSpan],
    name: &mut impl FnMut(&str) -> Option<K>,
) -> (Vec<Option<K>>, Vec<Cell<usize>>) {
    let (mut numbers, mut names) = (BTreeMap::<Box<str>, usize>::new(), Vec::new());
    let mut cells: Vec<Cell<usize>> = Vec::new();
    for (span, forms) in spans {
        for bytes in forms {
            let number = |path: &str| {
                if let Some(number) = numbers.get(path) {
                    return Some(*number);
                }
                numbers.insert(path.into(), names.len());
                names.push(name(path));
                Some(names.len() - 1)
            };
            let of_form = named_cells(bytes, number);
            cells.extend(
                of_form.map(|(incarnation, account, counters)| {
                    (incarnation, *span, account, counters)
                }),
            );
        }
    }
    (names, cells)
}

impl KnownUsage {
    /// The accounts that this site and another one have used anything of, of those that `is_wanted` holds for, each
    /// with the sites that have. Takes as long as there are cells.
    pub fn of_several_sites(
        &self,
        is_wanted: impl Fn(&AccountPath) -> bool,
    ) -> BTreeMap<AccountPath, BTreeSet<SiteId>> {
        let cells = self.own.values().flat_map(|of_span| of_span.iter());
        let used = cells.filter(|(_, counters)| counters.net() > 0);
        let own: BTreeSet<AccountPath> = used.map(|((path, _), _)| path.clone()).collect();
        let wanted: BTreeSet<AccountPath> = own.into_iter().filter(is_wanted).collect();
        let mut sites: BTreeMap<AccountPath, BTreeSet<SiteId>> = BTreeMap::new();
        if let Some(others) = &self.others {
            let known = |path: &str| wanted.get(path).cloned();
            others.each(known, |site, _, path, counters| {
                if counters.net() > 0 {
                    sites.entry(path).or_default().insert(site);
                }
            });
        }
        for of_account in sites.values_mut() {
            of_account.insert(self.site);
        }
        sites
    }
}

/// Whether all that the tables of a day say adds up: each is there in one form, and none is the whole day beside hours
/// of it. Then there is nothing to join.
fn is_plain(spans: &[OfSpan]) -> bool {
    let is_day = |(span, _): &OfSpan| matches!(span, Span::Day(_));
    let days = spans.iter().filter(|of| is_day(of)).count();
    (days == 0 || days == spans.len()) && spans.iter().all(|(_, forms)| forms.len() == 1)
}
