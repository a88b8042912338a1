//! The data folder: the store, and the files beside it. What `fairmesh-round` wants done is done here.
//!
//! Invariant: operations are carried out in order, and none behind one that failed; that one may be tried again.
//!
//! Deliberately not here: which operations, and what the files hold.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fairmesh_model::WallTime;
use fairmesh_round::{
    FORMAT_KEY, FileName, FileRead, JOURNAL, JOURNAL_OLD, LINEAGE_KEY, Op, Opening, StoreState,
    tidy,
};

use super::copy::Copy;
use super::recovery::{io_error, sync_dir};
use super::{Recovery, Room, STORE, Store, StoreError, Table, bytes_below};

/// The files beside the store.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    /// The file that was written to last.
    open: Option<(FileName, File)>,
    /// What was written since the last sync.
    unsynced: Vec<Op>,
}

/// The whole folder, with its store open.
#[derive(Debug)]
pub struct DataDir {
    files: Files,
    store: Option<Store>,
    /// Where this is a copy of a folder that cannot be written.
    copy: Option<Copy>,
    /// By this a store that cannot be opened is set aside.
    opened: WallTime,
}

impl Files {
    /// Those in the folder `dir`, which must be there.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            open: None,
            unsynced: Vec::new(),
        }
    }

    /// Those in the folder `dir`, which is made if it is not there.
    pub fn make(dir: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(io_error("making", dir))?;
        Ok(Self::new(dir))
    }

    /// Opens or starts the store beside them. Nobody else opens it, nor takes an incarnation, while it is open.
    pub fn open_store(&self, now: WallTime) -> Result<(Store, Recovery), StoreError> {
        Store::open(&self.path(&STORE), now)
    }

    /// What a file holds.
    pub fn read(&self, name: &FileName) -> FileRead {
        match fs::read(self.path(name)) {
            Ok(bytes) => FileRead::Bytes(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileRead::Absent,
            Err(error) => FileRead::Refused(error.to_string()),
        }
    }

    /// Does `ops` in order, up to the first that fails; that and what is behind it stay.
    pub fn carry_out(&mut self, ops: &mut VecDeque<Op>) -> Result<(), StoreError> {
        while !ops.is_empty() {
            self.carry_out_first(ops)?;
        }
        Ok(())
    }

    /// Does the first of `ops`. Behind a sync that failed, the system may have let go of what was written, and the next
    /// sync would not say so: it is written again.
    fn carry_out_first(&mut self, ops: &mut VecDeque<Op>) -> Result<(), StoreError> {
        let Some(op) = ops.pop_front() else {
            return Ok(());
        };
        let done = self.carry_out_one(&op);
        let is_sync = matches!(op, Op::Sync(_));
        if done.is_err() {
            ops.push_front(op);
            let again = self.unsynced.drain(..).rev().filter(|_| is_sync);
            again.for_each(|write| ops.push_front(write));
        } else if is_sync {
            self.unsynced.clear();
        } else if matches!(op, Op::Write { .. }) {
            self.unsynced.push(op);
        }
        done
    }

    fn carry_out_one(&mut self, op: &Op) -> Result<(), StoreError> {
        let path = |name: &FileName| self.dir.join(name.as_ref());
        match op {
            Op::Create(name) => {
                let mut options = File::options();
                let options = options.create(true).truncate(true).write(true).mode(0o600);
                let made = options.open(path(name));
                self.open = Some((name.clone(), made.map_err(io_error("making", &path(name)))?));
            }
            Op::Write { file, at, bytes } => {
                let path = path(file);
                let written = self.file(file)?.write_all_at(bytes, *at);
                written.map_err(io_error("writing", &path))?;
            }
            Op::Sync(file) => {
                let path = path(file);
                let synced = self.file(file)?.sync_data();
                synced.map_err(io_error("syncing", &path))?;
            }
            Op::Rename { from, to } => {
                fs::rename(path(from), path(to)).map_err(io_error("renaming", &path(from)))?;
                self.open = None;
            }
            Op::Copy { from, to } => match fs::copy(path(from), path(to)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = %from, %error, "no copy of it could be kept");
                }
                _ => {}
            },
            Op::Remove(name) => {
                match fs::remove_file(path(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(io_error("removing", &path(name))(error));
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
    fn file(&mut self, name: &FileName) -> Result<&File, StoreError> {
        let is_open = self.open.as_ref().is_some_and(|(of, _)| of == name);
        if !is_open {
            let path = self.path(name);
            let opened = File::options().write(true).open(&path);
            let opened = opened.map_err(io_error("opening", &path))?;
            self.open = Some((name.clone(), opened));
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
        files: Files,
        now: WallTime,
        lineage: u64,
    ) -> Result<(Self, Recovery, Opening), StoreError> {
        let store = files.open_store(now)?;
        Self::open_with(files, store, now, lineage)
    }

    /// The same with the store that is in the folder, which was opened.
    pub fn open_with(
        mut files: Files,
        (store, recovery): (Store, Recovery),
        now: WallTime,
        lineage: u64,
    ) -> Result<(Self, Recovery, Opening), StoreError> {
        let dir = files.path(&STORE);
        let of_store = store.get(Table::Meta, LINEAGE_KEY)?;
        if of_store.is_some() && store.get(Table::Meta, FORMAT_KEY)?.is_none() {
            return Err(StoreError::FirstEdition(dir));
        }
        let left = tidy(|name| files.path(name).exists());
        files.carry_out(&mut left.into())?;
        let [old, current] = [JOURNAL_OLD, JOURNAL].map(|name| files.read(&name));
        let state = StoreState::new(of_store.as_deref(), store.number());
        let (opening, ops) = Opening::new(state, lineage, &old, &current)?;
        let mut data = Self {
            files,
            store: Some(store),
            copy: None,
            opened: now,
        };
        data.carry_out(&mut ops.into())?;
        Ok((data, recovery, opening))
    }

    /// Opens a copy, made in `place`, of the folder `dir`, to read from: nothing can be written to it.
    pub fn open_copy(
        dir: &Path,
        place: &Path,
        now: WallTime,
        lineage: u64,
    ) -> Result<(Self, Recovery, Opening), StoreError> {
        let copy = Copy::make(dir, place)?;
        let (mut data, recovery, opening) = Self::open(Files::new(&copy.at), now, lineage)?;
        data.copy = Some(copy);
        Ok((data, recovery, opening))
    }

    /// Does `ops` in order, up to the first that fails; that and what is behind it stay, and may be tried again.
    pub fn carry_out(&mut self, ops: &mut VecDeque<Op>) -> Result<(), StoreError> {
        if let Some(Copy { of, .. }) = &self.copy {
            let may_write = self.room().is_ok_and(|room| !room.is_read_only);
            let error = io::Error::from(rustix::io::Errno::ROFS);
            return Err(match may_write {
                true => StoreError::Writable(of.clone()),
                false => io_error("writing", of)(error),
            });
        }
        let is_again = self.store.as_ref().is_none_or(Store::is_failed);
        if is_again {
            self.open_again()?;
        }
        while let Some(op) = ops.front() {
            if let Op::Apply { number, writes } = op {
                let store = self.store.as_ref().expect("it is open");
                // What failed may have been the sync of a change that is there now.
                if !is_again || store.number() < *number {
                    store.write_as(Some(*number), writes)?;
                }
            } else {
                self.files.carry_out_first(ops)?;
                continue;
            }
            ops.pop_front();
        }
        Ok(())
    }

    /// The store, to read from. None where it failed and could not be opened again so far.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// What room there is on its disk.
    pub fn room(&self) -> io::Result<Room> {
        Room::of(self.copy.as_ref().map_or(&self.files.dir, |copy| &copy.of))
    }

    /// What the files of the store take.
    pub fn store_bytes(&self) -> io::Result<u64> {
        bytes_below(&self.files.path(&STORE))
    }

    /// What sled has in memory after a write that failed may not be what is on the disk.
    fn open_again(&mut self) -> Result<(), StoreError> {
        let dir = self.files.path(&STORE);
        // Its lock is free when it is gone.
        self.store = None;
        let (store, recovery) = Store::open(&dir, self.opened)?;
        if recovery.is_new {
            // The site goes by rows that this one does not have: only a start brings them back.
            return Err(StoreError::Failed(dir));
        }
        self.store = Some(store);
        Ok(())
    }
}
