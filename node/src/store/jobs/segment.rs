//! A segment: marks of jobs in the order of their keys, in a file that is never changed.
//!
//! Blocks of 4 KiB, each a CRC, the number of its marks and these; behind them the first key of each block, a filter,
//! how many marks there are and from when to when they go, and a CRC of that. So a mark is found with one read, that
//! one is not there is mostly known without, and one takes 43 bytes.
//!
//! Invariant: nothing of a block whose CRC is wrong is served, nor is a key in its range said not to be there.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{ENTRY_BYTES, Entry, Key, Value, charged_until, parse};

const BLOCK_BYTES: usize = 4096;
/// CRC and number of marks.
const HEAD_BYTES: usize = 4 + 2;
const ENTRIES: usize = (BLOCK_BYTES - HEAD_BYTES) / ENTRY_BYTES;
/// Blocks, lines of the filter, marks, the earliest and the latest moment, and the CRC.
const END_BYTES: usize = 5 * 8 + 4;

/// A line of the filter (Bloom, Communications of the ACM 13(7), 1970, in lines of a cache): each mark sets bits in
/// one.
type Line = [u8; 64];

/// Bits of the filter for each mark, and how many of them one sets: of keys that are not there one in eighty seems to
/// be.
const FILTER_BITS: u64 = 10;
const FILTER_SET: u32 = 7;

/// One that is open.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    /// The first key of each block.
    firsts: Vec<Key>,
    filter: Vec<Line>,
    /// How many marks it has.
    pub(super) marks: u64,
    /// Up to when the jobs are charged, milliseconds since 1970: the earliest and the latest.
    pub(super) oldest: u64,
    pub(super) newest: u64,
}

impl Segment {
    /// Writes one with `entries`, which come in the order of their keys and are `at_most` so many, and syncs it.
    pub(super) fn write(
        path: &Path,
        at_most: u64,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Self> {
        let mut options = File::options();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let mut out = BufWriter::new(options.open(path)?);
        let (mut firsts, mut block) = (Vec::new(), Vec::with_capacity(BLOCK_BYTES));
        let lines = (at_most * FILTER_BITS).div_ceil(8 * size_of::<Line>() as u64);
        let fits = usize::try_from(lines).map_err(io::Error::other)?;
        let mut filter: Vec<Line> = vec![[0; _]; fits];
        let (mut marks, mut oldest, mut newest) = (0_u64, u64::MAX, 0);
        for entry in entries {
            let (key, value) = entry?;
            if block.is_empty() {
                firsts.push(key);
            }
            block.extend_from_slice(&key);
            block.extend_from_slice(&value);
            let line = line_of(&key, filter.len());
            bits_of(&key).for_each(|(byte, bit)| filter[line][byte] |= bit);
            marks += 1;
            oldest = oldest.min(charged_until(&value));
            newest = newest.max(charged_until(&value));
            if block.len() == ENTRIES * ENTRY_BYTES {
                write_block(&mut out, &mut block)?;
            }
        }
        if !block.is_empty() {
            write_block(&mut out, &mut block)?;
        }
        let numbers = [firsts.len() as u64, lines, marks, oldest, newest].map(u64::to_be_bytes);
        let parts = [firsts.as_flattened(), filter.as_flattened()];
        let mut end = [parts[0], parts[1], numbers.as_flattened()].concat();
        end.extend(crc32fast::hash(&end).to_be_bytes());
        out.write_all(&end)?;
        out.into_inner()?.sync_all()?;
        Self::open(path)
    }

    /// Opens one. An error of the kind `InvalidData` or `UnexpectedEof` says that it is damaged.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut end = [0; END_BYTES];
        let at = length.checked_sub(END_BYTES as u64).ok_or_else(damaged)?;
        file.read_exact_at(&mut end, at)?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| end[8 * at + n]));
        let [blocks, lines] = [number(0), number(1)];
        let part_bytes = |count: u64, bytes: usize| count.checked_mul(bytes as u64);
        let all = [
            part_bytes(blocks, BLOCK_BYTES + size_of::<Key>()),
            part_bytes(lines, size_of::<Line>()),
        ];
        let is_as_long = matches!(all, [Some(of), Some(and)] if of.checked_add(and) == Some(at));
        let [Ok(blocks), Ok(lines)] = [blocks, lines].map(usize::try_from) else {
            return Err(damaged());
        };
        if !is_as_long {
            return Err(damaged());
        }
        let (mut firsts, mut filter) = (vec![Key::default(); blocks], vec![[0; _]; lines]);
        let behind = (blocks * (BLOCK_BYTES + size_of::<Key>())) as u64;
        file.read_exact_at(firsts.as_flattened_mut(), (blocks * BLOCK_BYTES) as u64)?;
        file.read_exact_at(filter.as_flattened_mut(), behind)?;
        let (numbers, sum) = end.split_at(END_BYTES - 4);
        let mut crc = crc32fast::Hasher::new();
        crc.update(firsts.as_flattened());
        crc.update(filter.as_flattened());
        crc.update(numbers);
        if crc.finalize().to_be_bytes() != sum {
            return Err(damaged());
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            firsts,
            filter,
            marks: number(2),
            oldest: number(3),
            newest: number(4),
        })
    }

    /// Goes by another name from now on.
    pub(super) fn rename(&mut self, path: PathBuf) -> io::Result<()> {
        std::fs::rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The value under a key.
    pub(super) fn get(&self, key: &Key) -> io::Result<Option<Value>> {
        let line = self.filter.get(line_of(key, self.filter.len()));
        let may_be = line.is_some_and(|line| bits_of(key).all(|(byte, bit)| line[byte] & bit != 0));
        let behind = self.firsts.partition_point(|first| may_be && first <= key);
        let Some(block) = behind.checked_sub(1) else {
            return Ok(None);
        };
        let (block, marks) = self.block(block)?;
        let entries = entries(&block, marks);
        let found = entries.binary_search_by(|entry| entry[..size_of::<Key>()].cmp(key));
        Ok(found.ok().map(|at| parse(&entries[at]).1))
    }

    /// All of them, in the order of their keys.
    pub(super) fn entries(&self) -> impl Iterator<Item = io::Result<Entry>> + '_ {
        (0..self.firsts.len()).flat_map(|block| match self.block(block) {
            Ok((block, marks)) => {
                let entries = entries(&block, marks).iter();
                entries.map(|entry| Ok(parse(entry))).collect()
            }
            Err(error) => vec![Err(error)],
        })
    }

    /// A block, and how many marks are in it.
    fn block(&self, number: usize) -> io::Result<([u8; BLOCK_BYTES], usize)> {
        let mut block = [0; BLOCK_BYTES];
        let at = (number * BLOCK_BYTES) as u64;
        self.file.read_exact_at(&mut block, at)?;
        let marks = usize::from(u16::from_be_bytes([block[4], block[5]]));
        if crc32fast::hash(&block[4..]).to_be_bytes() != block[..4] || marks > ENTRIES {
            let what = format!("{}, byte {at}: damaged", self.path.display());
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        Ok((block, marks))
    }
}

/// Which line of the filter a key has: by half of it, which is a hash.
fn line_of(key: &Key, lines: usize) -> usize {
    let half = u64::from_be_bytes(*key.first_chunk().expect("the first half"));
    // Below the number of lines.
    ((u128::from(half) * lines as u128) >> 64) as usize
}

/// The bits of a key in its line, by the other half: nine of its bits for each.
fn bits_of(key: &Key) -> impl Iterator<Item = (usize, u8)> {
    let half = u64::from_be_bytes(*key.last_chunk().expect("the second half"));
    (0..FILTER_SET).map(move |n| {
        let bit = (half >> (9 * n)) as usize % (8 * size_of::<Line>());
        (bit / 8, 1 << (bit % 8))
    })
}

fn entries(block: &[u8; BLOCK_BYTES], marks: usize) -> &[[u8; ENTRY_BYTES]] {
    &block[HEAD_BYTES..].as_chunks().0[..marks]
}

fn write_block(out: &mut impl io::Write, entries: &mut Vec<u8>) -> io::Result<()> {
    let marks = u16::try_from(entries.len() / ENTRY_BYTES).expect("a block has few");
    let mut block = [&marks.to_be_bytes(), entries.as_slice()].concat();
    block.resize(BLOCK_BYTES - 4, 0);
    entries.clear();
    out.write_all(&crc32fast::hash(&block).to_be_bytes())?;
    out.write_all(&block)
}

fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "damaged")
}
