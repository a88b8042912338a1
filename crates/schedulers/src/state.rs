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

/// Replaces the file, durably; makes its folder where there is none.
///
/// # Errors
/// If it cannot be written: the old one stays.
pub fn store(path: &Path, state: &impl Serialize) -> anyhow::Result<()> {
    let whole = || -> anyhow::Result<()> {
        fs::create_dir_all(folder_of(path))?;
        replace(path, &serde_json::to_vec(state)?)?;
        Ok(())
    };
    whole().with_context(|| format!("cannot write the cursor {}", path.display()))
}

/// Replaces a file by one of these bytes, durably.
///
/// # Errors
/// If it cannot be written: the old one stays.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = PathBuf::from(format!("{}.new", path.display()));
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_kept_and_a_damaged_one_begun_anew() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("deep/cursor.json");
        assert_eq!(load::<u64>(&path)?, None);
        store(&path, &7)?;
        assert_eq!(load(&path)?, Some(7));
        fs::write(&path, "{\"sacct_un")?;
        assert_eq!(load::<u64>(&path)?, None);
        Ok(())
    }
}
