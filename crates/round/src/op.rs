//! Operations on a disk, by value.
//!
//! They are carried out in order. After one that fails nothing more is done: the node stops. Written bytes are
//! durable after the [`Op::Sync`] of their file, names after [`Op::SyncNames`], and an [`Op::Apply`] is durable as a
//! whole when it ends. Of everything else a crash leaves any prefix.

use std::borrow::Cow;

use fairmesh_site::{Effect, Write};

/// A file of the data folder, by its name there.
pub type FileName = Cow<'static, str>;

/// The journal that rounds are appended to.
pub const JOURNAL: FileName = Cow::Borrowed("site.journal");
/// The journal before the last rotation. Both journals are one log, this one first.
pub const JOURNAL_OLD: FileName = Cow::Borrowed("site.journal.old");
/// The next journal until it is renamed. A crash may leave one; [`tidy`](crate::tidy) finishes or removes it.
pub const JOURNAL_NEW: FileName = Cow::Borrowed("site.journal.new");
/// The file with the incarnation floor and the site's id, which must survive the loss of the store.
pub const SIDE: FileName = Cow::Borrowed("site.state");
/// The next `site.state` until it is renamed.
pub const SIDE_NEW: FileName = Cow::Borrowed("site.state.new");

/// One operation on a file, on the folder's names, or on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates an empty file; an existing one is emptied.
    Create(FileName),
    /// Appends `bytes` to a file. A crash may leave any prefix of them, or zeros.
    Write {
        /// Name in the data folder.
        file: FileName,
        /// Offset in bytes: always the file's length.
        at: u64,
        /// One or more whole frames, or a whole file.
        bytes: Vec<u8>,
    },
    /// Makes all bytes written to a file durable, but not its name.
    Sync(FileName),
    /// Renames a file atomically; a file with the new name is replaced.
    Rename {
        /// The old name.
        from: FileName,
        /// The new name.
        to: FileName,
    },
    /// Copies a file for the operator, if it exists. No invariant needs the copy, so a failure is not fatal.
    Copy {
        /// Name of the file to copy.
        from: FileName,
        /// Name of the copy.
        to: FileName,
    },
    /// Removes a file if it exists.
    Remove(FileName),
    /// Makes creations, renames and removals in the data folder durable.
    SyncNames,
    /// Applies rows to the store as one atomic change, durable when this ends.
    Apply {
        /// Number of the change, above that of every earlier one: the last round whose rows it contains.
        number: u64,
        /// The rows; a later row of one key replaces an earlier one.
        writes: Vec<Write>,
    },
}

/// One step of a round, to be carried out before the next.
#[derive(Debug)]
pub enum Step {
    /// An operation on the disk.
    Disk(Op),
    /// An effect that leaves the node, or a reply. Never a `Persist`: those have become operations.
    Do(Effect),
}

/// The name under which a damaged file is kept: with the Unix time in seconds, so that a second one does not replace
/// it.
pub(crate) fn aside(file: &FileName, seconds: u64) -> FileName {
    format!("{file}.damaged-{seconds}").into()
}
