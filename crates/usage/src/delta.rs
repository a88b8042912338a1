//! What a peer lacks, and what to send it.
//!
//! A version vector says per stream the highest batch before which nothing is missing, so two
//! vectors say exactly what one side lacks (van Renesse et al., "Efficient Reconciliation and Flow
//! Control for Anti-Entropy Protocols", 2008: Scuttlebutt).
//!
//! Invariant: read in order, the items of a delta never leave a gap in a stream: the batch after
//! the receiver's last one comes first, or else a checkpoint and the batches behind it. A receiver
//! fetches a checkpoint's seals by hash before it goes on with that stream.
//!
//! Order: the first item of every stream that the receiver has never seen, then one item of each
//! stream in turn, the shortest backlog first, so that a large writer does not starve small ones.

use std::collections::btree_map;
use std::sync::Arc;

use fairmesh_model::{Checkpoint, ContentHash, Seq, StreamId, UsageBatch, Verified, mutated};

use crate::stream::Stream;
use crate::vo_usage::VoUsage;

/// Per stream the highest batch up to which all have been heard; streams without one are absent.
pub type VersionVector = crdts::VClock<StreamId>;

/// One document of a delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaItem {
    /// Stands for all batches up to its position; its seals are fetched by hash.
    Checkpoint(Arc<Verified<Checkpoint>>),
    /// A batch.
    Batch(Arc<Verified<UsageBatch>>),
}

impl DeltaItem {
    /// The stream that it belongs to.
    pub fn stream(&self) -> StreamId {
        match self {
            Self::Checkpoint(document) => document.body().stream(),
            Self::Batch(document) => document.body().stream(),
        }
    }

    /// The signed bytes.
    pub fn bytes(&self) -> &Arc<[u8]> {
        match self {
            Self::Checkpoint(document) => document.bytes(),
            Self::Batch(document) => document.bytes(),
        }
    }
}

/// Documents that a receiver lacks, to be applied in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta {
    /// The documents.
    pub items: Vec<DeltaItem>,
    /// Whether nothing was left out for lack of room.
    pub complete: bool,
}

impl VoUsage {
    /// The digest of what is here.
    pub fn version_vector(&self) -> VersionVector {
        let heard = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.seq > Seq(0));
        VersionVector {
            dots: heard.map(|(id, stream)| (*id, stream.seq.0)).collect(),
        }
    }

    /// What a receiver with `digest` lacks, up to `bytes_max` bytes of documents; one document at
    /// least, so that a large one cannot stop the exchange for good.
    pub fn delta_since(&self, digest: &VersionVector, bytes_max: usize) -> Delta {
        let mut backlogs: Vec<Backlog<'_>> = self
            .streams
            .iter()
            .filter(|(id, _)| {
                let mut later = self.streams.range(**id..).skip(1);
                let is_over = later.next().is_some_and(|(next, _)| next.site == id.site);
                !(is_over && mutated!(OldLivesWithheld))
            })
            .filter_map(|(id, stream)| Backlog::of(stream, Seq(digest.get(id))))
            .collect();
        backlogs.sort_by_key(|backlog| backlog.missing);
        let mut room = Room {
            items: Vec::new(),
            left: bytes_max,
            complete: true,
        };
        for backlog in backlogs.iter_mut().filter(|backlog| backlog.unseen) {
            room.take_next(backlog);
        }
        loop {
            let before = room.items.len();
            backlogs
                .iter_mut()
                .for_each(|backlog| room.take_next(backlog));
            if room.items.len() == before {
                return Delta {
                    items: room.items,
                    complete: room.complete,
                };
            }
        }
    }

    /// Streams of which more than `batches_max` batches are retained, each with the position of its
    /// newest checkpoint (0 where there is none): a newer one would let them go.
    pub fn long_streams(&self, batches_max: usize) -> Vec<(StreamId, Seq)> {
        let long = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.log.len() > batches_max);
        long.map(|(id, stream)| {
            let newest = stream.checkpoints.last_key_value();
            (*id, newest.map_or(Seq(0), |(seq, _)| *seq))
        })
        .collect()
    }

    /// The newest checkpoint of a stream, if it is behind `seq_excluded`.
    pub fn checkpoint_after(
        &self,
        stream: StreamId,
        seq_excluded: Seq,
    ) -> Option<&Arc<Verified<Checkpoint>>> {
        let checkpoints = &self.streams.get(&stream)?.checkpoints;
        let (_, newest) = checkpoints.range(seq_excluded.next()..).next_back()?;
        Some(&newest.document)
    }

    /// The bytes of a seal that an adopted or pending checkpoint holds.
    pub fn seal(&self, hash: &ContentHash) -> Option<&Arc<[u8]>> {
        self.seals.get(hash)
    }

    /// A retained batch: to show a peer whose stream stands at the same place with another head.
    pub fn batch(&self, stream: StreamId, seq: Seq) -> Option<&Arc<Verified<UsageBatch>>> {
        self.streams.get(&stream)?.log.get(&seq)
    }
}

/// What is still to send of one stream.
struct Backlog<'a> {
    checkpoint: Option<&'a Arc<Verified<Checkpoint>>>,
    batches: btree_map::Range<'a, Seq, Arc<Verified<UsageBatch>>>,
    missing: u64,
    unseen: bool,
    stopped: bool,
}

impl<'a> Backlog<'a> {
    /// `None` where the receiver lacks nothing, or nothing can be told without a gap.
    fn of(stream: &'a Stream, has: Seq) -> Option<Self> {
        if has >= stream.seq {
            return None;
        }
        let (from_excluded, checkpoint) = if stream.has_all_after(has) {
            (has, None)
        } else {
            let (seq, newest) = stream.checkpoints.range(has.next()..).next_back()?;
            (*seq, Some(&newest.document))
        };
        if !stream.has_all_after(from_excluded) {
            return None;
        }
        let batches = stream.log.range(from_excluded.next()..);
        let missing = stream.seq.0 - from_excluded.0 + u64::from(checkpoint.is_some());
        Some(Self {
            checkpoint,
            batches,
            missing,
            unseen: has == Seq(0),
            stopped: false,
        })
    }

    fn next(&mut self) -> Option<DeltaItem> {
        if let Some(document) = self.checkpoint.take() {
            return Some(DeltaItem::Checkpoint(document.clone()));
        }
        self.batches
            .next()
            .map(|(_, batch)| DeltaItem::Batch(batch.clone()))
    }
}

/// The delta as it fills up.
struct Room {
    items: Vec<DeltaItem>,
    left: usize,
    complete: bool,
}

impl Room {
    /// Moves one item, or stops the stream where there is no room for it.
    fn take_next(&mut self, backlog: &mut Backlog<'_>) {
        if backlog.stopped {
            return;
        }
        let Some(item) = backlog.next() else {
            backlog.stopped = true;
            return;
        };
        let bytes = item.bytes().len();
        if bytes <= self.left || self.items.is_empty() {
            self.left = self.left.saturating_sub(bytes);
            self.items.push(item);
        } else {
            backlog.stopped = true;
            self.complete = false;
        }
    }
}
