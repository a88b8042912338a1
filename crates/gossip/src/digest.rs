//! Vectors on the wire: which heads a node holds.
//!
//! A vector is sent in full once. Later requests contain the difference from the last vector that the peer is known to
//! hold, with heads identified by their position in it. Ten changes among a hundred sites take about two hundred bytes;
//! the whole vector takes more than five kilobytes.
//!
//! Invariant: a frame decodes to exactly the vector that was encoded, or to "unknown base". Both sides derive the base
//! from requests that were answered, so a lost message costs one full vector and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::documents::CHARTER_SITES_MAX;
use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId, cbor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::bounded;
use crate::head::HEADS_MAX;

/// Half a hash, which tells apart two heads of one seq, or two proofs. A site chooses the heads that it signs: with
/// fewer bytes it could make two heads with one tag and show them to different members, who would never notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(#[serde(with = "serde_bytes")] [u8; 16]);

impl Tag {
    /// The first 16 bytes of `hash`.
    pub fn from_hash(hash: ContentHash) -> Self {
        Self(*hash.as_bytes().first_chunk().expect("32 bytes hold 16"))
    }
}

/// Most heads in a peer's vector: those of the largest VO that a charter can define, and of one former member. Our own
/// charter may be older and list fewer members, so it does not bound a peer's vector.
pub(crate) const VECTOR_MAX: usize = (CHARTER_SITES_MAX + 1) * HEADS_MAX;

/// The heads in a replica: seq and tag by site and incarnation.
pub type Vector = BTreeMap<(SiteId, Incarnation), (Seq, Tag)>;

/// A vector, in full or as the difference from one that the peer holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VectorFrame {
    /// Hash of the vector that the changes are relative to; absent in a full one.
    #[serde(default, rename = "b", skip_serializing_if = "Option::is_none")]
    base: Option<ByteBuf>,
    /// Changed heads of the base: position in it, by how much the seq rose, and the new hash.
    #[serde(
        default,
        rename = "c",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, VECTOR_MAX>"
    )]
    changed: Vec<(u32, u64, Tag)>,
    /// Positions of heads of the base that are held no more.
    #[serde(
        default,
        rename = "g",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::at_most::<_, _, VECTOR_MAX>"
    )]
    gone: Vec<u32>,
    /// Heads that the base lacks, or whose seq is lower than in the base.
    #[serde(default, rename = "n", skip_serializing_if = "Vec::is_empty")]
    new: Vec<(SiteId, Incarnation, Seq, Tag)>,
}

/// A vector that a peer has sent, and the hash by which later differences refer to it. The hash is updated for the
/// changed heads only: a difference of a few bytes must not cost a hash over two thousand heads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Base {
    pub(crate) name: u64,
    pub(crate) vector: Vector,
}

impl Base {
    /// Sets or removes the head at a place.
    fn set(&mut self, at: (SiteId, Incarnation), head: Option<(Seq, Tag)>) {
        let before = match head {
            Some(head) => self.vector.insert(at, head),
            None => self.vector.remove(&at),
        };
        // A sum of hashes, so that one entry can be replaced without the others.
        let named = |head: Option<(Seq, Tag)>| head.map_or(0, |head| name_of_head(&at, &head));
        self.name = self.name.wrapping_sub(named(before));
        self.name = self.name.wrapping_add(named(head));
    }
}

impl VectorFrame {
    /// The whole vector.
    pub fn full(vector: &Vector) -> Self {
        let new = vector
            .iter()
            .map(|((site, incarnation), (seq, tag))| (*site, *incarnation, *seq, *tag));
        Self {
            new: new.collect(),
            ..Self::default()
        }
    }

    /// The difference from `base`.
    pub fn since(base: &Vector, vector: &Vector) -> Self {
        let mut frame = Self {
            base: Some(ByteBuf::from(name_of(base).to_be_bytes())),
            ..Self::default()
        };
        for (position, (head, (before, tag_before))) in (0..).zip(base) {
            match vector.get(head) {
                // A lower seq (a store that was restored) does not fit into `changed`, which holds rises: it goes and
                // comes as new.
                Some((seq, tag)) if seq >= before => {
                    if (seq, tag) != (before, tag_before) {
                        frame.changed.push((position, seq.0 - before.0, *tag));
                    }
                }
                Some(_) | None => frame.gone.push(position),
            }
        }
        for ((site, incarnation), (seq, tag)) in vector {
            let before = base.get(&(*site, *incarnation));
            if before.is_none_or(|(before, _)| before > seq) {
                frame.new.push((*site, *incarnation, *seq, *tag));
            }
        }
        frame
    }

    /// Whether it can be decoded without a base.
    pub fn is_full(&self) -> bool {
        self.base.is_none()
    }

    /// The vector; `None` if the frame refers to another base than `base`, or to positions that the base lacks.
    pub(crate) fn resolve(&self, base: Option<Base>) -> Option<Base> {
        let mut base = match &self.base {
            None => Base::default(),
            Some(named) => base.filter(|base| base.name.to_be_bytes() == named.as_slice())?,
        };
        // Positions refer to the base as it was, so its keys are listed before the first change.
        let heads: Vec<(SiteId, Incarnation)> = base.vector.keys().copied().collect();
        for (position, rise, tag) in &self.changed {
            let at = *heads.get(*position as usize)?;
            let (seq, _) = base.vector.get(&at)?;
            // A wrapped seq would be lower than the one we hold, so that the peer seems to lack what it has.
            let seq = Seq(seq.0.checked_add(*rise)?);
            base.set(at, Some((seq, *tag)));
        }
        let gone: BTreeSet<u32> = self.gone.iter().copied().collect();
        for position in gone {
            base.set(*heads.get(position as usize)?, None);
        }
        for (site, incarnation, seq, tag) in &self.new {
            base.set((*site, *incarnation), Some((*seq, *tag)));
        }
        Some(base)
    }
}

/// The sum of the heads' hashes. A peer can construct two vectors with one sum, but deceives only itself: it then
/// gets an answer to the wrong one.
fn name_of(vector: &Vector) -> u64 {
    let names = vector.iter().map(|(at, head)| name_of_head(at, head));
    names.fold(0, u64::wrapping_add)
}

/// The first bytes of a hash over a head's place, seq and tag.
fn name_of_head(at: &(SiteId, Incarnation), head: &(Seq, Tag)) -> u64 {
    let hash = ContentHash::of(&cbor::to_vec(&(at, head)));
    u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("32 bytes hold eight"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_vector() -> impl Strategy<Value = Vector> {
        let head = (0..12u8, 0..3u64);
        proptest::collection::btree_map(head, (0..9u64, 0..2u8), 0..20).prop_map(|rows| {
            let row = |((site, incarnation), (seq, tag))| {
                (
                    (SiteId::from_bytes([site; 32]), Incarnation(incarnation)),
                    (Seq(seq), Tag([tag; 16])),
                )
            };
            rows.into_iter().map(row).collect()
        })
    }

    proptest! {
        #[test]
        fn any_vector_survives_against_any_base(base in any_vector(), vector in any_vector()) {
            let bytes = cbor::to_vec(&VectorFrame::since(&base, &vector));
            let frame: VectorFrame = cbor::from_slice(&bytes, 1 << 20).expect("decodes");
            let [old, new] = [&base, &vector].map(|vector| Base {
                name: name_of(vector),
                vector: vector.clone(),
            });
            prop_assert_eq!(frame.resolve(Some(old)), Some(new.clone()));
            prop_assert_eq!(VectorFrame::full(&vector).resolve(None), Some(new.clone()));
            if base != vector {
                prop_assert_eq!(frame.resolve(Some(new)), None);
            }
        }
    }

    #[test]
    fn ten_changes_among_a_hundred_sites_take_few_bytes() {
        let head = |site: u8| (SiteId::from_bytes([site; 32]), Incarnation(1));
        let base: Vector = (0..100)
            .map(|site| (head(site), (Seq(1_000), Tag([7; 16]))))
            .collect();
        let mut vector = base.clone();
        for change in 0..10 {
            *vector.get_mut(&head(change * 9)).expect("there") = (Seq(1_003), Tag([0xab; 16]));
        }
        let bytes = cbor::to_vec(&VectorFrame::since(&base, &vector));
        assert!(bytes.len() <= 230, "{} bytes", bytes.len());
        assert!(cbor::to_vec(&VectorFrame::full(&base)).len() > 5_000);
    }
}
