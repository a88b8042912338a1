//! Secret keys in files: 32 bytes as 64 hexadecimal digits, readable by their owner only.
//!
//! Invariant: a key file is made once and never written again, is on the disk before its public
//! half is told to anybody, and is refused when others could have read it. Secrets come from files
//! only, never from arguments or the environment.
//! Deliberately not here: what a key signs.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, bail};
use fairmesh_model::{KeyId, SigningKey};
use tempfile::Builder;

/// Longest key file that is read: the digits, a line end, and some slack.
const KEY_FILE_BYTES_MAX: u64 = 128;

/// Draws a key from the system's randomness and writes it to a new file of mode 0600.
pub fn generate_key(path: &Path) -> anyhow::Result<SigningKey> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    let digits = KeyId::from_bytes(secret).to_string();
    write_new(path, format!("{digits}\n").as_bytes(), 0o600)?;
    Ok(SigningKey::from_secret(&secret))
}

/// Reads a key.
///
/// # Errors
/// Where the file is not there, holds no key, or can be read by others than its owner. (A
/// credential that systemd passed on may be readable by its group: that is how it is granted.)
pub fn load_key(path: &Path) -> anyhow::Result<SigningKey> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the key file {shown}"))?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    let forbidden = if is_credential(path) { 0o007 } else { 0o077 };
    if mode & forbidden != 0 {
        bail!(
            "{shown} can be read by others (mode {mode:04o}), so the key may be known to them: \
             run `chmod 600 {shown}`, and make a new key if others use this machine"
        );
    }
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("{shown} is no key file"))?;
    // The form of a key is that of an id; it is not echoed, not even in an error.
    let secret: KeyId = text
        .trim()
        .parse()
        .map_err(|_| anyhow::anyhow!("{shown} is no key file: expected 64 hexadecimal digits"))?;
    Ok(SigningKey::from_secret(secret.as_bytes()))
}

fn is_credential(path: &Path) -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY")
        .is_some_and(|folder| !folder.is_empty() && path.starts_with(folder))
}

/// Writes a file that must not be there yet, durably: it is there as a whole or not at all.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mode = Permissions::from_mode(mode);
        // Beside it, and gone where anything fails: what is half written would be in the way of the next try.
        let mut fresh = Builder::new().permissions(mode).tempfile_in(folder)?;
        fresh.write_all(bytes)?;
        fresh.as_file().sync_all()?;
        fresh.persist_noclobber(path)?;
        File::open(folder)?.sync_all()
    };
    written().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} is there already: it was not changed", path.display())
        }
        _ => anyhow::Error::new(error).context(format!("cannot make {}", path.display())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_secret_and_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.key");
        let key = generate_key(&path).expect("makes a key");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(load_key(&path).expect("reads").key_id(), key.key_id());
        assert!(generate_key(&path).is_err());
        for bits in [0o640, 0o604, 0o644] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(bits)).expect("sets");
            let error = load_key(&path).expect_err("others can read it").to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let folder = tempfile::tempdir().expect("a folder");
        for (index, text) in ["", "secret", &"g".repeat(64), &"a".repeat(500)]
            .iter()
            .enumerate()
        {
            let path = folder.path().join(index.to_string());
            write_new(&path, text.as_bytes(), 0o600).expect("writes");
            let error = format!("{:#}", load_key(&path).expect_err("no key"));
            assert!(
                error.contains("no key file") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
