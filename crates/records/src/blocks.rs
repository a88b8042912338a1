//! Records of several lines, of bounded size.
//!
//! Invariant: a record that is no record costs itself alone, and one that is too long costs no more memory than
//! [`RECORD_BYTES_MAX`].

use crate::error::Reason;
use crate::lines::RECORD_BYTES_MAX;
use crate::parser::{Found, Ignored, Parser};
use crate::record::BatchRecord;

/// What a line is to a record.
pub(crate) enum Place {
    Begins,
    /// One of its lines; the first, where none has begun.
    Inside,
    /// One of its lines, of which nothing is kept.
    Skipped,
    /// None of its lines, but it ends there.
    Ends,
    /// Nothing of any record.
    Outside,
}

/// A format whose records are lines between others that end them or begin the next.
pub(crate) trait BlockFormat: Send {
    fn place(&self, line: &str) -> Place;

    /// Whether a line that was too long costs itself alone, within a record.
    fn passes_long_lines(&self) -> bool {
        false
    }

    fn record(&self, text: &str) -> Result<BatchRecord, Reason>;
}

pub(crate) struct Blocks<F> {
    format: F,
    /// Whether the last record may still be growing, and is left alone.
    growing: bool,
    gathered: Gathered,
}

impl<F: BlockFormat> Blocks<F> {
    pub(crate) fn of(growing: bool, format: F) -> Self {
        let gathered = Gathered::default();
        Self {
            format,
            growing,
            gathered,
        }
    }

    fn finish(&mut self, found: &mut Found) {
        let (first, text) = self.gathered.take();
        found.record(first, text.and_then(|text| self.format.record(&text)));
    }
}

impl<F: BlockFormat> Parser for Blocks<F> {
    fn line(&mut self, line: &str, number: u64, found: &mut Found) {
        match (self.format.place(line), self.gathered.is_empty()) {
            (Place::Outside, _) | (Place::Ends, true) => found.ignore(Ignored::Decoration),
            (Place::Ends, false) => self.finish(found),
            (Place::Begins, false) => {
                self.finish(found);
                found.begin("");
                self.gathered.push(line, number);
            }
            (Place::Begins, true) | (Place::Inside, _) => self.gathered.push(line, number),
            (Place::Skipped, _) => self.gathered.begin(number),
        }
    }

    fn end(&mut self, _number: u64, found: &mut Found) {
        if !self.gathered.is_empty() && !self.growing {
            self.finish(found);
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_at_rest() && self.format.passes_long_lines()
    }

    fn lost(&mut self) {
        self.gathered = Gathered::default();
    }

    fn is_at_rest(&self) -> bool {
        self.gathered.is_empty()
    }
}

/// Lines of one record that is not complete yet, of bounded size.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) text: String,
    /// Number of the first line; 0 where there is none.
    pub(crate) first: u64,
    too_long: bool,
}

impl Gathered {
    /// Adds a line, unless the record has become too long, which is reported by [`Self::take`].
    pub(crate) fn push(&mut self, line: &str, number: u64) {
        self.begin(number);
        self.push_piece(line);
        self.push_piece("\n");
    }

    /// Begins with the line of this number, unless the record has begun.
    pub(crate) fn begin(&mut self, number: u64) {
        if self.first == 0 {
            self.first = number;
        }
    }

    /// Adds text to a record that has begun.
    pub(crate) fn push_piece(&mut self, piece: &str) {
        self.too_long |= self.text.len() + piece.len() > RECORD_BYTES_MAX;
        if self.too_long {
            self.text = String::new();
        } else {
            self.text.push_str(piece);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0
    }

    /// What was gathered, with its first line's number.
    pub(crate) fn take(&mut self) -> (u64, Result<String, Reason>) {
        let taken = std::mem::take(self);
        let text = if taken.too_long {
            Err(Reason::TooLong)
        } else {
            Ok(taken.text)
        };
        (taken.first, text)
    }
}
