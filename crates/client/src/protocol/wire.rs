//! Heads of canonical CBOR, laid and read by hand, and the length prefix around a body.
//!
//! Invariant: a writer only makes canonical items, and a map that was read to its end ([`Map::end`])
//! is one that `fairmesh_model::cbor::check` accepts. By hand because that check, on the generic
//! CBOR, takes longer than the rest of a small look-up; what is skipped, being unknown here, still
//! goes through it. (Measured: 1.4 µs of an answer's 1.6 µs.)
//!
//! Deliberately not here: any meaning. Requests and answers are in the modules beside this one.

use fairmesh_model::cbor::{self, CborError};

use super::{FRAME_BYTES_MAX, ProtocolError};

const UINT: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Bytes of the length prefix.
pub(super) const PREFIX_BYTES: usize = 4;

/// The body of the first frame in `buffer` and the bytes that the frame takes; `None` if it has
/// not arrived whole. A length that is refused is refused before its body is awaited.
pub fn split_frame(buffer: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let Some((prefix, rest)) = buffer.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(ProtocolError::FrameTooLarge(length));
    }
    if length == 0 {
        return Err(ProtocolError::FrameEmpty);
    }
    Ok(rest.get(..length).map(|body| (body, PREFIX_BYTES + length)))
}

/// Leaves room for the length of a frame whose body is pushed next; returns where the frame begins.
pub(super) fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    start
}

/// Fills in the length of the frame that began at `start`. A frame that is too large is taken back.
pub(super) fn end_frame(out: &mut Vec<u8>, start: usize) -> Result<(), ProtocolError> {
    let length = out.len() - start - PREFIX_BYTES;
    match u32::try_from(length) {
        Ok(prefix) if length <= FRAME_BYTES_MAX => {
            out[start..start + PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(ProtocolError::FrameTooLarge(length))
        }
    }
}

fn push_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    let bytes = argument.to_be_bytes();
    match argument {
        0..24 => out.push(major | bytes[7]),
        24..0x100 => out.extend_from_slice(&[major | 24, bytes[7]]),
        0x100..0x1_0000 => out.extend_from_slice(&[major | 25, bytes[6], bytes[7]]),
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}

pub(super) fn push_map(out: &mut Vec<u8>, entries: u64) {
    push_head(out, MAP, entries);
}

pub(super) fn push_uint(out: &mut Vec<u8>, key: u64, value: u64) {
    push_head(out, UINT, key);
    push_head(out, UINT, value);
}

/// The key and the head of a byte string; its `length` bytes are the caller's to push.
pub(super) fn push_bytes_head(out: &mut Vec<u8>, key: u64, length: usize) {
    push_head(out, UINT, key);
    push_head(out, BYTES, length as u64);
}

pub(super) fn push_map_head(out: &mut Vec<u8>, key: u64, entries: u64) {
    push_head(out, UINT, key);
    push_head(out, MAP, entries);
}

pub(super) fn push_text(out: &mut Vec<u8>, key: u64, text: &str) {
    push_head(out, UINT, key);
    push_head(out, TEXT, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads a map, entry by entry, and checks its form on the way.
pub(super) struct Map<'a> {
    body: &'a [u8],
    /// What is not read yet; for a map within a map also what is behind it.
    rest: &'a [u8],
    entries_left: u64,
    /// The key before, as encoded: keys ascend.
    key: &'a [u8],
    /// Whether something was skipped, so that its form is still to be checked.
    skipped: bool,
}

impl<'a> Map<'a> {
    /// The map that `body` is.
    pub(super) fn of_body(body: &'a [u8], what: &'static str) -> Result<Self, ProtocolError> {
        if body.len() > FRAME_BYTES_MAX {
            return Err(ProtocolError::FrameTooLarge(body.len()));
        }
        Self::begin(body, what)
    }

    fn begin(rest: &'a [u8], what: &'static str) -> Result<Self, ProtocolError> {
        let mut map = Self {
            body: rest,
            rest,
            entries_left: 0,
            key: &[],
            skipped: false,
        };
        map.entries_left = map.expect(MAP, what)?;
        Ok(map)
    }

    /// The next key that is an unsigned integer, with its value still to be read; `None` behind the
    /// last. Entries with other keys are skipped.
    pub(super) fn next_key(&mut self) -> Result<Option<u64>, ProtocolError> {
        while self.entries_left > 0 {
            self.entries_left -= 1;
            let before = self.rest;
            let number = if before.first().is_some_and(|head| head >> 5 == UINT) {
                Some(self.head()?.1)
            } else {
                self.skip()?;
                None
            };
            let key = &before[..before.len() - self.rest.len()];
            if !self.key.is_empty() && self.key >= key {
                return Err(not_canonical("map keys not ascending"));
            }
            self.key = key;
            match number {
                Some(number) => return Ok(Some(number)),
                None => self.skip()?,
            }
        }
        Ok(None)
    }

    pub(super) fn uint(&mut self, what: &'static str) -> Result<u64, ProtocolError> {
        self.expect(UINT, what)
    }

    pub(super) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], ProtocolError> {
        let length = self.expect(BYTES, what)?;
        self.take(length)
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, ProtocolError> {
        let length = self.expect(TEXT, what)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| ProtocolError::Value(what))
    }

    /// The map that is the next value, read by `read` to its last entry.
    pub(super) fn map<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, ProtocolError>,
    ) -> Result<T, ProtocolError> {
        let mut inner = Self::begin(self.rest, what)?;
        let value = read(&mut inner)?;
        self.rest = inner.rest;
        self.skipped |= inner.skipped;
        Ok(value)
    }

    /// Makes sure that nothing is behind the last entry, and that what was skipped is canonical.
    pub(super) fn end(self) -> Result<(), ProtocolError> {
        match self.rest.len() {
            0 if self.skipped => Ok(cbor::check(self.body, FRAME_BYTES_MAX)?),
            0 => Ok(()),
            behind => Err(CborError::Trailing(behind).into()),
        }
    }

    /// Passes over one item of any type. Needs no recursion: items still to come are counted.
    pub(super) fn skip(&mut self) -> Result<(), ProtocolError> {
        self.skipped = true;
        let mut items = 1_u64;
        while items > 0 {
            items -= 1;
            let (major, argument) = self.head()?;
            match major {
                BYTES | TEXT => {
                    self.take(argument)?;
                }
                ARRAY => items = items.saturating_add(argument),
                MAP => items = items.saturating_add(argument.saturating_mul(2)),
                TAG => items = items.saturating_add(1),
                // Integers and simple values are their heads.
                _ => {}
            }
        }
        Ok(())
    }

    fn expect(&mut self, major: u8, what: &'static str) -> Result<u64, ProtocolError> {
        match self.head()? {
            (found, argument) if found == major => Ok(argument),
            _ => Err(ProtocolError::Value(what)),
        }
    }

    /// Major type and argument of the next item; refuses heads longer than needed.
    fn head(&mut self) -> Result<(u8, u64), ProtocolError> {
        let first = self.take(1)?[0];
        let (argument, smallest) = match first & 0x1f {
            small @ 0..24 => return Ok((first >> 5, u64::from(small))),
            24 => (self.number(1)?, 24),
            25 => (self.number(2)?, 0x100),
            26 => (self.number(4)?, 0x1_0000),
            27 => (self.number(8)?, 0x1_0000_0000),
            _ => return Err(not_canonical("indefinite length or unknown head")),
        };
        if argument < smallest {
            return Err(not_canonical("head longer than needed"));
        }
        Ok((first >> 5, argument))
    }

    fn number(&mut self, bytes: u64) -> Result<u64, ProtocolError> {
        let push = |value, byte: &u8| (value << 8) | u64::from(*byte);
        Ok(self.take(bytes)?.iter().fold(0, push))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtocolError> {
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or(ProtocolError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn not_canonical(what: &'static str) -> ProtocolError {
    ProtocolError::NotCanonical(what)
}
