//! The records that could not be counted, kept whole so that they can be corrected and reported again.
//!
//! The file begins with the options to read it with, and the header line of a list; before each record stands where
//! it was and why it was refused, behind `#` ([`Kept`](super::kept::Kept) reads it again). It is made with the first
//! record, for nobody else to read: it has lines of all users. Without `--rejects-to` it is `<file>.rejects`, beside
//! the file or, where that folder is not ours to write, in the current one; standard input has none, and neither has
//! a dry run. It is made through no link that lies there. A file of rejects is replaced by what is still refused of
//! it, when all of it was read.
//!
//! Invariant: that rejects cannot be kept is said once, and never stops the rest.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tempfile::NamedTempFile;

use super::read_options::OPTIONS_MARK;
use super::waiting::Waiting;

pub(super) struct Rejects {
    places: Vec<PathBuf>,
    is_given: bool,
    append: bool,
    file: Option<File>,
    /// The file that a new one is to replace, as it was before it was read.
    replaced: Option<(PathBuf, Metadata)>,
    /// The file for rejected records, until its final name is given to it.
    new: Option<NamedTempFile>,
    /// What the records that were kept last are to be read with.
    section: String,
    /// Which file was appended to last, and how long it was then.
    appended: Option<(u64, u64)>,
    /// The path of the file with rejected records; `None` if none was rejected.
    pub(super) path: Option<PathBuf>,
    /// Whether any of the file that is read now is there.
    pub(super) has_some: bool,
    /// The file that they were in, if none is left.
    pub(super) removed: Option<PathBuf>,
    /// How many there are.
    pub(super) waiting: Waiting,
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
            replaced: None,
            new: None,
            section: String::new(),
            appended: None,
            path: None,
            has_some: false,
            removed: None,
            waiting: Waiting::default(),
        }
    }

    /// Of a file of rejects, which is to hold in the end what is still refused of it.
    pub(super) fn replacing(file: &Path) -> io::Result<Self> {
        let replaced = Some((file.to_owned(), std::fs::symlink_metadata(file)?));
        Ok(Self {
            replaced,
            ..Self::of(file, Some(file), true, false)
        })
    }

    /// Keeps a record. `section` is what to read it with, whole lines; `why` is one line.
    pub(super) fn keep(&mut self, section: &str, place: &str, why: &str, text: &[u8]) {
        if self.file.is_none() && !self.places.is_empty() {
            self.open();
        }
        let mut lines = Vec::new();
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|_| !text.is_empty())
        {
            // A user's line must not look like options.
            if line.starts_with(OPTIONS_MARK) {
                lines.push(b' ');
            }
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        let Some(file) = &mut self.file else { return };
        self.has_some = true;
        // The file that it is of is reported again.
        if !self.waiting.is_new(lines.clone()) && self.replaced.is_none() {
            return;
        }
        let mut head = format!("# {place}: {why}\n");
        if self.section != section {
            section.clone_into(&mut self.section);
            head.insert_str(0, section);
        }
        lines.splice(0..0, head.into_bytes());
        let written = file.write_all(&lines);
        self.waiting.add(why);
        let appended = written.and_then(|()| {
            let metadata = self.append.then(|| file.metadata()).transpose()?;
            Ok(metadata.map(|metadata| (metadata.ino(), metadata.len())))
        });
        match appended {
            // Who reports the file again may replace it meanwhile.
            Ok(Some(appended)) => {
                self.appended = Some(appended);
                self.file = None;
                self.places = self.path.iter().cloned().collect();
            }
            Ok(None) => {}
            Err(error) => {
                note!("fairmesh: rejected lines can no longer be kept: {error}");
                (self.file, self.new, self.places) = (None, None, Vec::new());
            }
        }
    }

    fn open(&mut self) {
        let mut trouble = None;
        for place in std::mem::take(&mut self.places) {
            let opened = match &self.replaced {
                Some((_, before)) => self.open_new(&place, before.clone()),
                None => self.open_at(&place),
            };
            match opened {
                Ok(file) => {
                    (self.file, self.path) = (Some(file), Some(place));
                    return;
                }
                Err(error) => trouble = Some((place, error)),
            }
        }
        if let Some((place, error)) = trouble {
            let place = place.display();
            note!("fairmesh: rejected lines are not kept: {place}: {error}; give --rejects-to");
        }
    }

    fn open_at(&mut self, place: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.create(true).mode(0o600);
        if !self.is_given {
            // Other users may have write access to that folder.
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        }
        let file = options.append(true).open(place)?;
        let metadata = file.metadata()?;
        // Somebody may have corrected it meanwhile.
        if self.appended != Some((metadata.ino(), metadata.len())) {
            self.waiting = Waiting::of_file(place)?;
            self.section.clear();
        }
        Ok(file)
    }

    /// Beside the file that it is to replace, and whose owner it keeps.
    fn open_new(&mut self, place: &Path, before: Metadata) -> io::Result<File> {
        let folder = place.parent().filter(|folder| *folder != Path::new(""));
        let new = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        // Only root can do that, and others own what they replace.
        let _ = std::os::unix::fs::fchown(new.as_file(), Some(before.uid()), Some(before.gid()));
        let file = new.as_file().try_clone()?;
        self.new = Some(new);
        Ok(file)
    }

    /// The file was read: if it was one of rejects, and all of it `was_read`, what is still refused replaces it.
    ///
    /// # Errors
    /// If it cannot be replaced, or has changed meanwhile. It stays as it is then.
    pub(super) fn finish(&mut self, was_read: bool) -> anyhow::Result<()> {
        let Some((path, before)) = self.replaced.take() else {
            return Ok(());
        };
        let is_replaced = self.replace(&path, &before, was_read);
        if self.removed.is_none() {
            self.waiting = Waiting::of_file(&path)?;
            self.path = Some(path);
        }
        is_replaced
    }

    fn replace(&mut self, path: &Path, before: &Metadata, was_read: bool) -> anyhow::Result<()> {
        let new = self.new.take();
        let is_lost = self.places.is_empty() && new.is_none();
        if !was_read || is_lost {
            return Ok(());
        }
        let now = std::fs::symlink_metadata(path)?;
        let of = |metadata: &Metadata| (metadata.ino(), metadata.len(), metadata.modified().ok());
        if of(&now) != of(before) {
            anyhow::bail!(
                "{} changed while it was read: it stays as it is",
                path.display()
            );
        }
        match new {
            Some(new) => {
                new.as_file().sync_all()?;
                drop(new.persist(path)?);
            }
            None => {
                std::fs::remove_file(path)?;
                (self.path, self.removed) = (None, Some(path.to_owned()));
            }
        }
        Ok(())
    }
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
        rejects.keep("", "jobs.log:7", "no job", b"nonsense");
        rejects.keep("", "jobs.log:9", "no job", b"\xff");
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
        rejects.keep("", "jobs.log:7", "no job", b"nonsense");
        assert_eq!(rejects.path, None);
        assert_eq!(std::fs::read(&theirs).expect("read"), b"theirs");
        std::fs::remove_file(&kept).expect("removed");
        let mut rejects = Rejects::of(&log, None, true, false);
        rejects.keep("", "jobs.log:7", "no job", b"nonsense");
        let mode = kept.metadata().expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_dry_run_keeps_none_unless_told_where() {
        let log = Path::new("/nowhere/jobs.log");
        let mut rejects = Rejects::of(log, None, false, false);
        rejects.keep("", "x:1", "y", b"z");
        assert!(rejects.path.is_none());
    }

    #[test]
    fn what_is_still_refused_replaces_a_file_of_rejects() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.log.rejects");
        std::fs::write(&path, "# a:1: why\nx\n# a:2: why\ny\n").expect("written");
        let before = std::fs::read(&path).expect("read");
        let waiting = |rejects: &Rejects| {
            let news = rejects.waiting.news(&path);
            news.map(|news| news.lines.count)
        };
        // Broken off, or changed meanwhile.
        let mut rejects = Rejects::replacing(&path).expect("there");
        rejects.keep("", "b:1", "no job", b"x");
        rejects.finish(false).expect("nothing to do");
        assert_eq!(waiting(&rejects), Some(2), "both are still there");
        assert_eq!(std::fs::read(&path).expect("read"), before);
        let mut rejects = Rejects::replacing(&path).expect("there");
        let mut file = File::options().append(true).open(&path).expect("open");
        file.write_all(b"# a:3: why\nz\n").expect("appended");
        assert!(rejects.finish(true).is_err());
        assert_eq!(waiting(&rejects), Some(3));
        // Some is refused again, then none.
        let mut rejects = Rejects::replacing(&path).expect("there");
        rejects.keep("", "b:1", "no job", b"x");
        rejects.finish(true).expect("replaced");
        assert_eq!(rejects.path.as_ref(), Some(&path));
        assert_eq!(std::fs::read(&path).expect("read"), b"# b:1: no job\nx\n");
        let mut rejects = Rejects::replacing(&path).expect("there");
        rejects.finish(true).expect("removed");
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!((rejects.path, left), (None, 0));
    }

    #[test]
    fn what_records_are_read_with_stands_before_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("jobs.log");
        let path = folder.path().join("jobs.log.rejects");
        let mut rejects = Rejects::of(&log, None, true, true);
        let mut keep = |section: &str, text: &str| {
            rejects.keep(section, "a:1", "why", text.as_bytes());
            std::fs::read_to_string(&path).expect("read")
        };
        keep("#one\nJobID\n", "x");
        keep("#one\nJobID\n", "y");
        let kept = keep("#two\n", "a\n# fairmesh report: {}");
        let expected = "#one\nJobID\n# a:1: why\nx\n# a:1: why\ny\n#two\n# a:1: why\na\n # fairmesh report: {}\n";
        assert_eq!(kept, expected);
        // The file was replaced meanwhile.
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(keep("#two\n", "z"), "#two\n# a:1: why\nz\n");
        let news = rejects.waiting.news(&path).expect("news");
        assert_eq!(
            news.lines.count, 1,
            "of the file that was removed none waits"
        );
    }
}
