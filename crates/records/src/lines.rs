//! Lines of bounded length, with their numbers and their place in the input.
//!
//! A format that may come in one long line (JSON, XML) is read in pieces instead, each up to a
//! closing bracket.
//!
//! Invariant: no more than [`RECORD_BYTES_MAX`] bytes of one line are ever held; of a longer line
//! nothing is kept but the fact, and the next line is read as if it had been good.

use std::io::{self, BufRead};

/// Longest line, and longest record of several lines, in bytes. Real lines end below 64 KiB;
/// HTCondor ads with the whole environment of a job are the longest records, at some 200 KiB.
/// Without it a file without line ends would be held in memory whole.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// What a call of [`Lines::read`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing more (for now).
    End,
    /// A line, in [`Lines::text`].
    Whole,
    /// A line that was too long, and is gone.
    TooLong,
}

#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// Whether a last line without an end may still be growing, and is left alone.
    growing: bool,
    /// What ends a line or piece.
    end: u8,
    /// Line ends before the next piece.
    line_ends: u64,
    /// Bytes and line ends before the piece in the buffer.
    before: (u64, u64),
    /// Bytes before the next line.
    pub(crate) position: u64,
    /// Number of the line in the buffer (of a piece, the line it begins on), from 1.
    pub(crate) number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R, position: u64, number: u64, growing: bool) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            growing,
            end: b'\n',
            line_ends: number,
            before: (position, number),
            position,
            number,
        }
    }

    /// Pieces up to this byte, which they keep, in place of lines.
    pub(crate) fn in_pieces(mut self, end: u8) -> Self {
        self.end = end;
        self
    }

    /// Where in the buffer the ASCII character stands that so many others precede.
    /// (What is not UTF-8 is replaced in the text that parsers see, but no ASCII ever is.)
    pub(crate) fn offset(&self, ascii_before: usize) -> usize {
        let characters = self.buffer.iter().enumerate();
        let mut ascii = characters.filter(|(_, byte)| byte.is_ascii());
        ascii.nth(ascii_before).map_or(0, |(at, _)| at)
    }

    /// What ends a line and is not in the buffer; pieces keep theirs.
    pub(crate) fn own_end(&self) -> &'static [u8] {
        if self.end == b'\n' { b"\n" } else { b"" }
    }

    /// Bytes and lines before an offset in the buffer.
    pub(crate) fn place(&self, offset: usize) -> (u64, u64) {
        let part = &self.buffer[..offset];
        let line_ends = part.iter().filter(|byte| **byte == b'\n').count();
        let (bytes, lines) = self.before;
        (
            bytes.saturating_add(offset as u64),
            lines.saturating_add(line_ends as u64),
        )
    }

    /// How many lines lie before the position.
    pub(crate) fn lines_before(&self) -> u64 {
        self.line_ends
    }

    /// The line that was read, without its end.
    pub(crate) fn text(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn read(&mut self) -> io::Result<Line> {
        self.buffer.clear();
        let (mut bytes, mut too_long, mut ended) = (0_u64, false, false);
        let mut line_ends = 0_u64;
        while !ended {
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() {
                break;
            }
            let line_end = chunk.iter().position(|byte| *byte == self.end);
            let mut used = line_end.map_or(chunk.len(), |at| at + 1);
            // What is in a string of JSON hides a brace, so no piece of it can be left out: a long one is given in parts.
            let room = RECORD_BYTES_MAX - self.buffer.len().min(RECORD_BYTES_MAX - 1);
            let is_full = self.end == b'}' && used >= room;
            if is_full {
                used = room;
            }
            let part = &chunk[..used];
            line_ends += part.iter().filter(|byte| **byte == b'\n').count() as u64;
            // The line's own end is not counted.
            too_long |= self.buffer.len() + part.len() > RECORD_BYTES_MAX + 1;
            if !too_long {
                self.buffer.extend_from_slice(part);
            }
            bytes = bytes.saturating_add(used as u64);
            ended = line_end.is_some() || is_full;
            self.input.consume(used);
        }
        if bytes == 0 || (!ended && self.growing) {
            self.buffer.clear();
            return Ok(Line::End);
        }
        self.before = (self.position, self.line_ends);
        self.position = self.position.saturating_add(bytes);
        self.number = self.line_ends + 1;
        // A last line without an end is a line, too.
        let unended = u64::from(!ended && self.end == b'\n');
        self.line_ends = self.line_ends.saturating_add(line_ends + unended);
        if self.end == b'\n' {
            for end in [b'\n', b'\r'] {
                if self.buffer.last() == Some(&end) {
                    self.buffer.pop();
                }
            }
        }
        if too_long {
            self.buffer.clear();
            return Ok(Line::TooLong);
        }
        Ok(Line::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_one_line_and_the_next_is_read() {
        let mut input = vec![b'x'; RECORD_BYTES_MAX + 2];
        input.extend_from_slice(b"\nnext\r\nlast");
        let length = input.len() as u64;
        let mut lines = Lines::new(input.as_slice(), 0, 0, false);
        assert_eq!(lines.read().unwrap(), Line::TooLong);
        assert_eq!((lines.text(), lines.number), (&b""[..], 1));
        assert_eq!(lines.read().unwrap(), Line::Whole);
        assert_eq!((lines.text(), lines.number), (&b"next"[..], 2));
        assert_eq!(lines.read().unwrap(), Line::Whole);
        assert_eq!((lines.text(), lines.position), (&b"last"[..], length));
        assert_eq!(lines.read().unwrap(), Line::End);
    }

    #[test]
    fn pieces_keep_their_end_and_know_their_line() {
        let mut pieces = Lines::new(&b"<a>\n<b\n>c"[..], 0, 0, false).in_pieces(b'>');
        for (text, number) in [("<a>", 1), ("\n<b\n>", 1), ("c", 3)] {
            assert_eq!(pieces.read().unwrap(), Line::Whole);
            assert_eq!((pieces.text(), pieces.number), (text.as_bytes(), number));
        }
        assert_eq!(
            (pieces.read().unwrap(), pieces.lines_before()),
            (Line::End, 2)
        );
    }

    #[test]
    fn a_growing_files_last_line_is_left_alone_until_it_ends() {
        let mut lines = Lines::new(&b"one\ntw"[..], 0, 0, true);
        assert_eq!(lines.read().unwrap(), Line::Whole);
        assert_eq!(lines.read().unwrap(), Line::End);
        assert_eq!((lines.position, lines.number), (4, 1));
    }
}
