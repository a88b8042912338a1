//! Why a frame was refused.
//!
//! Invariant: a refused frame changed nothing. The sender is at fault, except where a variant says
//! that the local caller is.

use fairmesh_model::cbor::CborError;

use super::{FRAME_BYTES_MAX, LOOKUP_BATCH_MAX, PROTOCOL_VERSION};

/// A frame that is not one of this protocol, or a request that cannot be put into one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Larger than a frame may be. When encoding: the caller's batch is too large, split it.
    #[error("frame of {0} bytes is larger than {FRAME_BYTES_MAX}")]
    FrameTooLarge(usize),
    /// A frame without a body.
    #[error("frame without a body")]
    FrameEmpty,
    /// The body ends in the middle of an item.
    #[error("cut off in the middle of an item")]
    Truncated,
    /// The body is not the one encoding of its content.
    #[error("not canonical: {0}")]
    NotCanonical(&'static str),
    /// A part of the body that is not known here is not canonical CBOR, or something is behind the
    /// end.
    #[error(transparent)]
    Cbor(#[from] CborError),
    /// The sender speaks another version.
    #[error("protocol version {0} is not spoken here, only version {PROTOCOL_VERSION}")]
    Version(u64),
    /// A key is absent that must be there, or there where it must not be.
    #[error("{0} is missing or out of place")]
    Missing(&'static str),
    /// A key holds what it cannot hold.
    #[error("{0} is of the wrong type, length or range")]
    Value(&'static str),
    /// More rows than a batch may have. When encoding: the caller's batch is too large, split it.
    #[error("{0} rows are more than {LOOKUP_BATCH_MAX}")]
    TooManyRows(usize),
    /// A row of the name block is malformed. When encoding: the caller's name is at fault.
    #[error("row {row} of the name block: {what}")]
    Row {
        /// Which row, from 0.
        row: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}
