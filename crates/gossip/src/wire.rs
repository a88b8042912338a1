//! Messages between two nodes: canonical CBOR, compressed where that helps.
//!
//! A push carries one head with its changes, or one document. Requests and replies carry anti-entropy: a probe
//! compares one hash for each VO; where the hashes differ, a pull lists what the requester holds and returns what it
//! lacks; parts are requested by name.
//!
//! Invariant: every frame is within a named size, packed and unpacked, and everything signed travels as the exact bytes
//! that were signed.

use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::documents::CHARTER_SITES_MAX;
use fairmesh_model::{ContentHash, Incarnation, Signed, SiteId, VoId, WallTime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::bounded;
use crate::content::{DELTAS_BYTES_MAX, Delta, GONE_MAX};
use crate::digest::{Tag, VectorFrame};
use crate::head::Head;
use crate::next::NextHead;
use crate::part::{ManifestRow, PARTS_MAX, PartKey};
use crate::patch;

/// Largest push in bytes. Below gossipsub's default message limit of 64 KiB, with room for framing. A head with longer
/// changes is pushed without them, and receivers pull.
pub const PUSH_BYTES_MAX: usize = DELTAS_BYTES_MAX;

/// Most bytes that a push may unpack to: a push reaches all members at once, so a few kilobytes must not cost all of
/// them more. A head that changes more than 64 whole parts is pushed without its changes, too.
pub const PUSH_UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Largest request in bytes. A pull's vector of 2,000 sites takes 130 KB. With a higher limit one peer could make us
/// buffer megabytes before we know what it requests.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Largest reply in bytes, packed or unpacked: what one exchange may make a node buffer. With a larger one a slow peer
/// blocks a stream for minutes; with a smaller one a newcomer needs many more round trips.
pub const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Unpacked bytes at which a reply is cut; the requester asks again for the rest.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes counted for a head in an answer in addition to its content: an upper estimate.
pub(crate) const HEAD_BYTES: usize = 512;

/// Most heads, documents and proofs in an answer: an honest answer has no room for more. A document contains a
/// signature, and a site has one proof.
const ANSWER_HEADS_MAX: usize = FRAME_BYTES_MAX / HEAD_BYTES;
const ANSWER_DOCUMENTS_MAX: usize = FRAME_BYTES_MAX / 64;
const ANSWER_PROOFS_MAX: usize = CHARTER_SITES_MAX + 1;

/// Most deltas of one head: a replica keeps 16 KiB of them, and the shortest takes some bytes.
const ANSWER_DELTAS_MAX: usize = 4_096;

/// Bytes of work counted for a row of a manifest: a hash is compared, with a few tree look-ups.
pub(crate) const MANIFEST_ROW_BYTES: usize = 64;

/// Bytes of work counted for a signature check.
pub const SIGNED_BYTES: usize = 4 << 10;

/// Frames shorter than this many bytes are not compressed: it would save little.
const PACKED_FROM: usize = 512;

/// Number of a request, unique within one start of a node, from 1.
pub type RequestId = u64;

/// New data, pushed to all members at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Push {
    /// A head, and the delta from the head before if it is short enough.
    #[serde(rename = "h")]
    Head(ByteBuf, Option<ByteBuf>),
    /// A head as the difference from the one before it, which most members hold.
    #[serde(rename = "n")]
    Next(NextHead),
    /// The bytes of a charter or a share policy.
    #[serde(rename = "d")]
    Document(ByteBuf),
    /// Two heads of one site, incarnation and seq: they prove that the site signed both.
    #[serde(rename = "p")]
    Proof(ByteBuf, ByteBuf),
}

/// What a node holds of one VO, as two hashes. Members choose their heads, and officers the documents: with shorter
/// hashes they could construct two sets with one hash and show them to different members, who would never notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Half a hash over the charters and share policies.
    #[serde(rename = "d")]
    pub documents: Tag,
    /// [`HeadsSum`](crate::HeadsSum) over the uncovered heads and the proofs of forks.
    #[serde(rename = "h", with = "serde_bytes")]
    pub heads: [u8; 32],
}

/// A request of one node to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Compares what both sides hold of the shared VOs.
    Probe(Probe),
    /// Requests what the requester lacks of a VO.
    Pull(Pull),
    /// Requests parts by name.
    Parts {
        /// The VO of the heads.
        vo: VoId,
        /// Heads with names of their parts; at most [`PARTS_MAX`] names in all.
        #[serde(deserialize_with = "bounded::named")]
        wanted: Vec<(SiteId, Incarnation, Vec<PartKey>)>,
    },
}

/// The sender's clock, and what it holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// The sender's clock when it made the frame.
    pub at: WallTime,
    /// A summary of each VO that it shares with the receiver; a receiver ignores repetitions.
    pub vos: Vec<(VoId, Summary)>,
}

/// What the requester holds of a VO. The half that is known to agree is absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pull {
    /// The VO to compare.
    pub vo: VoId,
    /// Hashes of the requester's documents; `None` if the documents agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<ContentHash>>,
    /// The requester's heads; `None` if the heads agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<VectorFrame>,
    /// The requester's proofs of forks: the site, and a hash of the two heads. Empty without `heads`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<(SiteId, Tag)>,
}

/// A head that the requester lacks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeadItem {
    /// The signed head, in the exact bytes that its site signed.
    #[serde(rename = "h")]
    pub head: ByteBuf,
    /// Its parts, as far as the requester lacks them.
    #[serde(rename = "t")]
    pub content: HeadContent,
}

/// The content of a head, in the shortest form that completes what the requester holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadContent {
    /// The deltas from the requester's head to this one, in order.
    Deltas(#[serde(deserialize_with = "bounded::at_most::<_, _, ANSWER_DELTAS_MAX>")] Vec<ByteBuf>),
    /// All parts: the requester holds nothing of the site.
    Whole(
        #[serde(deserialize_with = "bounded::at_most::<_, _, PARTS_MAX>")] Vec<(PartKey, ByteBuf)>,
    ),
    /// Rows of the manifest that changed since the requester's head, and removed parts. There may be too many, never
    /// too few.
    Since(
        Vec<ManifestRow>,
        #[serde(deserialize_with = "bounded::at_most::<_, _, GONE_MAX>")] Vec<PartKey>,
    ),
    /// The whole manifest; the requester then requests the parts that it lacks.
    Manifest(Vec<ManifestRow>),
}

/// The reply to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// What the responder holds; VOs that it does not share with the requester are left out.
    Probe(Probe),
    /// What the requester lacks.
    Pull(PullAnswer),
    /// Some of the requested parts, in any order: their hashes identify them.
    Parts(#[serde(deserialize_with = "bounded::at_most::<_, _, PARTS_MAX>")] Vec<ByteBuf>),
    /// The responder does not serve this to this peer; the text says why.
    Refused(String),
}

/// What the requester lacks, as far as it fits into one reply.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PullAnswer {
    /// Charters and share policies, in an order in which they can be adopted: a policy after the charter that names its
    /// signers.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::documents::<_, ANSWER_DOCUMENTS_MAX>"
    )]
    pub documents: Vec<ByteBuf>,
    /// Proofs of forks that the requester does not list.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, ANSWER_PROOFS_MAX>"
    )]
    pub proofs: Vec<(ByteBuf, ByteBuf)>,
    /// Heads that are newer than the requester's, each incarnation of a site once.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, ANSWER_HEADS_MAX>"
    )]
    pub heads: Vec<HeadItem>,
    /// Whether the reply was cut: the requester should pull again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// Whether the vector was a difference from one that the responder does not hold: the requester should send it in
    /// full.
    #[serde(default, skip_serializing_if = "is_false")]
    pub need_full: bool,
}

impl HeadContent {
    /// Bytes of work that taking it in costs, an estimate: what it unpacks to, or its rows.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        match self {
            Self::Deltas(deltas) => {
                // Deltas that cannot be read cost nothing further: they are dropped before they are unpacked.
                let read = Delta::read_all(deltas).unwrap_or_default();
                let unpacked: usize = read.iter().map(Delta::unpacked_bytes).sum();
                unpacked + deltas.iter().map(|delta| delta.len()).sum::<usize>()
            }
            Self::Whole(parts) => parts.iter().map(|(_, bytes)| bytes.len()).sum(),
            Self::Since(rows, gone) => (rows.len() + gone.len()) * MANIFEST_ROW_BYTES,
            Self::Manifest(rows) => rows.len() * MANIFEST_ROW_BYTES,
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Push {
    /// Encodes as canonical CBOR, not compressed: the deltas in it are.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// The head in the push; a [`Push::Next`] needs `last`, the head before it. The signature is not checked.
    pub fn head(&self, last: Option<&Signed<Head>>) -> Option<Signed<Head>> {
        match self {
            Self::Head(bytes, _) => Signed::parse(bytes).ok(),
            Self::Next(next) => {
                let last = last?;
                next.put_together(last.claimed(), last.hash())
            }
            Self::Document(_) | Self::Proof(..) => None,
        }
    }

    /// Decodes a push of at most [`PUSH_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// The bytes are not a push in canonical CBOR.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CborError> {
        cbor::from_slice(bytes, PUSH_BYTES_MAX)
    }
}

impl Request {
    /// Encodes as a frame for a stream, compressed if that makes it shorter.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// Decodes a request of at most [`REQUEST_BYTES_MAX`] bytes, unpacked.
    ///
    /// # Errors
    /// The bytes are not a request in canonical CBOR, or unpack to more.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        unpack(bytes, REQUEST_BYTES_MAX)
    }
}

impl Response {
    /// Encodes as a frame for a stream, compressed if that makes it shorter.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// Decodes a reply of at most [`RESPONSE_BYTES_MAX`] bytes, unpacked.
    ///
    /// # Errors
    /// The bytes are not a reply in canonical CBOR, or unpack to more.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        unpack(bytes, RESPONSE_BYTES_MAX)
    }
}

/// Bytes that a frame of a request or a reply claims to unpack to, an upper limit of what it does unpack to. For the
/// budget of a peer, which must be charged before anything is unpacked.
pub fn unpacked_bytes(frame: &[u8]) -> usize {
    let claimed = frame.strip_prefix(&[1]).and_then(patch::claimed);
    // A claim above the limit is never unpacked, so it costs only the frame.
    let claimed = claimed.filter(|bytes| *bytes <= RESPONSE_BYTES_MAX);
    claimed.unwrap_or(0).max(frame.len())
}

/// A frame: one byte that says whether the rest is packed. Account paths repeat from part to part and are two thirds of
/// what a newcomer gets; packed, they cost almost nothing.
fn pack(value: &impl Serialize) -> Vec<u8> {
    let mut plain = cbor::to_vec(value);
    if plain.len() >= PACKED_FROM {
        let packed = patch::patch(&[], &plain);
        if packed.len() < plain.len() {
            return [&[1], packed.as_slice()].concat();
        }
    }
    plain.insert(0, 0);
    plain
}

fn unpack<T: DeserializeOwned>(bytes: &[u8], bytes_max: usize) -> Result<T, String> {
    let not_cbor = |error: CborError| error.to_string();
    match bytes.split_first() {
        Some((0, plain)) => cbor::from_slice(plain, bytes_max).map_err(not_cbor),
        Some((1, packed)) => {
            let plain = patch::apply(&[], packed, bytes_max);
            let plain = plain.ok_or_else(|| "it cannot be unpacked".to_owned())?;
            cbor::from_slice(&plain, bytes_max).map_err(not_cbor)
        }
        _ => Err("it is neither plain nor packed".to_owned()),
    }
}
