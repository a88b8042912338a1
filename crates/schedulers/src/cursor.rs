//! How far the feed has come: one small file, replaced whole.
//!
//! Invariant: it is written only after the node has acknowledged what lies before it, and a crash
//! leaves the old file or the new one. Losing it costs time and no truth: the node knows what it has
//! counted. Deliberately not here: reading Slurm.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

pub(super) use crate::follow::FilePosition;

/// How far the feed has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// Finished jobs of `sacct` are known up to this end, in seconds since 1970.
    pub(super) sacct_until: Option<u64>,
    /// The file of `jobcomp/filetxt`: which, and how far.
    pub(super) file: Option<FilePosition>,
    /// Seconds for which jobs were seen to be suspended, by number and submit time, until their end
    /// is known: `jobcomp/filetxt` does not say it.
    #[serde(default)]
    pub(super) suspended: BTreeMap<String, u64>,
}

impl Cursor {
    /// Reads the file; nothing where there is none. A damaged one is begun anew, and said so.
    pub(super) fn load(path: &Path) -> io::Result<Self> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(
                file = %path.display(),
                %error,
                "slurm feed: the cursor is damaged; reading again from the beginning counts nothing twice"
            );
            Self::default()
        }))
    }

    /// Replaces the file.
    pub(super) fn store(&self, path: &Path) -> anyhow::Result<()> {
        let whole = || -> anyhow::Result<()> {
            let folder = path.parent().context("a file is in a folder")?;
            fs::create_dir_all(folder)?;
            let fresh = path.with_extension("new");
            let mut file = File::create(&fresh)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&fresh, path)?;
            File::open(folder)?.sync_all()?;
            Ok(())
        };
        whole().with_context(|| format!("cannot write the cursor {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_kept_and_a_damaged_one_begun_anew() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("deep/cursor.json");
        assert_eq!(Cursor::load(&path)?, Cursor::default());
        let cursor = Cursor {
            sacct_until: Some(7),
            ..Cursor::default()
        };
        cursor.store(&path)?;
        assert_eq!(Cursor::load(&path)?, cursor);
        fs::write(&path, "{\"sacct_un")?;
        assert_eq!(Cursor::load(&path)?, Cursor::default());
        Ok(())
    }
}
