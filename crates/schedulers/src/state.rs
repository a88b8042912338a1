//! What is remembered between two runs: one small file, replaced whole.
//!
//! Invariant: a crash leaves the old file or the new one. Deliberately not here: what it says.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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
        replace(path, &serde_json::to_vec(state)?, None)?;
        Ok(())
    };
    whole().with_context(|| format!("cannot write the cursor {}", path.display()))
}

/// Replaces a file by one of these bytes, durably; whoever does so at the same time replaces it, too, and by all of his.
/// It has this mode, or what the umask leaves.
///
/// # Errors
/// If it cannot be written: the old one stays.
pub fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let folder = folder_of(path);
    let mut fresh = tempfile::Builder::new();
    let fresh = fresh.permissions(fs::Permissions::from_mode(0o666));
    let mut fresh = fresh.tempfile_in(folder)?;
    fresh.write_all(bytes)?;
    if let Some(mode) = mode {
        let mode = fs::Permissions::from_mode(mode);
        fresh.as_file().set_permissions(mode)?;
    }
    fresh.as_file().sync_all()?;
    fresh.persist(path)?;
    File::open(folder)?.sync_all()
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

    #[test]
    fn whoever_replaces_a_file_beside_another_replaces_it_by_all_of_his() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("metrics.prom");
        let texts = [b'a', b'b'].map(|letter| vec![letter; 100_000]);
        let again = |text: &Vec<u8>| -> io::Result<()> {
            for _ in 0..50 {
                replace(&path, text, Some(0o604))?;
                let read = fs::read(&path)?;
                assert!(texts.contains(&read), "a mixture, or {} bytes", read.len());
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let both = texts.each_ref().map(|text| scope.spawn(|| again(text)));
            both.into_iter()
                .try_for_each(|one| one.join().expect("no panic"))
        })?;
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o604);
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }
}
