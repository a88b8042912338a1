//! Room on the disk that the data folder is on: how much there is, and when it ends.
//!
//! Invariant: only a fault that room mends counts as lack of room; any other ends the node.
//!
//! Deliberately not here: what a node does without room (`driver/room.rs`).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, StatVfsMountFlags, fallocate, statvfs};

use super::StoreError;

/// Most that is kept for what the mesh says when there is little room. Of small disks less is kept.
const RESERVE_BYTES: u64 = 64 << 20;

/// Of the whole disk, what is kept at most.
const RESERVE_PERCENT: u64 = 5;

/// Most that sled and a new side file need to start. Of small disks less is kept.
const BALLAST_BYTES: u64 = 8 << 20;

/// Hours over which it is seen how fast a disk fills, and the least of them that say anything.
const HOURS: usize = 24;
const HOURS_MIN: usize = 6;

/// What the disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Bytes that the node's user may still write.
    pub free: u64,
    /// Bytes in all; 0 where the file system does not say.
    pub total: u64,
    /// Whether nothing may be written at all.
    pub is_read_only: bool,
}

impl Room {
    /// Of the disk that a folder is on.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let said = statvfs(folder)?;
        Ok(Self {
            free: said.f_bavail.saturating_mul(said.f_frsize),
            total: said.f_blocks.saturating_mul(said.f_frsize),
            is_read_only: said.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    /// Below so many free bytes only the mesh writes.
    pub fn reserve(&self) -> u64 {
        (self.total / 100 * RESERVE_PERCENT).min(RESERVE_BYTES)
    }

    /// Whether there is less than the reserve.
    pub fn is_low(&self) -> bool {
        self.free < self.reserve()
    }
}

/// Ballast: a file of no content that is thrown over board where a start lacks room, because sled writes when it is
/// opened. It is taken on again at once, so that the next start has it, too.
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Ballast {
    /// That of a data folder.
    pub fn of(folder: &Path) -> Self {
        Self(folder.join("ballast"))
    }

    /// Takes it on, where the disk has room for it. That there is none makes a start harder, and nothing else.
    pub fn take_on(&self) {
        let bytes = self.0.parent().and_then(|folder| Room::of(folder).ok());
        let bytes = bytes.map_or(0, |room| room.reserve().min(BALLAST_BYTES));
        if fs::metadata(&self.0).is_ok_and(|file| file.len() == bytes) {
            return;
        }
        let made = File::create(&self.0)
            .and_then(|file| Ok(fallocate(file, FallocateFlags::empty(), 0, bytes)?));
        if let Err(error) = made {
            tracing::debug!(file = %self.0.display(), %error, "no ballast");
            self.drop_it();
        }
    }

    /// Makes room. Whether there was any to make.
    pub fn drop_it(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}

/// How fast a disk fills: what was free at each of the last hours.
#[derive(Debug, Default)]
pub struct Filling(VecDeque<u64>);

impl Filling {
    /// Notes what is free, once an hour.
    pub fn note(&mut self, free: u64) {
        self.0.push_back(free);
        if self.0.len() > HOURS {
            self.0.pop_front();
        }
    }

    /// Whole days until nothing is free, if it goes on as it went; `None` where it does not fill, or too little
    /// is known.
    pub fn days_left(&self) -> Option<u64> {
        let (first, last) = (*self.0.front()?, *self.0.back()?);
        let hours = u64::try_from(self.0.len() - 1).ok()?;
        let gone = first.checked_sub(last).filter(|gone| *gone > 0)?;
        let is_enough = self.0.len() > HOURS_MIN;
        is_enough.then(|| last.saturating_mul(hours) / gone / 24)
    }
}

impl StoreError {
    /// Whether it would not have failed, had there been room.
    pub fn lacks_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let source = match self {
            Self::Io { source, .. } => source,
            Self::Engine {
                source: sled::Error::Io(source),
                ..
            } => source,
            _ => return false,
        };
        matches!(
            source.kind(),
            StorageFull | QuotaExceeded | ReadOnlyFilesystem
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_a_part_of_a_small_disk() {
        let room = |free, total| Room {
            free,
            total,
            is_read_only: false,
        };
        assert!(room(63 << 20, 1 << 40).is_low());
        assert!(!room(64 << 20, 1 << 40).is_low());
        assert!(!room(6 << 20, 100 << 20).is_low());
        assert!(room(4 << 20, 100 << 20).is_low());
        assert!(!room(0, 0).is_low(), "it does not say");
    }

    #[test]
    fn a_disk_that_fills_says_when_it_is_full() {
        let mut filling = Filling::default();
        for hour in 0..=5 {
            filling.note(1_000 - 10 * hour);
            assert_eq!(filling.days_left(), None);
        }
        filling.note(940);
        assert_eq!(filling.days_left(), Some(940 / 240));
        for _ in 0..HOURS {
            filling.note(940);
        }
        assert_eq!(filling.days_left(), None, "it stands still");
        filling.note(2_000);
        assert_eq!(filling.days_left(), None, "somebody made room");
    }
}
