//! Why something was refused. None of these changes the cells, and none is ever a panic: the
//! sender or the signer is at fault, and the message says how.

use fairmesh_model::cbor::CborError;
use fairmesh_model::{ContentHash, Seq, SiteId, Span, StreamId, VoId, WindowLength};

/// A document or a seal that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It belongs to another VO. The caller routed it wrongly. State is unchanged.
    #[error("a document of VO {got} was offered to VO {expected}")]
    OtherVo {
        /// The VO of this state.
        expected: VoId,
        /// The VO of the document.
        got: VoId,
    },
    /// The site claims more than its declared capacity allows. State is unchanged: the stream stays
    /// at its prefix. A pending checkpoint that claims so is thrown away.
    #[error("site {site} claims {claimed} {counter} in {span:?}, its capacity allows {bound}")]
    OverCapacity {
        /// Who claims.
        site: SiteId,
        /// Where; a day stands for its hours and its day cells together.
        span: Span,
        /// Which counter: `cpu_ms` or `charge`.
        counter: &'static str,
        /// Sum over the site's incarnations, with the refused document.
        claimed: u128,
        /// The most that is allowed.
        bound: u128,
    },
    /// The stream has forked at or before this point; nothing behind the prefix is believed. The
    /// signer is at fault. State is unchanged.
    #[error("site {} has signed two batches {}; nothing from there on is believed", stream.site, first_refused.0)]
    Forked {
        /// The stream.
        stream: StreamId,
        /// The lowest position that is refused.
        first_refused: Seq,
    },
    /// It does not follow from what is held, and what it contradicts is no longer here as a batch,
    /// so that there is no proof to show. State is unchanged.
    #[error("document {} of site {} does not continue the chain that is known", seq.0, stream.site)]
    BrokenChain {
        /// The stream.
        stream: StreamId,
        /// Position of the document.
        seq: Seq,
    },
    /// A checkpoint claims more than the batches that it covers. The signer is at fault; the
    /// pending checkpoint is thrown away, the cells are unchanged.
    #[error("checkpoint {} of site {} claims more than its batches do", seq.0, stream.site)]
    FalseCheckpoint {
        /// The stream.
        stream: StreamId,
        /// What the checkpoint covers.
        seq: Seq,
    },
    /// One site has more lives than are kept. State is unchanged.
    #[error("site {0} has more incarnations than are kept")]
    TooManyIncarnations(SiteId),
    /// No pending checkpoint names this seal. The sender is at fault, or late. State is unchanged.
    #[error("no pending checkpoint names seal {0}")]
    UnwantedSeal(ContentHash),
    /// The bytes are not the seal that was named. The sender is at fault. State is unchanged.
    #[error("seal: {0}")]
    Seal(CborError),
    /// A batch arrived before its predecessors: for [`crdts::CmRDT::validate_op`] only, where
    /// [`crate::VoUsage::apply_batch`] answers with a gap. Nobody is at fault. State is unchanged.
    #[error("batch {} of site {} came before batch {}", got.0, stream.site, have.next().0)]
    Gap {
        /// The stream.
        stream: StreamId,
        /// The highest batch that is here.
        have: Seq,
        /// The one that came.
        got: Seq,
    },
}

/// Two states that cannot be merged. Nothing changed; the caller mixed them up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeRefused {
    /// They belong to different VOs.
    #[error("states of VO {0} and VO {1} do not merge")]
    OtherVo(VoId, VoId),
    /// Their windows differ.
    #[error("states with windows of {0:?} and {1:?} do not merge")]
    OtherLength(WindowLength, WindowLength),
}
