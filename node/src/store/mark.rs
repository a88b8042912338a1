//! The mark: how far the store had come, kept where sled's log cannot lose it.
//!
//! When the end of its log is gone, sled opens what is left without a word (measured: one megabyte
//! cut off five, a quarter of the acknowledged records missing, no error), and the tally in it is
//! that of an earlier batch. So behind the sync of each batch its number is written to a file of
//! sixteen bytes beside sled's. A store whose tally is below its mark has lost something.
//!
//! Invariant: the mark is never ahead of what is on disk, because it is written behind the sync; it
//! may be behind, as it is not synced itself. It is in the store's folder, so an old backup of the
//! folder is in itself whole (that its counters are old is for the incarnation to deal with).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fairmesh_round::checksum;

/// What the checksum of a mark is salted with.
const MARK_KEY: &[u8] = b"mark";

const MARK_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Mark {
    file: File,
}

impl Mark {
    /// Opens the mark of the store in `dir`, or makes one.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(dir.join("mark"))?;
        Ok(Self { file })
    }

    /// The number of the newest batch that was acknowledged, as far as is known; 0 if nothing is.
    pub(super) fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; MARK_BYTES];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(error),
        }
        let (number, sum) = bytes.split_first_chunk::<8>().expect("sixteen are there");
        // A torn mark says nothing, and costs nothing: the next batch writes it anew.
        Ok(if checksum(MARK_KEY, number) == sum {
            u64::from_be_bytes(*number)
        } else {
            0
        })
    }

    /// Notes that the batch `number` is on disk.
    pub(super) fn write(&self, number: u64) -> io::Result<()> {
        let number = number.to_be_bytes();
        let mark = [number, checksum(MARK_KEY, &number)].concat();
        self.file.write_all_at(&mark, 0)
    }
}
