//! The encoding of the journal.
//!
//! A file begins with a readable line that ends in the version of the encoding, the lineage of its store and a
//! checksum. Frames follow: a mark, the length, a checksum, and one round, which is the round's number and its rows.
//!
//! Invariant: a checksum covers the content and its offset in the file, so only bytes that were written as a frame at
//! that offset are read as one. A file ends *whole*, *torn* (a crash cut the last frame short) or *damaged* (a whole
//! frame follows the first bad byte).
//!
//! Deliberately not here: which files there are (`found`, `journal`), and what rows mean.

use fairmesh_model::{mutant, mutated};
use fairmesh_site::{Table, Write};
use sha2::{Digest, Sha256};

/// The first bytes of a file, up to the version.
const TITLE: &[u8] = b"fairmesh journal ";

/// The version of the encoding that this release writes, and the only one that it reads.
const VERSION: u8 = b'2';

const LINEAGE_BYTES: usize = 8;
const SUM_BYTES: usize = 8;

/// Bytes of a file's head: title, version and line end, lineage, checksum.
pub(crate) const HEAD_BYTES: usize = TITLE.len() + 2 + LINEAGE_BYTES + SUM_BYTES;

/// The first bytes of each frame, so that a whole frame can be found after a bad one. 0xf5 occurs in no UTF-8 text.
const FRAME_MARK: [u8; 4] = *b"\xf5FMr";

/// Bytes of a frame without its rows: mark, length, checksum, number.
const FRAME_BYTES: usize = 4 + 4 + SUM_BYTES + 8;

const DELETED: u8 = 0;
const SET: u8 = 1;

/// One round in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The round's number in the file's lineage.
    pub(crate) number: u64,
    pub(crate) writes: Vec<Write>,
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Exactly after a frame.
    Whole,
    /// Bytes follow the last good frame, and none of them is a whole frame: most likely an interrupted write.
    Torn,
    /// A whole frame follows the first bad byte, so acknowledged bytes have changed.
    Damaged,
}

/// The rounds of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) lineage: u64,
    /// All rounds before the first bad byte.
    pub(crate) rounds: Vec<Logged>,
    /// Offset after the last of them.
    pub(crate) good_bytes: usize,
    /// Offset of the first bad byte, if there is one: `good_bytes`, or a byte of the head.
    pub(crate) bad_at: usize,
    /// All whole rounds after the first bad byte.
    pub(crate) behind: Vec<Logged>,
    pub(crate) end: End,
}

/// The head of a file as read; the number is the lineage of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Of(u64),
    /// One flipped bit, in the byte at this offset, was corrected.
    Flipped(u64, usize),
    /// Another version of the encoding.
    Other(u8),
    Damaged,
}

/// The bytes of the head of a file for a store of this lineage.
pub(crate) fn head(lineage: u64) -> Vec<u8> {
    let mut head = [TITLE, &[VERSION, b'\n'], &lineage.to_be_bytes()].concat();
    let sum = checksum(TITLE, &head);
    head.extend(sum);
    head
}

/// Reads a file's head. If it is bad, each bit is tried: without the head, one flipped bit would make the whole journal
/// unusable, because nothing else names its lineage.
pub(crate) fn parse_head(bytes: &[u8]) -> Head {
    let head = read_head(bytes);
    let Some(first) = bytes.first_chunk::<HEAD_BYTES>() else {
        return head;
    };
    if let Head::Of(_) = head {
        return head;
    }
    let flipped = (0..8 * HEAD_BYTES).find_map(|bit| {
        let mut tried = *first;
        tried[bit / 8] ^= 1 << (bit % 8);
        match read_head(&tried) {
            Head::Of(lineage) => Some(Head::Flipped(lineage, bit / 8)),
            _ => None,
        }
    });
    flipped.unwrap_or(head)
}

fn read_head(bytes: &[u8]) -> Head {
    let Some(rest) = bytes.strip_prefix(TITLE) else {
        return Head::Damaged;
    };
    match rest.first_chunk::<{ 2 + LINEAGE_BYTES + SUM_BYTES }>() {
        Some([version, b'\n', ..]) if *version != VERSION && version.is_ascii_alphanumeric() => {
            Head::Other(*version)
        }
        Some([VERSION, b'\n', rest @ ..]) => {
            let (lineage, sum) = rest.split_first_chunk().expect("sixteen are there");
            let signed = &bytes[..HEAD_BYTES - SUM_BYTES];
            if checksum(TITLE, signed) == sum {
                Head::Of(u64::from_be_bytes(*lineage))
            } else {
                Head::Damaged
            }
        }
        _ => Head::Damaged,
    }
}

/// The frame of round `number`, to be written at `offset` bytes from the file's beginning.
pub(crate) fn frame<'a>(
    writes: impl IntoIterator<Item = &'a Write>,
    number: u64,
    offset: u64,
) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    for write in writes {
        let key_bytes = u16::try_from(write.key.len()).expect("keys are at most 320 bytes");
        frame.push(write.table as u8);
        frame.extend(key_bytes.to_be_bytes());
        frame.extend(&write.key);
        match &write.value {
            None => frame.push(DELETED),
            Some(value) => {
                let value_bytes = u32::try_from(value.len()).expect("values are below 16 MiB");
                frame.push(SET);
                frame.extend(value_bytes.to_be_bytes());
                frame.extend(value);
            }
        }
    }
    let (head, rows) = frame.split_at_mut(FRAME_BYTES);
    let length = u32::try_from(rows.len()).expect("a round is far below 4 GiB");
    head[..4].copy_from_slice(&FRAME_MARK);
    head[4..8].copy_from_slice(&length.to_be_bytes());
    // The offset is in the checksum: a frame of an earlier file in a reused disk block is not taken for one of this
    // file.
    head[8..16].copy_from_slice(&frame_sum(number, offset, rows));
    head[16..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Reads the frames of a file of this release's version. `lineage` is that of its head.
pub(crate) fn parse(bytes: &[u8], lineage: u64) -> Content {
    let mut rounds = Vec::new();
    let mut at = HEAD_BYTES.min(bytes.len());
    while let Some((round, next)) = frame_at(bytes, at) {
        rounds.push(round);
        at = next;
    }
    // A frame after the first bad byte tells damage from an interrupted write: writes are appended in order, so a crash
    // leaves nothing after the torn one.
    let (mut behind, mut from) = (Vec::new(), at + 1);
    while let Some((round, next)) = next_frame(bytes, from) {
        behind.push(round);
        from = next;
    }
    let end = if at == bytes.len() {
        End::Whole
    } else if !behind.is_empty() && !mutated!(DamageIsTorn) {
        End::Damaged
    } else {
        End::Torn
    };
    Content {
        lineage,
        rounds,
        good_bytes: at,
        bad_at: at,
        behind,
        end,
    }
}

/// The first whole frame that begins at or after `from`, and the offset after it.
fn next_frame(bytes: &[u8], from: usize) -> Option<(Logged, usize)> {
    let mark_at = |at: &usize| bytes[*at..].starts_with(&FRAME_MARK);
    (from..bytes.len())
        .filter(mark_at)
        .find_map(|at| frame_at(bytes, at))
}

/// The frame that begins at `at`, if its checksum fits, and the offset after it.
fn frame_at(bytes: &[u8], at: usize) -> Option<(Logged, usize)> {
    let (head, rest) = bytes.get(at..)?.split_first_chunk::<FRAME_BYTES>()?;
    if head[..4] != FRAME_MARK {
        return None;
    }
    let length = u32::from_be_bytes(head[4..8].try_into().ok()?);
    let number = u64::from_be_bytes(head[16..].try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let rows = rest.get(..mutant!(TornEndTaken, length, length.min(rest.len())))?;
    let offset = u64::try_from(at).ok()?;
    if head[8..16] != frame_sum(number, offset, rows) && !mutated!(TornEndTaken) {
        return None;
    }
    let writes = parse_rows(rows)?;
    Some((Logged { number, writes }, at + FRAME_BYTES + rows.len()))
}

fn frame_sum(number: u64, offset: u64, rows: &[u8]) -> [u8; SUM_BYTES] {
    let place = [number.to_be_bytes(), offset.to_be_bytes()].concat();
    checksum(&place, rows)
}

fn parse_rows(mut rows: &[u8]) -> Option<Vec<Write>> {
    let mut writes = Vec::new();
    while let Some((table, rest)) = rows.split_first() {
        let table = Table::ALL
            .into_iter()
            .find(|known| *known as u8 == *table)?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u16::from_be_bytes(*key_bytes).into())?;
        let (value, rest) = match rest.split_first()? {
            (&DELETED, rest) => (None, rest),
            (&SET, rest) => {
                let (value_bytes, rest) = rest.split_first_chunk()?;
                let length = usize::try_from(u32::from_be_bytes(*value_bytes)).ok()?;
                let (value, rest) = rest.split_at_checked(length)?;
                (Some(value.to_vec()), rest)
            }
            _ => return None,
        };
        let key = key.to_vec();
        writes.push(Write { table, key, value });
        rows = rest;
    }
    Some(writes)
}

/// The first eight bytes of SHA-256 over the key's length as eight bytes, the key and the value. The length separates
/// the two, so no byte can move from one to the other unnoticed.
pub fn checksum(key: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    let mut hash = Sha256::new();
    hash.update((key.len() as u64).to_be_bytes());
    hash.update(key);
    hash.update(value);
    let hash = hash.finalize();
    std::array::from_fn(|at| hash[at])
}
