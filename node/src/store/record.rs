//! The form of a record on disk.
//!
//! A key is the table's byte and the caller's key. A value is one byte for its kind, eight bytes of
//! checksum, and the content: whole, or (longer than [`CHUNK_BYTES`]) the number of chunks, which lie
//! under keys of their own. sled writes what is too long for a segment to a file that it never syncs
//! (`write_blob` in its `pagecache/blob_io.rs`), so nothing may be that long.
//!
//! Invariant: the checksum covers table, key and the whole value, so neither a flipped bit nor a
//! value under another's key nor a missing chunk is ever taken for a record.

use fairmesh_round::checksum;

use super::Table;

/// Longest run of a value in one sled value. A leaf page has up to 20 of them, and a page of more
/// than 128 KiB would be written without being synced.
pub(super) const CHUNK_BYTES: usize = 4096;

/// First byte of the keys of chunks; no table has it.
pub(super) const CHUNK_PREFIX: u8 = 0xff;

const SUM_BYTES: usize = 8;
const HEAD_BYTES: usize = 1 + SUM_BYTES;
const WHOLE: u8 = 0;
const CHUNKED: u8 = 1;

/// A value as it lies on disk, without its chunks.
pub(super) enum Stored<'a> {
    Whole(&'a [u8]),
    Chunks(u32),
}

/// The key on disk.
pub(super) fn disk_key(table: Table, key: &[u8]) -> Vec<u8> {
    [&[table as u8], key].concat()
}

/// The key on disk of one chunk of the record under `disk_key`.
pub(super) fn chunk_key(disk_key: &[u8], chunk: u32) -> Vec<u8> {
    let length = u32::try_from(disk_key.len()).expect("keys are far below 4 GiB");
    [
        &[CHUNK_PREFIX],
        &length.to_be_bytes()[2..],
        disk_key,
        &chunk.to_be_bytes(),
    ]
    .concat()
}

/// How many chunks a value of this length takes besides its head; none if it fits in the head.
pub(super) fn chunks_of(value: &[u8]) -> u32 {
    match value.len() {
        0..=CHUNK_BYTES => 0,
        length => u32::try_from(length.div_ceil(CHUNK_BYTES)).expect("values are below 16 MiB"),
    }
}

/// The value on disk under the record's own key.
pub(super) fn disk_value(disk_key: &[u8], value: &[u8]) -> Vec<u8> {
    let chunks = chunks_of(value);
    let sum = checksum(disk_key, value);
    if chunks == 0 {
        [&[WHOLE], sum.as_slice(), value].concat()
    } else {
        [&[CHUNKED], sum.as_slice(), &chunks.to_be_bytes()].concat()
    }
}

/// Takes a value from disk apart: its checksum and its content. `None` if it has no such form.
pub(super) fn parse_value(stored: &[u8]) -> Option<([u8; SUM_BYTES], Stored<'_>)> {
    let (head, content) = stored.split_at_checked(HEAD_BYTES)?;
    let sum = head[1..].try_into().ok()?;
    let content = match head[0] {
        WHOLE => Stored::Whole(content),
        CHUNKED => Stored::Chunks(u32::from_be_bytes(content.try_into().ok()?)),
        _ => return None,
    };
    Some((sum, content))
}
