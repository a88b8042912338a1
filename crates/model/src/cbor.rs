//! Canonical CBOR: the one encoding in which documents are signed, stored and sent.
//!
//! Invariant: bytes that [`check`] accepts are the only encoding of their value (RFC 8949, section
//! 4.2.1: shortest heads, definite lengths, map keys strictly ascending as encoded, nothing behind
//! the end), and are within a named size and depth. The check runs on the bytes themselves, so a
//! newer release's unknown map keys pass and are kept, and nothing is allocated for refused input.
//!
//! Deliberately not here: floating point and undefined values; no document has a use for them.

mod sort;

use ciborium::Value;
use ciborium_ll::{Decoder, Header};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Deepest nesting of any document or frame. Ours reach six; more only costs a decoder its stack.
pub const DEPTH_MAX: usize = 16;

/// Why bytes were refused. State is unchanged; the sender is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// Longer than the limit for this kind of input.
    #[error("{bytes} bytes are more than the limit of {limit}")]
    TooLarge {
        /// Size of the input.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} levels at byte {0}")]
    TooDeep(usize),
    /// Ends in the middle of an item.
    #[error("cut off at byte {0}")]
    Truncated(usize),
    /// Something behind the end of the item.
    #[error("{0} bytes behind the end")]
    Trailing(usize),
    /// Not the canonical encoding of its value.
    #[error("not canonical at byte {at}: {what}")]
    NotCanonical {
        /// Offset of the item.
        at: usize,
        /// Which rule it breaks.
        what: &'static str,
    },
    /// Canonical, but not what was expected here.
    #[error("unexpected content: {0}")]
    Unexpected(String),
}

/// Checks that `bytes` are one canonical item of at most `bytes_max` bytes.
pub fn check(bytes: &[u8], bytes_max: usize) -> Result<(), CborError> {
    if bytes.len() > bytes_max {
        return Err(CborError::TooLarge {
            bytes: bytes.len(),
            limit: bytes_max,
        });
    }
    let end = Scanner { bytes }.item(0, 0)?;
    if end == bytes.len() {
        Ok(())
    } else {
        Err(CborError::Trailing(bytes.len() - end))
    }
}

/// Checks and decodes one value.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8], bytes_max: usize) -> Result<T, CborError> {
    check(bytes, bytes_max)?;
    ciborium::from_reader(bytes).map_err(|error| CborError::Unexpected(error.to_string()))
}

/// Encodes one value canonically.
///
/// # Panics
/// If `value` has a form that no document of ours has (floats, or an error in its own serializer).
pub fn to_vec(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = encode(value);
    if sort::sort_maps(&mut bytes).is_some() {
        return bytes;
    }
    // Something whose length its serializer did not say.
    let mut value = Value::serialized(value).expect("our documents serialize without errors");
    sort_maps(&mut value);
    encode(&value)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    ciborium::into_writer(value, &mut bytes).expect("our documents serialize without errors");
    bytes
}

fn sort_maps(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort_maps),
        Value::Tag(_, item) => sort_maps(item),
        Value::Map(entries) => {
            for (key, value) in entries.iter_mut() {
                sort_maps(key);
                sort_maps(value);
            }
            entries.sort_by_cached_key(|(key, _)| encode(key));
        }
        _ => {}
    }
}

/// Walks the heads of an item; offsets are into the whole input.
struct Scanner<'a> {
    bytes: &'a [u8],
}

impl Scanner<'_> {
    /// Checks the item at `at` and returns the offset behind it.
    fn item(&self, at: usize, depth: usize) -> Result<usize, CborError> {
        if depth > DEPTH_MAX {
            return Err(CborError::TooDeep(at));
        }
        let not_canonical = |what| Err(CborError::NotCanonical { at, what });
        let (header, body) = self.header(at)?;
        match header {
            Header::Positive(_) | Header::Negative(_) => Ok(body),
            Header::Simple(
                ciborium_ll::simple::FALSE | ciborium_ll::simple::TRUE | ciborium_ll::simple::NULL,
            ) => Ok(body),
            Header::Simple(_) => not_canonical("simple value"),
            Header::Float(_) => not_canonical("floating point"),
            Header::Break => not_canonical("break"),
            Header::Tag(_) => self.item(body, depth + 1),
            Header::Bytes(Some(length)) => self.skip(body, length),
            Header::Text(Some(length)) => {
                let end = self.skip(body, length)?;
                match std::str::from_utf8(&self.bytes[body..end]) {
                    Ok(_) => Ok(end),
                    Err(_) => not_canonical("text that is not UTF-8"),
                }
            }
            Header::Array(Some(length)) => {
                self.plausible(body, length)?;
                (0..length).try_fold(body, |next, _| self.item(next, depth + 1))
            }
            Header::Map(Some(length)) => self.map(body, length, depth),
            Header::Bytes(None) | Header::Text(None) | Header::Array(None) | Header::Map(None) => {
                not_canonical("indefinite length")
            }
        }
    }

    fn map(&self, body: usize, length: usize, depth: usize) -> Result<usize, CborError> {
        self.plausible(body, length)?;
        let mut next = body;
        let mut previous: Option<&[u8]> = None;
        for _ in 0..length {
            let value = self.item(next, depth + 1)?;
            let key = &self.bytes[next..value];
            if previous.is_some_and(|previous| previous >= key) {
                return Err(CborError::NotCanonical {
                    at: next,
                    what: "map keys not ascending",
                });
            }
            previous = Some(key);
            next = self.item(value, depth + 1)?;
        }
        Ok(next)
    }

    /// The head at `at` and the offset behind it; refuses heads longer than needed.
    fn header(&self, at: usize) -> Result<(Header, usize), CborError> {
        let rest = &self.bytes[at..];
        let mut decoder = Decoder::from(rest);
        let header = decoder.pull().map_err(|error| match error {
            ciborium_ll::Error::Io(_) => CborError::Truncated(at),
            ciborium_ll::Error::Syntax(_) => CborError::NotCanonical {
                at,
                what: "unknown head",
            },
        })?;
        let length = decoder.offset();
        let argument = match header {
            Header::Positive(value) | Header::Negative(value) | Header::Tag(value) => value,
            Header::Simple(value) => u64::from(value),
            Header::Bytes(Some(length)) | Header::Text(Some(length)) => length as u64,
            Header::Array(Some(length)) | Header::Map(Some(length)) => length as u64,
            _ => return Ok((header, at + length)),
        };
        let shortest = match argument {
            0..24 => 1,
            24..0x100 => 2,
            0x100..0x1_0000 => 3,
            0x1_0000..0x1_0000_0000 => 5,
            _ => 9,
        };
        if length > shortest {
            return Err(CborError::NotCanonical {
                at,
                what: "head longer than needed",
            });
        }
        Ok((header, at + length))
    }

    fn skip(&self, body: usize, length: usize) -> Result<usize, CborError> {
        body.checked_add(length)
            .filter(|end| *end <= self.bytes.len())
            .ok_or(CborError::Truncated(self.bytes.len()))
    }

    /// Every element takes a byte or more, so a longer claim is a lie: refuse before looping.
    fn plausible(&self, body: usize, elements: usize) -> Result<(), CborError> {
        self.skip(body, elements).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
