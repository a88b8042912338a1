//! The usage of one VO: batches in, cell changes out.
//!
//! Invariant: `totals` and `digest` are functions of the cells in `streams`, kept up change by
//! change; the cells are a function of the batches heard, the horizon, the forks known and the
//! lives declared over. What is refused leaves no trace but in [`Stats`].
//!
//! Deliberately not here: checkpoints ([`crate::adopt`]), lives that are over ([`crate::retire`]),
//! answers to peers ([`crate::delta`]),
//! whole-state merging ([`crate::crdt`]) and questions ([`crate::query`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Counters, Incarnation, Seq, Span, StreamId, UsageBatch, Verified, VoId, WallTime,
    WindowLength, mutant, mutated,
};

use crate::capacity::{Bound, Moved, Totals};
use crate::digest::StateDigest;
use crate::edit::{CellChange, Joining, Rule};
use crate::fork::ForkProof;
use crate::paths::PathTable;
use crate::refused::Refused;
use crate::retire::Retired;
use crate::seals::SealStore;
use crate::stream::{Pending, Stream};

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It was the next one; these cells changed.
    Fresh(Vec<CellChange>),
    /// It was here already, or belongs to a life that its site has declared over. Nothing changed.
    Known,
    /// Batches before it are missing. Nothing changed; pull what follows `have`.
    Gap {
        /// The highest batch that is here.
        have: Seq,
        /// The one that came.
        got: Seq,
    },
    /// It contradicts a batch that is here. Nothing changed yet: tell others, and hand the proof
    /// to [`VoUsage::apply_fork`].
    Fork(ForkProof),
}

/// Counts of what was ignored by rule, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Cells of spans that were forgotten when they arrived.
    pub late_cells: u64,
    /// Hourly cells whose day had been merged when they arrived.
    pub absorbed_cells: u64,
}

/// The grow-only usage of one VO.
#[derive(Debug, Clone)]
pub struct VoUsage {
    pub(crate) vo: VoId,
    pub(crate) rule: Rule,
    pub(crate) paths: PathTable,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) seals: SealStore,
    pub(crate) totals: Totals,
    pub(crate) digest: StateDigest,
    pub(crate) stats: Stats,
    pub(crate) retired: Retired,
}

impl VoUsage {
    /// A VO of which nothing is known yet, with windows of `length`.
    pub fn new(vo: VoId, length: WindowLength) -> Self {
        Self {
            vo,
            rule: Rule {
                length,
                horizon: WallTime(0),
            },
            paths: PathTable::default(),
            streams: BTreeMap::new(),
            seals: SealStore::default(),
            totals: Totals::default(),
            digest: StateDigest::default(),
            stats: Stats::default(),
            retired: Retired::default(),
        }
    }

    /// Takes the next batch of a stream. `bound` is what the site may claim by the charter in
    /// force. On an error nothing has changed.
    pub fn apply_batch(
        &mut self,
        batch: Arc<Verified<UsageBatch>>,
        bound: Bound,
    ) -> Result<Applied, Refused> {
        match self.place(&batch)? {
            Place::Next => self.append(batch, Some(bound)).map(Applied::Fresh),
            Place::Known => Ok(Applied::Known),
            Place::Gap { have, got } => Ok(Applied::Gap { have, got }),
            Place::Fork(proof) => Ok(Applied::Fork(proof)),
        }
    }

    /// Believes a fork: the stream falls back to the prefix that the proof leaves undisputed, as
    /// far as the retained history tells it, and takes nothing behind it any more. The one place
    /// where amounts can fall. Where the history does not reach, the stream is emptied, to be
    /// pulled again up to the cap. A proof for another VO, or of a higher fork than is known,
    /// changes nothing.
    pub fn apply_fork(&mut self, proof: &ForkProof) -> Vec<CellChange> {
        if proof.vo() != self.vo {
            return Vec::new();
        }
        let id = proof.stream();
        let begins = || self.may_begin(id, Incarnation(0)).is_ok();
        if self.is_retired(id) || !(self.streams.contains_key(&id) || begins()) {
            return Vec::new();
        }
        let stream = self.streams.entry(id).or_default();
        if stream.cap().is_some_and(|cap| cap <= proof.cap()) {
            return Vec::new();
        }
        stream.fork = Some(proof.clone());
        self.fall_back(id, proof.cap())
    }

    /// Forgets spans that ended at or before `horizon`, now and when they arrive later. The horizon
    /// only rises. Cells that change otherwise belong to a checkpoint that waited for nothing but
    /// a forgotten seal.
    pub fn forget_ended_before(&mut self, horizon: WallTime) -> Vec<CellChange> {
        self.rule.horizon = self.rule.horizon.max(horizon);
        let mut changes = Vec::new();
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let mut joining = Joining::default();
            let stream = self.streams.get_mut(&id).expect("just listed");
            stream.sheets.forget(self.rule, &mut joining.edits);
            let whole = stream.pending.as_mut().is_some_and(|pending| {
                pending
                    .missing
                    .retain(|seal| !self.rule.has_forgotten(seal.span));
                pending.missing.is_empty()
            });
            self.totals
                .shift(id.site, &Moved::by(&joining.edits, self.rule.length));
            changes.extend(self.settle(id, joining));
            if whole {
                // Refused: the pending checkpoint is gone, and its signer is found out elsewhere.
                changes.extend(self.adopt(id).unwrap_or_default());
            }
        }
        changes
    }

    /// What a site should publish to merge its own old hours by day: per account and day before
    /// `day_excluded`, one cell with the sum of its hours. Changes nothing: the cells move when the
    /// batch that carries the rows is applied, here as everywhere.
    pub fn compact_days(
        &self,
        stream: StreamId,
        day_excluded: u32,
    ) -> Vec<(Span, AccountPath, Counters)> {
        let Some(stream) = self.streams.get(&stream) else {
            return Vec::new();
        };
        let sums = stream.sheets.sums_of_hours(day_excluded, self.rule.length);
        let mut rows: Vec<_> = sums
            .into_iter()
            .map(|((day, path), sum)| (Span::Day(day), self.paths.path(path).clone(), sum))
            .collect();
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        rows
    }

    /// Where `batch` belongs.
    pub(crate) fn place(&self, batch: &Arc<Verified<UsageBatch>>) -> Result<Place, Refused> {
        let (id, seq) = (batch.body().stream(), batch.body().seq);
        if batch.vo() != self.vo {
            return Err(Refused::OtherVo {
                expected: self.vo,
                got: batch.vo(),
            });
        }
        if self.is_retired(id) {
            return Ok(Place::Known);
        }
        let Some(stream) = self.streams.get(&id) else {
            self.may_begin(id, batch.body().retired_below)?;
            return Ok(if seq == Seq(1) {
                Place::Next
            } else {
                Place::Gap {
                    have: Seq(0),
                    got: seq,
                }
            });
        };
        if let Some(cap) = stream.cap().filter(|cap| seq > *cap) {
            return Err(Refused::Forked {
                stream: id,
                first_refused: cap.next(),
            });
        }
        let contradicts = |held: &Arc<Verified<UsageBatch>>| {
            let proof = ForkProof::new(held.clone(), batch.clone());
            proof
                .map(Place::Fork)
                .ok_or(Refused::BrokenChain { stream: id, seq })
        };
        let broken = || Err(Refused::BrokenChain { stream: id, seq });
        if mutant!(PositionOneLess, seq <= stream.seq, seq < stream.seq) {
            return match stream.log.get(&seq) {
                Some(held) if held.hash() != batch.hash() && !mutated!(ForkUnseen) => {
                    contradicts(held)
                }
                None if seq == stream.seq && stream.head != Some(batch.hash()) => broken(),
                _ => Ok(Place::Known),
            };
        }
        if seq != stream.seq.next() {
            return Ok(Place::Gap {
                have: stream.seq,
                got: seq,
            });
        }
        if batch.body().previous == stream.head || mutated!(ForkUnseen) {
            return Ok(Place::Next);
        }
        stream.log.get(&stream.seq).map_or_else(broken, contradicts)
    }

    /// Joins and appends a batch that is the next one.
    pub(crate) fn append(
        &mut self,
        batch: Arc<Verified<UsageBatch>>,
        bound: Option<Bound>,
    ) -> Result<Vec<CellChange>, Refused> {
        let id = batch.body().stream();
        let mut joining = Joining::default();
        self.join(id, &batch.body().cells, &mut joining);
        let mut changes = self.commit(id, joining, bound)?;
        let (below, settled) = (batch.body().retired_below, batch.body().settled_below);
        self.streams.entry(id).or_default().append(batch);
        self.settle_below(id.site, settled);
        changes.extend(self.retire_below(id.site, below));
        Ok(changes)
    }

    fn fall_back(&mut self, id: StreamId, cap: Seq) -> Vec<CellChange> {
        let stream = self.streams.get_mut(&id).expect("the caller made it");
        // What is pending may lean on cells that go now; it will be offered again.
        let beyond = |pending: &mut Pending| stream.seq > cap || pending.document.body().seq > cap;
        if let Some(pending) = stream.pending.take_if(beyond) {
            self.seals
                .release(pending.parts.keys().map(|seal| seal.hash));
        }
        if stream.seq <= cap {
            return Vec::new();
        }
        for (_, disputed) in stream.checkpoints.split_off(&cap.next()) {
            self.seals
                .release(disputed.held.iter().map(|seal| seal.hash));
        }
        let rebuilt = stream.rebuild(cap, &self.seals, &mut self.paths, self.rule);
        stream.log.split_off(&rebuilt.seq.next());
        let edits = stream.sheets.edits_to(&rebuilt.sheets);
        (stream.seq, stream.head, stream.newest_at) =
            (rebuilt.seq, rebuilt.head, rebuilt.newest_at);
        stream.sheets = rebuilt.sheets;
        self.totals
            .shift(id.site, &Moved::by(&edits, self.rule.length));
        self.settle(
            id,
            Joining {
                edits,
                paths: rebuilt.paths,
                ..Joining::default()
            },
        )
    }
}

/// Where a batch belongs in its stream.
#[derive(Debug)]
pub(crate) enum Place {
    Next,
    Known,
    Gap { have: Seq, got: Seq },
    Fork(ForkProof),
}
