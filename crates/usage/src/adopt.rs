//! Adopting checkpoints, each as a whole.
//!
//! Invariant: a pending checkpoint contributes nothing. When all seals of its live spans are here
//! it is joined in one step and the stream stands at its position, or, where it claims more than
//! the site's capacity or than the batches that are here, it is thrown away and no cell changes.
//!
//! A node that stands at or behind a checkpoint's position takes unchanged seals from the checkpoint
//! before it and cuts the others from its own history, so that only those that it cannot make are
//! asked for: usually none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{Checkpoint, Seal, SealRef, Seq, Span, StreamId, Verified, mutated};

use crate::capacity::Bound;
use crate::cut::{self, Cut};
use crate::edit::{CellChange, Joining};
use crate::refused::Refused;
use crate::stream::{Part, Pending, Retained};
use crate::vo_usage::VoUsage;

/// What became of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointOffer {
    /// A newer one, or this one, was adopted, or a newer one is pending, or it belongs to a life
    /// that its site has declared over. Nothing changed.
    Behind,
    /// It is pending until these seals are handed to [`VoUsage::offer_seal`].
    Wants(Vec<SealRef>),
    /// It was adopted at once; these cells changed (none, where its batches had been applied).
    Adopted(Vec<CellChange>),
}

/// What a seal completed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sealed {
    /// Checkpoints that were adopted; none while more seals are missing.
    pub adopted: Vec<Arc<Verified<Checkpoint>>>,
    /// Cells that changed.
    pub changes: Vec<CellChange>,
}

impl VoUsage {
    /// Takes a checkpoint, whose `bound` is checked when it is adopted. On an error no cell has
    /// changed.
    pub fn offer_checkpoint(
        &mut self,
        document: Arc<Verified<Checkpoint>>,
        bound: Bound,
    ) -> Result<CheckpointOffer, Refused> {
        let (id, seq) = (document.body().stream(), document.body().seq);
        if self.is_retired(id) {
            return Ok(CheckpointOffer::Behind);
        }
        self.check_place(&document)?;
        if let Some(stream) = self.streams.get_mut(&id) {
            if stream
                .checkpoints
                .last_key_value()
                .is_some_and(|(newest, _)| *newest >= seq)
            {
                return Ok(CheckpointOffer::Behind);
            }
            match &mut stream.pending {
                Some(pending) if pending.document == document => {
                    pending.bound = bound;
                    return Ok(CheckpointOffer::Wants(
                        pending.missing.iter().copied().collect(),
                    ));
                }
                Some(pending) if pending.document.body().seq >= seq => {
                    return Ok(CheckpointOffer::Behind);
                }
                _ => {}
            }
        }
        let pending = self.collect_parts(document, bound)?;
        let missing: Vec<SealRef> = pending.missing.iter().copied().collect();
        let stream = self.streams.entry(id).or_default();
        if let Some(replaced) = stream.pending.replace(pending) {
            self.seals
                .release(replaced.parts.keys().map(|seal| seal.hash));
        }
        if missing.is_empty() {
            self.adopt(id).map(CheckpointOffer::Adopted)
        } else {
            Ok(CheckpointOffer::Wants(missing))
        }
    }

    /// Takes the bytes of a seal as [`VoUsage::take_seal`] does; the cells that changed.
    pub fn offer_seal(
        &mut self,
        reference: SealRef,
        bytes: &[u8],
    ) -> Result<Vec<CellChange>, Refused> {
        Ok(self.take_seal(reference, bytes)?.changes)
    }

    /// Takes the bytes of a seal for every pending checkpoint that names it, and adopts those that
    /// wait for nothing more. On an error no cell of the stream at fault has changed.
    pub fn take_seal(&mut self, reference: SealRef, bytes: &[u8]) -> Result<Sealed, Refused> {
        let wanting: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| {
                stream
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.missing.contains(&reference))
            })
            .map(|(id, _)| *id)
            .collect();
        if wanting.is_empty() {
            return Err(Refused::UnwantedSeal(reference.hash));
        }
        let seal = Seal::from_bytes(bytes, &reference).map_err(Refused::Seal)?;
        let bytes: Arc<[u8]> = bytes.into();
        let mut sealed = Sealed::default();
        let mut refused = None;
        for id in wanting {
            self.seals.hold(reference.hash, &bytes);
            let stream = self.streams.get_mut(&id).expect("just listed");
            let pending = stream.pending.as_mut().expect("just listed");
            pending.missing.remove(&reference);
            pending.parts.insert(reference, Part::Theirs(seal.clone()));
            if pending.missing.is_empty() {
                let document = pending.document.clone();
                match self.adopt(id) {
                    Ok(more) => {
                        sealed.adopted.push(document);
                        sealed.changes.extend(more);
                    }
                    Err(error) => refused = Some(error),
                }
            }
        }
        match refused {
            // Another stream that shares the seal may have changed: its changes must not be lost.
            Some(error) if sealed.adopted.is_empty() => Err(error),
            _ => Ok(sealed),
        }
    }

    /// The seals that pending checkpoints wait for.
    pub fn wanted_seals(&self) -> Vec<(StreamId, SealRef)> {
        let pending = self
            .streams
            .iter()
            .filter_map(|(id, stream)| Some((*id, stream.pending.as_ref()?)));
        pending
            .flat_map(|(id, pending)| pending.missing.iter().map(move |seal| (id, *seal)))
            .collect()
    }

    /// Refuses a checkpoint that cannot belong to what is here.
    fn check_place(&self, document: &Verified<Checkpoint>) -> Result<(), Refused> {
        let body = document.body();
        let (id, seq) = (body.stream(), body.seq);
        if document.vo() != self.vo {
            return Err(Refused::OtherVo {
                expected: self.vo,
                got: document.vo(),
            });
        }
        let Some(stream) = self.streams.get(&id) else {
            return self.may_begin(id, body.retired_below);
        };
        if let Some(cap) = stream.cap().filter(|cap| seq > *cap) {
            return Err(Refused::Forked {
                stream: id,
                first_refused: cap.next(),
            });
        }
        let ours = if seq == stream.seq {
            stream.head
        } else {
            stream.log.get(&seq).map(|batch| batch.hash())
        };
        if ours.is_some_and(|ours| ours != body.head) {
            return Err(Refused::BrokenChain { stream: id, seq });
        }
        Ok(())
    }

    /// Makes a checkpoint pending with all seals that are here or can be cut. On an error nothing
    /// is held.
    fn collect_parts(
        &mut self,
        document: Arc<Verified<Checkpoint>>,
        bound: Bound,
    ) -> Result<Pending, Refused> {
        let (id, seq) = (document.body().stream(), document.body().seq);
        let seals = document.body().seals.iter().copied();
        let mut missing: BTreeSet<SealRef> = seals
            .filter(|seal| !self.rule.has_forgotten(seal.span))
            .collect();
        let mut found: Vec<(SealRef, Part, Arc<[u8]>)> = Vec::new();
        for seal in self.seals_of_newest(id).intersection(&missing) {
            let bytes = self.seals.get(&seal.hash).expect("it is held");
            found.push((*seal, Part::Ours, bytes.clone()));
        }
        found.iter().for_each(|(seal, ..)| {
            missing.remove(seal);
        });
        for Cut { reference, bytes } in self.cut_at(id, seq, &missing) {
            if missing.remove(&reference) {
                found.push((reference, Part::Ours, bytes.into()));
            }
        }
        for seal in missing.clone() {
            if let Some(bytes) = self.seals.get(&seal.hash) {
                let content = Seal::from_bytes(bytes, &seal).map_err(Refused::Seal)?;
                found.push((seal, Part::Theirs(content), bytes.clone()));
                missing.remove(&seal);
            }
        }
        let mut parts = BTreeMap::new();
        for (seal, part, bytes) in found {
            self.seals.hold(seal.hash, &bytes);
            parts.insert(seal, part);
        }
        Ok(Pending {
            document,
            bound,
            parts,
            missing,
        })
    }

    /// What the newest adopted checkpoint of a stream holds.
    fn seals_of_newest(&self, id: StreamId) -> BTreeSet<SealRef> {
        let checkpoints = self.streams.get(&id).map(|stream| &stream.checkpoints);
        let newest = checkpoints.and_then(|checkpoints| checkpoints.last_key_value());
        newest.map_or_else(BTreeSet::new, |(_, newest)| {
            newest.held.iter().copied().collect()
        })
    }

    /// The seals of a stream as it stood at `seq`, in the spans of `wanted`; none where that cannot
    /// be told.
    fn cut_at(&mut self, id: StreamId, seq: Seq, wanted: &BTreeSet<SealRef>) -> Vec<Cut> {
        let stream = self.streams.get(&id).filter(|stream| seq <= stream.seq);
        let Some(stream) = stream.filter(|_| !wanted.is_empty()) else {
            return Vec::new();
        };
        let spans: BTreeSet<Span> = wanted.iter().map(|seal| seal.span).collect();
        if seq == stream.seq {
            return cut::cut_spans(&stream.sheets, &spans, &self.paths);
        }
        let rebuilt = stream.rebuild(seq, &self.seals, &mut self.paths, self.rule);
        let there = rebuilt.seq == seq;
        let cuts = there.then(|| cut::cut_spans(&rebuilt.sheets, &spans, &self.paths));
        self.paths.sweep(rebuilt.paths);
        cuts.unwrap_or_default()
    }

    /// Adopts the pending checkpoint, all of whose seals are here.
    pub(crate) fn adopt(&mut self, id: StreamId) -> Result<Vec<CellChange>, Refused> {
        let stream = self
            .streams
            .get_mut(&id)
            .expect("it has a pending checkpoint");
        let have = stream.seq;
        let Pending {
            document,
            bound,
            parts,
            missing,
        } = stream.pending.take().expect("the caller saw it");
        assert!(missing.is_empty(), "a checkpoint is adopted as a whole");
        let held: Vec<SealRef> = parts.keys().copied().collect();
        let mut joining = Joining::default();
        for part in parts.values() {
            if let Part::Theirs(seal) = part
                && !mutated!(CheckpointUnread)
            {
                self.join(id, &seal.cells, &mut joining);
            }
        }
        let seq = document.body().seq;
        let committed = if seq <= have && !joining.edits.is_empty() {
            self.revert(id, &joining);
            Err(Refused::FalseCheckpoint { stream: id, seq })
        } else {
            self.commit(id, joining, Some(bound))
        };
        if committed.is_err() {
            self.seals.release(held.iter().map(|seal| seal.hash));
            return committed;
        }
        let stream = self.streams.entry(id).or_default();
        if seq > have {
            let body = document.body();
            (stream.seq, stream.head, stream.newest_at) = (seq, Some(body.head), Some(body.at));
        }
        let (below, settled) = (document.body().retired_below, document.body().settled_below);
        stream.checkpoints.insert(seq, Retained { document, held });
        let mut changes = committed?;
        self.settle_below(id.site, settled);
        changes.extend(self.retire_below(id.site, below));
        Ok(changes)
    }
}
