//! Lists in frames: one that is longer than any honest node sends is refused before it takes memory.
//!
//! A frame packs well: a few hundred bytes may stand for millions of items, each of which takes far more memory here
//! than the byte that it has in the frame.

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
    let weight = |(_, _, names): &Named<Names>| Some(names.0.len().max(1));
    let named = from.deserialize_seq(List(PARTS_MAX, weight))?;
    let named = named.into_iter();
    Ok(named.map(|(site, of, names)| (site, of, names.0)).collect())
}

/// A list of at most so much, and what an item counts as: `None` where there is no such item.
struct List<T>(usize, fn(&T) -> Option<usize>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} items", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let Self(most, weight) = self;
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
