//! [`VoUsage`] as a state-based and as an operation-based CRDT, in the traits of the `crdts` crate.
//!
//! The value that merges is: the live cells, the version vector, the retained history, the caps of
//! forks, the lives declared over, and the horizon. Pending checkpoints travel along but contribute nothing.
//!
//! Invariant: `merge` is commutative, associative and idempotent on that value, for states whose
//! history reaches back to the forks between them; applying the batches one by one, in any order
//! that keeps each stream's own, gives the same value as merging states that hold them.
//!
//! Neither form checks a site's capacity: they take what a node of this VO has accepted already.
//! What comes from a peer goes through [`VoUsage::apply_batch`] and [`VoUsage::offer_checkpoint`].

use std::collections::btree_map::Entry;
use std::sync::Arc;

use crdts::{CmRDT, CvRDT};
use fairmesh_model::{StreamId, UsageBatch, Verified};

use crate::edit::Joining;
use crate::fork::ForkProof;
use crate::paths::PathId;
use crate::refused::{MergeRefused, Refused};
use crate::stream::Stream;
use crate::vo_usage::{Place, VoUsage};

impl CvRDT for VoUsage {
    type Validation = MergeRefused;

    fn validate_merge(&self, other: &Self) -> Result<(), MergeRefused> {
        if self.vo != other.vo {
            return Err(MergeRefused::OtherVo(self.vo, other.vo));
        }
        if self.rule.length != other.rule.length {
            return Err(MergeRefused::OtherLength(
                self.rule.length,
                other.rule.length,
            ));
        }
        Ok(())
    }

    /// Joins another state of the same VO. It tells nobody which cells changed: sums that follow
    /// changes are to be read anew.
    ///
    /// # Panics
    /// If [`CvRDT::validate_merge`] refuses it: the caller's bug.
    fn merge(&mut self, mut other: Self) {
        self.validate_merge(&other)
            .expect("the caller validated the merge");
        let horizon = self.rule.horizon.max(other.rule.horizon);
        self.forget_ended_before(horizon);
        other.forget_ended_before(horizon);
        self.merge_retired(&mut other);
        let known: Vec<ForkProof> = self.forks().chain(other.forks()).cloned().collect();
        self.apply_forks(&mut other, &known);
        let found = self.contradictions(&other);
        self.apply_forks(&mut other, &found);

        let translated: Vec<PathId> = (0..)
            .take(other.paths.id_end())
            .map(|id| self.pin(&other, PathId(id)))
            .collect();
        for (id, theirs) in std::mem::take(&mut other.streams) {
            self.merge_stream(id, theirs, &other, &translated);
        }
        translated.iter().for_each(|id| self.paths.release(*id));
        self.paths.sweep(translated);
    }
}

impl CmRDT for VoUsage {
    type Op = Arc<Verified<UsageBatch>>;
    type Validation = Refused;

    fn validate_op(&self, op: &Self::Op) -> Result<(), Refused> {
        match self.place(op)? {
            Place::Gap { have, got } => Err(Refused::Gap {
                stream: op.body().stream(),
                have,
                got,
            }),
            Place::Next | Place::Known | Place::Fork(_) => Ok(()),
        }
    }

    /// Applies a batch in its turn; believes the fork that it proves; ignores it otherwise.
    fn apply(&mut self, op: Self::Op) {
        match self.place(&op) {
            Ok(Place::Next) => {
                self.append(op, None)
                    .expect("nothing is refused without a bound");
            }
            Ok(Place::Fork(proof)) => {
                self.apply_fork(&proof);
            }
            Ok(Place::Known | Place::Gap { .. }) | Err(_) => {}
        }
    }
}

impl VoUsage {
    fn apply_forks(&mut self, other: &mut Self, proofs: &[ForkProof]) {
        for proof in proofs {
            self.apply_fork(proof);
            other.apply_fork(proof);
        }
    }

    /// For each stream the first position at which the two logs differ.
    fn contradictions(&self, other: &Self) -> Vec<ForkProof> {
        let shared = self
            .streams
            .iter()
            .filter_map(|(id, ours)| Some((ours, other.streams.get(id)?)));
        shared
            .filter_map(|(ours, theirs)| {
                let both = ours
                    .log
                    .iter()
                    .filter_map(|(seq, a)| Some((a, theirs.log.get(seq)?)));
                let (a, b) = both.into_iter().find(|(a, b)| a.hash() != b.hash())?;
                ForkProof::new(a.clone(), b.clone())
            })
            .collect()
    }

    /// Our id of another state's path, kept alive until it is released.
    fn pin(&mut self, other: &Self, theirs: PathId) -> PathId {
        let ours = self.paths.intern(other.paths.path(theirs));
        self.paths.acquire(ours);
        ours
    }

    fn merge_stream(&mut self, id: StreamId, theirs: Stream, other: &Self, translated: &[PathId]) {
        let ours = self.streams.entry(id).or_default();
        let mut joining = Joining::default();
        for (span, sheet) in theirs.sheets.iter() {
            let rows: Vec<_> = sheet
                .rows()
                .map(|(path, counters)| (translated[path.index()], counters))
                .collect();
            ours.sheets
                .join_rows(span, rows.into_iter(), self.rule, &mut joining);
        }
        if theirs.seq > ours.seq {
            (ours.seq, ours.head, ours.newest_at) = (theirs.seq, theirs.head, theirs.newest_at);
        }
        for (seq, batch) in theirs.log {
            ours.log.entry(seq).or_insert(batch);
        }
        for (seq, checkpoint) in theirs.checkpoints {
            if let Entry::Vacant(place) = ours.checkpoints.entry(seq) {
                for seal in &checkpoint.held {
                    let bytes = other
                        .seals
                        .get(&seal.hash)
                        .expect("a retained checkpoint holds its seals");
                    self.seals.hold(seal.hash, bytes);
                }
                place.insert(checkpoint);
            }
        }
        self.commit(id, joining, None)
            .expect("nothing is refused without a bound");
        if let Some(pending) = theirs.pending {
            // Refused or behind: then there is nothing to wait for.
            let offered = self.offer_checkpoint(pending.document, pending.bound);
            for seal in pending.parts.keys().filter(|_| offered.is_ok()) {
                let bytes = other
                    .seals
                    .get(&seal.hash)
                    .expect("a pending checkpoint holds its parts");
                let _unwanted = self.offer_seal(*seal, bytes);
            }
        }
    }
}
