//! Why a record was refused.
//!
//! Invariant: every error names its line, and an error about a value names the field; what it
//! quotes of the input is escaped and short, so that a hostile file cannot write to a terminal.
//!
//! Deliberately not here: why a well-formed record is not charged (that is [`crate::Skip`]).

use std::io;

use crate::lines::RECORD_BYTES_MAX;

/// Most characters quoted of a bad value: enough to find it by.
const QUOTED_CHARS_MAX: usize = 40;

/// A line (or a record of several) that could not be read. The reader has moved past it; the input
/// is at fault, and what follows can still be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RecordError {
    /// Counted from 1; of a record of several lines, the first.
    pub line: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What can be wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Longer than [`RECORD_BYTES_MAX`]; nothing of it was kept.
    #[error("a line or record of more than {RECORD_BYTES_MAX} bytes (RECORD_BYTES_MAX)")]
    TooLong,
    /// A field is there, and is not what it should be.
    #[error("{field} is `{value}`: {expected} is expected")]
    Field {
        /// Its name in the format.
        field: String,
        /// Its value, cut short.
        value: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// A field that cannot be done without is missing or empty.
    #[error("{0} is missing")]
    Missing(String),
    /// The line has another shape than the format's.
    #[error("{0}")]
    Shape(String),
    /// The state is no word that the format knows.
    #[error("the state `{0}` is not known")]
    UnknownState(String),
    /// It ends before it starts.
    #[error("the job ends before it starts")]
    Backwards,
    /// The line stands where the columns are not known yet.
    #[error("the columns are not known: there was no header line, and none were given")]
    NoColumns,
    /// The input itself failed; there is nothing more.
    #[error("the input failed: {0}")]
    Input(#[from] io::Error),
}

impl Reason {
    /// The error about a value.
    pub(crate) fn field(field: &str, value: &str, expected: &'static str) -> Self {
        Self::Field {
            field: quoted(field),
            value: quoted(value),
            expected,
        }
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::Missing(quoted(field))
    }
}

/// What a library says of the input, which it may quote: safe to print.
pub(crate) fn quoted_line(text: &str) -> String {
    text.chars()
        .take(200)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// A piece of the input that is safe to print.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
