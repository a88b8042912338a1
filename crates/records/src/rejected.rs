//! What was read of a record that is refused: all of it, as it stood there.
//!
//! Invariant: the lines of a record that is open are kept until it is complete, up to
//! [`RECORD_BYTES_MAX`] bytes (of a longer one nothing is), and each error has what it is about.
//! Records that are one line each are copied only when one is refused.

use std::collections::VecDeque;

use crate::lines::RECORD_BYTES_MAX;

/// Texts of refused records, on their way out beside their errors.
#[derive(Debug, Default)]
pub(crate) struct Rejected {
    /// Of the record that is open.
    open: Vec<u8>,
    too_long: bool,
    waiting: VecDeque<Vec<u8>>,
    last: Vec<u8>,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Errors that it gave, about what came before [`Self::begins_at`].
    pub(crate) errors_before: usize,
    /// Errors that it gave about what came from there on.
    pub(crate) errors: usize,
    /// Whether a new record begins in it, and what is open ends.
    pub(crate) begins: bool,
    /// Where in it that is.
    pub(crate) begins_at: usize,
    /// Whether a record is open behind it.
    pub(crate) open: bool,
}

impl Rejected {
    /// Takes a line with its end, if it has one of its own.
    pub(crate) fn take(&mut self, line: &[u8], end: &[u8], outcome: Outcome) {
        let (before, rest) = line.split_at(outcome.begins_at.min(line.len()));
        if outcome.begins || outcome.errors_before > 0 {
            self.add(before, b"");
            self.close(outcome.errors_before);
        }
        if outcome.open || outcome.errors > 0 {
            self.add(rest, end);
        }
        if !outcome.open {
            self.close(outcome.errors);
        } else if outcome.errors > 0 {
            self.hand_out(outcome.errors);
        }
    }

    /// The record that is open is refused, and so many others with it.
    pub(crate) fn close(&mut self, errors: usize) {
        self.hand_out(errors);
        self.open.clear();
        self.too_long = false;
    }

    fn hand_out(&mut self, errors: usize) {
        let text = self.open.strip_suffix(b"\n").unwrap_or(&self.open);
        let text = text.strip_prefix(b"\n").unwrap_or(text);
        for _ in 0..errors {
            self.waiting.push_back(text.to_vec());
        }
    }

    fn add(&mut self, text: &[u8], end: &[u8]) {
        self.too_long |= self.open.len() + text.len() + end.len() > RECORD_BYTES_MAX;
        if self.too_long {
            self.open = Vec::new();
        } else {
            self.open.extend_from_slice(text);
            self.open.extend_from_slice(end);
        }
    }

    /// An error is given out, and its text with it.
    pub(crate) fn next(&mut self) {
        self.last = self.waiting.pop_front().unwrap_or_default();
    }

    /// What the last error is about.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }
}
