//! Vectors on the wire: which head of which site a node holds.
//!
//! A vector is sent in full once; after that only what has changed since the last one that the peer is
//! known to hold, with heads named by their position in it. Ten changes among a hundred sites take
//! some two hundred bytes where the whole vector takes more than five kilobytes.
//!
//! Invariant: a frame decodes to exactly the vector that was encoded, or to "I do not hold that base".
//! Both sides derive the base from bytes that were answered, so a lost message costs one vector in full
//! and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::documents::CHARTER_SITES_MAX;
use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId, cbor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::bounded;
use crate::head::HEADS_MAX;

/// Half a hash, by which two heads of one seq, or two proofs, are told apart. Whoever signs both chooses them: fewer
/// bytes he could make the same in two heads, and show each of them to other members, who would never compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(#[serde(with = "serde_bytes")] [u8; 16]);

impl Tag {
    /// Of what has this hash.
    pub fn of(hash: ContentHash) -> Self {
        Self(*hash.as_bytes().first_chunk().expect("32 bytes hold 16"))
    }
}

/// Most heads in a peer's vector: what the largest VO that any charter can make has, and a site that is no
/// member any more. Ours may be an old charter of fewer members, so it says nothing of a peer's.
pub(crate) const VECTOR_MAX: usize = (CHARTER_SITES_MAX + 1) * HEADS_MAX;

/// The heads that are held: of each site and incarnation its seq, and its tag.
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
    /// Heads that the base has not.
    #[serde(default, rename = "n", skip_serializing_if = "Vec::is_empty")]
    new: Vec<(SiteId, Incarnation, Seq, Tag)>,
}

/// A vector that a peer has sent, and the name that differences from it give it: each changes it by its own heads only,
/// for a difference may be of a few bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Base {
    pub(crate) name: u64,
    pub(crate) vector: Vector,
}

impl Base {
    /// Holds another head in the place of one, or none.
    fn set(&mut self, at: (SiteId, Incarnation), head: Option<(Seq, Tag)>) {
        let before = match head {
            Some(head) => self.vector.insert(at, head),
            None => self.vector.remove(&at),
        };
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

    /// Whether it stands alone.
    pub fn is_full(&self) -> bool {
        self.base.is_none()
    }

    /// The vector, if `base` is the one that the frame is relative to (or it is in full).
    pub(crate) fn resolve(&self, base: Option<Base>) -> Option<Base> {
        let mut base = match &self.base {
            None => Base::default(),
            Some(named) => base.filter(|base| base.name.to_be_bytes() == named.as_slice())?,
        };
        let heads: Vec<(SiteId, Incarnation)> = base.vector.keys().copied().collect();
        for (position, rise, tag) in &self.changed {
            let at = *heads.get(*position as usize)?;
            let (seq, _) = base.vector.get(&at)?;
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

/// The sum of its heads' names. Two vectors of one name that a peer makes up deceive nobody but that peer, of whom the
/// answerer takes one to hold what the other says.
fn name_of(vector: &Vector) -> u64 {
    let names = vector.iter().map(|(at, head)| name_of_head(at, head));
    names.fold(0, u64::wrapping_add)
}

/// The first bytes of a head's hash, with where it is.
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
