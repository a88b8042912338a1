//! What two nodes say to each other, as canonical CBOR, compressed where that helps.
//!
//! A push carries one head with what changed, or one document. Requests and their answers carry
//! anti-entropy: a probe of one hash for each VO; where it differs, a pull that says what the asker
//! holds and gets what it lacks; and parts by name.
//!
//! Invariant: every frame is within a named size, packed and unpacked, and all that is signed travels
//! as the exact bytes that were signed.

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

/// Largest push. Below gossipsub's default message limit of 64 KiB with room for framing; a head whose
/// changes are longer is pushed without them, and pulled.
pub const PUSH_BYTES_MAX: usize = DELTAS_BYTES_MAX;

/// Most bytes that a push may unpack to: a signature and a few kilobytes must not cost everybody more. A
/// head that changes more than sixty-four whole parts is pushed without them, too.
pub const PUSH_UNPACKED_BYTES_MAX: usize = 4 << 20;

/// Largest request. A pull's vector of 2,000 sites takes 130 KB; more lets one peer make us hold megabytes before we know
/// what it wants.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Largest answer, packed or unpacked: what one exchange may make a node buffer. Larger, and one slow peer blocks a stream
/// for minutes; smaller, and a newcomer needs many more round trips.
pub const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// What an answer aims at before it is cut, unpacked.
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

/// What a row of a manifest stands for where work is counted: a hash that is compared, and a few tree
/// look-ups.
pub(crate) const MANIFEST_ROW_BYTES: usize = 64;

/// What something signed stands for where work is counted: a signature that is checked.
pub const SIGNED_BYTES: usize = 4 << 10;

/// Frames shorter than this are sent as they are.
const PACKED_FROM: usize = 512;

/// Number of a request, unique in one incarnation of a node.
pub type RequestId = u64;

/// Something fresh, pushed to everybody at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Push {
    /// A head, and the delta from the head before where it is short enough.
    #[serde(rename = "h")]
    Head(ByteBuf, Option<ByteBuf>),
    /// The head behind one that most members hold.
    #[serde(rename = "n")]
    Next(NextHead),
    /// A charter or a share policy.
    #[serde(rename = "d")]
    Document(ByteBuf),
    /// Two heads of one seq.
    #[serde(rename = "p")]
    Proof(ByteBuf, ByteBuf),
}

/// What a node holds of one VO, as two halves of one hash. Members choose the heads, and officers the documents, that
/// go into it: fewer bytes they could make the same of two sets, and show each of them to other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Charters and share policies.
    #[serde(rename = "d")]
    pub documents: Tag,
    /// Uncovered heads, and proofs of forks.
    #[serde(rename = "h", with = "serde_bytes")]
    pub heads: [u8; 32],
}

/// A request of one node to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What do you hold of these?
    Probe(Probe),
    /// Send what I lack of this VO.
    Pull(Pull),
    /// Send these parts.
    Parts {
        /// The VO.
        vo: VoId,
        /// Of which heads, and which of their parts: no more than one head may have.
        #[serde(deserialize_with = "bounded::named")]
        wanted: Vec<(SiteId, Incarnation, Vec<PartKey>)>,
    },
}

/// What a node holds, and what time it takes it to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// Its clock.
    pub at: WallTime,
    /// Its holdings, each VO once.
    pub vos: Vec<(VoId, Summary)>,
}

/// What the asker holds of a VO. What is known to agree is left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pull {
    /// The VO.
    pub vo: VoId,
    /// Hashes of the documents held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<ContentHash>>,
    /// Heads held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<VectorFrame>,
    /// Proofs of forks held: whose, and a hash of the two heads. Goes with `heads`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<(SiteId, Tag)>,
}

/// A head that the asker lacks.
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
    /// The deltas from the asker's head to this one.
    Deltas(#[serde(deserialize_with = "bounded::at_most::<_, _, ANSWER_DELTAS_MAX>")] Vec<ByteBuf>),
    /// All parts: the asker holds nothing of the site.
    Whole(
        #[serde(deserialize_with = "bounded::at_most::<_, _, PARTS_MAX>")] Vec<(PartKey, ByteBuf)>,
    ),
    /// Lines of the manifest that changed since the asker's head, and parts that went.
    Since(
        Vec<ManifestRow>,
        #[serde(deserialize_with = "bounded::at_most::<_, _, GONE_MAX>")] Vec<PartKey>,
    ),
    /// The whole manifest.
    Manifest(Vec<ManifestRow>),
}

/// The answer to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// What the answerer holds; VOs that it does not share with the asker are left out.
    Probe(Probe),
    /// What the asker lacks.
    Pull(PullAnswer),
    /// Some of the parts that were asked for, in any order.
    Parts(#[serde(deserialize_with = "bounded::at_most::<_, _, PARTS_MAX>")] Vec<ByteBuf>),
    /// The answerer does not serve this to this peer.
    Refused(String),
}

/// What the asker lacks, as far as it fits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PullAnswer {
    /// Charters and share policies, in an order in which they can be adopted.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::documents::<_, ANSWER_DOCUMENTS_MAX>"
    )]
    pub documents: Vec<ByteBuf>,
    /// Proofs of forks.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, ANSWER_PROOFS_MAX>"
    )]
    pub proofs: Vec<(ByteBuf, ByteBuf)>,
    /// Heads.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, ANSWER_HEADS_MAX>"
    )]
    pub heads: Vec<HeadItem>,
    /// Whether there is more: ask again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The vector was a difference from one that the answerer does not hold: send it in full.
    #[serde(default, skip_serializing_if = "is_false")]
    pub need_full: bool,
}

impl HeadContent {
    /// About as many bytes as it unpacks to.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        match self {
            Self::Deltas(deltas) => {
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
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// The head that it carries, if it carries one that is whole or comes behind `last`. Its signature
    /// is not checked.
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

    /// Decodes.
    ///
    /// # Errors
    /// What is not a push.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CborError> {
        cbor::from_slice(bytes, PUSH_BYTES_MAX)
    }
}

impl Request {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// Decodes.
    ///
    /// # Errors
    /// What is not a request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        unpack(bytes, REQUEST_BYTES_MAX)
    }
}

impl Response {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// Decodes.
    ///
    /// # Errors
    /// What is not an answer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        unpack(bytes, RESPONSE_BYTES_MAX)
    }
}

/// How many bytes a request or an answer is, unpacked, by what it says: it unpacks to no more.
pub fn unpacked_bytes(frame: &[u8]) -> usize {
    let claimed = frame.strip_prefix(&[1]).and_then(patch::claimed);
    let claimed = claimed.filter(|bytes| *bytes <= RESPONSE_BYTES_MAX);
    claimed.unwrap_or(0).max(frame.len())
}

/// A frame: a byte that says whether the rest is packed. Paths that are repeated from part to part,
/// two thirds of what a newcomer gets, cost next to nothing in a packed one.
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
