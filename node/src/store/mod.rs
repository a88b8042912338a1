//! The node's store: one sled tree, written in atomic, durable batches.
//!
//! Invariant: when [`Store::write`] returns, all of its writes survive a crash and a power loss, or
//! (on an error) none was acknowledged and the store takes no more. What [`Store::get`] and
//! [`Store::scan`] serve passed a checksum of ours; what did not is reported and counted. One
//! process at a time holds a store.
//!
//! sled 0.34.7 is behind `engine`, which covers its known faults; `recovery` opens a folder in whatever state a crash
//! left it; `tally` and `mark` notice what sled has lost; `record` is the form of keys and values. Marks of jobs,
//! which are many and small, are beside it in `jobs`. `data_dir` is the folder around it, with the small files that
//! survive the store's loss. To change the engine, replace `engine`, `recovery` and `tally`.
//!
//! Deliberately not here: what the records mean, what the files beside the store hold and in which
//! order all is written (`fairmesh-round`). All calls block; call them from a thread that may.

mod copy;
mod data_dir;
mod engine;
mod error;
mod jobs;
mod mark;
mod record;
mod recovery;
mod room;
mod tally;

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use fairmesh_round::FileName;

pub use data_dir::{DataDir, Files};
pub use engine::Store;
pub use error::StoreError;
pub use fairmesh_site::{Table, Write};
pub use recovery::Recovery;
pub use room::{Ballast, Filling, Room};

/// Longest key of a record. sled writes an index page of more than 128 KiB as a file of its own,
/// which it never syncs; a page holds up to some 320 keys. Longer names go in as a hash.
pub const KEY_BYTES_MAX: usize = 320;

/// Longest value of a record. Bounds the memory of one read; the largest documents (share
/// policies) stay below 3 MiB, parts of heads are at most 64 KiB.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The folder of the store in the data folder.
const STORE: FileName = Cow::Borrowed("store");

/// Makes new, renamed and removed names in `dir` durable.
fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The bytes of all files below a folder.
fn bytes_below(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file may have been removed since it was listed.
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
