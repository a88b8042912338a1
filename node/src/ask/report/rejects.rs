//! The records that could not be counted, kept whole so that they can be looked at and sent again.
//!
//! Before each stands where it was and why, behind `#`, which [`Kept`] leaves out when they are sent again. The file is made with the first of them, for nobody else to read: it has lines of all users. Without `--rejects` it is `<file>.rejects`, beside the
//! file or, where that folder is not ours to write, in the current one; standard input has none, and
//! neither has a dry run. It is made through no link that lies there.
//!
//! Invariant: that rejects cannot be kept is said once, and never stops the rest.

use std::fs::File;
use std::io::{self, BufRead, Cursor, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

pub(super) struct Rejects {
    places: Vec<PathBuf>,
    is_given: bool,
    append: bool,
    file: Option<File>,
    /// Where they are.
    pub(super) path: Option<PathBuf>,
}

impl Rejects {
    /// Of this file; `given` is where the user wants them. `append` keeps those that are there.
    pub(super) fn of(file: &Path, given: Option<&Path>, wanted: bool, append: bool) -> Self {
        let places = match given {
            Some(given) => vec![given.to_owned()],
            None if !wanted || file == Path::new("-") => Vec::new(),
            None => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let here = PathBuf::from(format!("{name}.rejects"));
                vec![PathBuf::from(format!("{}.rejects", file.display())), here]
            }
        };
        Self {
            places,
            is_given: given.is_some(),
            append,
            file: None,
            path: None,
        }
    }

    /// Keeps a record. `why` is one line.
    pub(super) fn keep(&mut self, place: &str, why: &str, text: &[u8]) {
        if self.file.is_none() && !self.places.is_empty() {
            self.open();
        }
        let Some(file) = &mut self.file else { return };
        let mut lines = format!("# {place}: {why}\n").into_bytes();
        lines.extend_from_slice(text);
        if !text.is_empty() {
            lines.push(b'\n');
        }
        if let Err(error) = file.write_all(&lines) {
            eprintln!("fairmesh: rejected lines can no longer be kept: {error}");
            (self.file, self.places) = (None, Vec::new());
        }
    }

    fn open(&mut self) {
        let mut options = File::options();
        options.create(true).write(true).mode(0o600);
        if !self.is_given {
            // Somebody else may write in that folder.
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        }
        options.append(self.append).truncate(!self.append);
        let mut trouble = None;
        for place in std::mem::take(&mut self.places) {
            match options.open(&place) {
                Ok(file) => {
                    (self.file, self.path) = (Some(file), Some(place));
                    return;
                }
                Err(error) => trouble = Some((place, error)),
            }
        }
        if let Some((place, error)) = trouble {
            let place = place.display();
            eprintln!("fairmesh: rejected lines are not kept: {place}: {error}; give --rejects");
        }
    }
}

/// A longer line comes in pieces: bounds the memory that one takes.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A file of rejects without the places and reasons above its records: a blank line is in the place of each, so that lines
/// keep their numbers.
pub(super) struct Kept<R> {
    inner: R,
    line: Cursor<Vec<u8>>,
}

impl<R: BufRead> Kept<R> {
    pub(super) fn new(inner: R) -> Self {
        let line = Cursor::default();
        Self { inner, line }
    }
}

impl<R: BufRead> Read for Kept<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.get_ref().len() as u64 == self.line.position() {
            let mut line = Vec::new();
            let some = self.inner.by_ref().take(PIECE_BYTES_MAX);
            { some }.read_until(b'\n', &mut line)?;
            if is_place(&line) {
                line = b"\n".to_vec();
            }
            self.line = Cursor::new(line);
        }
        self.line.read(buffer)
    }
}

/// Whether a line is what [`Rejects::keep`] writes above a record: `# jobs.log:7: no job`.
pub(super) fn is_place(line: &[u8]) -> bool {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_prefix(b"# ") else {
        return false;
    };
    let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let words: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let pairs = words.windows(2).skip(1);
    let mut pairs = pairs.filter(|pair| is_number(pair[0]));
    pairs.any(|pair| pair[1].starts_with(b" "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_made_with_the_first_line_and_says_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("jobs.log");
        let mut rejects = Rejects::of(&log, None, true, false);
        assert!(rejects.path.is_none());
        rejects.keep("jobs.log:7", "no job", b"nonsense");
        rejects.keep("jobs.log:9", "no job", b"\xff");
        let path = rejects.path.expect("made");
        assert_eq!(path, folder.path().join("jobs.log.rejects"));
        let kept = std::fs::read(path).expect("read");
        assert_eq!(
            kept,
            b"# jobs.log:7: no job\nnonsense\n# jobs.log:9: no job\n\xff\n"
        );
    }

    /// They are other users' lines, of a file that few may read.
    #[test]
    fn they_are_their_makers_own_and_go_through_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let [log, theirs] = ["jobs.log", "theirs"].map(|name| folder.path().join(name));
        let kept = folder.path().join("jobs.log.rejects");
        std::fs::write(&theirs, "theirs").expect("written");
        std::os::unix::fs::symlink(&theirs, &kept).expect("linked");
        let mut rejects = Rejects::of(&log, None, true, false);
        rejects.places.truncate(1);
        rejects.keep("jobs.log:7", "no job", b"nonsense");
        assert_eq!(rejects.path, None);
        assert_eq!(std::fs::read(&theirs).expect("read"), b"theirs");
        std::fs::remove_file(&kept).expect("removed");
        let mut rejects = Rejects::of(&log, None, true, false);
        rejects.keep("jobs.log:7", "no job", b"nonsense");
        let mode = kept.metadata().expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_dry_run_keeps_none_unless_told_where() {
        let log = Path::new("/nowhere/jobs.log");
        let mut rejects = Rejects::of(log, None, false, false);
        rejects.keep("x:1", "y", b"z");
        assert!(rejects.path.is_none());
    }

    #[test]
    fn a_file_of_rejects_is_read_as_it_is() {
        let kept = b"# jobs.log:7: no job\n{}\n# a comment: of theirs\n# C:\\x:9: why: so\nlast";
        assert!(is_place(kept) && !is_place(b"# jobs.log: 7 lines\n") && !is_place(b"7:7: x"));
        let mut read = String::new();
        let text = Kept::new(&kept[..]).read_to_string(&mut read).map(|_| read);
        assert_eq!(text.expect("read"), "\n{}\n# a comment: of theirs\n\nlast");
    }
}
