//! Version vectors on the wire.
//!
//! A digest is sent in full once; after that only what has changed since the last one that the
//! peer is known to hold, with streams named by their position in it. Ten changes among a hundred
//! sites take under sixty bytes where the whole vector takes almost four kilobytes.
//!
//! Invariant: a frame decodes to exactly the vector that was encoded, or to "I do not hold that
//! base". Both sides derive the base from bytes that were answered, so a lost message costs one
//! digest in full and nothing else.

use std::collections::BTreeMap;

use fairmesh_model::{ContentHash, Incarnation, Seq, SiteId, StreamId, cbor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::wire::ShortHash;

/// A version vector: the last batch held of each stream, without gaps below it.
pub type Vector = BTreeMap<StreamId, Seq>;

/// A vector, in full or as the difference from one that the peer holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestFrame {
    /// Hash of the vector that the changes are relative to; absent in a full digest.
    #[serde(default, rename = "b", skip_serializing_if = "Option::is_none")]
    pub base: Option<ByteBuf>,
    /// Changed streams of the base: position in it, and by how much the seq rose.
    #[serde(default, rename = "c", skip_serializing_if = "Vec::is_empty")]
    changed: Vec<(u32, u64)>,
    /// Streams that the base has not, or whose seq fell (after a fork).
    #[serde(default, rename = "n", skip_serializing_if = "Vec::is_empty")]
    new: Vec<(SiteId, Incarnation, Seq)>,
}

/// The hash that names a vector.
pub fn vector_hash(vector: &Vector) -> ContentHash {
    let rows: Vec<(SiteId, Incarnation, Seq)> = vector
        .iter()
        .map(|(stream, seq)| (stream.site, stream.incarnation, *seq))
        .collect();
    ContentHash::of(&cbor::to_vec(&rows))
}

/// The first bytes of a hash.
pub fn short(hash: ContentHash) -> ShortHash {
    std::array::from_fn(|index| hash.as_bytes()[index])
}

impl DigestFrame {
    /// The whole vector.
    pub fn full(vector: &Vector) -> Self {
        let new = vector
            .iter()
            .map(|(stream, seq)| (stream.site, stream.incarnation, *seq))
            .collect();
        Self {
            base: None,
            changed: Vec::new(),
            new,
        }
    }

    /// The difference from `base`; in full where a stream has gone, which the form cannot say.
    pub fn since(base: &Vector, vector: &Vector) -> Self {
        if base.keys().any(|stream| !vector.contains_key(stream)) {
            return Self::full(vector);
        }
        let mut frame = Self {
            base: Some(ByteBuf::from(short(vector_hash(base)))),
            changed: Vec::new(),
            new: Vec::new(),
        };
        let positions: BTreeMap<&StreamId, u32> = base.keys().zip(0..).collect();
        for (stream, seq) in vector {
            match (base.get(stream), positions.get(stream)) {
                (Some(before), _) if before == seq => {}
                (Some(before), Some(position)) if before < seq => {
                    frame.changed.push((*position, seq.0 - before.0))
                }
                _ => frame.new.push((stream.site, stream.incarnation, *seq)),
            }
        }
        frame
    }

    /// The vector, if `base` is the one that the frame is relative to (or it is in full).
    pub fn resolve(&self, base: Option<&Vector>) -> Option<Vector> {
        let mut vector = match &self.base {
            None => Vector::new(),
            Some(named) => base
                .filter(|base| short(vector_hash(base)) == named.as_slice())?
                .clone(),
        };
        let streams: Vec<StreamId> = vector.keys().copied().collect();
        for (position, rise) in &self.changed {
            let stream = streams.get(*position as usize)?;
            let seq = vector.get_mut(stream).expect("a stream of the base");
            *seq = Seq(seq.0.checked_add(*rise)?);
        }
        for (site, incarnation, seq) in &self.new {
            vector.insert(
                StreamId {
                    site: *site,
                    incarnation: *incarnation,
                },
                *seq,
            );
        }
        Some(vector)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_vector() -> impl Strategy<Value = Vector> {
        proptest::collection::btree_map((0..12u8, 0..3u64), 0..9u64, 0..20).prop_map(|rows| {
            rows.into_iter()
                .map(|((site, incarnation), seq)| {
                    (
                        StreamId {
                            site: SiteId::from_bytes([site; 32]),
                            incarnation: Incarnation(incarnation),
                        },
                        Seq(seq),
                    )
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn any_vector_survives_against_any_base(base in any_vector(), vector in any_vector()) {
            let frame: DigestFrame = cbor::from_slice(&cbor::to_vec(&DigestFrame::since(&base, &vector)), 1 << 20).expect("decodes");
            prop_assert_eq!(frame.resolve(Some(&base)), Some(vector.clone()));
            prop_assert_eq!(DigestFrame::full(&vector).resolve(None), Some(vector));
        }
    }

    #[test]
    fn a_base_that_is_not_held_is_noticed() {
        let stream = StreamId {
            site: SiteId::from_bytes([1; 32]),
            incarnation: Incarnation(1),
        };
        let (base, other) = (
            Vector::from([(stream, Seq(1))]),
            Vector::from([(stream, Seq(2))]),
        );
        let frame = DigestFrame::since(&base, &other);
        assert_eq!(frame.resolve(Some(&other)), None);
        assert_eq!(frame.resolve(None), None);
    }

    #[test]
    fn ten_changes_among_a_hundred_sites_take_few_bytes() {
        let stream = |site: u8| StreamId {
            site: SiteId::from_bytes([site; 32]),
            incarnation: Incarnation(1),
        };
        let base: Vector = (0..100).map(|site| (stream(site), Seq(1_000))).collect();
        let mut vector = base.clone();
        (0..10)
            .for_each(|change| *vector.get_mut(&stream(change * 9)).expect("there") = Seq(1_003));
        let bytes = cbor::to_vec(&DigestFrame::since(&base, &vector));
        assert!(bytes.len() <= 60, "{} bytes", bytes.len());
        assert!(cbor::to_vec(&DigestFrame::full(&base)).len() > 3_500);
    }
}
