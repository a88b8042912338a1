//! What is stored of each site's heads, on any disk, added up once more by the simplest code that can.
//!
//! Of one cell in several heads the largest form counts, and of a day and its windows the larger. From
//! this follows what a lost store leaves where others hold only a part of it.
//!
//! Invariant: nothing here asks a site. Deliberately not here: whether a head was honest.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, HashSecret, Incarnation, SiteId, Span, StreamId, VoId, WindowLength,
};
use fairmesh_site::gossip::Head;
use fairmesh_site::{HeadId, Table};
use fairmesh_usage::{Paths, Slice, Table as UsageTable, check};

use super::Amounts;
use crate::node::SimNode;
use crate::world::World;

/// The kind of parts that hold usage.
const USAGE: u8 = 1;

/// Marks what was counted by a clock ahead and was given a place later.
const PLACED: u64 = 1 << 63;

/// Cells of one incarnation of a site in a VO.
type Cells = BTreeMap<(AccountPath, Span), u64>;

/// Cells by VO and incarnation.
pub(crate) type HeldCells = BTreeMap<(VoId, StreamId), Cells>;

/// All incarnations that have signed anything.
#[derive(Debug, Default)]
pub struct Published {
    signed: BTreeSet<(VoId, StreamId)>,
    windows: BTreeMap<VoId, WindowLength>,
}

impl Published {
    /// Tells of a VO and the length of its windows.
    pub fn found(&mut self, vo: VoId, window: WindowLength) {
        self.windows.insert(vo, window);
    }

    /// A site has signed a head.
    pub fn signed(&mut self, head: &Head) {
        let (site, incarnation) = (head.site, head.incarnation);
        self.signed
            .insert((head.vo, StreamId { site, incarnation }));
    }

    /// What cells that are held say of a site.
    pub fn said(&self, site: SiteId, held: &HeldCells) -> BTreeMap<VoId, Amounts> {
        let mut sums: BTreeMap<VoId, Amounts> = BTreeMap::new();
        for ((vo, _), cells) in held.iter().filter(|((_, of), _)| of.site == site) {
            let Some(window) = self.windows.get(vo) else {
                continue;
            };
            let mut days: BTreeMap<(&AccountPath, u32), (u64, u64)> = BTreeMap::new();
            for ((path, span), charge) in cells {
                let (whole, windows) = days.entry((path, span.day(*window))).or_default();
                let said = match span {
                    Span::Day(_) => whole,
                    Span::Window(_) => windows,
                };
                // A member that lies may claim as much as can be written, in every window.
                *said = said.saturating_add(*charge);
            }
            let sum = sums.entry(*vo).or_default();
            for ((path, _), (whole, windows)) in days {
                let sum = sum.entry(path.clone()).or_default();
                *sum = sum.saturating_add(whole.max(windows));
            }
        }
        sums
    }

    /// The incarnations under which a site has signed anything.
    pub fn streams_of(&self, site: SiteId) -> impl Iterator<Item = (VoId, StreamId)> + '_ {
        let signed = self.signed.iter();
        signed
            .filter(move |(_, stream)| stream.site == site)
            .copied()
    }
}

/// What can be read of all heads from any disk but those of `liars`: whoever breaks what it is asked for, or
/// answers nothing, helps nobody with what it holds.
pub fn held_on_disk(world: &World, liars: &BTreeSet<usize>) -> HeldCells {
    let mut held = HeldCells::new();
    let gives = |node: &&SimNode| !liars.contains(&node.index);
    for node in world.nodes().iter().filter(gives) {
        for (table, key, value) in node.disk.rows() {
            if table != Table::Parts {
                continue;
            }
            let Some((id, [USAGE, slice @ ..])) = HeadId::of_key(&key) else {
                continue;
            };
            let slice = Slice::from_bytes(slice).filter(|_| check(&value).is_ok());
            let Some(slice) = slice else {
                continue;
            };
            let mut paths = Paths::new(HashSecret::new(7));
            let cells = UsageTable::read(value.into(), &mut paths);
            for (incarnation, path, counters) in cells.cells() {
                let incarnation = Incarnation(incarnation.0 & !PLACED);
                let stream = StreamId {
                    site: id.site,
                    incarnation,
                };
                let cells = held.entry((id.vo, stream)).or_default();
                let cell = cells
                    .entry((paths.path(path).clone(), slice.span))
                    .or_default();
                *cell = (*cell).max(counters.charge);
            }
        }
    }
    held
}
