//! A place in a file that may be renamed, copied, emptied or replaced meanwhile.
//!
//! Invariant: a place fits a file only if that begins as the file began in which the place was taken,
//! so a number that the file system gave to another file is no proof. Deliberately not here: reading.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fairmesh_records::Cursor as Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes by which a file is recognised: some lines with times and job ids in them.
const BEGINNING_BYTES: u64 = 1_024;

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// Which file, whatever its name.
    pub inode: u64,
    /// How far.
    pub position: Position,
    /// How the file begins, as far as it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beginning: Option<Beginning>,
}

/// How a file begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// So many bytes.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: String,
}

impl FilePosition {
    /// The place in `file`, which was read up to `position`.
    pub(super) fn of(file: &mut File, inode: u64, position: Position) -> io::Result<Self> {
        let bytes = position.bytes.min(BEGINNING_BYTES);
        let beginning = hash(file, bytes)?;
        Ok(Self {
            inode,
            position,
            beginning: beginning.filter(|_| bytes > 0),
        })
    }

    /// Whether this is a place in `file`.
    pub(super) fn fits(&self, file: &mut File) -> io::Result<bool> {
        if file.metadata()?.len() < self.position.bytes {
            return Ok(false);
        }
        match &self.beginning {
            None => Ok(true),
            Some(beginning) => Ok(hash(file, beginning.bytes)?.as_ref() == Some(beginning)),
        }
    }

    /// The file beside `path` in which this is a place, which is where logs are rotated to: renamed,
    /// or copied before `path` was emptied. With its number.
    pub(super) fn find_beside(&self, path: &Path) -> Option<(File, u64)> {
        let folder = path.parent()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let mut copy = None;
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let kin = entry.file_name().to_string_lossy().into_owned();
            if !kin.starts_with(&name) || kin == name {
                continue;
            }
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let candidate = || File::open(entry.path()).ok().filter(|_| metadata.is_file());
            let Some(mut file) = candidate() else {
                continue;
            };
            if !self.fits(&mut file).unwrap_or(false) {
                continue;
            }
            if metadata.ino() == self.inode {
                return Some((file, self.inode));
            }
            // Without a beginning to compare any file would do for a copy.
            if self.beginning.is_some() {
                copy = Some((file, metadata.ino()));
            }
        }
        copy
    }
}

/// The hash of the first bytes; `None` for a file that has not as many.
fn hash(file: &mut File, bytes: u64) -> io::Result<Option<Beginning>> {
    file.seek(SeekFrom::Start(0))?;
    let mut beginning = Vec::new();
    file.by_ref().take(bytes).read_to_end(&mut beginning)?;
    if beginning.len() as u64 != bytes {
        return Ok(None);
    }
    let digest = Sha256::digest(&beginning);
    let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Beginning { bytes, sha256 }))
}
