//! What each site has signed, batch by batch, joined here once more by the simplest code that can.
//!
//! A cell is absolute; a day takes the place of its windows. From this follows what a stream says up
//! to any of its batches, and so what a lost store leaves where others hold only a part of it.
//!
//! Invariant: nothing here asks a site. Deliberately not here: whether a batch was honest.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, Checkpoint, Signed, SiteId, Span, StreamId, UsageBatch, VoId, WindowLength,
};
use fairmesh_site::{BatchId, Table, Write};

use super::Amounts;
use crate::world::World;

/// All streams.
#[derive(Debug, Default)]
pub struct Published {
    streams: BTreeMap<(VoId, StreamId), Said>,
    windows: BTreeMap<VoId, WindowLength>,
}

#[derive(Debug, Default)]
struct Said {
    cells: BTreeMap<(AccountPath, Span), u64>,
    /// After each batch, the new totals of the accounts that it changed.
    totals: Vec<Vec<(AccountPath, u64)>>,
}

impl Published {
    /// Tells of a VO and the length of its windows.
    pub fn found(&mut self, vo: VoId, window: WindowLength) {
        self.windows.insert(vo, window);
    }

    /// A site has signed its next batch. One that it is given back is known already.
    pub fn signed(&mut self, batch: &UsageBatch) {
        let Some(window) = self.windows.get(&batch.vo).copied() else {
            return;
        };
        let said = self.streams.entry((batch.vo, batch.stream())).or_default();
        if said.totals.len() as u64 + 1 != batch.seq.0 {
            return;
        }
        let mut changed: Vec<AccountPath> = Vec::new();
        for (span, path, counters) in batch.cells.rows() {
            if let Span::Day(day) = span {
                let hours = said.cells.keys().filter(|(of, hour)| {
                    of == path && matches!(hour, Span::Window(_)) && hour.day(window) == day
                });
                for key in hours.cloned().collect::<Vec<_>>() {
                    said.cells.remove(&key);
                }
            }
            let cell = said.cells.entry((path.clone(), span)).or_default();
            *cell = counters.charge.max(*cell);
            changed.push(path.clone());
        }
        changed.sort();
        changed.dedup();
        let total = |path: &AccountPath| {
            let cells = said.cells.iter().filter(|((of, _), _)| of == path);
            cells.map(|(_, charge)| charge).sum()
        };
        let totals = changed.into_iter().map(|path| {
            let sum = total(&path);
            (path, sum)
        });
        let totals: Vec<_> = totals.collect();
        said.totals.push(totals);
    }

    /// What a site's streams say, each up to where it is held.
    pub fn said(
        &self,
        site: SiteId,
        held: &BTreeMap<(VoId, StreamId), u64>,
    ) -> BTreeMap<VoId, Amounts> {
        let mut sums: BTreeMap<VoId, Amounts> = BTreeMap::new();
        for ((vo, stream), seq) in held.iter().filter(|((_, of), _)| of.site == site) {
            let Some(said) = self.streams.get(&(*vo, *stream)) else {
                continue;
            };
            let mut totals = Amounts::new();
            let batches = usize::try_from(*seq).unwrap_or(usize::MAX);
            for (path, total) in said.totals.iter().take(batches).flatten() {
                totals.insert(path.clone(), *total);
            }
            let sum = sums.entry(*vo).or_default();
            for (path, total) in totals {
                *sum.entry(path).or_default() += total;
            }
        }
        sums
    }

    /// The streams that a site has signed anything in.
    pub fn streams_of(&self, site: SiteId) -> impl Iterator<Item = (VoId, StreamId)> + '_ {
        let streams = self.streams.keys();
        streams
            .filter(move |(_, stream)| stream.site == site)
            .copied()
    }
}

/// Up to where each stream can be read from any disk.
pub fn held_on_disk(world: &World) -> BTreeMap<(VoId, StreamId), u64> {
    let mut held: BTreeMap<(VoId, StreamId), u64> = BTreeMap::new();
    for node in world.nodes() {
        for (table, key, value) in node.disk.rows() {
            let place = match table {
                Table::Batches => BatchId::of(&Write::set(table, key, value))
                    .map(|id| (id.vo, id.stream, id.seq.0)),
                Table::Checkpoints => Signed::<Checkpoint>::parse(&value).ok().map(|signed| {
                    let body = signed.claimed();
                    (body.vo, body.stream(), body.seq.0)
                }),
                _ => None,
            };
            if let Some((vo, stream, seq)) = place {
                let most = held.entry((vo, stream)).or_default();
                *most = (*most).max(seq);
            }
        }
    }
    held
}
