//! The data folder is its owner's: however the node is started, others read nothing of it.
//!
//! Invariant: rights are taken away, and only what the node makes itself is given any. Sockets have modes of their own,
//! and where they lie in the data folder, others may pass through it to them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::Mode;

use fairmesh_node::config::Config;
use fairmesh_node::store::Room;

/// Of the data folder: its user's, and its group may read.
const FOLDER: u32 = 0o750;

/// What others need of a folder that their sockets are in.
const PASS: u32 = 0o001;

/// The folder of sockets: whoever may ask is said by the sockets themselves.
const SOCKETS: u32 = 0o755;

/// Sees to it that whatever this process makes, and the data folder, is not for others.
pub(super) fn guard(config: &Config) -> anyhow::Result<()> {
    rustix::process::umask(Mode::from_raw_mode(0o027));
    let data = &config.data_dir;
    let sockets = [&config.sockets.lookup, &config.sockets.control];
    let pass = match sockets.iter().any(|socket| socket.starts_with(data)) {
        true => PASS,
        false => 0,
    };
    make(data, FOLDER | pass)?;
    let mode = fs::metadata(data).map(|metadata| metadata.permissions().mode() & 0o7777);
    let mode = mode.with_context(|| format!("cannot read {}", data.display()))?;
    let less = mode & (FOLDER | pass);
    if less != mode
        && let Err(error) = fs::set_permissions(data, fs::Permissions::from_mode(less))
    {
        // Of somebody else, or on a disk that nobody may write.
        tracing::warn!(folder = %data.display(), %error, "others may read the data folder");
    }
    for socket in sockets {
        make(socket.parent().context("a socket is in a folder")?, SOCKETS)?;
    }
    Ok(())
}

/// Where a copy of a data folder that cannot be written may be made: beside the sockets, where these can be.
pub(super) fn place_of_copies(config: &Config) -> Option<PathBuf> {
    let place = config.sockets.lookup.parent()?;
    let room = Room::of(place).ok()?;
    (!room.is_read_only).then(|| place.to_owned())
}

/// Makes a folder with those that it is in, if it is not there. The mode is its own: the umask is stricter.
fn make(folder: &Path, mode: u32) -> anyhow::Result<()> {
    let cannot = || format!("cannot make {}", folder.display());
    if folder.exists() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make(above, SOCKETS)?;
    }
    match fs::DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made.with_context(cannot)?,
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_read_nothing_and_reach_the_sockets() {
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let folder = tempfile::tempdir().expect("a folder");
        let config = |sockets: &str| {
            let text = format!("[site]\nname = \"s\"\n{sockets}");
            let file = folder.path().join("f.toml");
            Config::parse(&text, &file, &|_| anyhow::bail!("no file")).expect("valid")
        };
        let data = folder.path().join("data");
        guard(&config("")).expect("made");
        assert_eq!((mode(&data), mode(&data.join("run"))), (0o751, 0o755));
        let elsewhere = "[sockets]\nlookup = \"run/l\"\ncontrol = \"run/c\"\n";
        guard(&config(elsewhere)).expect("changed");
        assert_eq!(
            (mode(&data), mode(&folder.path().join("run"))),
            (0o750, 0o755)
        );
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("ours");
        guard(&config("")).expect("left");
        assert_eq!(mode(&data), 0o700, "nothing is given");
    }
}
