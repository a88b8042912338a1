//! The journal: the site's own counters and job marks once more, in files that are not the store's.
//!
//! Peers hold what was published, and nobody else holds the rest; so each round's rows of own
//! counters and job marks are appended and synced here before the store's batch is applied. A store
//! that is lost or comes back older than its journal is brought up to it.
//!
//! `site.journal` grows to [`JOURNAL_BYTES_MAX`]; then it becomes `site.journal.old`, and a new one
//! begins with the counters that nobody else holds. The two are one log, the old one first.
//!
//! Invariant: at any moment, whatever crash comes, the two hold every acknowledged row that no peer
//! has, and the marks of the jobs of at least the last [`JOURNAL_BYTES_MAX`] bytes.
//!
//! Deliberately not here: which rows those are (`fairmesh-site`), and when to write (`journaled`).

mod frame;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fairmesh_model::WallTime;

pub(super) use frame::{End, Round, is_empty, open_frame};
use frame::{HEAD_BYTES, Head};

use super::recovery::{io_error, parent_of, sync_dir, with_suffix};
use super::{StoreError, Table, Write};

/// Size at which the journal is begun anew, or twice its size when it was last begun, if that is
/// more. Bounds what a start has to read and, with the marks in it, for how many jobs a feed may
/// say again what it said before a store was lost: some 30,000 where jobs come one by one, 100,000
/// where they come by the hundred.
pub const JOURNAL_BYTES_MAX: u64 = 8 << 20;

/// Rows in one frame of those that a journal begins with. Bounds the memory that writing takes.
const ROWS_PER_FRAME: usize = 4_096;

/// Where the files are.
#[derive(Debug, Clone)]
pub(super) struct JournalFiles {
    current: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

/// What the files held.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The lineage of the store that they belong to; `None` if there is nothing to be read.
    pub(super) lineage: Option<u64>,
    /// All rounds that can be relied upon, in order.
    pub(super) rounds: Vec<Round>,
    /// How the current file ends; `None` if there is none.
    pub(super) end: Option<End>,
    /// Where its last good round ends.
    pub(super) good_bytes: u64,
    /// What is wrong, in words.
    pub(super) damage: Option<String>,
}

/// The journal, open at its end.
#[derive(Debug)]
pub(super) struct Journal {
    files: JournalFiles,
    file: File,
    lineage: u64,
    bytes: u64,
    bytes_max: u64,
}

impl JournalFiles {
    /// The journal at `path`, which need not exist yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            current: path.to_owned(),
            old: with_suffix(path, ".old"),
            new: with_suffix(path, ".new"),
        }
    }

    /// Reads what is there, after finishing or undoing what a crash left half done.
    pub(super) fn read(&self) -> Result<Found, StoreError> {
        if self.new.exists() {
            if !self.current.exists() && self.old.exists() {
                // The new one was whole and synced before the current one became the old one.
                fs::rename(&self.new, &self.current).map_err(io_error("renaming", &self.new))?;
            } else {
                fs::remove_file(&self.new).map_err(io_error("removing", &self.new))?;
            }
            sync_dir(&parent_of(&self.current))?;
        }
        let current = self.read_one(&self.current)?;
        let old = match self.read_one(&self.old) {
            Ok(old) => old,
            Err(error) => {
                tracing::error!(%error, "the older part of the journal is left out");
                None
            }
        };
        Ok(self.join(old, current))
    }

    fn read_one(&self, path: &Path) -> Result<Option<frame::Content>, StoreError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("reading", path)(source)),
        };
        match frame::parse_head(&bytes) {
            Head::Of(lineage) => Ok(Some(frame::parse(&bytes, lineage))),
            Head::Damaged => Ok(Some(frame::Content {
                lineage: 0,
                rounds: Vec::new(),
                good_bytes: 0,
                end: End::Damaged,
            })),
            Head::Newer(version) => Err(StoreError::JournalNewer {
                path: path.to_owned(),
                version: char::from(version),
            }),
        }
    }

    /// The old and the current file as one log.
    fn join(&self, old: Option<frame::Content>, current: Option<frame::Content>) -> Found {
        let mut found = Found::default();
        let head_is_good = |content: &frame::Content| content.good_bytes >= HEAD_BYTES;
        let lineage_of =
            |content: &frame::Content| head_is_good(content).then_some(content.lineage);
        let of_current = current.as_ref().and_then(lineage_of);
        // A stray one of another store's is no part of this log.
        let old = old.filter(|old| head_is_good(old));
        if let Some(mut old) = old.filter(|old| of_current.is_none_or(|of| of == old.lineage)) {
            if old.end != End::Whole {
                found.damage = Some(damage_at(&self.old, old.good_bytes));
                // Without what follows it, a counter that moved on would stand here once more.
                let is_mark = |write: &Write| write.table == Table::Jobs;
                let rounds = &mut old.rounds;
                rounds
                    .iter_mut()
                    .for_each(|round| round.writes.retain(is_mark));
            }
            found.lineage = Some(old.lineage);
            found.rounds = old.rounds;
        }
        if let Some(current) = current {
            if current.end == End::Damaged {
                found.damage = Some(damage_at(&self.current, current.good_bytes));
            }
            found.lineage = lineage_of(&current).or(found.lineage);
            found.rounds.extend(current.rounds);
            found.end = Some(current.end);
            found.good_bytes = current.good_bytes as u64;
        }
        found
    }

    /// Moves the current file out of the way, because it cannot be read.
    pub(super) fn set_aside(&self, now: WallTime) -> Result<PathBuf, StoreError> {
        let aside = aside(&self.current, now);
        fs::rename(&self.current, &aside).map_err(io_error("setting aside", &self.current))?;
        Ok(aside)
    }

    /// Keeps copies of both files, because one is damaged and they are about to be replaced.
    pub(super) fn copy_aside(&self, now: WallTime) -> Result<(), StoreError> {
        for path in [&self.current, &self.old] {
            match fs::copy(path, aside(path, now)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("copying", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Goes on with the current file behind its last good round.
    pub(super) fn go_on(self, lineage: u64, good_bytes: u64) -> Result<Journal, StoreError> {
        let file = File::options()
            .append(true)
            .open(&self.current)
            .map_err(io_error("opening", &self.current))?;
        file.set_len(good_bytes)
            .and_then(|()| file.sync_all())
            .map_err(io_error("cutting", &self.current))?;
        Ok(Journal {
            files: self,
            file,
            lineage,
            bytes: good_bytes,
            bytes_max: JOURNAL_BYTES_MAX,
        })
    }

    /// Begins anew with `rows`, in the place of all that was there.
    pub(super) fn begin(
        self,
        lineage: u64,
        number: u64,
        rows: &[Write],
    ) -> Result<Journal, StoreError> {
        let (file, bytes) = self.write_new(lineage, number, rows)?;
        fs::rename(&self.new, &self.current).map_err(io_error("renaming", &self.new))?;
        // It is of another lineage or damaged, so that it is not read even if it comes back.
        match fs::remove_file(&self.old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("removing", &self.old)(error));
            }
            _ => sync_dir(&parent_of(&self.current))?,
        }
        Ok(Journal::at_its_beginning(self, file, lineage, bytes))
    }

    /// Writes and syncs a file that begins with `rows`, under its temporary name.
    fn write_new(
        &self,
        lineage: u64,
        number: u64,
        rows: &[Write],
    ) -> Result<(File, u64), StoreError> {
        let write = || {
            let mut file = File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&self.new)?;
            file.write_all(&frame::head(lineage))?;
            let mut bytes = HEAD_BYTES as u64;
            for rows in rows.chunks(ROWS_PER_FRAME) {
                let mut frame = open_frame(rows);
                frame::seal(&mut frame, number, bytes);
                file.write_all(&frame)?;
                bytes += frame.len() as u64;
            }
            file.sync_all()?;
            Ok((file, bytes))
        };
        let written = write().map_err(io_error("writing", &self.new))?;
        sync_dir(&parent_of(&self.new))?;
        Ok(written)
    }
}

impl Journal {
    fn at_its_beginning(files: JournalFiles, file: File, lineage: u64, bytes: u64) -> Self {
        Self {
            files,
            file,
            lineage,
            bytes,
            bytes_max: JOURNAL_BYTES_MAX.max(2 * bytes),
        }
    }

    /// Appends a frame as that of the batch `number`; it is on disk when this returns. After an
    /// error nothing more may be appended.
    pub(super) fn append(&mut self, mut frame: Vec<u8>, number: u64) -> Result<(), StoreError> {
        frame::seal(&mut frame, number, self.bytes);
        self.file
            .write_all(&frame)
            .and_then(|()| self.file.sync_data())
            .map_err(io_error("writing", &self.files.current))?;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Whether it has grown so much that it should be begun anew.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Makes it the old one, and begins another with `rows`.
    pub(super) fn rotate(&mut self, number: u64, rows: &[Write]) -> Result<(), StoreError> {
        let files = self.files.clone();
        let (file, bytes) = files.write_new(self.lineage, number, rows)?;
        let dir = parent_of(&files.current);
        fs::rename(&files.current, &files.old).map_err(io_error("renaming", &files.current))?;
        sync_dir(&dir)?;
        fs::rename(&files.new, &files.current).map_err(io_error("renaming", &files.new))?;
        sync_dir(&dir)?;
        *self = Self::at_its_beginning(files, file, self.lineage, bytes);
        Ok(())
    }
}

fn aside(path: &Path, now: WallTime) -> PathBuf {
    with_suffix(path, &format!(".damaged-{}", now.0 / 1_000))
}

fn damage_at(path: &Path, offset: usize) -> String {
    format!("{} is damaged at byte {offset}", path.display())
}
