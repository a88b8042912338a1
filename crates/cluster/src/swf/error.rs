//! Why a line of a job log was refused.
//!
//! Invariant: every error names its line, and every error about a value names its column by number
//! and by meaning; what it quotes of the input is escaped and short.
//!
//! Deliberately not here: why a well-formed job is of no use (that is `trace::SkipReason`).

use std::io;

use super::{SWF_COLUMN_NAMES, SWF_COLUMNS};

/// Most characters that an error quotes of a bad value: enough to find it by, and no more of a
/// hostile file reaches a terminal.
const QUOTED_CHARS_MAX: usize = 40;

/// A line that could not be read. The reader has moved past it; the input is at fault.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct SwfError {
    /// Line number in the file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub kind: SwfErrorKind,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum SwfErrorKind {
    /// Fewer than 18 columns.
    #[error(
        "only {found} of {SWF_COLUMNS} columns; column {column} ({name}) is the first to be missing",
        column = found + 1,
        name = SWF_COLUMN_NAMES[*found]
    )]
    TooFewColumns {
        /// How many there are.
        found: usize,
    },
    /// A value that is no number, or not one of the kind that the column holds.
    #[error("column {column} ({name}): {problem}: `{text}`", name = SWF_COLUMN_NAMES[*column - 1])]
    BadValue {
        /// Column number, from 1.
        column: usize,
        /// What is wrong with it.
        problem: &'static str,
        /// The value, escaped and cut.
        text: String,
    },
    /// `UnixStartTime` without a number of seconds.
    #[error("the header's UnixStartTime is not a number of seconds: `{text}`")]
    BadStartTime {
        /// The value, escaped and cut.
        text: String,
    },
    /// More bytes than [`SWF_LINE_BYTES_MAX`](super::SWF_LINE_BYTES_MAX).
    #[error("longer than {} bytes", super::SWF_LINE_BYTES_MAX)]
    LineTooLong,
    /// The input itself failed; nothing more can be read.
    #[error("the input failed: {0}")]
    Input(io::Error),
}

impl SwfErrorKind {
    pub(super) fn bad_value(column: usize, problem: &'static str, text: &[u8]) -> Self {
        Self::BadValue {
            column,
            problem,
            text: quoted(&String::from_utf8_lossy(text)),
        }
    }

    pub(super) fn bad_start_time(text: &str) -> Self {
        Self::BadStartTime { text: quoted(text) }
    }
}

fn quoted(text: &str) -> String {
    text.escape_debug().take(QUOTED_CHARS_MAX).collect()
}
