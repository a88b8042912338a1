//! What is remembered between two runs: one small file, replaced whole.
//!
//! Invariant: a crash leaves the old file or the new one. Deliberately not here: what it says.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads the file; `None` where there is none, or where it is damaged, which is said.
///
/// # Errors
/// If it is there and cannot be read.
pub fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(serde_json::from_slice(&text)
        .inspect_err(|error| {
            tracing::warn!(
                file = %path.display(), %error,
                "the cursor is damaged; reading again from the beginning counts nothing twice"
            );
        })
        .ok())
}

/// Replaces the file, durably.
///
/// # Errors
/// If it cannot be written: the old one stays.
pub fn store(path: &Path, state: &impl Serialize) -> anyhow::Result<()> {
    let whole = || -> anyhow::Result<()> {
        let folder = path.parent().context("a file is in a folder")?;
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        fs::create_dir_all(folder)?;
        let fresh = PathBuf::from(format!("{}.new", path.display()));
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(folder)?.sync_all()?;
        Ok(())
    };
    whole().with_context(|| format!("cannot write the cursor {}", path.display()))
}
