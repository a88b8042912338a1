//! What is held of one stream: its cells, its place in the chain, and the history behind them.
//!
//! Invariant: `sheets` is the join of all that the stream said up to `seq`, and `head` is the hash
//! of batch `seq`. `log` and `checkpoints` lie at or below `seq`; each checkpoint holds the seals
//! of its spans that were live when it was adopted. With a fork, `seq` is at most its cap.
//!
//! A stream's value in the lattice is (cap, prefix): the lower cap wins, then the longer prefix.
//! Which of several proofs of one cap is kept is not part of the value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{Checkpoint, ContentHash, Seal, SealRef, Seq, UsageBatch, Verified, WallTime};

use crate::capacity::Bound;
use crate::edit::{Joining, Rule};
use crate::fork::ForkProof;
use crate::paths::{PathId, PathTable};
use crate::seals::SealStore;
use crate::sheets::Sheets;

/// A checkpoint all of whose live seals are here and joined.
#[derive(Debug, Clone)]
pub(crate) struct Retained {
    pub(crate) document: Arc<Verified<Checkpoint>>,
    pub(crate) held: Vec<SealRef>,
}

/// A seal of a pending checkpoint.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Its cells are in the stream's state already: nothing to join.
    Ours,
    /// Came from elsewhere, to be joined when all are here.
    Theirs(Seal),
}

/// A checkpoint that waits for seals. It contributes nothing until it is adopted as a whole.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) document: Arc<Verified<Checkpoint>>,
    pub(crate) bound: Bound,
    pub(crate) parts: BTreeMap<SealRef, Part>,
    /// Seals still to come; those of forgotten spans are not asked for.
    pub(crate) missing: BTreeSet<SealRef>,
}

/// One stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    pub(crate) seq: Seq,
    pub(crate) head: Option<ContentHash>,
    pub(crate) newest_at: Option<WallTime>,
    pub(crate) sheets: Sheets,
    pub(crate) log: BTreeMap<Seq, Arc<Verified<UsageBatch>>>,
    pub(crate) checkpoints: BTreeMap<Seq, Retained>,
    pub(crate) pending: Option<Pending>,
    pub(crate) fork: Option<ForkProof>,
}

/// A stream as it stood at an earlier position.
#[derive(Debug, Default)]
pub(crate) struct Rebuilt {
    pub(crate) sheets: Sheets,
    pub(crate) seq: Seq,
    pub(crate) head: Option<ContentHash>,
    pub(crate) newest_at: Option<WallTime>,
    /// Paths that were looked up on the way, to be swept by the caller.
    pub(crate) paths: Vec<PathId>,
}

impl Stream {
    /// Whether nothing at all is known of it.
    pub(crate) fn is_blank(&self) -> bool {
        self.seq == Seq(0) && self.pending.is_none() && self.fork.is_none()
    }

    /// The last position that may be believed; `None` without a fork.
    pub(crate) fn cap(&self) -> Option<Seq> {
        self.fork.as_ref().map(ForkProof::cap)
    }

    /// Takes the next batch, whose cells are joined already.
    pub(crate) fn append(&mut self, batch: Arc<Verified<UsageBatch>>) {
        self.seq = batch.body().seq;
        self.head = Some(batch.hash());
        self.newest_at = Some(batch.body().at);
        self.log.insert(self.seq, batch);
    }

    /// Whether all batches behind `seq_excluded` are retained.
    pub(crate) fn has_all_after(&self, seq_excluded: Seq) -> bool {
        let retained = self.log.range(seq_excluded.next()..).count() as u64;
        self.seq.0.checked_sub(seq_excluded.0) == Some(retained)
    }

    /// The stream at the highest position up to `seq_max` that can be told from the retained
    /// history: the newest checkpoint there, or the beginning, and the batches that follow it.
    pub(crate) fn rebuild(
        &self,
        seq_max: Seq,
        seals: &SealStore,
        paths: &mut PathTable,
        rule: Rule,
    ) -> Rebuilt {
        let mut rebuilt = Rebuilt::default();
        let mut joining = Joining::default();
        if let Some((seq, base)) = self.checkpoints.range(..=seq_max).next_back() {
            let body = base.document.body();
            (rebuilt.seq, rebuilt.head, rebuilt.newest_at) = (*seq, Some(body.head), Some(body.at));
            for reference in &base.held {
                let bytes = seals
                    .get(&reference.hash)
                    .expect("a retained checkpoint holds its seals");
                let seal = Seal::from_bytes(bytes, reference)
                    .expect("seals are checked before they are held");
                let ids = intern(seal.cells.paths(), paths, &mut rebuilt.paths);
                rebuilt
                    .sheets
                    .join(seal.cells.cells(), &ids, rule, &mut joining);
            }
        }
        for (seq, batch) in self.log.range(rebuilt.seq.next()..) {
            if *seq != rebuilt.seq.next() || *seq > seq_max {
                break;
            }
            let body = batch.body();
            (rebuilt.seq, rebuilt.head, rebuilt.newest_at) =
                (*seq, Some(batch.hash()), Some(body.at));
            let ids = intern(body.cells.paths(), paths, &mut rebuilt.paths);
            rebuilt
                .sheets
                .join(body.cells.cells(), &ids, rule, &mut joining);
        }
        rebuilt
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let batch = |batch: &Arc<Verified<UsageBatch>>| {
            let cells = size_of_val(batch.body().cells.cells());
            batch.bytes().len() + cells + size_of::<Verified<UsageBatch>>()
        };
        let checkpoint = |kept: &Retained| {
            kept.document.bytes().len() + kept.held.len() * 2 * size_of::<SealRef>()
        };
        size_of::<Self>()
            + self.sheets.memory_bytes()
            + self.log.values().map(batch).sum::<usize>()
            + self.checkpoints.values().map(checkpoint).sum::<usize>()
    }
}

/// Looks paths up and remembers them in `looked_up`.
pub(crate) fn intern(
    paths: &[fairmesh_model::AccountPath],
    table: &mut PathTable,
    looked_up: &mut Vec<PathId>,
) -> Vec<PathId> {
    let ids: Vec<PathId> = paths.iter().map(|path| table.intern(path)).collect();
    looked_up.extend_from_slice(&ids);
    ids
}
