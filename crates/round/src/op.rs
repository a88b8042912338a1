//! What is done to a disk, by value.
//!
//! Operations are carried out in order, and none behind one that failed: then the node stops. What
//! was written is durable behind the [`Op::Sync`] of its file, and a name behind [`Op::SyncNames`];
//! an [`Op::Apply`] is durable, whole, when it is done. A crash leaves any first part of the rest.

use std::borrow::Cow;

use fairmesh_site::{Effect, Write};

/// A file of the data folder, by its name there.
pub type FileName = Cow<'static, str>;

/// The journal.
pub const JOURNAL: FileName = Cow::Borrowed("site.journal");
/// What the journal was before it was last begun anew.
pub const JOURNAL_OLD: FileName = Cow::Borrowed("site.journal.old");
/// The next journal, while it is made.
pub const JOURNAL_NEW: FileName = Cow::Borrowed("site.journal.new");
/// The small file that survives the store's loss.
pub const SIDE: FileName = Cow::Borrowed("site.state");
/// The next one, while it is made.
pub const SIDE_NEW: FileName = Cow::Borrowed("site.state.new");

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Makes an empty file, in the place of whatever has its name.
    Create(FileName),
    /// Puts `bytes` into a file, `at` bytes from its beginning.
    Write {
        /// The file.
        file: FileName,
        /// Where: at its end.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Makes all that was written to a file durable.
    Sync(FileName),
    /// Gives a file another name, in the place of whatever has that.
    Rename {
        /// Its name.
        from: FileName,
        /// Its next name.
        to: FileName,
    },
    /// Keeps a copy of a file, if there is one. Nothing rests on it.
    Copy {
        /// The file.
        from: FileName,
        /// The copy's name.
        to: FileName,
    },
    /// Removes a file, if there is one.
    Remove(FileName),
    /// Makes all names of the folder durable.
    SyncNames,
    /// Applies rows to the store as one change, which is durable when this is done.
    Apply {
        /// The number that the change gets, above that of any before it.
        number: u64,
        /// The rows; a later one replaces an earlier.
        writes: Vec<Write>,
    },
}

/// One step of a round.
#[derive(Debug)]
pub enum Step {
    /// On the disk.
    Disk(Op),
    /// To the world. Never a `Persist`: that has become operations.
    Do(Effect),
}

/// A file's other name.
pub(crate) fn aside(file: &FileName, seconds: u64) -> FileName {
    format!("{file}.damaged-{seconds}").into()
}
