//! Marks of jobs: what of each job is charged, in files of their own beside sled's.
//!
//! A mark is asked for once a record, and its key is a hash: pages of a tree would be half empty and written
//! again all the time (sled took 500 bytes for each). So marks are appended to a file and kept in memory
//! (`recent`) until they are enough for a sorted one (`segment`), and a thread merges neighbours of a size, four
//! at a time, so that there are few. What the history has passed over is left out then; a segment half of whose
//! time it has passed is written anew by itself.
//!
//! Invariants:
//! - changes are numbered, and the files are a chain without a gap: `jobs.A-B` has the marks of the changes behind
//!   A, up to B, and the recent ones go on there. A chain that is broken, or ends before the change that the tally
//!   knows of, has lost something.
//! - of two marks of one job the later change's counts.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use fairmesh_model::WallTime;

use self::recent::Recent;
use self::segment::Segment;
use super::sync_names;

mod recent;
mod segment;
#[cfg(test)]
mod tests;

/// The first half of a job's key, which is a hash: no two of 2^40 jobs have the same but once in 2^48.
pub(super) type Key = [u8; 16];

/// A mark's bytes: [`JobMark::to_bytes`](fairmesh_site::JobMark::to_bytes).
pub(super) type Value = [u8; VALUE_BYTES];

pub(super) const VALUE_BYTES: usize = 25;

/// A mark with its key.
pub(super) type Entry = (Key, Value);

const ENTRY_BYTES: usize = size_of::<Key>() + VALUE_BYTES;

/// This many become a segment: some 3 MiB of memory, and 1.4 MB to write.
const RECENT_MAX: usize = 1 << 15;

/// This many segments of a size become one.
const TIER: usize = 4;

/// Segments that are being written.
const PACKING: &str = "jobs.packing";
const MERGING: &str = "jobs.merging";

/// The marks in one folder.
#[derive(Debug)]
pub(super) struct Jobs {
    dir: PathBuf,
    recent: Recent,
    /// The oldest first, each with the numbers of the change before its first and of its last.
    segments: Vec<(Range<u64>, Arc<Segment>)>,
    merge: Option<Merge>,
    /// Marks of jobs that are charged up to some moment before this one are not needed.
    before: WallTime,
    recent_max: usize,
    /// Whether packing and merging have failed since the site last said what is not needed.
    is_stuck: [bool; 2],
}

/// Segments that a thread is making one of.
#[derive(Debug)]
struct Merge {
    of: Range<usize>,
    is_given_up: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Segment>>,
}

impl Jobs {
    /// Opens those in `dir`, where sled says that the newest change has the number `newest` (0: none has marks). An
    /// inner error is what is damaged or lost.
    pub(super) fn open(dir: &Path, newest: u64) -> io::Result<Result<Self, String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if [PACKING, MERGING, recent::NAMES[1]].contains(&&*name) {
                fs::remove_file(&path)?;
            } else if let Some(of) = range_of(&name) {
                found.push((of, path));
            }
        }
        // Of those that begin alike the one that goes on longest has been made of the others.
        found.sort_by_key(|(of, _)| (of.start, Reverse(of.end)));
        let (mut segments, mut to) = (Vec::new(), 0);
        for (of, path) in found {
            let is_merged = !segments.is_empty() && of.end <= to;
            if is_merged {
                fs::remove_file(&path)?;
                continue;
            }
            if of.start != to {
                return Ok(Err(format!(
                    "marks of jobs are lost before {}",
                    path.display()
                )));
            }
            to = of.end;
            match Segment::open(&path) {
                Ok(segment) => segments.push((of, Arc::new(segment))),
                Err(error) if is_damage(&error) => {
                    return Ok(Err(format!("{} is damaged", path.display())));
                }
                Err(error) => return Err(error),
            }
        }
        let recent = match Recent::open(dir, newest)? {
            // All that it has is in a segment, which was made just before the end.
            Some(recent) if recent.to <= to && recent.after < to => Recent::begin(dir, to)?,
            // Or some of it, where none could be begun behind that segment.
            Some(recent) if recent.after <= to => recent,
            None if to >= newest => Recent::begin(dir, to)?,
            _ => {
                let name = dir.join(recent::NAMES[0]);
                return Ok(Err(format!("{} is lost or damaged", name.display())));
            }
        };
        if recent.to < newest {
            let name = dir.join(recent::NAMES[0]);
            return Ok(Err(format!(
                "{} ends with change {}, and {newest} was on disk: its end is lost or damaged",
                name.display(),
                recent.to
            )));
        }
        Ok(Ok(Self {
            dir: dir.to_owned(),
            recent,
            segments,
            merge: None,
            before: WallTime(0),
            recent_max: RECENT_MAX,
            is_stuck: [false; 2],
        }))
    }

    /// Whether there are any in `dir`.
    pub(super) fn are_in(dir: &Path) -> bool {
        let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with("jobs."))
    }

    /// The mark under a key. An error of the kind `InvalidData` says that it may be in a damaged place.
    pub(super) fn get(&self, key: &Key) -> io::Result<Option<Value>> {
        if let Some(value) = self.recent.marks.get(key) {
            return Ok(Some(*value));
        }
        let newest_first = self.segments.iter().rev();
        let mut found = newest_first.map(|(_, segment)| segment.get(key));
        found.find_map(Result::transpose).transpose()
    }

    /// The marks that are in no segment yet. Of each key the second half, which nothing is found by here, is zero.
    pub(super) fn latest(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let marks = self.recent.marks.iter();
        marks.map(|(key, value)| ([*key, Key::default()].concat(), value.to_vec()))
    }

    /// Adds the marks of a change, durably; nothing counts before sled has the number that this returns.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> io::Result<u64> {
        self.recent.append(entries)
    }

    /// Marks of jobs that are charged up to some moment before this one are not needed any more.
    pub(super) fn forget(&mut self, before: WallTime) {
        self.before = before;
        self.is_stuck = [false; 2];
        self.tidy();
    }

    /// Makes a segment of recent marks where they are many, and one of several where it is time. What fails costs
    /// room and memory, and is tried again in a while.
    pub(super) fn tidy(&mut self) {
        // Marks do not stay in memory because older ones cannot be merged.
        let works: [fn(&mut Self) -> io::Result<()>; 2] = [Self::try_to_pack, Self::try_to_merge];
        for (of, work) in works.into_iter().enumerate() {
            if self.is_stuck[of] {
                continue;
            }
            if let Err(error) = work(self) {
                self.is_stuck[of] = true;
                tracing::warn!(folder = %self.dir.display(), %error, "marks of jobs cannot be packed");
            }
        }
    }

    fn try_to_pack(&mut self) -> io::Result<()> {
        match self.recent.marks.len() >= self.recent_max {
            true => self.pack_recent(),
            false => Ok(()),
        }
    }

    fn try_to_merge(&mut self) -> io::Result<()> {
        if self
            .merge
            .as_ref()
            .is_some_and(|merge| merge.thread.is_finished())
        {
            self.end_merge()?;
        }
        if self.merge.is_none()
            && let Some(of) = self.due()
        {
            self.merge = Some(self.begin_merge(of)?);
        }
        Ok(())
    }

    fn pack_recent(&mut self) -> io::Result<()> {
        let of = self.recent.after..self.recent.to;
        let entries = self.recent.marks.iter();
        let entries = entries.map(|(key, value)| Ok((*key, *value)));
        let marks = self.recent.marks.len() as u64;
        let mut segment = Segment::write(&self.dir.join(PACKING), marks, entries)?;
        segment.rename(self.path_of(&of))?;
        sync_names(&self.dir)?;
        self.recent = Recent::begin(&self.dir, of.end)?;
        self.segments.push((of, Arc::new(segment)));
        Ok(())
    }

    /// Which segments are to be made one of: so that sizes fall from the oldest to the newest, those of a run of
    /// [`TIER`] that are no smaller than its first, or with a larger one among them; else one that is half past.
    fn due(&self) -> Option<Range<usize>> {
        let sizes: Vec<u32> = self
            .segments
            .iter()
            .map(|(_, of)| self.size(of.marks))
            .collect();
        let run = |first: usize| {
            let alike = sizes[first..]
                .iter()
                .take_while(|size| **size >= sizes[first]);
            let (count, largest) = alike.fold((0, 0), |(n, most), size| (n + 1, most.max(*size)));
            (count >= TIER || largest > sizes[first]).then_some(first..first + count)
        };
        let is_half_past = |segment: &Segment| {
            segment.marks > 0 && self.before.0 > segment.oldest.midpoint(segment.newest)
        };
        (0..sizes.len()).rev().find_map(run).or_else(|| {
            let at = self.segments.iter().position(|(_, of)| is_half_past(of))?;
            Some(at..at + 1)
        })
    }

    fn size(&self, marks: u64) -> u32 {
        let packs = marks / self.recent_max as u64;
        packs.max(1).ilog(TIER as u64)
    }

    fn begin_merge(&self, of: Range<usize>) -> io::Result<Merge> {
        let segments: Vec<Arc<Segment>> = self.segments[of.clone()]
            .iter()
            .map(|(_, segment)| Arc::clone(segment))
            .collect();
        let (path, before) = (self.dir.join(MERGING), self.before.0);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let gives_up = Arc::clone(&is_given_up);
        let merge = move || {
            let needed = merged(&segments).filter(|entry| match entry {
                Ok((_, value)) => charged_until(value) >= before,
                Err(_) => true,
            });
            let stops = || {
                gives_up
                    .load(Ordering::Relaxed)
                    .then_some(ErrorKind::Interrupted)
            };
            let at_most = segments.iter().map(|of| of.marks).sum();
            Segment::write(
                &path,
                at_most,
                needed.map(|entry| stops().map_or(entry, |kind| Err(kind.into()))),
            )
        };
        let thread = thread::Builder::new()
            .name("marks".to_owned())
            .spawn(merge)?;
        Ok(Merge {
            of,
            is_given_up,
            thread,
        })
    }

    /// Puts what a merge has made in the place of what it was made of.
    fn end_merge(&mut self) -> io::Result<()> {
        let Some(Merge { of, thread, .. }) = self.merge.take() else {
            return Ok(());
        };
        let merged = thread
            .join()
            .map_err(|_| io::Error::other("a merge panicked"))?;
        let mut merged = merged?;
        let replaced = &self.segments[of.clone()];
        let changes = replaced[0].0.start..replaced[replaced.len() - 1].0.end;
        let path = self.path_of(&changes);
        merged.rename(path.clone())?;
        sync_names(&self.dir)?;
        let made = (changes, Arc::new(merged));
        for (_, segment) in self.segments.splice(of, [made]) {
            // One that was written anew has the name that it had.
            if segment.path() != path {
                fs::remove_file(segment.path())?;
            }
        }
        Ok(())
    }

    /// Of all jobs that have a mark.
    #[cfg(test)]
    pub(super) fn keys(&self) -> std::collections::BTreeSet<Key> {
        let packed = self.segments.iter().flat_map(|(_, of)| of.entries());
        let packed = packed.map(|entry| entry.expect("is not damaged").0);
        packed.chain(self.recent.marks.keys().copied()).collect()
    }

    fn path_of(&self, changes: &Range<u64>) -> PathBuf {
        self.dir
            .join(format!("jobs.{}-{}", changes.start, changes.end))
    }
}

impl Drop for Jobs {
    /// No thread writes in a folder that somebody else may open.
    fn drop(&mut self) {
        if let Some(merge) = self.merge.take() {
            merge.is_given_up.store(true, Ordering::Relaxed);
            let _ = merge.thread.join();
        }
    }
}

/// Marks of several segments, the oldest first, in the order of their keys; of a key the one in the last.
fn merged(segments: &[Arc<Segment>]) -> impl Iterator<Item = io::Result<Entry>> + '_ {
    let mut sources: Vec<_> = segments.iter().map(|of| of.entries().peekable()).collect();
    std::iter::from_fn(move || {
        // An error comes before all keys.
        let heads = sources.iter_mut().filter_map(|of| of.peek());
        let least = heads
            .map(|head| head.as_ref().map_or(None, |(key, _)| Some(*key)))
            .min()?;
        let next = |of: &mut std::iter::Peekable<_>| {
            of.next_if(|head: &io::Result<Entry>| match head {
                Ok((key, _)) => Some(*key) == least,
                Err(_) => least.is_none(),
            })
        };
        sources.iter_mut().filter_map(next).last()
    })
}

/// The changes whose marks a segment of that name has.
fn range_of(name: &str) -> Option<Range<u64>> {
    let (start, end) = name.strip_prefix("jobs.")?.split_once('-')?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

/// Up to when a job is charged, milliseconds since 1970.
fn charged_until(value: &Value) -> u64 {
    u64::from_be_bytes(*value.first_chunk().expect("it begins with that"))
}

fn parse(entry: &[u8; ENTRY_BYTES]) -> Entry {
    let (key, value) = entry.split_first_chunk().expect("an entry begins with one");
    (*key, value.try_into().expect("and ends with one"))
}

fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof
    )
}
