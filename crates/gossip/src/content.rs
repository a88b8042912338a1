//! The content of a head: its parts, and the recent changes that led to them.
//!
//! Invariant: the parts of a content come to its head's root. Every part's `since` is the seq with which it was
//! learnt or an earlier one, so a peer with an older head may get too much, never too little.

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

/// Most bytes of recent deltas that are kept for a head. They update a peer that missed a few pushes; a peer that
/// missed more gets rows of the manifest.
const LOG_BYTES_MAX: usize = 16 * 1024;

/// Most names of removed parts that are remembered. A peer with an older head gets the whole manifest.
pub(crate) const GONE_MAX: usize = 1_024;

/// The changes from one head to the next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Delta {
    /// Incarnation and seq of the head before.
    #[serde(rename = "b")]
    pub base: (Incarnation, Seq),
    /// Changed parts, as patches on the old ones; a new part is a patch on nothing.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<(PartKey, ByteBuf)>,
    /// Removed parts.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<PartKey>,
}

impl Delta {
    /// Reads the deltas of one head; `None` if one is invalid, or together they are longer than an honest node keeps or
    /// pushes.
    pub(crate) fn read_all(deltas: &[impl AsRef<[u8]>]) -> Option<Vec<Self>> {
        let bytes: usize = deltas.iter().map(|delta| delta.as_ref().len()).sum();
        let read = |delta| cbor::from_slice(delta, DELTAS_BYTES_MAX).ok();
        let read_all = || deltas.iter().map(AsRef::as_ref).map(read).collect();
        (bytes <= DELTAS_BYTES_MAX).then(read_all)?
    }

    /// Bytes that its patches claim to unpack to, at most [`PART_BYTES_MAX`] each, because no more is unpacked.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        let patches = self.patches.iter();
        let claimed = patches.filter_map(|(_, patch)| patch::claimed(patch));
        claimed.map(|bytes| bytes.min(PART_BYTES_MAX)).sum()
    }
}

/// The parts of a head, and what is known of their history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    pub(crate) parts: Parts,
    gone: BTreeMap<PartKey, Seq>,
    /// Oldest seq since which the changed rows are known: a peer with an older head gets the whole manifest.
    changes_known_since: Seq,
    log: VecDeque<(Seq, Arc<[u8]>)>,
}

impl Content {
    /// The content of a head whose earlier changes are unknown.
    pub(crate) fn whole(parts: Parts, seq: Seq) -> Self {
        Self {
            parts,
            changes_known_since: seq,
            ..Self::default()
        }
    }

    /// The root of the parts after `changes`, computed before anything is changed.
    pub(crate) fn root_after(&self, changes: &Changes) -> ContentHash {
        root_of(overlaid(&self.parts, changes).map(|(key, part)| (key, &part.hash, length(part))))
    }

    /// Checks the parts after `changes` against the limits of a head. The limits are constants, so all members refuse
    /// the same heads; with a limit of its own a replica would differ from the others for ever.
    ///
    /// # Errors
    /// Which limit is exceeded.
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

    /// Applies the changes of the head of `seq`; `delta` is the same as a delta, with the seq of its base, if it is
    /// known.
    pub(crate) fn apply(&mut self, changes: Changes, seq: Seq, delta: Option<(Seq, Arc<[u8]>)>) {
        for (key, part) in changes {
            match part {
                Some(part) => {
                    // A part that is removed and comes back must not be told to peers as removed.
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
            // A peer with an older head would not learn of the dropped names, so it gets the whole manifest from now
            // on.
            let mut went: Vec<Seq> = self.gone.values().copied().collect();
            let (_, oldest, _) = went.select_nth_unstable(excess);
            self.gone.retain(|_, seq| seq > oldest);
            self.changes_known_since = self.changes_known_since.max(*oldest);
        }
        match delta {
            Some(delta) => self.log.push_back(delta),
            // A gap in the chain: the earlier deltas lead to no head that a peer could continue from.
            None => self.log.clear(),
        }
        let mut bytes: usize = self.log.iter().map(|(_, delta)| delta.len()).sum();
        while bytes > LOG_BYTES_MAX {
            let oldest = self.log.pop_front();
            bytes -= oldest.map_or(bytes, |(_, delta)| delta.len());
        }
    }

    /// The deltas that lead from the head of `seq` to this one, if the log still contains them.
    pub(crate) fn deltas_since(&self, seq: Seq) -> Option<Vec<ByteBuf>> {
        let first = self.log.iter().position(|(base, _)| *base == seq)?;
        let chain = self.log.range(first..);
        Some(
            chain
                .map(|(_, delta)| ByteBuf::from(delta.to_vec()))
                .collect(),
        )
    }

    /// Rows of parts changed, and names of parts removed, since the head of `seq`; `None` if the removed ones are no
    /// longer known.
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

    /// The changes that `delta` makes to these parts; `None` if a patch does not apply. Deltas are not signed, so a
    /// peer can send any delta with a head: the caller has bounded what it unpacks to, and compares the root
    /// afterwards.
    pub(crate) fn patched(&self, delta: &Delta, seq: Seq) -> Option<Changes> {
        let mut changes = Changes::new();
        for (key, bytes) in &delta.patches {
            let old = self.parts.get(key).map_or(&[][..], |part| &part.bytes[..]);
            let bytes = patch::apply(old, bytes, PART_BYTES_MAX)?;
            let part = Part {
                hash: ContentHash::of(&bytes),
                bytes: bytes.into(),
                // Not checked by its kind before the root is known to be right.
                rows: 0,
                since: seq,
            };
            changes.insert(key.clone(), Some(part));
        }
        // Only parts that exist: a delta could name a hundred thousand others, and each would be remembered as removed.
        let gone = delta.gone.iter();
        let gone = gone.filter(|key| self.parts.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), None)));
        Some(changes)
    }

    /// The inverse of [`Content::patched`]: `changes` as a delta on the head `base`, whose parts these are.
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

    /// The changes that turn these parts into `target`. Parts with the same hash stay, so they keep their `since` and
    /// are not checked again.
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
