//! What two nodes say to each other, as canonical CBOR.
//!
//! Eager pushes carry one signed document each. Requests and their answers carry anti-entropy:
//! first a probe of a few hashes; where they differ, a pull that says what the asker holds and
//! gets what it lacks; and seals by hash.
//!
//! Invariant: every frame is within a named size, and all that is signed travels as the exact
//! bytes that were signed.

use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId, VoId, WallTime};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::digest::DigestFrame;

/// Largest request. A pull's digest of 2,000 sites with a dozen lives each takes 1 MB.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Largest answer: what one exchange may make a node buffer. Answers are cut here and resumed, so
/// the value trades round trips against memory; it holds the largest document with room to spare.
pub const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// What an answer aims at before it is cut. One document may exceed it, up to
/// [`RESPONSE_BYTES_MAX`].
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Batches of a stream after which a node asks others for a checkpoint that lets them go: two
/// checkpoints' worth at the default interval. Bounds what is retained of a stream to twice this,
/// where its site makes checkpoints at all.
pub const LONG_STREAM_BATCHES: usize = 512;

/// Most seals asked for at once.
pub const SEALS_ASKED_MAX: usize = 64;

/// First bytes of a hash: enough to notice a difference, and an accident in 2^64 is caught by the
/// next exchange, whose hash is another one.
pub type ShortHash = [u8; 8];

/// A fresh document, pushed to everybody at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Push {
    /// A usage batch.
    Batch(ByteBuf),
    /// An in-flight sheet.
    Sheet(ByteBuf),
    /// A charter.
    Charter(ByteBuf),
    /// A share policy.
    Policy(ByteBuf),
    /// Two batches that contradict each other.
    Fork(ByteBuf, ByteBuf),
    /// A checkpoint, for those who hold all that it covers and can let go of it.
    Checkpoint(ByteBuf),
    /// A site's description.
    Description(ByteBuf),
}

/// What a node holds of one VO, as hashes that are equal when the holdings are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Charters, share policies, and versions of the sites' descriptions.
    #[serde(rename = "d", with = "serde_bytes")]
    pub documents: ShortHash,
    /// Version vector and known forks.
    #[serde(rename = "u", with = "serde_bytes")]
    pub usage: ShortHash,
    /// Versions of the in-flight sheets.
    #[serde(rename = "s", with = "serde_bytes")]
    pub sheets: ShortHash,
    /// The counters themselves. Nodes with equal vectors and different counters disagree about
    /// arithmetic, which is a bug that must be noticed.
    #[serde(rename = "c", with = "serde_bytes")]
    pub counters: ShortHash,
}

/// A request of one node to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What do you hold of these?
    Probe(Probe),
    /// Send what I lack of this VO.
    Pull(Pull),
    /// Send these seals.
    Seals {
        /// The VO.
        vo: VoId,
        /// Their hashes, at most [`SEALS_ASKED_MAX`].
        hashes: Vec<ContentHash>,
    },
}

/// What a node holds, and what time it takes it to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// Its clock. The only live statement about a peer's clock: batches may have been on their way
    /// for days.
    pub at: WallTime,
    /// Its holdings.
    pub vos: Vec<(VoId, Summary)>,
}

/// What the asker holds of a VO. Parts that are known to agree are left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pull {
    /// The VO.
    pub vo: VoId,
    /// Hashes of the documents held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<ContentHash>>,
    /// The version vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DigestFrame>,
    /// Known forks, each with the last position that is believed. Goes with `usage`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forks: Vec<(SiteId, Incarnation, Seq)>,
    /// Streams of which the asker retains many batches, each with the last position that a checkpoint
    /// of its covers: a newer checkpoint is welcome, though it brings nothing new. Checkpoints are
    /// pushed only, and a push may be missed. Goes with `usage`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long: Vec<(SiteId, Incarnation, Seq)>,
    /// Last batch of each stream and what it hashes to: asked where vectors agree and counters do
    /// not, because then somebody has signed two batches with one number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<(SiteId, Incarnation, Seq, ContentHash)>>,
    /// Newest in-flight sheet of each site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sheets: Option<Vec<(SiteId, Incarnation, u64)>>,
    /// Newest description of each site: version and hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptions: Option<Vec<(SiteId, u64, ContentHash)>>,
}

/// The answer to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// What the answerer holds; VOs that it does not share with the asker are left out.
    Probe(Probe),
    /// What the asker lacks.
    Pull(PullAnswer),
    /// The asked seals, in any order; unknown ones are left out.
    Seals(Vec<ByteBuf>),
    /// The answerer does not serve this to this peer.
    Refused(String),
}

/// One thing of a stream, in an order in which it can be applied as it is read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A checkpoint; the asker then asks for the seals that it lacks.
    Checkpoint(ByteBuf),
    /// A batch.
    Batch(ByteBuf),
}

/// What the asker lacks, as far as it fits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PullAnswer {
    /// Charters in the order of their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charters: Vec<ByteBuf>,
    /// Share policies, parents before children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ByteBuf>,
    /// Proofs of forks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forks: Vec<(ByteBuf, ByteBuf)>,
    /// Checkpoints and batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// In-flight sheets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sheets: Vec<ByteBuf>,
    /// Sites' descriptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptions: Vec<ByteBuf>,
    /// Whether there is more: ask again with the then newer digest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The digest named a base that the answerer does not hold: send it in full.
    #[serde(default, skip_serializing_if = "is_false")]
    pub need_full: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Push {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// Decodes; `bytes_max` is the transport's own limit on pushes.
    pub fn from_bytes(bytes: &[u8], bytes_max: usize) -> Result<Self, CborError> {
        cbor::from_slice(bytes, bytes_max)
    }
}

impl Request {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// Decodes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CborError> {
        cbor::from_slice(bytes, REQUEST_BYTES_MAX)
    }
}

impl Response {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// Decodes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CborError> {
        cbor::from_slice(bytes, RESPONSE_BYTES_MAX)
    }
}
