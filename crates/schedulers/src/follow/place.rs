//! A place in a file that may be renamed, copied, emptied or replaced meanwhile.
//!
//! Invariant: a place fits a file only if that has the same first bytes, and the same last bytes before the place, as
//! the file in which the place was taken. The inode alone is no proof: the file system reuses it. Deliberately not
//! here: reading.

use std::cmp::Reverse;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairmesh_records::Cursor as Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::packing::Packing;

/// Bytes by which a file is recognised: some lines with times and job ids in them.
const BEGINNING_BYTES: u64 = 1_024;

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// In a folder of logs, the file's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which file, whatever its name.
    pub inode: u64,
    /// How far the file was read.
    pub position: Position,
    /// How the file begins, as far as it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beginning: Option<Excerpt>,
    /// The last bytes before the position, if they are beyond the beginning. They differ in a file that was rewritten
    /// with the same header (`sacct > file`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Excerpt>,
    /// When the rotated logs before this one were last written to; an earlier release did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Vec<Written>>,
    /// In a folder, the positions in the last of the other logs: some grow later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<FilePosition>,
}

/// When a file was last written to, in seconds and nanoseconds. Renaming and packing keep it.
pub type Written = (i64, i64);

/// Some bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// Bytes of the file before the excerpt.
    #[serde(default)]
    pub from: u64,
    /// Bytes of the excerpt.
    pub bytes: u64,
    /// SHA-256 of the excerpt, in hexadecimal.
    pub sha256: String,
}

impl FilePosition {
    /// The beginning of a log: the logs that were rotated before it were last written to at these times.
    pub(super) fn at_start(inode: u64, earlier: Vec<Written>) -> Self {
        Self {
            inode,
            earlier: Some(earlier),
            ..Self::default()
        }
    }

    /// The place in `file`, which was read up to `position`.
    pub(super) fn new(file: &mut File, inode: u64, position: Position) -> io::Result<Self> {
        let bytes = position.bytes.min(BEGINNING_BYTES);
        let beginning = hash(file, 0, bytes)?;
        let last = match position.bytes - bytes {
            0 => None,
            from => hash(file, from, bytes)?,
        };
        Ok(Self {
            inode,
            position,
            beginning: beginning.filter(|_| bytes > 0),
            last,
            ..Self::default()
        })
    }

    /// Whether this is a place in `file`.
    pub(super) fn fits(&self, file: &mut File) -> io::Result<bool> {
        if file.metadata()?.len() < self.position.bytes {
            return Ok(false);
        }
        for part in [&self.beginning, &self.last].into_iter().flatten() {
            if hash(file, part.from, part.bytes)?.as_ref() != Some(part) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The file beside `path` in which this is a place, which is where logs are rotated to: renamed,
    /// or copied before `path` was emptied. With what its folder says of it.
    pub(super) fn find_beside(&self, path: &Path) -> Option<(File, Metadata)> {
        let mut copy = None;
        for (kin, metadata) in kin(path, is_log_name) {
            let Ok(mut file) = File::open(kin) else {
                continue;
            };
            if !self.fits(&mut file).unwrap_or(false) {
                continue;
            }
            if metadata.ino() == self.inode {
                return Some((file, metadata));
            }
            // Without a beginning to compare any file would do for a copy.
            if self.beginning.is_some() {
                copy = Some((file, metadata));
            }
        }
        copy.or_else(|| self.find_packed(path))
    }

    /// The same among files that were packed when they were rotated.
    fn find_packed(&self, path: &Path) -> Option<(File, Metadata)> {
        let beginning = self.beginning.as_ref()?;
        let mut packed = kin(path, is_packed_name);
        packed.sort_unstable_by_key(|(_, metadata)| Reverse(written(metadata)));
        packed.into_iter().find_map(|(kin, metadata)| {
            // Most are other days' logs.
            let begins = unpacked(&kin, Some(beginning.bytes)).and_then(|mut file| {
                Ok(hash(&mut file, 0, beginning.bytes)?.as_ref() == Some(beginning))
            });
            begins.ok().filter(|begins| *begins)?;
            let mut file = unpacked(&kin, None).ok()?;
            let fits = self.fits(&mut file).unwrap_or(false);
            fits.then_some((file, metadata))
        })
    }
}

/// When each rotated log of `path` was last written to.
pub(super) fn written_beside(path: &Path) -> Vec<Written> {
    let rotated = kin(path, is_rotated_name).into_iter();
    let mut all: Vec<Written> = rotated.map(|(_, metadata)| written(&metadata)).collect();
    all.sort_unstable();
    all
}

/// The rotated log of `path` that was first written to, without those that are known as earlier. The times only put the
/// logs in an order, and each is read: a clock that is set back makes a later log older than an earlier one.
pub(super) fn next_beside(path: &Path, earlier: &[Written]) -> Option<(File, Metadata)> {
    let newest = fs::metadata(path).map_or(0, |metadata| metadata.ino());
    let mut later = kin(path, is_rotated_name);
    later.retain(|(_, metadata)| metadata.ino() != newest && !earlier.contains(&written(metadata)));
    later.sort_unstable_by_key(|(_, metadata)| written(metadata));
    // A file that is being packed cannot be unpacked yet; its original is still there.
    let mut later = later.into_iter();
    later.find_map(|(rotated, metadata)| Some((unpacked(&rotated, None).ok()?, metadata)))
}

pub(super) fn written(metadata: &Metadata) -> Written {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// A file as it is inside, or the first bytes of that.
pub(super) fn unpacked(path: &Path, most: Option<u64>) -> io::Result<File> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    file.by_ref().take(8).read_to_end(&mut head)?;
    file.rewind()?;
    let Some(packing) = Packing::of(&head) else {
        return Ok(file);
    };
    let inside = packing.unpack(BufReader::new(file))?;
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut inside.take(most.unwrap_or(u64::MAX)), &mut copy)?;
    Ok(copy)
}

/// Whether a file of this name may be a log: not packed, not hidden, and none of our own.
pub(super) fn is_log_name(name: &str) -> bool {
    let ends = [".rejects", ".fairmesh-cursor", ".new"];
    let is_other = ends.iter().any(|end| name.ends_with(end));
    !name.starts_with('.') && !is_other && !is_packed_name(name)
}

fn is_packed_name(name: &str) -> bool {
    stem(name).is_some()
}

/// The name of a packed file without its ending.
pub(super) fn stem(name: &str) -> Option<&str> {
    let mut ends = Packing::ENDS.iter();
    ends.find_map(|end| name.strip_suffix(end))
}

fn is_rotated_name(name: &str) -> bool {
    is_log_name(name) || is_packed_name(name)
}

/// The logs beside `path` whose names begin with its own.
fn kin(path: &Path, is_log: impl Fn(&str) -> bool) -> Vec<(PathBuf, Metadata)> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Ok(entries) = fs::read_dir(folder.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    let is_kin = |entry: &fs::DirEntry| {
        let other = entry.file_name().to_string_lossy().into_owned();
        other.starts_with(&*name) && other != name && is_log(&other)
    };
    let kin = entries.flatten().filter(is_kin);
    let kin = kin.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    kin.filter(|(_, metadata)| metadata.is_file()).collect()
}

/// The hash of some bytes from a position on; `None` for a file that has not as many.
fn hash(file: &mut File, from: u64, bytes: u64) -> io::Result<Option<Excerpt>> {
    file.seek(SeekFrom::Start(from))?;
    let mut found = Vec::new();
    file.by_ref().take(bytes).read_to_end(&mut found)?;
    if found.len() as u64 != bytes {
        return Ok(None);
    }
    let digest = Sha256::digest(&found);
    let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Excerpt {
        from,
        bytes,
        sha256,
    }))
}
