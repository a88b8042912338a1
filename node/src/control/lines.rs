//! Lines of a body that comes in pieces.
//!
//! Invariant: at most one line is held, of [`LINE_BYTES_MAX`] bytes or as many as its reader allows;
//! of a longer one nothing but the fact. Lines are numbered from 1, blank ones counted too, as an editor numbers them.
//! Deliberately not here: what a line says.

/// Longest line: a record with names of the longest kind takes about 3 KB.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// Takes pieces, gives lines.
#[derive(Debug)]
pub(super) struct Lines {
    bytes_max: usize,
    held: Vec<u8>,
    too_long: bool,
    number: u64,
}

/// A line that ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: u64,
    /// Without its end; `None` where it was too long to keep.
    pub(super) text: Option<&'a [u8]>,
}

impl Lines {
    /// Lines of up to so many bytes.
    pub(super) const fn of(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: Vec::new(),
            too_long: false,
            number: 0,
        }
    }

    /// The longest line, bytes.
    pub(super) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Takes a piece and calls `each` with every line that ends in it.
    pub(super) fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.hold(&piece[..end]);
            self.end_line(&mut each);
            piece = &piece[end + 1..];
        }
        self.hold(piece);
    }

    /// The last line, which may lack its end.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if self.too_long || !self.held.is_empty() {
            self.end_line(&mut each);
        }
    }

    fn hold(&mut self, part: &[u8]) {
        self.too_long |= self.held.len() + part.len() > self.bytes_max;
        if self.too_long {
            self.held.clear();
        } else {
            self.held.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(Line<'_>)) {
        self.number += 1;
        let text = (!self.too_long).then_some(self.held.trim_ascii());
        if text.is_none_or(|text| !text.is_empty()) {
            each(Line {
                number: self.number,
                text,
            });
        }
        self.held.clear();
        self.too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(pieces: &[&[u8]]) -> Vec<(u64, Option<Vec<u8>>)> {
        let (mut lines, mut out) = (Lines::of(LINE_BYTES_MAX), Vec::new());
        let mut take = |line: Line<'_>| out.push((line.number, line.text.map(<[u8]>::to_vec)));
        for piece in pieces {
            lines.push(piece, &mut take);
        }
        lines.finish(&mut take);
        out
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let text = b"one\n\n  two \r\nthree";
        let whole = collect(&[text]);
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[1], (3, Some(b"two".to_vec())));
        for cut in 0..text.len() {
            assert_eq!(collect(&[&text[..cut], &text[cut..]]), whole);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_one_fault_and_takes_no_memory() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let lines = collect(&[&long, &long, b"\nnext\n"]);
        assert_eq!(lines, [(1, None), (2, Some(b"next".to_vec()))]);
        let mut held = Lines::of(LINE_BYTES_MAX);
        held.push(&long, |_| {});
        held.push(&long, |_| {});
        assert!(held.held.is_empty());
    }
}
