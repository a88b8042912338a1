//! `jobs.recent`: the marks that are in no segment yet, one frame for each change, and all of them in memory.
//!
//! A frame is the number of bytes behind it, the number of the change, its marks, and a CRC of all that. The file
//! begins with the number of the last change that is in the segments, and a CRC.
//!
//! Invariant: changes are numbered one by one; a frame that is not the next, or not whole, and what is behind it do
//! not count.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::super::sync_names;
use super::{ENTRY_BYTES, Entry, Key, Value, parse};

/// Its name, and that of one that is being begun.
pub(super) const NAMES: [&str; 2] = ["jobs.recent", "jobs.recent.new"];

const HEAD_BYTES: usize = 8 + 4;
const SUM_BYTES: usize = 4;

/// The file, open, and what it holds.
#[derive(Debug)]
pub(super) struct Recent {
    file: File,
    end: u64,
    /// Numbers of the change before its first, and of its last.
    pub(super) after: u64,
    pub(super) to: u64,
    pub(super) marks: BTreeMap<Key, Value>,
}

impl Recent {
    /// Begins one behind the change `after`, in the place of what there is.
    pub(super) fn begin(dir: &Path, after: u64) -> io::Result<Self> {
        let [name, new] = NAMES.map(|name| dir.join(name));
        let mut options = File::options();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let file = options.open(&new)?;
        let head = after.to_be_bytes();
        let head = [head.as_slice(), &crc32fast::hash(&head).to_be_bytes()].concat();
        file.write_all_at(&head, 0)?;
        file.sync_all()?;
        std::fs::rename(new, name)?;
        sync_names(dir)?;
        Ok(Self {
            file,
            end: HEAD_BYTES as u64,
            after,
            to: after,
            marks: BTreeMap::new(),
        })
    }

    /// Opens the one in `dir`, and cuts off what does not count or came behind the change `newest`: the store did not
    /// follow that. `None` if there is none, or nobody can tell where it begins.
    pub(super) fn open(dir: &Path, newest: u64) -> io::Result<Option<Self>> {
        let path = dir.join(NAMES[0]);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let Some((after, mut rest)) = summed(&bytes, 8) else {
            return Ok(None);
        };
        let after = number(after);
        let (mut to, mut marks) = (after, BTreeMap::new());
        while let Some((frame, behind)) = frame(rest) {
            let (change, entries) = frame.split_at(8);
            if number(change) != to + 1 || to >= newest.max(after) {
                break;
            }
            (to, rest) = (to + 1, behind);
            marks.extend(entries.as_chunks::<ENTRY_BYTES>().0.iter().map(parse));
        }
        let file = File::options().write(true).open(&path)?;
        let end = (bytes.len() - rest.len()) as u64;
        file.set_len(end)?;
        Ok(Some(Self {
            file,
            end,
            after,
            to,
            marks,
        }))
    }

    /// Adds the marks of a change, and syncs. Says which number it has.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> io::Result<u64> {
        let to = self.to + 1;
        let length = u32::try_from(8 + entries.len() * ENTRY_BYTES);
        let length = length.map_err(|_| io::Error::other("more marks than fit into a change"))?;
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend(to.to_be_bytes());
        for (key, value) in &entries {
            frame.extend_from_slice(key);
            frame.extend_from_slice(value);
        }
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        self.file.write_all_at(&frame, self.end)?;
        self.file.sync_data()?;
        self.end += frame.len() as u64;
        self.to = to;
        self.marks.extend(entries);
        Ok(to)
    }
}

/// The first frame, without length and CRC, and what is behind it.
fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (content, rest) = summed(bytes, length.checked_add(4)?)?;
    Some((content.get(4..).filter(|content| content.len() >= 8)?, rest))
}

/// The first `length` bytes, if the CRC that they should have is behind them, and what is behind that.
fn summed(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (content, rest) = bytes.split_at_checked(length)?;
    let (sum, rest) = rest.split_at_checked(SUM_BYTES)?;
    (crc32fast::hash(content).to_be_bytes() == sum).then_some((content, rest))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}
