//! The file of `jobcomp/filetxt`, followed while it grows and is rotated.
//!
//! Deliberately not here: following itself ([`crate::follow`]), keeping the position (`cursor`).

use std::io;
use std::path::Path;

use fairmesh_records::{BatchRecord, Format, Options};

use super::cursor::FilePosition;
use crate::follow;

/// What was read.
pub(super) struct Portion {
    /// The records.
    pub(super) records: Vec<BatchRecord>,
    /// Lines that made no sense, and why.
    pub(super) bad: Vec<String>,
    /// Where to go on.
    pub(super) next: FilePosition,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Reads up to `most` records on from `from`.
pub(super) fn read(
    path: &Path,
    from: Option<&FilePosition>,
    options: &Options,
    most: usize,
) -> io::Result<Portion> {
    let read = follow::read(path, from, Format::SlurmJobcomp, options, most)?;
    let bad = read.bad.into_iter();
    Ok(Portion {
        records: read.records,
        bad: bad
            .map(|bad| format!("line {}: {}", bad.line, bad.why))
            .collect(),
        next: read.next,
        more: read.more,
    })
}
