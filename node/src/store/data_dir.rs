//! The data folder: the store, and the files beside it. What `fairmesh-round` wants done is done here.
//!
//! Invariant: operations are carried out in order, and none behind one that failed. Only the making of
//! the store's batch, which nobody sees, runs beside what comes before it.
//!
//! Deliberately not here: which operations, and what the files hold.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fairmesh_model::WallTime;
use fairmesh_round::{
    FORMAT_KEY, FileName, FileRead, JOURNAL, JOURNAL_OLD, LINEAGE_KEY, Op, Opening, StoreState,
    tidy,
};

use super::recovery::{io_error, sync_dir};
use super::{Recovery, Store, StoreError, Table};

/// The files beside the store.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    /// The file that was written to last.
    open: Option<(FileName, File)>,
}

/// The whole folder, with its store open.
#[derive(Debug)]
pub struct DataDir {
    files: Files,
    store: Store,
}

impl Files {
    /// Those in the folder `dir`, which must be there.
    pub fn new(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self { dir, open: None }
    }

    /// What a file holds.
    pub fn read(&self, name: &FileName) -> FileRead {
        match fs::read(self.path(name)) {
            Ok(bytes) => FileRead::Bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileRead::Absent,
            Err(error) => FileRead::Refused(error.to_string()),
        }
    }

    /// Does all of `ops` in order, up to the first that fails.
    pub fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), StoreError> {
        ops.into_iter().try_for_each(|op| self.carry_out_one(op))
    }

    fn carry_out_one(&mut self, op: Op) -> Result<(), StoreError> {
        let path = |name: &FileName| self.dir.join(name.as_ref());
        match op {
            Op::Create(name) => {
                let mut options = File::options();
                let options = options.create(true).truncate(true).write(true).mode(0o600);
                let made = options.open(path(&name));
                self.open = Some((
                    name.clone(),
                    made.map_err(io_error("making", &path(&name)))?,
                ));
            }
            Op::Write { file, at, bytes } => {
                let path = path(&file);
                let written = self.file(file)?.write_all_at(&bytes, at);
                written.map_err(io_error("writing", &path))?;
            }
            Op::Sync(file) => {
                let path = path(&file);
                let synced = self.file(file)?.sync_data();
                synced.map_err(io_error("syncing", &path))?;
            }
            Op::Rename { from, to } => {
                fs::rename(path(&from), path(&to)).map_err(io_error("renaming", &path(&from)))?;
                self.open = None;
            }
            Op::Copy { from, to } => match fs::copy(path(&from), path(&to)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = %from, %error, "no copy of it could be kept");
                }
                _ => {}
            },
            Op::Remove(name) => {
                match fs::remove_file(path(&name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(io_error("removing", &path(&name))(error));
                    }
                    _ => {}
                }
                self.open = None;
            }
            Op::SyncNames => sync_dir(&self.dir)?,
            Op::Apply { .. } => unreachable!("files have no rows"),
        }
        Ok(())
    }

    /// A file, to write to.
    fn file(&mut self, name: FileName) -> Result<&File, StoreError> {
        let is_open = self.open.as_ref().is_some_and(|(of, _)| *of == name);
        if !is_open {
            let path = self.path(&name);
            let opened = File::options().write(true).open(&path);
            self.open = Some((name, opened.map_err(io_error("opening", &path))?));
        }
        Ok(&self.open.as_ref().expect("it was opened").1)
    }

    fn path(&self, name: &FileName) -> PathBuf {
        self.dir.join(name.as_ref())
    }
}

impl DataDir {
    /// Opens or starts the store in the folder `store`, and brings it up to the journal beside it. A
    /// store that is made takes `lineage`, which no other may ever have had.
    pub fn open(
        mut files: Files,
        now: WallTime,
        lineage: u64,
    ) -> Result<(Self, Recovery, Opening), StoreError> {
        let dir = files.path(&"store".into());
        let (store, recovery) = Store::open(&dir, now)?;
        let of_store = store.get(Table::Meta, LINEAGE_KEY)?;
        if of_store.is_some() && store.get(Table::Meta, FORMAT_KEY)?.is_none() {
            return Err(StoreError::FirstEdition(dir));
        }
        let left = tidy(|name| files.path(name).exists());
        files.carry_out(left)?;
        let [old, current] = [JOURNAL_OLD, JOURNAL].map(|name| files.read(&name));
        let state = StoreState::new(of_store.as_deref(), store.number());
        let (opening, ops) = Opening::new(state, lineage, &old, &current, now)?;
        let mut data = Self { files, store };
        data.carry_out(ops)?;
        Ok((data, recovery, opening))
    }

    /// Does all of `ops` in order, up to the first that fails; then the store takes no more.
    pub fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), StoreError> {
        let mut before = Vec::new();
        for op in ops {
            let Op::Apply { number, writes } = op else {
                before.push(op);
                continue;
            };
            let (files, before) = (&mut self.files, std::mem::take(&mut before));
            let log = || files.carry_out(before);
            self.store.write_behind(number, writes, log)?;
        }
        self.files.carry_out(before)
    }

    /// The store, to read from.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
