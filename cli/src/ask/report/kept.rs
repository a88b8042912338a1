//! Files of rejects as they are read again: sections of records, each with the options to read them with.
//!
//! Invariant: what stands above a record in place of it (where it was, and why it was refused) reads as a blank line, so
//! that lines keep their numbers. Options are read only in a file that begins with them: in any other file, a line
//! that looks like options is a record.

use std::cell::RefCell;
use std::io::{self, BufRead, Cursor, Read};
use std::rc::Rc;

use super::read_options::{OPTIONS_MARK, ReadOptions};

/// A longer line comes in pieces: bounds the memory that one takes.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A file of rejects.
pub(super) struct Kept<R> {
    inner: R,
    line: Cursor<Vec<u8>>,
    has_options: bool,
    /// Whether a line begins at the next piece.
    is_at_start: bool,
    lines: u64,
    /// What the next section is to be read with: the one before has ended.
    next: Option<ReadOptions>,
}

/// One of its sections.
pub(super) struct Section<R>(pub(super) Rc<RefCell<Kept<R>>>);

impl<R: BufRead> Read for Section<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

/// Whether a file that begins so is one of rejects.
pub(super) fn is_kept(beginning: &[u8]) -> bool {
    beginning.starts_with(OPTIONS_MARK) || is_place(beginning)
}

impl<R: BufRead> Kept<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            line: Cursor::default(),
            has_options: true,
            is_at_start: true,
            lines: 0,
            next: None,
        }
    }

    /// What the next section is to be read with, and how many lines are before it.
    pub(super) fn next_section(&mut self) -> io::Result<Option<(ReadOptions, u64)>> {
        self.fill()?;
        Ok(self.next.take().map(|options| (options, self.lines)))
    }

    fn fill(&mut self) -> io::Result<()> {
        let is_empty = self.line.get_ref().len() as u64 == self.line.position();
        if !is_empty || self.next.is_some() {
            return Ok(());
        }
        let mut line = Vec::new();
        let some = self.inner.by_ref().take(PIECE_BYTES_MAX);
        { some }.read_until(b'\n', &mut line)?;
        if self.lines == 0 && self.is_at_start {
            self.has_options = line.starts_with(OPTIONS_MARK);
        }
        let is_first = std::mem::replace(&mut self.is_at_start, line.ends_with(b"\n"));
        self.lines += u64::from(self.is_at_start);
        if is_first
            && self.has_options
            && let Some(options) = ReadOptions::of_line(&line)
        {
            let options = options.map_err(|error| {
                let why = format!("line {}: these options cannot be read: {error}", self.lines);
                io::Error::new(io::ErrorKind::InvalidData, why)
            });
            self.next = Some(options?);
            return Ok(());
        }
        if is_first && is_place(&line) {
            line = b"\n".to_vec();
        }
        self.line = Cursor::new(line);
        Ok(())
    }
}

impl<R: BufRead> Read for Kept<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill()?;
        self.line.read(buffer)
    }
}

/// Whether a line is the place and reason above a record.
fn is_place(line: &[u8]) -> bool {
    reason(line).is_some()
}

/// The reason of a line that stands above a record: `# jobs.log:7: no job`.
pub(super) fn reason(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = line.strip_prefix(b"# ")?;
    let colons = line.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let colons: Vec<usize> = colons.map(|(at, _)| at).collect();
    let mut pairs = colons.windows(2);
    pairs.find_map(|pair| {
        let number = &line[pair[0] + 1..pair[1]];
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        line[pair[1] + 1..].strip_prefix(b" ").filter(|_| is_number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kept: &mut Kept<&[u8]>) -> String {
        let mut read = String::new();
        kept.read_to_string(&mut read).expect("read");
        read
    }

    #[test]
    fn a_file_of_rejects_is_read_as_it_is() {
        let kept = b"# jobs.log:7: no job\n{}\n# a comment: of theirs\n# C:\\x:9: why: so\nlast";
        assert!(is_kept(kept) && !is_kept(b"# jobs.log: 7 lines\n") && !is_kept(b"7:7: x"));
        let mut kept = Kept::new(&kept[..]);
        assert_eq!(read(&mut kept), "\n{}\n# a comment: of theirs\n\nlast");
        assert_eq!(kept.next_section().expect("read"), None);
    }

    #[test]
    fn each_section_has_its_options_where_the_file_begins_with_some() {
        let of = |format: &str| ReadOptions {
            format: Some(format.to_owned()),
            tz: Some("UTC".to_owned()),
            ..ReadOptions::default()
        };
        let (pbs, lsf) = (of("pbs").to_line(), of("lsf").to_line());
        let text = format!("{pbs}# a:1: why\none\n{lsf}two\n");
        let mut kept = Kept::new(text.as_bytes());
        assert_eq!(kept.next_section().expect("read"), Some((of("pbs"), 1)));
        assert_eq!(read(&mut kept), "\none\n");
        assert_eq!(kept.next_section().expect("read"), Some((of("lsf"), 4)));
        assert_eq!(read(&mut kept), "two\n");
        assert_eq!(kept.next_section().expect("read"), None);
        let text = format!("# a:1: why\none\n{lsf}two\n");
        let mut kept = Kept::new(text.as_bytes());
        assert_eq!(read(&mut kept), format!("\none\n{lsf}two\n"));
    }
}
