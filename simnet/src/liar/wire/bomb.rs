//! Kilobytes that unpack to megabytes: what changes of a head, as it is pushed.
//!
//! Invariant: what is unpacked comes to the root of the rows that are named here, so that nothing but its size speaks
//! against it.

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Head, ManifestRow, PART_BYTES_MAX, PartKey};
use fairmesh_model::{ContentHash, Incarnation, Seq, cbor};
use serde::Serialize;
use serde_bytes::ByteBuf;

use super::{Forging, Parts, UNKNOWN, root_of};

/// Parts: twice as many bytes as a push may unpack to, and half of what a head may have.
const PARTS: u32 = 128;

/// A part of zeros, packed: a Zstandard frame of one block, which is one byte that is repeated.
const ZEROS: [u8; 11] = [
    0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0xff, 0x03, 0x00, 0x08, 0x00,
];

/// What changes from one head to the next, by the names that messages have for it.
#[derive(Serialize)]
struct Delta {
    #[serde(rename = "b")]
    base: (Incarnation, Seq),
    #[serde(rename = "p")]
    patches: Vec<(PartKey, ByteBuf)>,
}

fn names(kind: u8) -> impl Iterator<Item = PartKey> {
    (0..PARTS).map(move |part| PartKey::new(kind, &part.to_be_bytes()))
}

/// The parts that are unpacked, as a manifest names them.
fn rows(kind: u8) -> impl Iterator<Item = ManifestRow> {
    let hash = ContentHash::of(&[0; PART_BYTES_MAX]);
    let len = u32::try_from(PART_BYTES_MAX).expect("parts are short");
    names(kind).map(move |name| (name, hash, len))
}

/// What makes these of the head `base`, which has none of them.
fn delta(kind: u8, base: (Incarnation, Seq)) -> ByteBuf {
    let patches = names(kind).map(|name| (name, ByteBuf::from(ZEROS)));
    let patches = patches.collect();
    ByteBuf::from(cbor::to_vec(&Delta { base, patches }))
}

impl Forging<'_> {
    /// A push of kilobytes that unpack to megabytes, with the head of what they unpack to.
    pub(super) fn bomb(&self, incarnation: u64) -> Option<Vec<u8>> {
        let held = self.parts();
        let held = held.iter().map(|(name, bytes)| {
            let len = u32::try_from(bytes.len()).expect("parts are short");
            (name.clone(), ContentHash::of(bytes), len)
        });
        let rows: Vec<ManifestRow> = held.chain(rows(UNKNOWN)).collect();
        let push = self.with(incarnation, Parts::new())?;
        let root = root_of(&rows);
        let head = head_of(&self.signed_anew(&push, |head| Head { root, ..head })?)?;
        let last = self.last.claimed();
        let delta = delta(UNKNOWN, (last.incarnation, last.seq));
        Some(Push::Head(ByteBuf::from(head), Some(delta)).to_bytes())
    }
}

/// The head in a push.
pub(super) fn head_of(push: &[u8]) -> Option<Vec<u8>> {
    match Push::from_bytes(push) {
        Ok(Push::Head(head, _)) => Some(head.into_vec()),
        _ => None,
    }
}
