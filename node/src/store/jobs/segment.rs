//! A segment: marks of jobs in the order of their keys, in a file that is never changed.
//!
//! Blocks of 4 KiB, each a CRC, the number of its marks and these; behind them the first key of each block, how many
//! marks there are and from when to when they go, and a CRC of that. So a mark is found with one read, and
//! takes 42 bytes.
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
/// Blocks, marks, the earliest and the latest moment, and the CRC.
const END_BYTES: usize = 4 * 8 + 4;

/// One that is open.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    /// The first key of each block.
    firsts: Vec<Key>,
    /// How many marks it has.
    pub(super) marks: u64,
    /// Up to when the jobs are charged, milliseconds since 1970: the earliest and the latest.
    pub(super) oldest: u64,
    pub(super) newest: u64,
}

impl Segment {
    /// Writes one with `entries`, which come in the order of their keys, and syncs it.
    pub(super) fn write(
        path: &Path,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Self> {
        let mut options = File::options();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let mut out = BufWriter::new(options.open(path)?);
        let (mut firsts, mut block) = (Vec::new(), Vec::with_capacity(BLOCK_BYTES));
        let (mut marks, mut oldest, mut newest) = (0_u64, u64::MAX, 0);
        for entry in entries {
            let (key, value) = entry?;
            if block.is_empty() {
                firsts.push(key);
            }
            block.extend_from_slice(&key);
            block.extend_from_slice(&value);
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
        let numbers = [firsts.len() as u64, marks, oldest, newest].map(u64::to_be_bytes);
        let mut end = [firsts.as_flattened(), numbers.as_flattened()].concat();
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
        let blocks = number(0);
        let is_as_long = blocks
            .checked_mul((BLOCK_BYTES + size_of::<Key>()) as u64)
            .is_some_and(|bytes| bytes == at);
        if !is_as_long {
            return Err(damaged());
        }
        let blocks = usize::try_from(blocks).map_err(|_| damaged())?;
        let mut firsts = vec![Key::default(); blocks];
        file.read_exact_at(firsts.as_flattened_mut(), (blocks * BLOCK_BYTES) as u64)?;
        let (numbers, sum) = end.split_at(END_BYTES - 4);
        let mut crc = crc32fast::Hasher::new();
        crc.update(firsts.as_flattened());
        crc.update(numbers);
        if crc.finalize().to_be_bytes() != sum {
            return Err(damaged());
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            firsts,
            marks: number(1),
            oldest: number(2),
            newest: number(3),
        })
    }

    /// Goes by another name from now on.
    pub(super) fn rename(&mut self, path: PathBuf) -> io::Result<()> {
        std::fs::rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The value under a key.
    pub(super) fn get(&self, key: &Key) -> io::Result<Option<Value>> {
        let behind = self.firsts.partition_point(|first| first <= key);
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
