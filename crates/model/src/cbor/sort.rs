//! Sorting the maps of encoded CBOR in place.
//!
//! Invariant: what [`sort_maps`] has taken is the same value with the keys of every map ascending as
//! they are encoded; its length does not change, since only the order of entries does.
//!
//! Deliberately not here: refusing what is not canonical ([`super::check`]); the input comes from our
//! own encoder, which writes the shortest heads.

use std::ops::Range;

/// Sorts the maps of the one item that `bytes` are, in place. `None`, with some of them sorted,
/// where a length is not given or something else is unusual.
pub(super) fn sort_maps(bytes: &mut [u8]) -> Option<()> {
    let end = item(bytes, 0)?;
    (end == bytes.len()).then_some(())
}

/// Sorts the maps in the item at `at`; returns the offset behind it.
fn item(bytes: &mut [u8], at: usize) -> Option<usize> {
    let (major, argument, body) = head(bytes, at)?;
    let length = usize::try_from(argument);
    match major {
        0 | 1 | 7 => Some(body),
        2 | 3 => body
            .checked_add(length.ok()?)
            .filter(|end| *end <= bytes.len()),
        4 => (0..length.ok()?).try_fold(body, |next, _| item(bytes, next)),
        5 => map(bytes, body, length.ok()?),
        _ => item(bytes, body),
    }
}

fn map(bytes: &mut [u8], body: usize, length: usize) -> Option<usize> {
    // Of each entry: where its key is, and where it ends.
    let mut entries: Vec<(Range<usize>, usize)> = Vec::new();
    let mut next = body;
    let mut is_sorted = true;
    for _ in 0..length {
        let value = item(bytes, next)?;
        let last = entries.last();
        is_sorted &= last.is_none_or(|(key, _)| bytes[key.clone()] <= bytes[next..value]);
        let end = item(bytes, value)?;
        entries.push((next..value, end));
        next = end;
    }
    if !is_sorted {
        entries.sort_by(|(a, _), (b, _)| bytes[a.clone()].cmp(&bytes[b.clone()]));
        let parts = entries.iter().map(|(key, end)| &bytes[key.start..*end]);
        let sorted = parts.collect::<Vec<_>>().concat();
        bytes[body..next].copy_from_slice(&sorted);
    }
    Some(next)
}

/// Major type, argument and the offset behind the head at `at`; `None` for floats, lengths that are
/// not given, and the end.
fn head(bytes: &[u8], at: usize) -> Option<(u8, u64, usize)> {
    let first = *bytes.get(at)?;
    let (major, short) = (first >> 5, first & 0x1f);
    let width = match short {
        0..24 => return Some((major, u64::from(short), at + 1)),
        24..28 if major != 7 || short == 24 => 1_usize << (short - 24),
        _ => return None,
    };
    let argument = bytes.get(at + 1..at + 1 + width)?;
    let argument = argument
        .iter()
        .fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some((major, argument, at + 1 + width))
}

#[cfg(test)]
mod tests {
    use ciborium::{Value, cbor};
    use serde::{Serialize, Serializer};

    use super::super::{check, encode, to_vec};
    use super::*;

    #[test]
    fn maps_at_any_depth_are_sorted_in_place() {
        let text = "a text long enough for a head of two bytes";
        let value = cbor!({
            "zz" => [{ "b" => 1, "a" => { 300 => true, 2 => null, (-1) => text } }, -70_000],
            "y" => {},
            7 => 5_000_000_000_u64,
        });
        let value: Value = value.expect("a value");
        let mut bytes = encode(&value);
        assert!(check(&bytes, 1_000).is_err());
        let length = bytes.len();
        assert_eq!(sort_maps(&mut bytes), Some(()));
        assert_eq!((bytes.len(), check(&bytes, 1_000)), (length, Ok(())));
        let mut sorted = value;
        super::super::sort_maps(&mut sorted);
        assert_eq!(bytes, encode(&sorted));
    }

    /// Serializes without saying how many entries come.
    struct Unsized(Vec<u8>);

    impl Serialize for Unsized {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeMap;
            let mut map = serializer.serialize_map(None)?;
            let mut keys = self.0.iter();
            keys.try_for_each(|key| map.serialize_entry(key, key))?;
            map.end()
        }
    }

    #[test]
    fn lengths_that_are_not_given_are_found() {
        let bytes = to_vec(&Unsized((0..9).rev().collect()));
        assert_eq!(check(&bytes, 1_000), Ok(()));
        assert_eq!(bytes[0], 0xa9);
    }
}
