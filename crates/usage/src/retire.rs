//! Letting go of whole streams: those of lives that their site has declared over, and those of
//! sites that count no more.
//!
//! A site never counts under an old incarnation again, so every start leaves a stream behind. When
//! nothing in it weighs any more the site says so in its next batch (`retired_below`), and everybody
//! drops it. Only the site can say it: nodes whose clocks differ by a second would otherwise drop a
//! stream at different moments and hand it to each other for ever.
//!
//! Invariant: the highest incarnation that a site has declared over only rises, and no stream below
//! it is held or taken. A site that lies about it takes back its own usage, as it could by forking;
//! it cannot take back anybody else's.

use std::collections::BTreeMap;

use fairmesh_model::{Incarnation, SiteId, StreamId, mutated};

use crate::capacity::Moved;
use crate::checkpoint::Pruned;
use crate::edit::{CellChange, Joining};
use crate::refused::Refused;
use crate::sheets::Sheets;
use crate::vo_usage::VoUsage;

/// Most streams of one site that are kept: bounds what a site can make its peers remember by
/// inventing lives. An honest site begins one with every start that lives long enough to publish; a
/// thousand within a history is more than a start every hour for forty days.
pub const INCARNATIONS_MAX: usize = 1_024;

/// What was declared over, and what is to be deleted for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retired {
    below: BTreeMap<SiteId, Incarnation>,
    settled: BTreeMap<SiteId, Incarnation>,
    dropped: Vec<(StreamId, Pruned)>,
}

impl VoUsage {
    /// The incarnation below which a site's lives are over; 0 where it never said so.
    pub fn retired_below(&self, site: SiteId) -> Incarnation {
        self.retired.below.get(&site).copied().unwrap_or_default()
    }

    /// The incarnation below which a later life of the site has taken over what was counted and not
    /// published; 0 where it never said so. Changes no cell: it is for the site itself, should it
    /// be given back a store of those lives.
    pub fn settled_below(&self, site: SiteId) -> Incarnation {
        let settled = self.retired.settled.get(&site);
        settled.copied().unwrap_or_default()
    }

    /// Whether the stream belongs to a life that is over.
    pub fn is_retired(&self, stream: StreamId) -> bool {
        stream.incarnation < self.retired_below(stream.site) && !mutated!(RetiredComesBack)
    }

    /// What the site of `current` may declare over: the incarnation below which none of its streams
    /// has a live cell or waits for seals. Never above `current`'s own.
    pub fn retirable_below(&self, current: StreamId) -> Incarnation {
        let lives = self
            .streams
            .range(stream_of(current.site, Incarnation(0))..current);
        lives
            .take_while(|(_, stream)| stream.sheets.is_empty() && stream.pending.is_none())
            .map(|(id, _)| Incarnation(id.incarnation.0 + 1))
            .fold(self.retired_below(current.site), Incarnation::max)
    }

    /// Drops all streams of a site that counts no more. Returns what changed; the streams are taken
    /// again when they are offered.
    pub fn drop_site(&mut self, site: SiteId) -> Vec<CellChange> {
        self.drop_streams(site, Incarnation(u64::MAX))
    }

    /// The streams that were dropped since the last call, with the rows that a store can delete.
    pub fn take_dropped(&mut self) -> Vec<(StreamId, Pruned)> {
        std::mem::take(&mut self.retired.dropped)
    }

    /// Believes a site about what its lives below `below` had not published.
    pub(crate) fn settle_below(&mut self, site: SiteId, below: Incarnation) {
        if below > self.settled_below(site) {
            self.retired.settled.insert(site, below);
        }
    }

    /// Believes a site that its lives below `below` are over.
    pub(crate) fn retire_below(&mut self, site: SiteId, below: Incarnation) -> Vec<CellChange> {
        if below <= self.retired_below(site) {
            return Vec::new();
        }
        self.retired.below.insert(site, below);
        self.drop_streams(site, below)
    }

    /// Refuses a stream of a site that has too many already, its lives below `retired` not counted.
    pub(crate) fn may_begin(&self, id: StreamId, retired: Incarnation) -> Result<(), Refused> {
        let first = stream_of(id.site, retired.max(self.retired_below(id.site)));
        let last = stream_of(id.site, Incarnation(u64::MAX));
        if self.streams.range(first..=last).count() < INCARNATIONS_MAX {
            Ok(())
        } else {
            Err(Refused::TooManyIncarnations(id.site))
        }
    }

    /// Takes over what another state knows of lives that are over.
    pub(crate) fn merge_retired(&mut self, other: &mut Self) {
        for (site, below) in other.retired.below.clone() {
            self.retire_below(site, below);
        }
        for (site, below) in self.retired.below.clone() {
            other.retire_below(site, below);
        }
        for (site, below) in other.retired.settled.clone() {
            self.settle_below(site, below);
        }
        for (site, below) in self.retired.settled.clone() {
            other.settle_below(site, below);
        }
    }

    fn drop_streams(&mut self, site: SiteId, below: Incarnation) -> Vec<CellChange> {
        let lives = stream_of(site, Incarnation(0))..stream_of(site, below);
        let gone: Vec<StreamId> = self.streams.range(lives).map(|(id, _)| *id).collect();
        let mut changes = Vec::new();
        for id in gone {
            changes.extend(self.drop_stream(id));
        }
        changes
    }

    fn drop_stream(&mut self, id: StreamId) -> Vec<CellChange> {
        let Some(stream) = self.streams.remove(&id) else {
            return Vec::new();
        };
        let mut pruned = Pruned {
            seqs: stream.log.keys().copied().collect(),
            ..Pruned::default()
        };
        for checkpoint in stream.checkpoints.values() {
            let held = checkpoint.held.iter().map(|seal| seal.hash);
            pruned.seals.extend(self.seals.release(held));
            pruned.checkpoints.push(checkpoint.document.hash());
        }
        if let Some(pending) = &stream.pending {
            self.seals
                .release(pending.parts.keys().map(|seal| seal.hash));
        }
        self.retired.dropped.push((id, pruned));
        let edits = stream.sheets.edits_to(&Sheets::default());
        self.totals
            .shift(id.site, &Moved::by(&edits, self.rule.length));
        self.settle(
            id,
            Joining {
                edits,
                ..Joining::default()
            },
        )
    }
}

const fn stream_of(site: SiteId, incarnation: Incarnation) -> StreamId {
    StreamId { site, incarnation }
}
