//! A data folder on a disk that nobody may write, read from a copy elsewhere: sled writes when it is opened.
//!
//! Invariant: nothing that is written to a copy counts as written, so nothing is acknowledged, signed or let out that
//! rests on it (`DataDir::carry_out`). It goes with the node.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fairmesh_round::{FileName, JOURNAL, JOURNAL_OLD, SIDE};

use super::recovery::io_error;
use super::{Room, StoreError};
use super::{STORE, bytes_below};

/// A copy is made where it leaves as much room again: sockets, and more of memory, may be there.
const ROOM_TIMES: u64 = 2;

/// What is copied beside the store.
const FILES: [FileName; 3] = [SIDE, JOURNAL, JOURNAL_OLD];

/// Where a copy is, and of what.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) of: PathBuf,
    pub(super) at: PathBuf,
}

impl Copy {
    /// Copies what a start reads of the folder `of` into a folder of its own in `place`.
    pub(super) fn make(of: &Path, place: &Path) -> Result<Self, StoreError> {
        let at = place.join(".fairmesh-copy");
        // Of a node that was killed.
        let _ = fs::remove_dir_all(&at);
        let copy = Self {
            of: of.to_owned(),
            at,
        };
        let at = &copy.at;
        let room = Room::of(place).map_err(io_error("looking at", place))?;
        let store = of.join(STORE.as_ref());
        let mut bytes = bytes_below(&store).map_err(io_error("reading", &store))?;
        for name in FILES {
            bytes += fs::metadata(of.join(name.as_ref())).map_or(0, |file| file.len());
        }
        if room.is_read_only || room.free < bytes.saturating_mul(ROOM_TIMES) {
            let error = std::io::Error::from(rustix::io::Errno::NOSPC);
            return Err(io_error("copying the data folder to", at)(error));
        }
        let store = at.join(STORE.as_ref());
        let mut folders = fs::DirBuilder::new();
        let made = folders
            .mode(0o700)
            .create(at)
            .and_then(|()| folders.create(&store));
        made.map_err(io_error("making", &store))?;
        for name in FILES {
            let from = of.join(name.as_ref());
            if from.exists() {
                fs::copy(&from, at.join(name.as_ref())).map_err(io_error("copying", &from))?;
            }
        }
        copy_all(&of.join(STORE.as_ref()), &store)?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.at) {
            tracing::warn!(folder = %self.at.display(), %error, "a copy of the data folder stays behind");
        }
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(from).map_err(io_error("reading", from))? {
        let entry = entry.map_err(io_error("reading", from))?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir(&to).map_err(io_error("making", &to))?;
            copy_all(&path, &to)?;
        } else {
            fs::copy(&path, &to).map_err(io_error("copying", &path))?;
        }
    }
    Ok(())
}
