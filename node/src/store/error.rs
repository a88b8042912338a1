//! What can go wrong with the store, and the way out.
//!
//! Invariant: no variant is returned for a write that was acknowledged.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{KEY_BYTES_MAX, Table, VALUE_BYTES_MAX};

/// A fault of the store, or a record that it cannot take.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the store. Nothing was touched.
    #[error(
        "{0} is in use: another node runs on it; stop that one, or give this one its own folder"
    )]
    Locked(PathBuf),
    /// The file system refused. Nothing was acknowledged.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The engine refused. Nothing was acknowledged.
    #[error("the store in {path} failed: {source}")]
    Engine {
        /// The data folder.
        path: PathBuf,
        /// The error of the store's engine.
        source: sled::Error,
    },
    /// An earlier write failed, so what is in memory may be ahead of the disk. Nothing is taken
    /// until the store is opened again.
    #[error(
        "the store in {0} failed earlier and takes no more: free its disk and start the node again"
    )]
    Failed(PathBuf),
    /// A record does not match its checksum: the disk changed it. It is not served.
    #[error(
        "record {} of table {table:?} is damaged and not used; other sites' records come again by \
         themselves, for this site's own put the store's folder aside and start the node again",
        Hex(key)
    )]
    Damaged {
        /// The table of the bad row.
        table: Table,
        /// The key of the bad row.
        key: Vec<u8>,
    },
    /// What was read from a copy, because the disk could not be written, can be written now.
    #[error("{0} may be written again: the node starts anew from it")]
    Writable(PathBuf),
    /// The first edition wrote the store. Nothing was touched.
    #[error("{}: {}", .0.display(), fairmesh_round::FIRST_EDITION)]
    FirstEdition(PathBuf),
    /// The journal cannot be read, and may have what the store has not. Nothing was touched.
    #[error(transparent)]
    Unopened(#[from] fairmesh_round::Unopened),
    /// What is to be kept of a job is no mark, or its key no hash: the caller's bug. Nothing was written.
    #[error("there is no mark of a job under the key {}", Hex(.0))]
    NoMark(Vec<u8>),
    /// The key is longer than [`KEY_BYTES_MAX`]: the caller's bug. Nothing was written.
    #[error("a key of {0} bytes is longer than {KEY_BYTES_MAX}")]
    KeyTooLong(usize),
    /// The value is longer than [`VALUE_BYTES_MAX`]: the caller's bug. Nothing was written.
    #[error("a value of {0} bytes is longer than {VALUE_BYTES_MAX}")]
    ValueTooLong(usize),
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
