//! Questions about the live cells. They read and sum; nothing here weighs usage by its age.
//!
//! Invariant: answers come in a fixed order (streams, then spans, then paths as text), the same on
//! every node that holds the same cells.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, ContentHash, Counters, Seq, SiteId, Span, StreamId, VoId, WallTime, Window,
    WindowLength,
};

use crate::fork::ForkProof;
use crate::paths::PathId;
use crate::vo_usage::{Stats, VoUsage};

/// A cell with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCell {
    /// Who counted.
    pub stream: StreamId,
    /// When the usage lies.
    pub span: Span,
    /// Whose usage.
    pub path: AccountPath,
    /// How much.
    pub counters: Counters,
}

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// The stream.
    pub stream: StreamId,
    /// The highest batch up to which all have been heard.
    pub seq: Seq,
    /// Payload hash of that batch.
    pub head: Option<ContentHash>,
    /// When that batch (or the checkpoint adopted in its place) was signed, by the site's clock.
    pub newest_at: Option<WallTime>,
    /// The last position that is believed, where the stream has forked.
    pub cap: Option<Seq>,
}

impl VoUsage {
    /// The VO.
    pub fn vo(&self) -> VoId {
        self.vo
    }

    /// Length of the VO's windows.
    pub fn window_length(&self) -> WindowLength {
        self.rule.length
    }

    /// Spans that end at or before this moment are forgotten.
    pub fn horizon(&self) -> WallTime {
        self.rule.horizon
    }

    /// Counts of what was ignored by rule.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Digest of all live cells: equal where the cells are, in whatever order they came.
    pub fn state_digest(&self) -> [u8; 32] {
        self.digest.to_bytes()
    }

    /// All live cells, by stream, span and path.
    pub fn cells(&self) -> impl Iterator<Item = LiveCell> + '_ {
        self.streams.iter().flat_map(move |(stream, held)| {
            held.sheets.iter().flat_map(move |(span, sheet)| {
                let mut rows: Vec<_> = sheet
                    .rows()
                    .map(|(path, counters)| LiveCell {
                        stream: *stream,
                        span,
                        path: self.paths.path(path).clone(),
                        counters,
                    })
                    .collect();
                rows.sort_by(|a, b| a.path.cmp(&b.path));
                rows
            })
        })
    }

    /// One cell; `None` where there is none.
    pub fn cell(&self, stream: StreamId, span: Span, path: &AccountPath) -> Option<Counters> {
        let id = self.paths.get(path)?;
        self.streams.get(&stream)?.sheets.sheet(span)?.get(id)
    }

    /// Where a site must count usage of `window` so that it is not absorbed: in the window itself,
    /// or in its day, once that account's day has been merged.
    pub fn span_to_count_in(&self, stream: StreamId, path: &AccountPath, window: Window) -> Span {
        let day = Span::Day(self.rule.length.day_of(window));
        self.cell(stream, day, path)
            .map_or(Span::Window(window), |_| day)
    }

    /// Sums over all sites and live spans, by path.
    pub fn totals_by_path(&self) -> BTreeMap<AccountPath, Counters> {
        let mut sums: Vec<Option<Counters>> = vec![None; self.paths.id_end()];
        self.for_each_row(|_, path, counters| {
            let sum = sums[path.index()].get_or_insert_default();
            *sum = sum.plus(counters);
        });
        let ids = (0..).map(PathId).zip(sums);
        ids.filter_map(|(id, sum)| Some((self.paths.path(id).clone(), sum?)))
            .collect()
    }

    /// Sum over all sites, live spans, and accounts at or below `prefix`.
    pub fn total(&self, prefix: &AccountPath) -> Counters {
        self.by_site(prefix)
            .into_values()
            .fold(Counters::default(), Counters::plus)
    }

    /// Sums over live spans and accounts at or below `prefix`, by site; sites without any are absent.
    pub fn by_site(&self, prefix: &AccountPath) -> BTreeMap<SiteId, Counters> {
        let below: Vec<bool> = (0..self.paths.id_end())
            .map(|id| {
                self.paths
                    .path(PathId(u32::try_from(id).expect("ids are u32")))
                    .starts_with(prefix)
            })
            .collect();
        let mut sums: BTreeMap<SiteId, Counters> = BTreeMap::new();
        self.for_each_row(|stream, path, counters| {
            if below[path.index()] {
                let sum = sums.entry(stream.site).or_default();
                *sum = sum.plus(counters);
            }
        });
        sums
    }

    /// The last batch of a stream: its position and hash. `None` before the first.
    pub fn head(&self, stream: StreamId) -> Option<(Seq, ContentHash)> {
        let held = self.streams.get(&stream)?;
        Some((held.seq, held.head?))
    }

    /// All streams of which anything is known.
    pub fn streams(&self) -> impl Iterator<Item = StreamInfo> + '_ {
        self.streams.iter().map(|(stream, held)| StreamInfo {
            stream: *stream,
            seq: held.seq,
            head: held.head,
            newest_at: held.newest_at,
            cap: held.cap(),
        })
    }

    /// One proof for each stream that has forked.
    pub fn forks(&self) -> impl Iterator<Item = &ForkProof> + '_ {
        self.streams
            .values()
            .filter_map(|stream| stream.fork.as_ref())
    }

    /// About how many bytes of memory all this takes.
    pub fn memory_bytes(&self) -> usize {
        let streams: usize = self
            .streams
            .values()
            .map(|stream| stream.memory_bytes())
            .sum();
        size_of::<Self>()
            + streams
            + self.paths.memory_bytes()
            + self.seals.memory_bytes()
            + self.totals.memory_bytes()
    }

    fn for_each_row(&self, mut visit: impl FnMut(StreamId, PathId, Counters)) {
        for (stream, held) in &self.streams {
            for (_, sheet) in held.sheets.iter() {
                sheet
                    .rows()
                    .for_each(|(path, counters)| visit(*stream, path, counters));
            }
        }
    }
}
