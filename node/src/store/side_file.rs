//! The small file beside the store that must survive the store's loss.
//!
//! It is 32 bytes of SHA-256 and the canonical CBOR that they are of.
//!
//! Invariant: at any moment the file holds one state whole, the old or the new: it is written under
//! another name, synced, renamed, and the folder synced. [`SideFile::save`] returns behind that.
//!
//! Deliberately not here: choosing an incarnation. The floor only says what may have been used.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::{ContentHash, Incarnation};
use serde::{Deserialize, Serialize};

use super::recovery::{parent_of, sync_dir, with_suffix};

/// The newest form of the store that this release reads. A file of a newer one is refused.
pub const SIDE_FORMAT_MAX: u32 = 1;

/// Longest side file. It holds a few numbers; more is not ours.
const SIDE_BYTES_MAX: usize = 4096;

const SUM_BYTES: usize = 32;

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideState {
    /// The form of the store's records.
    pub format: u32,
    /// No incarnation below this one is ever to be taken again.
    pub incarnation_floor: Incarnation,
}

/// Why the file was not read or written. On disk it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SideFileError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The content does not match its checksum.
    #[error(
        "{0} is damaged: put it aside and start the node again; it will then take an incarnation \
         above all that its peers know of"
    )]
    Damaged(PathBuf),
    /// The content is whole, but not what this release writes.
    #[error("{path} is not understood: {source}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CborError,
    },
    /// A newer release wrote it.
    #[error("{path} is of format {format}, and this release knows {SIDE_FORMAT_MAX} at most")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
}

/// Where the file is.
#[derive(Debug, Clone)]
pub struct SideFile {
    path: PathBuf,
}

impl SideFile {
    /// The file at `path`, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// What was saved last; `None` if nothing ever was.
    pub fn load(&self) -> Result<Option<SideState>, SideFileError> {
        let mut bytes = Vec::new();
        let limit = SIDE_BYTES_MAX as u64 + 1;
        match File::open(&self.path) {
            Ok(file) => file.take(limit).read_to_end(&mut bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        }
        .map_err(|source| self.io(source))?;
        let content = match bytes.split_first_chunk::<SUM_BYTES>() {
            Some((sum, content)) if sum == ContentHash::of(content).as_bytes() => content,
            _ => return Err(SideFileError::Damaged(self.path.clone())),
        };
        let content_error = |source| SideFileError::Content {
            path: self.path.clone(),
            source,
        };
        let state: SideState = cbor::from_slice(content, SIDE_BYTES_MAX).map_err(content_error)?;
        if state.format > SIDE_FORMAT_MAX {
            return Err(SideFileError::Newer {
                path: self.path.clone(),
                format: state.format,
            });
        }
        Ok(Some(state))
    }

    /// Puts `state` in the place of what was there; it is on disk when this returns.
    pub fn save(&self, state: &SideState) -> Result<(), SideFileError> {
        let content = cbor::to_vec(state);
        let bytes = [ContentHash::of(&content).as_bytes(), content.as_slice()].concat();
        let temporary = with_suffix(&self.path, ".new");
        write_synced(&temporary, &bytes)
            .and_then(|()| fs::rename(&temporary, &self.path))
            .map_err(|source| self.io(source))?;
        sync_dir(&parent_of(&self.path)).map_err(|error| self.io(io::Error::other(error)))
    }

    fn io(&self, source: io::Error) -> SideFileError {
        SideFileError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
