//! A small disk of its own for a folder of a test: it fills, gets room again, and is write-protected.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Of the disk in MiB: 5 % of it are kept for the mesh.
const DISK: u64 = 64;

/// A disk of its own below a folder, gone when dropped.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// `None` where this user may not mount one.
    ///
    /// # Errors
    /// None at present.
    pub fn mount(folder: &Path) -> anyhow::Result<Option<Self>> {
        let size = format!("size={DISK}m,mode=700");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "fairmesh-test"])
            .arg(folder)
            .output();
        Ok(match mount {
            Ok(output) if output.status.success() => Some(Self(folder.to_owned())),
            _ => None,
        })
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves so many KiB free.
    ///
    /// # Errors
    /// If the disk cannot be read or written.
    pub fn fill(&self, left_kib: u64) -> anyhow::Result<()> {
        let free = Command::new("df")
            .args(["--output=avail", "-k"])
            .arg(&self.0)
            .output()?;
        let text = String::from_utf8(free.stdout)?;
        let free: u64 = text.lines().last().context("a number")?.trim().parse()?;
        let kib = usize::try_from(free.saturating_sub(left_kib))?;
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.filler())?;
        for _ in 0..kib {
            if file.write_all(&[1; 1_024]).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Removes what [`Disk::fill`] has written.
    ///
    /// # Errors
    /// If nothing was written.
    pub fn make_room(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }

    /// Makes it read-only, or writable again.
    ///
    /// # Errors
    /// If it cannot be mounted again.
    pub fn write_protect(&self, on: bool) -> anyhow::Result<()> {
        let how = if on { "remount,ro" } else { "remount,rw" };
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", how]).arg(&self.0).status()?;
        ensure!(status.success(), "{how}: {status}");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
