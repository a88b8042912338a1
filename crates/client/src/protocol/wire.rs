//! Heads of canonical CBOR, laid and read by hand, and the length prefix around a body.
//!
//! Invariant: a writer only makes canonical heads. A [`Reader`] is only made of bytes that
//! `fairmesh_model::cbor::check` has accepted, so it looks for types and never for form; it returns
//! errors, not panics, even so.
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

/// Reads items of a checked body, front to back.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks `body` and reads it.
    pub(super) fn new(body: &'a [u8]) -> Result<Self, ProtocolError> {
        cbor::check(body, FRAME_BYTES_MAX)?;
        Ok(Self { rest: body })
    }

    /// The number of entries of the map that comes next.
    pub(super) fn map(&mut self, what: &'static str) -> Result<u64, ProtocolError> {
        self.expect(MAP, what)
    }

    /// The key that comes next; `None` for one that is no unsigned integer (it is skipped).
    pub(super) fn key(&mut self) -> Result<Option<u64>, ProtocolError> {
        if self.rest.first().is_some_and(|head| head >> 5 == UINT) {
            self.head().map(|(_, key)| Some(key))
        } else {
            self.skip()?;
            Ok(None)
        }
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

    /// Passes over one item of any type. Needs no recursion: items still to come are counted.
    pub(super) fn skip(&mut self) -> Result<(), ProtocolError> {
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

    fn head(&mut self) -> Result<(u8, u64), ProtocolError> {
        let first = self.take(1)?[0];
        let argument = match first & 0x1f {
            small @ 0..24 => u64::from(small),
            size @ 24..28 => {
                let bytes = self.take(1 << (size - 24))?;
                bytes
                    .iter()
                    .fold(0, |value, byte| (value << 8) | u64::from(*byte))
            }
            _ => return Err(self.truncated()),
        };
        Ok((first >> 5, argument))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtocolError> {
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(taken)
    }

    fn truncated(&self) -> ProtocolError {
        ProtocolError::Cbor(CborError::Truncated(self.rest.len()))
    }
}
