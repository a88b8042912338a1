//! What one head stands for: its parts, and what is remembered of how they came about.
//!
//! Invariant: the parts of a content come to its head's root; every part's `since` is the seq with
//! which it was learnt or an earlier one, so that what is sent to a peer with an older head may be too
//! much and is never too little.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairmesh_model::{ContentHash, Incarnation, Seq, cbor, mutated};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::part::{
    Changes, HEAD_BYTES_MAX, HEAD_ROWS_MAX, ManifestRow, PART_BYTES_MAX, PARTS_MAX, Part, PartKey,
    Parts, length, overlaid, root_of,
};
use crate::patch;

/// Most bytes of the deltas of one head, their patches and names: a push has room for no more. A head keeps fewer.
pub(crate) const DELTAS_BYTES_MAX: usize = 60 * 1024;

/// Most bytes of recent deltas that are kept of a head, to bring peers up to date that missed a few.
const LOG_BYTES_MAX: usize = 16 * 1024;

/// Most names of parts that went and are remembered: a peer that is further behind gets the manifest.
pub(crate) const GONE_MAX: usize = 1_024;

/// What changed from one head to the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Delta {
    /// The head before.
    #[serde(rename = "b")]
    pub base: (Incarnation, Seq),
    /// Parts that changed, as patches on what they were.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<(PartKey, ByteBuf)>,
    /// Parts that went.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<PartKey>,
}

impl Delta {
    /// Reads the deltas beside one head; `None` where one of them is none, or they are longer than any that are remembered
    /// or pushed.
    pub(crate) fn read_all(deltas: &[impl AsRef<[u8]>]) -> Option<Vec<Self>> {
        let bytes: usize = deltas.iter().map(|delta| delta.as_ref().len()).sum();
        let read = |delta| cbor::from_slice(delta, DELTAS_BYTES_MAX).ok();
        let read_all = || deltas.iter().map(AsRef::as_ref).map(read).collect();
        (bytes <= DELTAS_BYTES_MAX).then(read_all)?
    }

    /// Bytes that its patches say they unpack to, as far as that many are unpacked.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        let patches = self.patches.iter();
        let claimed = patches.filter_map(|(_, patch)| patch::claimed(patch));
        claimed.map(|bytes| bytes.min(PART_BYTES_MAX)).sum()
    }
}

/// The parts of a head.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    pub(crate) parts: Parts,
    gone: BTreeMap<PartKey, Seq>,
    /// Oldest seq since which the changed rows are known: a peer with an older head gets the whole manifest.
    changes_known_since: Seq,
    log: VecDeque<(Seq, Arc<[u8]>)>,
}

impl Content {
    /// Parts that came as a whole, with the head of `seq`.
    pub(crate) fn whole(parts: Parts, seq: Seq) -> Self {
        Self {
            parts,
            changes_known_since: seq,
            ..Self::default()
        }
    }

    /// The root that the parts come to after `changes`.
    pub(crate) fn root_after(&self, changes: &Changes) -> ContentHash {
        root_of(overlaid(&self.parts, changes).map(|(key, part)| (key, &part.hash, length(part))))
    }

    /// Whether the parts after `changes` are within what a head may hold; says what is not.
    pub(crate) fn check_after(&self, changes: &Changes) -> Result<(), String> {
        let (mut parts, mut bytes, mut rows) = (0usize, 0u64, 0u64);
        for (_, part) in overlaid(&self.parts, changes) {
            parts += 1;
            bytes += part.bytes.len() as u64;
            rows += u64::from(part.rows);
        }
        let limits = [
            (parts as u64, PARTS_MAX as u64, "parts"),
            (bytes, HEAD_BYTES_MAX, "bytes"),
            (rows, HEAD_ROWS_MAX, "rows"),
        ];
        let over = limits
            .iter()
            .find(|(held, most, _)| held > most && !mutated!(HeadLimitsUnchecked));
        over.map_or(Ok(()), |(held, most, what)| {
            Err(format!("its head holds {held} {what}, more than {most}"))
        })
    }

    /// Takes changes that the head of `seq` brought; `delta` where it is known as one.
    pub(crate) fn apply(&mut self, changes: Changes, seq: Seq, delta: Option<(Seq, Arc<[u8]>)>) {
        for (key, part) in changes {
            match part {
                Some(part) => {
                    self.gone.remove(&key);
                    self.parts.insert(key, part);
                }
                None => {
                    self.parts.remove(&key);
                    self.gone.insert(key, seq);
                }
            }
        }
        if let Some(excess) = self.gone.len().checked_sub(GONE_MAX + 1) {
            let mut went: Vec<Seq> = self.gone.values().copied().collect();
            let (_, oldest, _) = went.select_nth_unstable(excess);
            self.gone.retain(|_, seq| seq > oldest);
            self.changes_known_since = self.changes_known_since.max(*oldest);
        }
        match delta {
            Some(delta) => self.log.push_back(delta),
            None => self.log.clear(),
        }
        let mut bytes: usize = self.log.iter().map(|(_, delta)| delta.len()).sum();
        while bytes > LOG_BYTES_MAX {
            let oldest = self.log.pop_front();
            bytes -= oldest.map_or(bytes, |(_, delta)| delta.len());
        }
    }

    /// The deltas that lead from the head of `seq` to this one, if they are still known and not longer
    /// than what they changed.
    pub(crate) fn deltas_since(&self, seq: Seq) -> Option<Vec<ByteBuf>> {
        let first = self.log.iter().position(|(base, _)| *base == seq)?;
        let chain = self.log.range(first..);
        Some(
            chain
                .map(|(_, delta)| ByteBuf::from(delta.to_vec()))
                .collect(),
        )
    }

    /// Parts that changed and that went since the head of `seq`; `None` where that cannot be told.
    pub(crate) fn rows_since(&self, seq: Seq) -> Option<(Vec<ManifestRow>, Vec<PartKey>)> {
        if seq < self.changes_known_since {
            return None;
        }
        let changed = self.parts.iter().filter(|(_, part)| part.since > seq);
        let gone = self.gone.iter().filter(|(_, went)| **went > seq);
        Some((
            changed.map(manifest_row).collect(),
            gone.map(|(key, _)| key.clone()).collect(),
        ))
    }

    /// The whole manifest.
    pub(crate) fn manifest(&self) -> Vec<ManifestRow> {
        self.parts.iter().map(manifest_row).collect()
    }

    /// Rows of all parts.
    pub(crate) fn rows(&self) -> u64 {
        self.parts.values().map(|part| u64::from(part.rows)).sum()
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.values().map(|part| part.bytes.len()).sum()
    }

    /// The changes that `delta` makes here; `None` where it does not fit. Whoever passes a head on may put
    /// any delta beside it: the caller has seen to what it unpacks to.
    pub(crate) fn patched(&self, delta: &Delta, seq: Seq) -> Option<Changes> {
        let mut changes = Changes::new();
        for (key, bytes) in &delta.patches {
            let old = self.parts.get(key).map_or(&[][..], |part| &part.bytes[..]);
            let bytes = patch::apply(old, bytes, PART_BYTES_MAX)?;
            let part = Part {
                hash: ContentHash::of(&bytes),
                bytes: bytes.into(),
                rows: 0,
                since: seq,
            };
            changes.insert(key.clone(), Some(part));
        }
        // A site may let go of what it never published; whoever names a hundred thousand such parts changes none.
        let gone = delta.gone.iter();
        let gone = gone.filter(|key| self.parts.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), None)));
        Some(changes)
    }

    /// The inverse of [`Content::patched`]: `changes` as a delta on the head `base`, which stands for
    /// these parts.
    pub(crate) fn delta(&self, base: (Incarnation, Seq), changes: &Changes) -> Delta {
        let mut delta = Delta {
            base,
            patches: Vec::new(),
            gone: Vec::new(),
        };
        for (key, part) in changes {
            let Some(part) = part else {
                delta.gone.push(key.clone());
                continue;
            };
            let old = self.parts.get(key).map_or(&[][..], |part| &part.bytes[..]);
            let patch = ByteBuf::from(patch::patch(old, &part.bytes));
            delta.patches.push((key.clone(), patch));
        }
        delta
    }

    /// What makes of these parts those of `manifest`, as far as `find` has parts by name and hash.
    pub(crate) fn changes_to(&self, target: &Parts) -> Changes {
        let mut changes = Changes::new();
        for (key, part) in target {
            if self
                .parts
                .get(key)
                .is_none_or(|held| held.hash != part.hash)
            {
                changes.insert(key.clone(), Some(part.clone()));
            }
        }
        let went = self.parts.keys().filter(|key| !target.contains_key(*key));
        changes.extend(went.map(|key| (key.clone(), None)));
        changes
    }
}

fn manifest_row((key, part): (&PartKey, &Part)) -> ManifestRow {
    (key.clone(), part.hash, length(part))
}
