//! Usage that a throw-away Slurm holds of its associations, given to it in the file that slurmctld keeps it in.
//!
//! Invariant: slurmctld is killed first, so that it does not write what it knows over the file, and reads all of it when
//! it starts. Deliberately not here: what slurmctld makes of it (`sshare`).

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{Slurm, said};

/// Bytes of the file before its records: the version of the protocol and a time.
const HEADER_BYTES: usize = 10;

impl Slurm {
    /// Replaces the raw usage of users' associations, by their ids, and has it read.
    ///
    /// # Errors
    /// If slurmctld has not written its state yet, or does not come back.
    pub fn set_usage(&self, used: &[(u32, u64)]) -> anyhow::Result<()> {
        let file = self.folder.join("state/assoc_usage");
        let pid = fs::read_to_string(self.folder.join("run/slurmctld.own"))?;
        let pid = pid.split_whitespace().next().context("a process")?;
        said(Command::new("kill").args(["-KILL", pid]))?;
        let mut bytes = fs::read(&file)?;
        ensure!(bytes.len() >= HEADER_BYTES, "{} is empty", file.display());
        bytes.truncate(HEADER_BYTES);
        for (id, used) in used {
            let text = format!("{used}.000000\0");
            bytes.extend(id.to_be_bytes());
            bytes.extend(u32::try_from(text.len())?.to_be_bytes());
            bytes.extend(text.as_bytes());
            // No usage by resource, and no wall time of a group.
            bytes.extend([0; 8]);
        }
        fs::write(&file, bytes)?;
        self.restart_slurmctld()
    }
}
