//! A file of records, followed while it grows and is rotated.
//!
//! Invariant: a line is given once it is whole, and the place moves behind it with it. When the file
//! has been renamed, or copied and emptied, the rest of the old one is read before the new one; when
//! it has been replaced by another that leaves no trace of it, the new one is read from its beginning
//! and the loss is said.
//! Deliberately not here: keeping the place durably until the node has acknowledged ([`crate::state`] writes
//! the file, the caller says when), reading lines (`fairmesh-records`).

mod place;

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairmesh_model::{Millis, UsageRecord, WallTime};
use fairmesh_records::{BatchRecord, Format, Options, Records};

pub use place::{Excerpt, FilePosition, is_log_name};

/// Most that is read at once, in bytes, with the record that goes beyond it: records are held, and sent, as a whole.
const PORTION_BYTES_MAX: u64 = 16 << 20;

/// What was read.
pub struct Portion {
    /// The records.
    pub records: Vec<BatchRecord>,
    /// For each, the usage record that it was read from, if it was one.
    pub usage: Vec<Option<UsageRecord>>,
    /// Lines that made no sense.
    pub bad: Vec<Bad>,
    /// Where to go on.
    pub next: FilePosition,
    /// Whether there may be more.
    pub more: bool,
    /// A log that was gone before it was known to be read to its end.
    pub lost: Option<PathBuf>,
}

/// A line that made no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// Counted from 1, in the file that was read.
    pub line: u64,
    /// Why.
    pub why: String,
    /// The record as it was read.
    pub text: Vec<u8>,
}

/// Reads up to `most` records on from `from`, fewer of long ones.
///
/// # Errors
/// If the file cannot be read. Nothing is lost by trying again.
pub fn read(
    path: &Path,
    from: Option<&FilePosition>,
    format: Format,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let mut newest = File::open(path)?;
    let inode = newest.metadata()?.ino();
    let Some(from) = from else {
        return portion(newest, inode, None, format, options, most);
    };
    if from.inode == inode && from.fits(&mut newest)? {
        return portion(newest, inode, Some(from), format, options, most);
    }
    let mut lost = None;
    if let Some((old, done)) = from.find_beside(path) {
        let mut rest = portion(old, done.ino(), Some(from), format, options, most)?;
        // Some batch systems write to the old file until they are told of the new one.
        if rest.more || !rest.records.is_empty() || !rest.bad.is_empty() {
            rest.more = true;
            return Ok(rest);
        }
        if let Some((next, next_inode)) = place::next_beside(path, &done) {
            let mut whole = portion(next, next_inode, None, format, options, most)?;
            whole.more = true;
            return Ok(whole);
        }
        // Until it has a line, nothing tells the new file from others.
        let newest = portion(newest, inode, None, format, options, most)?;
        return Ok(match newest.next.position.bytes {
            0 => rest,
            _ => newest,
        });
    } else if from.position.bytes > 0 && from.inode == inode {
        tracing::warn!(
            file = %path.display(),
            "the file was emptied or rewritten, and its folder has no copy of the earlier one: it is read again from its \
             beginning, and nothing counts twice; lines that were removed unread are lost unless `fairmesh report` reads a \
             copy of them"
        );
        lost = is_log(format).then(|| path.to_owned());
    } else if from.position.bytes > 0 {
        tracing::warn!(
            file = %path.display(),
            "the file that was followed is gone; what was not read of it is lost unless \
             `fairmesh report` is given it"
        );
        lost = Some(path.to_owned());
    }
    let newest = portion(newest, inode, None, format, options, most)?;
    Ok(Portion { lost, ..newest })
}

/// Whether files of a format are append-only. Lists are not: each run of `sacct` rewrites its file.
const fn is_log(format: Format) -> bool {
    matches!(
        format,
        Format::SlurmJobcomp | Format::Pbs | Format::GridEngine | Format::Lsf | Format::HtcondorAds
    )
}

/// Whether a log is named by a day (`20260101`) that has not come anywhere on Earth. A server whose clock was wrong may
/// have begun one, and goes on in those of the right days.
pub fn is_ahead(name: &str, now: WallTime) -> bool {
    let tomorrow = now.after(Millis::from_secs(86_400)).0;
    let tomorrow = jiff::Timestamp::from_millisecond(tomorrow.try_into().unwrap_or(i64::MAX));
    let tomorrow = tomorrow.unwrap_or(jiff::Timestamp::MAX).strftime("%Y%m%d");
    is_day(name) && *name > *tomorrow.to_string()
}

/// Whether a name is that of a day.
pub fn is_day(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|it| it.is_ascii_digit())
}

/// Earlier logs that are looked at again.
const LEFT_MAX: usize = 7;

/// Leaves the log that was read up to `place`, so that it is read on if it grows.
pub fn leave(left: &mut Vec<FilePosition>, place: FilePosition) {
    left.push(FilePosition {
        left: Vec::new(),
        ..place
    });
    left.drain(..left.len().saturating_sub(LEFT_MAX));
}

/// What came to an earlier log of a folder since it was left. Its place among `left` moves on.
///
/// # Errors
/// If a log cannot be read. Nothing is lost by trying again.
pub fn grown(
    folder: &Path,
    left: &mut [FilePosition],
    format: Format,
    options: &Options,
    most: usize,
) -> io::Result<Option<Portion>> {
    for place in left {
        let name = place.name.clone().unwrap_or_default();
        let Ok(mut log) = File::open(folder.join(&name)) else {
            continue;
        };
        let (inode, bytes) = (log.metadata()?.ino(), log.metadata()?.len());
        if bytes <= place.position.bytes || !place.fits(&mut log)? {
            continue;
        }
        let mut read = portion(log, inode, Some(place), format, options, most)?;
        if read.records.is_empty() && read.bad.is_empty() {
            continue;
        }
        read.next.name = Some(name);
        place.clone_from(&read.next);
        read.more = true;
        return Ok(Some(read));
    }
    Ok(None)
}

/// Reads up to `most` records on from `from` in a folder with a log for each day, whose names are in the order of the
/// days. Of earlier logs, which seldom grow, it reads what came to the last ones. From a place in what is no log, the
/// newest one is read from its beginning.
///
/// # Errors
/// If the folder or a log cannot be read. Nothing is lost by trying again.
pub fn read_days(
    folder: &Path,
    is_log: impl Fn(&str) -> bool,
    from: Option<&FilePosition>,
    format: Format,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let mut left = from.map_or_else(Vec::new, |from| from.left.clone());
    if let Some(mut read) = grown(folder, &mut left, format, options, most)? {
        let from = from.cloned().unwrap_or_default();
        read.next = FilePosition { left, ..from };
        return Ok(read);
    }
    let at = from.and_then(|from| from.name.clone());
    let is_lost = at.as_ref().is_some_and(|at| !is_log(at));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_log(&name) && (is_lost || at.as_ref().is_none_or(|at| name >= *at)) {
            names.push(name);
        }
    }
    names.sort_unstable();
    if is_lost {
        names.drain(..names.len().saturating_sub(1));
    }
    let mut names = names.into_iter();
    let Some(name) = names.next() else {
        return Ok(Portion {
            records: Vec::new(),
            usage: Vec::new(),
            bad: Vec::new(),
            next: from.cloned().unwrap_or_default(),
            more: false,
            lost: None,
        });
    };
    let from = from.filter(|_| at.as_ref() == Some(&name));
    let mut lost = None;
    if let Some(other) = at.filter(|_| from.is_none()) {
        lost = Some(folder.join(&other));
        let folder = folder.display();
        let what = if is_lost {
            "of no day that has come, so this goes on in the newest log"
        } else {
            "gone"
        };
        tracing::warn!(
            "{folder}/{other} is {what}; what was not read before is lost unless `fairmesh report` is given it"
        );
    }
    let mut read = read(&folder.join(&name), from, format, options, most)?;
    for bad in &mut read.bad {
        bad.why = format!("{} ({name})", bad.why);
    }
    read.lost = lost.or(read.lost);
    match names.next() {
        Some(later) if !read.more => {
            let name = Some(name);
            leave(&mut left, FilePosition { name, ..read.next });
            read.next = FilePosition::default();
            read.next.name = Some(later);
            read.more = true;
        }
        _ => read.next.name = Some(name),
    }
    read.next.left = left;
    Ok(read)
}

fn portion(
    mut file: File,
    inode: u64,
    from: Option<&FilePosition>,
    format: Format,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let start = from.map(|from| from.position.clone()).unwrap_or_default();
    let end = start.bytes.saturating_add(PORTION_BYTES_MAX);
    file.seek(SeekFrom::Start(start.bytes))?;
    let mut lines = Records::resume(BufReader::new(&file), format, options, start);
    let (mut records, mut usage, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    let mut more = true;
    while more && records.len() + bad.len() < most && lines.cursor().bytes < end {
        match lines.next() {
            Some(Ok(record)) => {
                usage.push(usage_of(&record, lines.last_line()));
                records.push(record);
            }
            Some(Err(error)) => bad.push(Bad {
                line: error.line,
                why: error.reason.to_string(),
                text: lines.rejected().to_owned(),
            }),
            None => more = false,
        }
    }
    let position = lines.cursor().clone();
    drop(lines);
    Ok(Portion {
        more,
        records,
        usage,
        bad,
        lost: None,
        next: FilePosition::of(&mut file, inode, position)?,
    })
}

/// The usage record that `line` is, if the record was read from one: it says more of where and on which
/// terms the job ran than the record has places for.
pub fn usage_of(record: &BatchRecord, line: &[u8]) -> Option<UsageRecord> {
    let is_ours = record.format == Format::Json;
    is_ours.then(|| serde_json::from_slice(line).ok())?
}

#[cfg(test)]
mod tests;
