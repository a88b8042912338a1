//! What the sites of a VO have published of usage, to be read on any thread.
//!
//! A site hands out the tables as they came, shared and not copied, and whoever wants sums of them works these out
//! elsewhere: what people ask about a hundred thousand accounts costs the site's own thread nothing but the list.
//!
//! Invariant: sums are of what the uncovered heads say, joined as they are for the share tree; they are not clamped.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{AccountPath, Counters, SiteId, Span, VoId, WindowLength};
use fairmesh_usage::{Cell, join, named_cells};

use crate::kinds::usage_slice;
use crate::site::Site;

/// The tables of a span, each in the forms that a site's heads have; one, at rest.
type OfSpan = (Span, Vec<Arc<[u8]>>);

/// All tables of usage of a VO, by site and day.
#[derive(Debug, Clone)]
pub struct PublishedTables {
    length: WindowLength,
    days: BTreeMap<(SiteId, u32), Vec<OfSpan>>,
}

impl Site {
    /// What all sites of a VO, this one too, have published of usage: O(tables).
    pub fn published_tables(&self, vo: VoId) -> Option<PublishedTables> {
        let held = self.vos.get(&vo)?;
        let length = held.window();
        let mut days: BTreeMap<(SiteId, u32), Vec<OfSpan>> = BTreeMap::new();
        let mut sites: Vec<SiteId> = held.replica.heads().map(|head| head.body().site).collect();
        sites.dedup();
        for site in sites {
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

    /// The spans in which accounts of the site's own have used anything.
    pub fn local_spans(&self) -> (WindowLength, Vec<Span>) {
        (self.window(None), self.own.spans(None).collect())
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
        let mut add = |site, span, name, counters| {
            let sum = sums.entry((site, span, name)).or_default();
            *sum = sum.plus(counters);
        };
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
        sums
    }
}

/// Whether all that the tables of a day say adds up: each is there in one form, and none is the whole day beside hours
/// of it. Then there is nothing to join.
fn is_plain(spans: &[OfSpan]) -> bool {
    let is_day = |(span, _): &OfSpan| matches!(span, Span::Day(_));
    let days = spans.iter().filter(|of| is_day(of)).count();
    (days == 0 || days == spans.len()) && spans.iter().all(|(_, forms)| forms.len() == 1)
}
