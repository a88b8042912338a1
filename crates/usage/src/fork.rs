//! The proof that a site has said two different things at one position of its stream.
//!
//! Invariant: a [`ForkProof`] holds two batches that one key signed and that cannot both follow
//! the same history: either two at one position, or one whose named predecessor is not the other.
//! It needs no witness; whoever verifies the two signatures can check it.

use std::sync::Arc;

use fairmesh_model::{Seq, StreamId, UsageBatch, Verified, VoId};

/// Two batches of one stream that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkProof {
    a: Arc<Verified<UsageBatch>>,
    b: Arc<Verified<UsageBatch>>,
}

impl ForkProof {
    /// Takes two batches in any order; `None` where they do not contradict each other.
    pub fn new(a: Arc<Verified<UsageBatch>>, b: Arc<Verified<UsageBatch>>) -> Option<Self> {
        let order = |batch: &Verified<UsageBatch>| (batch.body().seq, batch.hash());
        let (a, b) = if order(&a) <= order(&b) {
            (a, b)
        } else {
            (b, a)
        };
        let same_stream = a.vo() == b.vo() && a.body().stream() == b.body().stream();
        let one_position = a.body().seq == b.body().seq && a.hash() != b.hash();
        let broken_link =
            a.body().seq.next() == b.body().seq && b.body().previous != Some(a.hash());
        (same_stream && (one_position || broken_link)).then_some(Self { a, b })
    }

    /// The batch at the lower position, or of the lower hash.
    pub fn a(&self) -> &Arc<Verified<UsageBatch>> {
        &self.a
    }

    /// The other batch.
    pub fn b(&self) -> &Arc<Verified<UsageBatch>> {
        &self.b
    }

    /// The VO.
    pub fn vo(&self) -> VoId {
        self.a.vo()
    }

    /// The stream that has forked.
    pub fn stream(&self) -> StreamId {
        self.a.body().stream()
    }

    /// The last position that this proof leaves undisputed. Two batches at one position that name
    /// different predecessors dispute the position before as well.
    pub fn cap(&self) -> Seq {
        let (a, b) = (self.a.body(), self.b.body());
        let deeper = a.seq == b.seq && a.previous != b.previous;
        Seq(a.seq.0.saturating_sub(if deeper { 2 } else { 1 }))
    }
}
