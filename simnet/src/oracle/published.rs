//! What is stored of each site's heads, on any disk, summed up by the simplest code that can.
//!
//! Of one cell in several heads the largest form counts, and of a day and its windows the larger. From
//! this follows what a lost store leaves where others hold only a part of it.
//!
//! Invariant: nothing here asks a site; rows are read from the bytes that are stored. Deliberately not here: whether a
//! head was honest, and which disks are read (`check`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, Incarnation, IncarnationId, SiteId, Span, VoId, WindowLength};

use super::Amounts;
use super::table::{charges, span};

/// The kind of parts that hold usage.
const USAGE: u8 = 1;

/// Marks what was counted by a clock ahead and was given a place later.
const PLACED: u64 = 1 << 63;

/// Cells of one incarnation of a site in a VO.
type Cells = BTreeMap<(AccountPath, Span), u64>;

/// Cells that are held, by VO and incarnation.
#[derive(Debug, Default)]
pub struct HeldCells(BTreeMap<(VoId, IncarnationId), Cells>);

impl HeldCells {
    /// Reads a stored part of a head: its key is the VO, the site, the incarnation and the part's name. A part of
    /// another kind adds nothing.
    pub fn add(&mut self, key: &[u8], part: &[u8]) {
        let read = || {
            let (vo, rest) = key.split_first_chunk()?;
            let (site, rest) = rest.split_first_chunk()?;
            let (_, name) = rest.split_first_chunk::<8>()?;
            let [USAGE, name @ ..] = name else {
                return None;
            };
            let of = (VoId::from_bytes(*vo), SiteId::from_bytes(*site));
            Some((of, span(name)?, charges(part)?))
        };
        let Some(((vo, site), span, charges)) = read() else {
            return;
        };
        for (incarnation, path, charge) in charges {
            let incarnation = Incarnation(incarnation.0 & !PLACED);
            let cells = self
                .0
                .entry((vo, IncarnationId { site, incarnation }))
                .or_default();
            let cell = cells.entry((path, span)).or_default();
            *cell = (*cell).max(charge);
        }
    }

    /// Those of some incarnations.
    #[must_use]
    pub fn of(&self, streams: &BTreeSet<(VoId, IncarnationId)>) -> Self {
        let of_these = self
            .0
            .iter()
            .filter(|(stream, _)| streams.contains(*stream));
        Self(
            of_these
                .map(|(stream, cells)| (*stream, cells.clone()))
                .collect(),
        )
    }
}

/// All incarnations that have signed anything.
#[derive(Debug, Default)]
pub struct Published {
    signed: BTreeSet<(VoId, IncarnationId)>,
    windows: BTreeMap<VoId, WindowLength>,
}

impl Published {
    /// Tells of a VO and the length of its windows.
    pub fn found(&mut self, vo: VoId, window: WindowLength) {
        self.windows.insert(vo, window);
    }

    /// A site has signed a head.
    pub fn signed(&mut self, vo: VoId, stream: IncarnationId) {
        self.signed.insert((vo, stream));
    }

    /// What cells that are held say of a site.
    pub fn said(&self, site: SiteId, held: &HeldCells) -> BTreeMap<VoId, Amounts> {
        let mut sums: BTreeMap<VoId, Amounts> = BTreeMap::new();
        for ((vo, _), cells) in held.0.iter().filter(|((_, of), _)| of.site == site) {
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
    pub fn streams_of(&self, site: SiteId) -> impl Iterator<Item = (VoId, IncarnationId)> + '_ {
        let signed = self.signed.iter();
        signed
            .filter(move |(_, stream)| stream.site == site)
            .copied()
    }
}
