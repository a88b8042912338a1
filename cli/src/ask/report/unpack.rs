//! Files as they are inside: unpacked, and in UTF-8.
//!
//! Invariant: packing and encoding are told by the first bytes; what breaks off is an error behind what could be read.
//! Archives of several files are not unpacked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use encoding_rs_io::DecodeReaderBytesBuilder;
use fairmesh_schedulers::packing::Packing;

/// Where the last of the marks ends that are looked for: that of tar.
const HEAD_BYTES: usize = 512;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

struct Counting<R> {
    inner: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.position.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// What is behind the place where an input broke off.
struct Broken(io::ErrorKind, String);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(self.0, self.1.clone()))
    }
}

/// The beginning of an input, whether it goes on behind that, and all of it.
pub(super) fn peek(
    input: Box<dyn BufRead>,
    bytes: usize,
) -> (Vec<u8>, io::Result<()>, Box<dyn BufRead>) {
    let (mut head, mut some) = (Vec::new(), input.take(bytes as u64));
    let read = some.read_to_end(&mut head).map(|_| ());
    let behind: Box<dyn BufRead> = match &read {
        Ok(()) => some.into_inner(),
        Err(error) => Box::new(BufReader::new(Broken(error.kind(), error.to_string()))),
    };
    let whole = Cursor::new(head.clone()).chain(behind);
    (head, read, Box::new(whole))
}

/// A file as it is inside, what it was packed with, and its size outside. `-` is standard input.
pub(in crate::ask) fn unpacked(
    path: &Path,
    position: Arc<AtomicU64>,
) -> anyhow::Result<(Box<dyn BufRead>, Option<&'static str>, u64)> {
    let cannot = || format!("cannot read {}", path.display());
    let (raw, bytes): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).with_context(cannot)?;
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), bytes)
    };
    let input = BufReader::new(Counting {
        inner: raw,
        position,
    });
    let (head, read, input) = peek(Box::new(input), HEAD_BYTES);
    read.with_context(cannot)?;
    let Some(packing) = Packing::of(&head) else {
        return Ok((decoded(path, input)?, None, bytes));
    };
    let inside = BufReader::new(packing.unpack(input).with_context(cannot)?);
    let inside = decoded(path, Box::new(inside))?;
    Ok((inside, Some(packing.name()), bytes))
}

/// The same in UTF-8, without a mark of the order of bytes.
fn decoded(path: &Path, input: Box<dyn BufRead>) -> anyhow::Result<Box<dyn BufRead>> {
    let (head, _, mut input) = peek(input, HEAD_BYTES);
    if let Some(packing) = other_packing(&head) {
        bail!("{}: packed with {packing}: unpack it first", path.display());
    }
    if head.starts_with(UTF8_MARK) {
        input.consume(UTF8_MARK.len());
    }
    let Some(encoding) = utf16(&head) else {
        return Ok(input);
    };
    let decoder = DecodeReaderBytesBuilder::new()
        .encoding(Some(encoding))
        .build(input);
    Ok(Box::new(BufReader::new(decoder)))
}

/// What unpacks to more than one file, or is not unpacked here.
fn other_packing(head: &[u8]) -> Option<&'static str> {
    if head.get(257..262) == Some(b"ustar") {
        return Some("tar");
    }
    let marks: [(&[u8], &str); 10] = [
        (b"PK\x03\x04", "zip"),
        (b"PK\x05\x06", "zip"),
        (b"Rar!\x1a\x07", "rar"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"\x5d\x00\x00", "lzma"),
        (b"LZIP", "lzip"),
        (b"\x89LZO\0", "lzop"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\x1f\x9d", "compress"),
        (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    ];
    let mut marks = marks.into_iter();
    let (_, name) = marks.find(|(mark, _)| head.starts_with(mark))?;
    Some(name)
}

/// By its mark; without one, if its first characters are of one byte each, and another byte that is 0.
fn utf16(head: &[u8]) -> Option<&'static Encoding> {
    let pairs: Vec<&[u8]> = head.chunks_exact(2).take(8).collect();
    let all = |zero: usize| {
        let is_one = |pair: &&[u8]| pair[zero] == 0 && pair[1 - zero] != 0;
        pairs.len() > 1 && pairs.iter().all(is_one)
    };
    match head {
        [0xff, 0xfe, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] => Some(UTF_16BE),
        _ if all(1) => Some(UTF_16LE),
        _ if all(0) => Some(UTF_16BE),
        _ => None,
    }
}
