//! Making a checkpoint, and letting go of the history behind it.
//!
//! Invariant: a checkpoint made here says exactly what the stream holds, cut into seals that depend
//! on content alone. Pruning changes no cell: of each stream the two newest checkpoints stay, with
//! every batch behind the older one.
//!
//! Deliberately not here: signing (the caller has the key) and adopting ([`crate::adopt`]).

use fairmesh_model::{Checkpoint, ContentHash, Seq, StreamId, WallTime, mutant};

use crate::cut;
use crate::vo_usage::VoUsage;

/// Checkpoints that [`VoUsage::prune`] keeps of a stream, with the batches behind the older one:
/// how far back a fork can be met without emptying the stream.
const CHECKPOINTS_KEPT: usize = 2;

/// What [`VoUsage::prune`] let go of, for the store to delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Positions of batches.
    pub seqs: Vec<Seq>,
    /// Payload hashes of checkpoints.
    pub checkpoints: Vec<ContentHash>,
    /// Seals that no checkpoint of any stream holds any more.
    pub seals: Vec<ContentHash>,
}

impl VoUsage {
    /// The checkpoint of a stream where it stands, for its site to sign, and the bytes of its seals
    /// in the order in which it names them. `None` for a stream without a batch.
    pub fn checkpoint_of(
        &self,
        stream: StreamId,
        at: WallTime,
    ) -> Option<(Checkpoint, Vec<Vec<u8>>)> {
        let held = self.streams.get(&stream)?;
        let head = held.head?;
        let cuts = cut::cut_all(&held.sheets, &self.paths);
        let (seals, bytes) = cuts
            .into_iter()
            .map(|cut| (cut.reference, cut.bytes))
            .unzip();
        let StreamId { site, incarnation } = stream;
        Some((
            Checkpoint {
                vo: self.vo,
                site,
                incarnation,
                seq: held.seq,
                head,
                at,
                retired_below: self.retired_below(site).min(incarnation),
                settled_below: self.settled_below(site).min(incarnation),
                seals,
            },
            bytes,
        ))
    }

    /// Lets go of a stream's batches at or below the older of its two newest checkpoints, and of
    /// all checkpoints before that one.
    pub fn prune(&mut self, stream: StreamId) -> Pruned {
        let mut pruned = Pruned::default();
        let Some(stream) = self.streams.get_mut(&stream) else {
            return pruned;
        };
        let Some(oldest_kept) = stream
            .checkpoints
            .keys()
            .nth_back(CHECKPOINTS_KEPT - 1)
            .copied()
        else {
            return pruned;
        };
        let kept = stream.checkpoints.split_off(&oldest_kept);
        for (_, old) in std::mem::replace(&mut stream.checkpoints, kept) {
            pruned
                .seals
                .extend(self.seals.release(old.held.iter().map(|seal| seal.hash)));
            pruned.checkpoints.push(old.document.hash());
        }
        let first_kept = oldest_kept.next();
        let first_kept = mutant!(PrunedTooFar, first_kept, first_kept.next().next());
        let kept = stream.log.split_off(&first_kept);
        pruned
            .seqs
            .extend(std::mem::replace(&mut stream.log, kept).into_keys());
        pruned
    }
}
