//! A log that is followed while it grows and is rotated.
//!
//! Invariant: the reader returns a line once it is whole, and the position moves past it in the same step. If the log
//! was renamed, or copied and emptied, the reader reads the rest of the old log, then all logs that were rotated
//! since, then the new one. If the old log has gone without a copy, the reader reports the loss and continues with
//! the others. Deliberately not here: storing the position after the node has acknowledged the records
//! ([`crate::state`] writes the file, the caller decides when), parsing lines (`fairmesh-records`).

mod folder;
mod place;

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairmesh_model::UsageRecord;
use fairmesh_records::{BatchRecord, Format, Options, Records};

pub use folder::{Listing, is_day};
pub use place::{Excerpt, FilePosition, Written};

/// Records in one request to the node, and of one portion of a file.
pub const BATCH_RECORDS: usize = 5_000;

/// Most that is read at once, in bytes, with the record that goes beyond it: records are held, and sent, as a whole.
const PORTION_BYTES_MAX: u64 = 16 << 20;

/// Records read from a file, and how far.
#[derive(Default)]
pub struct Portion {
    /// The records, in the order of the file.
    pub records: Vec<BatchRecord>,
    /// For each, the usage record that it was read from, if it was one.
    pub usage: Vec<Option<UsageRecord>>,
    /// Lines that could not be read.
    pub bad: Vec<Bad>,
    /// The columns of the list that was read.
    pub columns: Option<String>,
    /// The position where reading started.
    pub start: FilePosition,
    /// The position from which the next round reads.
    pub next: FilePosition,
    /// Whether there may be more.
    pub more: bool,
    /// A log that was gone before it was known to be read to its end.
    pub lost: Option<PathBuf>,
}

impl Portion {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.bad.is_empty()
    }
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// Counted from 1, in the file that was read.
    pub line: u64,
    /// Why it could not be parsed.
    pub why: String,
    /// The record as it was read.
    pub text: Vec<u8>,
}

/// How a log, or a folder of logs, is read.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The format of its records.
    pub format: Format,
    /// How they are read.
    pub options: &'a Options,
    /// Most records that are read at once; fewer if they are long.
    pub most: usize,
}

impl<'a> Reader<'a> {
    /// Reads as many records as the node takes at once.
    pub const fn new(format: Format, options: &'a Options) -> Self {
        Self {
            format,
            options,
            most: BATCH_RECORDS,
        }
    }

    /// Reads on in a log. Without `from` it reads the log from its beginning, and no log that was rotated before.
    ///
    /// # Errors
    /// If the file cannot be read. Nothing is lost by trying again.
    pub fn read(self, path: &Path, from: Option<&FilePosition>) -> io::Result<Portion> {
        // Listed before the log is opened: if the log is the same as before, all of these were rotated before it.
        let rotated = place::written_beside(path);
        let mut newest = File::open(path)?;
        let inode = newest.metadata()?.ino();
        let Some(from) = from else {
            return self.portion(&mut newest, FilePosition::at_start(inode, rotated));
        };
        if from.inode != inode || !from.fits(&mut newest)? {
            return self.read_rotated(path, from, newest);
        }
        let mut start = from.clone();
        if from.position.bytes > 0 {
            start.earlier = Some(rotated);
            return self.portion(&mut newest, start);
        }
        // An empty log that was filled, copied and emptied again looks the same.
        let read = self.portion(&mut newest, start)?;
        let known = from.earlier.as_ref();
        match known.and_then(|known| place::next_beside(path, known)) {
            None => Ok(read),
            Some(_) => self.read_rotated(path, from, newest),
        }
    }

    /// Continues after a rotation: with the rest of the log that `from` is in, else with the next of the logs that were
    /// rotated since, else with the newest.
    fn read_rotated(
        self,
        path: &Path,
        from: &FilePosition,
        mut newest: File,
    ) -> io::Result<Portion> {
        let inode = newest.metadata()?.ino();
        let mut earlier = from.earlier.clone();
        let (mut rest, mut lost) = (None, None);
        let rotated = place::written_beside(path).into_iter();
        if let Some((mut old, metadata)) = from.find_beside(path) {
            let mut start = from.clone();
            start.inode = metadata.ino();
            let mut read = self.portion(&mut old, start)?;
            // Some batch systems write to the old file until they are told of the new one.
            if read.more || !read.is_empty() {
                read.more = true;
                return Ok(read);
            }
            rest = Some(read);
            let done = place::written(&metadata);
            let rotated = rotated.filter(|written| *written <= done);
            earlier.get_or_insert_with(|| rotated.collect()).push(done);
        } else {
            lost = self.warn_of_loss(path, from, inode);
            earlier.get_or_insert_with(|| rotated.collect());
        }
        let mut earlier = earlier.unwrap_or_default();
        if let Some((mut next, metadata)) = place::next_beside(path, &earlier) {
            earlier.push(place::written(&metadata));
            let mut read =
                self.portion(&mut next, FilePosition::at_start(metadata.ino(), earlier))?;
            (read.more, read.lost) = (true, lost);
            return Ok(read);
        }
        let mut read = self.portion(&mut newest, FilePosition::at_start(inode, earlier))?;
        // Until it has a line, nothing distinguishes the new log from others.
        if let Some(rest) = rest.filter(|_| read.next.position.bytes == 0) {
            return Ok(rest);
        }
        read.lost = lost;
        Ok(read)
    }

    /// Warns that the log in which `from` was has gone or was rewritten. Returns it if records may be lost.
    fn warn_of_loss(self, path: &Path, from: &FilePosition, inode: u64) -> Option<PathBuf> {
        let file = path.display();
        if from.position.bytes == 0 {
            return None;
        }
        if from.inode == inode {
            tracing::warn!(
                %file,
                "the log was emptied or rewritten, and its folder has no copy of the earlier one: it is read again from \
                 its beginning, and nothing counts twice; lines that were removed unread are lost unless \
                 `fairmesh report` reads a copy of them"
            );
            return is_log(self.format).then(|| path.to_owned());
        }
        tracing::warn!(
            %file,
            "the log that was followed has gone; lines of it that were not read are lost unless `fairmesh report` \
             reads a copy of it"
        );
        Some(path.to_owned())
    }

    fn portion(self, file: &mut File, start: FilePosition) -> io::Result<Portion> {
        let end = start.position.bytes.saturating_add(PORTION_BYTES_MAX);
        file.seek(SeekFrom::Start(start.position.bytes))?;
        let position = start.position.clone();
        let mut lines =
            Records::resume(BufReader::new(&*file), self.format, self.options, position);
        let mut read = Portion {
            more: true,
            ..Portion::default()
        };
        while read.more
            && read.records.len() + read.bad.len() < self.most
            && lines.cursor().bytes < end
        {
            match lines.next() {
                Some(Ok(record)) => {
                    read.usage.push(usage_of(&record, lines.last_line()));
                    read.records.push(record);
                }
                Some(Err(error)) => read.bad.push(Bad {
                    line: error.line,
                    why: error.reason.to_string(),
                    text: lines.rejected().to_owned(),
                }),
                None => read.more = false,
            }
        }
        let position = lines.cursor().clone();
        drop(lines);
        read.columns.clone_from(&position.columns);
        read.next = FilePosition::new(file, start.inode, position)?;
        read.next.earlier.clone_from(&start.earlier);
        read.start = start;
        Ok(read)
    }
}

/// Whether files of a format are append-only. Lists are not: each run of `sacct` rewrites its file.
const fn is_log(format: Format) -> bool {
    matches!(
        format,
        Format::SlurmJobcomp | Format::Pbs | Format::GridEngine | Format::Lsf | Format::HtcondorAds
    )
}

/// The usage record that `line` is, if the record was read from one: it says more of where and on which
/// terms the job ran than the record has places for.
pub fn usage_of(record: &BatchRecord, line: &[u8]) -> Option<UsageRecord> {
    let is_ours = record.format == Format::Json;
    is_ours.then(|| serde_json::from_slice(line).ok())?
}

#[cfg(test)]
mod tests;
