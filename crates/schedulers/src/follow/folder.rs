//! A folder of logs, such as PBS's with one for each day, that is followed in the order of the names.
//!
//! Invariant: each log is read to its end before the next one, and the last few are read again if they grow. The
//! clock only decides which logs count: when it is set back and forth, the reader returns to the positions that it
//! had.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairmesh_model::{Millis, WallTime};

use super::place::{FilePosition, is_log_name, stem, unpacked};
use super::{Portion, Reader};

/// Other logs whose growth is read.
const LEFT_MAX: usize = 7;

/// The files of a folder at one time, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The logs; if some names are days, only these.
    pub logs: BTreeSet<String>,
    /// Files in the folder that are not records.
    pub strays: BTreeSet<String>,
    /// Logs of days that were packed, by day.
    packed: BTreeMap<String, String>,
}

impl Listing {
    /// Lists a folder. Logs of days to come do not count.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn new(folder: &Path, now: WallTime) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let day = stem(&name).filter(|day| is_day(day) && !is_ahead(day, now));
            if let Some(day) = day {
                listing.packed.insert(day.to_owned(), name);
            } else if is_log_name(&name) && !is_ahead(&name, now) && entry.path().is_file() {
                listing.logs.insert(name);
            }
        }
        if listing.logs.iter().any(|name| is_day(name)) {
            (listing.logs, listing.strays) =
                listing.logs.into_iter().partition(|name| is_day(name));
        }
        Ok(listing)
    }

    /// The log that was followed, if it is there, and those after it: also packed ones, which came and went meanwhile.
    fn from<'a>(&'a self, at: Option<&'a str>) -> BTreeSet<&'a str> {
        let packed = self.packed.keys().filter(|_| at.is_some());
        let all = self.logs.iter().chain(packed).map(String::as_str);
        all.filter(|name| at.is_none_or(|at| *name >= at)).collect()
    }

    /// Opens a log under its own name, or packed if it has no other; with its inode.
    fn open(&self, folder: &Path, name: &str) -> io::Result<(File, u64)> {
        let path = folder.join(name);
        let log = match self.packed.get(name).filter(|_| !path.exists()) {
            Some(packed) => unpacked(&folder.join(packed), None)?,
            None => File::open(path)?,
        };
        let inode = log.metadata()?.ino();
        Ok((log, inode))
    }
}

/// Whether a log is named by a day (`20260101`) that has not come anywhere on Earth. A server whose clock was wrong may
/// have begun one, and continues in those of the right days.
pub(super) fn is_ahead(name: &str, now: WallTime) -> bool {
    let tomorrow = now.after(Millis::from_secs(86_400)).0;
    let tomorrow = jiff::Timestamp::from_millisecond(tomorrow.try_into().unwrap_or(i64::MAX));
    let tomorrow = tomorrow.unwrap_or(jiff::Timestamp::MAX).strftime("%Y%m%d");
    is_day(name) && *name > *tomorrow.to_string()
}

/// Whether a name is that of a day.
pub fn is_day(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|it| it.is_ascii_digit())
}

impl Reader<'_> {
    /// Reads on in a folder of logs. Without `from` it starts with the log of the lowest name.
    ///
    /// # Errors
    /// If a log cannot be read. Nothing is lost by trying again.
    pub fn read_folder(
        self,
        folder: &Path,
        listing: &Listing,
        from: Option<&FilePosition>,
    ) -> io::Result<Portion> {
        let mut place = from.cloned().unwrap_or_default();
        let mut left = std::mem::take(&mut place.left);
        let mut lost = leave_other_day(folder, listing, &mut place, &mut left);
        if let Some(mut read) = read_growth(folder, listing, &mut left, self)? {
            read.next = FilePosition { left, ..place };
            read.lost = lost;
            return Ok(read);
        }
        let at = place.name.clone();
        let mut names = listing.from(at.as_deref()).into_iter();
        let Some(name) = names.next() else {
            let next = FilePosition { left, ..place };
            return Ok(Portion {
                next,
                ..Portion::default()
            });
        };
        if let Some(at) = at.as_deref().filter(|at| *at != name) {
            let path = folder.join(at);
            tracing::warn!(
                "{} has gone; lines of it that were not read are lost unless `fairmesh report` reads a copy of it",
                path.display()
            );
            (place, lost) = (FilePosition::default(), Some(path));
        }
        let mut read = match listing.logs.contains(name) {
            true => self.read(&folder.join(name), Some(&place))?,
            false => {
                let (mut log, inode) = listing.open(folder, name)?;
                if !place.fits(&mut log)? {
                    (place, lost) = (FilePosition::default(), Some(folder.join(name)));
                }
                self.portion(&mut log, FilePosition { inode, ..place })?
            }
        };
        read.lost = lost.or(read.lost);
        read.start.name = Some(name.to_owned());
        read.next.name.clone_from(&read.start.name);
        if let Some(later) = names.next().filter(|_| !read.more) {
            let later = take_position(&mut left, later);
            leave(&mut left, std::mem::replace(&mut read.next, later));
            read.more = true;
        }
        read.next.left = left;
        Ok(read)
    }
}

/// Leaves a log of a day to come: the clock was ahead when it began, or is behind now. Returns it if logs before it
/// may not have been read.
fn leave_other_day(
    folder: &Path,
    listing: &Listing,
    place: &mut FilePosition,
    left: &mut Vec<FilePosition>,
) -> Option<PathBuf> {
    let at = place.name.clone().unwrap_or_default();
    let path = folder.join(&at);
    if listing.logs.contains(&at) || !path.is_file() {
        return None;
    }
    let before = left
        .iter()
        .filter_map(|place| listing.logs.get(place.name.as_deref()?));
    let known = before.max().cloned();
    // An earlier release followed any file.
    let name = match is_day(&at) {
        true => known.as_ref().or(listing.logs.last()),
        false => listing.logs.first(),
    };
    let name = name?.clone();
    tracing::warn!(
        "{} is not the log of a day that has come: continues with {name}",
        path.display()
    );
    let next = take_position(left, &name);
    let is_day = is_day(&at);
    let at = std::mem::replace(place, next);
    if is_day {
        leave(left, at);
    }
    (is_day && known.is_none()).then_some(path)
}

/// Stores the position in a log that is not followed now, for its growth.
fn leave(left: &mut Vec<FilePosition>, place: FilePosition) {
    left.push(FilePosition {
        earlier: None,
        left: Vec::new(),
        ..place
    });
    left.drain(..left.len().saturating_sub(LEFT_MAX));
}

/// Takes the position in a log that was followed before, else that at its beginning.
fn take_position(left: &mut Vec<FilePosition>, name: &str) -> FilePosition {
    let known = left
        .iter()
        .position(|place| place.name.as_deref() == Some(name));
    known
        .map(|index| left.remove(index))
        .unwrap_or_else(|| FilePosition {
            name: Some(name.to_owned()),
            ..FilePosition::default()
        })
}

/// What was added to one of the other logs. Its position moves past that.
fn read_growth(
    folder: &Path,
    listing: &Listing,
    left: &mut Vec<FilePosition>,
    reader: Reader<'_>,
) -> io::Result<Option<Portion>> {
    let mut index = 0;
    while let Some(place) = left.get_mut(index) {
        let name = place.name.clone().unwrap_or_default();
        index += 1;
        let Ok((mut log, inode)) = listing.open(folder, &name) else {
            continue;
        };
        let fits = place.fits(&mut log)?;
        if !fits || log.metadata()?.len() > place.position.bytes {
            // What has replaced a log is read as a whole: nothing counts twice.
            let mut start = match fits {
                true => place.clone(),
                false => FilePosition::default(),
            };
            (start.name, start.inode) = (Some(name.clone()), inode);
            let mut read = reader.portion(&mut log, start)?;
            read.next.name.clone_from(&read.start.name);
            place.clone_from(&read.next);
            if !read.is_empty() {
                read.more = true;
                return Ok(Some(read));
            }
        }
        // A log that was packed grows no more.
        if !folder.join(name).exists() {
            index -= 1;
            left.remove(index);
        }
    }
    Ok(None)
}
