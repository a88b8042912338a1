//! Lists in frames: a list that is longer than an honest node sends is refused before it takes memory.
//!
//! Frames are compressed: a few hundred bytes can expand to millions of items, and each item takes far more memory than
//! its byte in the frame.

use std::fmt;

use fairmesh_model::{Incarnation, SiteId};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_bytes::ByteBuf;

use crate::part::{PARTS_MAX, PartKey};

/// Reads a list of at most `MAX` items.
pub(crate) fn at_most<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(List::<T>(MAX, |_| Some(1)))
}

/// Reads documents: at most `MAX`, none of which is empty.
pub(crate) fn documents<'de, D: Deserializer<'de>, const MAX: usize>(
    from: D,
) -> Result<Vec<ByteBuf>, D::Error> {
    // An empty document costs one byte in the frame and is never honest: without this check a frame could hold
    // millions.
    let weight = |bytes: &ByteBuf| (!bytes.is_empty()).then_some(1);
    from.deserialize_seq(List(MAX, weight))
}

/// Names of parts, by their head.
type Named<Names> = (SiteId, Incarnation, Names);

/// Names of parts of one head.
#[derive(Deserialize)]
struct Names(#[serde(deserialize_with = "at_most::<_, _, PARTS_MAX>")] Vec<PartKey>);

/// Reads names of parts by their heads: no more of all heads than one may have.
pub(crate) fn named<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<Named<Vec<PartKey>>>, D::Error> {
    // A head without names counts as one item; otherwise a list of such heads would be unbounded.
    let weight = |(_, _, names): &Named<Names>| Some(names.0.len().max(1));
    let named = from.deserialize_seq(List(PARTS_MAX, weight))?;
    let named = named.into_iter();
    Ok(named
        .map(|(site, incarnation, names)| (site, incarnation, names.0))
        .collect())
}

/// The total weight that a list may have, and the weight of an item; `None` for an item that no list may contain.
struct List<T>(usize, fn(&T) -> Option<usize>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} items", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let Self(most, weight) = self;
        // Not the length that the frame claims: memory grows only with items that were really read.
        let (mut items, mut room) = (Vec::new(), most);
        while let Some(item) = from.next_element()? {
            let rest = weight(&item).and_then(|weight| room.checked_sub(weight));
            room = rest.ok_or_else(|| {
                A::Error::custom(format!("more than {most} items, or an empty one"))
            })?;
            items.push(item);
        }
        Ok(items)
    }
}
