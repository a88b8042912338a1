//! What a replica shows and sends to others.
//!
//! Invariant: nothing here changes a replica, and an answer aims at one frame: what does not fit is
//! left out and said so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::documents::SEAL_BYTES_MAX;
use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId, StreamId, cbor, mutated};
use fairmesh_policy::DocumentKind;
use fairmesh_usage::{DeltaItem, VersionVector, VoUsage};
use serde_bytes::ByteBuf;

use super::{Fork, Replica};
use crate::digest::{Vector, short, vector_hash};
use crate::wire::{FRAME_BYTES_MAX, Item, LONG_STREAM_BATCHES, Pull, PullAnswer, Summary};

/// What a site answers to others.
impl Replica {
    /// What is held, as hashes.
    pub fn summary(&self) -> Summary {
        let usage = (vector_hash(&self.vector()), self.forks());
        let live: Vec<(SiteId, Incarnation, u64)> = self
            .sheets
            .sheets()
            .map(|sheet| sheet.body())
            .map(|sheet| (sheet.site, sheet.incarnation, sheet.version))
            .collect();
        let documents = (self.policies.digest(), self.descriptions.digest());
        Summary {
            documents: short(ContentHash::of(&cbor::to_vec(&documents))),
            usage: short(ContentHash::of(&cbor::to_vec(&usage))),
            sheets: short(ContentHash::of(&cbor::to_vec(&live))),
            counters: self
                .usage
                .as_ref()
                .map(|usage| short(ContentHash::from_bytes(usage.state_digest())))
                .unwrap_or_default(),
        }
    }

    /// The version vector.
    pub fn vector(&self) -> Vector {
        self.usage
            .as_ref()
            .map(|usage| {
                usage
                    .streams()
                    .map(|stream| (stream.stream, stream.seq))
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Known forks, each with the last position that is believed.
    pub fn forks(&self) -> Vec<(SiteId, Incarnation, Seq)> {
        let fork = |(stream, fork): (&StreamId, &Fork)| (stream.site, stream.incarnation, fork.cap);
        self.forks.iter().map(fork).collect()
    }

    /// Last batch of each stream.
    pub fn heads(&self) -> Vec<(SiteId, Incarnation, Seq, ContentHash)> {
        let streams = self.usage.iter().flat_map(VoUsage::streams);
        streams
            .filter_map(|at| Some((at.stream.site, at.stream.incarnation, at.seq, at.head?)))
            .collect()
    }

    /// Streams of which a newer checkpoint would be welcome.
    pub fn long_streams(&self) -> Vec<(SiteId, Incarnation, Seq)> {
        let long = self
            .usage
            .iter()
            .flat_map(|usage| usage.long_streams(LONG_STREAM_BATCHES));
        long.map(|(stream, seq)| (stream.site, stream.incarnation, seq))
            .collect()
    }

    /// Whether `theirs` names deeper forks than are known here.
    pub fn lacks_forks(&self, theirs: &[(SiteId, Incarnation, Seq)]) -> bool {
        theirs.iter().any(|(site, incarnation, cap)| {
            let stream = StreamId {
                site: *site,
                incarnation: *incarnation,
            };
            let known = self.forks.get(&stream);
            !self.is_retired(stream) && known.is_none_or(|fork| fork.cap > *cap)
        })
    }

    /// Whether `theirs` has batches that are missing here.
    pub fn lacks(&self, theirs: &Vector) -> bool {
        let mine = self.vector();
        theirs.iter().any(|(stream, seq)| {
            let behind = mine.get(stream).is_none_or(|have| have < seq);
            behind && !self.is_retired(*stream)
        })
    }

    /// Whether `theirs` names documents that are missing here.
    pub fn lacks_documents(&self, theirs: &[ContentHash]) -> bool {
        let mine = self.policies.hashes();
        theirs.iter().any(|hash| !mine.contains(hash))
    }

    /// Whether `theirs` names newer in-flight sheets than are held.
    pub fn lacks_sheets(&self, theirs: &[(SiteId, Incarnation, u64)]) -> bool {
        let mine = self.sheets.versions();
        theirs.iter().any(|(site, incarnation, version)| {
            mine.get(site)
                .is_none_or(|have| *have < (*incarnation, *version))
        })
    }

    /// Hashes of the documents held.
    pub fn document_hashes(&self) -> Vec<ContentHash> {
        self.policies.hashes().into_iter().collect()
    }

    /// The newest in-flight sheet of each site.
    pub fn sheet_versions(&self) -> Vec<(SiteId, Incarnation, u64)> {
        self.sheets
            .versions()
            .into_iter()
            .map(|(site, (incarnation, version))| (site, incarnation, version))
            .collect()
    }

    /// The seals of these hashes, as far as they are held and fit into one frame.
    pub fn seals(&self, hashes: &[ContentHash]) -> Vec<ByteBuf> {
        let Some(usage) = &self.usage else {
            return Vec::new();
        };
        let mut room = FRAME_BYTES_MAX;
        let held = hashes.iter().filter_map(|hash| usage.seal(hash));
        held.map_while(|seal| {
            // One always fits, so that asking again gets on.
            let fits = seal.len() <= room || room == FRAME_BYTES_MAX;
            room = room.saturating_sub(seal.len().min(SEAL_BYTES_MAX));
            fits.then(|| ByteBuf::from(seal.to_vec()))
        })
        .collect()
    }

    /// What `pull` shows the asker to lack, as far as it fits into one frame.
    pub fn answer(&self, pull: &Pull, theirs: Option<&Vector>) -> PullAnswer {
        let mut answer = PullAnswer::default();
        let mut room = FRAME_BYTES_MAX;
        if let Some(hashes) = &pull.documents {
            self.answer_documents(hashes, &mut answer, &mut room);
        }
        if let Some(vector) = theirs {
            self.answer_forks(&pull.forks, &mut answer, &mut room);
            self.answer_usage(vector, &mut answer, room);
            self.answer_long(&pull.long, vector, &mut answer);
        }
        if let Some(heads) = &pull.heads {
            self.answer_heads(heads, &mut answer);
        }
        if let Some(versions) = &pull.sheets {
            let held = versions.iter();
            let held = held.map(|(site, incarnation, version)| (*site, (*incarnation, *version)));
            let newer = self.sheets.newer_than(&held.collect());
            let newer = newer.iter().map(|sheet| sheet.bytes());
            answer.sheets = cut(newer, &mut answer.more);
        }
        if let Some(versions) = &pull.descriptions {
            let newer = self.descriptions.newer_than(versions);
            answer.descriptions = cut(newer.map(|said| said.bytes()), &mut answer.more);
        }
        answer
    }

    fn answer_documents(&self, held: &[ContentHash], answer: &mut PullAnswer, room: &mut usize) {
        let held: BTreeSet<&ContentHash> = held.iter().collect();
        for (kind, hash, bytes) in self.policies.documents() {
            if held.contains(&hash) || mutated!(DocumentsWithheld) {
                continue;
            }
            if bytes.len() > *room && *room < FRAME_BYTES_MAX {
                answer.more = true;
                return;
            }
            *room = room.saturating_sub(bytes.len());
            let bytes = ByteBuf::from(bytes.to_vec());
            match kind {
                DocumentKind::Charter => answer.charters.push(bytes),
                DocumentKind::SharePolicy => answer.policies.push(bytes),
            }
        }
    }

    fn answer_forks(
        &self,
        known: &[(SiteId, Incarnation, Seq)],
        answer: &mut PullAnswer,
        room: &mut usize,
    ) {
        let known: BTreeMap<StreamId, Seq> = known
            .iter()
            .map(|(site, incarnation, cap)| {
                let (site, incarnation) = (*site, *incarnation);
                (StreamId { site, incarnation }, *cap)
            })
            .collect();
        for (stream, fork) in &self.forks {
            if known.get(stream).is_some_and(|cap| *cap <= fork.cap) {
                continue;
            }
            let bytes = fork.pair.0.len() + fork.pair.1.len();
            if bytes > *room {
                answer.more = true;
                return;
            }
            *room -= bytes;
            answer.forks.push(fork.pair.clone());
        }
    }

    /// Checkpoints of what the asker holds, so that it can let go of its batches.
    fn answer_long(
        &self,
        long: &[(SiteId, Incarnation, Seq)],
        theirs: &Vector,
        answer: &mut PullAnswer,
    ) {
        let Some(usage) = &self.usage else { return };
        let mut room = FRAME_BYTES_MAX;
        for (site, incarnation, covered) in long {
            let stream = StreamId {
                site: *site,
                incarnation: *incarnation,
            };
            let held = theirs.get(&stream).copied().unwrap_or_default();
            let newest = usage
                .checkpoint_after(stream, *covered)
                .filter(|checkpoint| checkpoint.body().seq <= held);
            if let Some(newest) = newest.filter(|newest| newest.bytes().len() <= room) {
                room -= newest.bytes().len();
                let bytes = ByteBuf::from(newest.bytes().to_vec());
                answer.items.push(Item::Checkpoint(bytes));
            }
        }
    }

    /// Batches that stand where the asker holds others: with its own they prove a fork.
    fn answer_heads(
        &self,
        theirs: &[(SiteId, Incarnation, Seq, ContentHash)],
        answer: &mut PullAnswer,
    ) {
        let Some(usage) = &self.usage else { return };
        let mut room = FRAME_BYTES_MAX;
        for (site, incarnation, seq, head) in theirs {
            let stream = StreamId {
                site: *site,
                incarnation: *incarnation,
            };
            let other = usage
                .batch(stream, *seq)
                .filter(|held| held.hash() != *head);
            if let Some(other) = other.filter(|other| other.bytes().len() <= room) {
                room -= other.bytes().len();
                let bytes = ByteBuf::from(other.bytes().to_vec());
                answer.items.push(Item::Batch(bytes));
            }
        }
    }

    fn answer_usage(&self, theirs: &Vector, answer: &mut PullAnswer, room: usize) {
        let Some(usage) = &self.usage else { return };
        let digest = VersionVector {
            dots: theirs
                .iter()
                .map(|(stream, seq)| (*stream, seq.0))
                .collect(),
        };
        let delta = usage.delta_since(&digest, room);
        answer.more |= !delta.complete && !mutated!(MoreUnsaid);
        answer.items = delta
            .items
            .into_iter()
            .map(|item| match item {
                DeltaItem::Checkpoint(checkpoint) => {
                    Item::Checkpoint(ByteBuf::from(checkpoint.bytes().to_vec()))
                }
                DeltaItem::Batch(batch) => Item::Batch(ByteBuf::from(batch.bytes().to_vec())),
            })
            .collect();
    }
}

/// As many documents as fit into one frame; says in `more` whether any were left out.
fn cut<'a>(documents: impl Iterator<Item = &'a Arc<[u8]>>, more: &mut bool) -> Vec<ByteBuf> {
    let mut room = FRAME_BYTES_MAX;
    let mut fit = Vec::new();
    for bytes in documents {
        let Some(rest) = room.checked_sub(bytes.len()) else {
            *more = true;
            break;
        };
        room = rest;
        fit.push(ByteBuf::from(bytes.to_vec()));
    }
    fit
}
