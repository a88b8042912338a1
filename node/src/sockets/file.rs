//! The socket file: made under another name and moved into place, so that it never exists with the
//! wrong mode, and a stale one is replaced in one step.
//!
//! Invariant: a file that is no socket is never removed, nor the socket of a server that answers.
//! When a server is dropped its file goes, unless another has taken the place. A file that is removed while
//! its server runs is made again. (`control` makes its socket here, too.)

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use super::Accepts;

/// How long a server that may live gets to accept the probing connection.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How often a server without new connections looks whether its file is still there.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why the socket could not be made. What was there is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another server answers there.
    #[error("{0} is served by another node: stop that one, or give this one its own path")]
    Served(PathBuf),
    /// There is something else by that name.
    #[error("{0} exists and is not a socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A listening socket with its file.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    mode: u32,
    /// Device and inode of our file.
    identity: (u64, u64),
}

impl Socket {
    /// Makes the socket at `path` with `mode`, in the place of a stale one.
    pub(crate) async fn bind(path: &Path, mode: u32) -> Result<Self, BindError> {
        refuse_if_taken(path).await?;
        let io_error = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        if is_socket(&temporary).map_err(io_error)? == Some(true) {
            fs::remove_file(&temporary).map_err(io_error)?;
        }
        let listener = UnixListener::bind(&temporary).map_err(io_error)?;
        let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(&temporary))
            .and_then(|metadata| fs::rename(&temporary, path).map(|()| metadata));
        let metadata = placed.map_err(|source| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&temporary);
            io_error(source)
        })?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            mode,
            identity: (metadata.dev(), metadata.ino()),
        })
    }
}

impl Accepts for Socket {
    type Connection = UnixStream;

    async fn next(&mut self) -> io::Result<UnixStream> {
        loop {
            match tokio::time::timeout(LOOK_EVERY, self.listener.accept()).await {
                Ok(accepted) => return Ok(accepted?.0),
                Err(_) => self.restore().await,
            }
        }
    }
}

impl Socket {
    /// Makes the file again if it was removed: no client would find the server until its next start.
    async fn restore(&mut self) {
        let Err(error) = fs::symlink_metadata(&self.path) else {
            return;
        };
        let socket = self.path.display().to_string();
        match Self::bind(&self.path, self.mode).await {
            Ok(restored) => {
                tracing::warn!(socket, %error, "the socket file was removed, and is made again");
                *self = restored;
            }
            // Its folder may be away, too; the next look tries again.
            Err(why) => tracing::debug!(socket, %why, "the socket file cannot be made again"),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "the socket file stays behind");
        }
    }
}

async fn refuse_if_taken(path: &Path) -> Result<(), BindError> {
    let io_error = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    match is_socket(path).map_err(io_error)? {
        None => return Ok(()),
        Some(false) => return Err(BindError::NotASocket(path.to_owned())),
        Some(true) => {}
    }
    match tokio::time::timeout(PROBE_MAX, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Full or slow to accept is alive, too.
        Ok(Ok(_)) | Err(_) => Err(BindError::Served(path.to_owned())),
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(BindError::Served(path.to_owned()))
        }
        Ok(Err(error)) => Err(io_error(error)),
    }
}

fn is_socket(path: &Path) -> io::Result<Option<bool>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.file_type().is_socket())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_whose_file_is_removed_is_made_again_and_another_server_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control.sock");
        let mut socket = Socket::bind(&path, 0o660).await.expect("bound");
        fs::remove_file(&path).expect("there");
        socket.restore().await;
        let mode = fs::metadata(&path)
            .expect("made again")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o660);
        UnixStream::connect(&path).await.expect("served");
        socket.next().await.expect("the connection");
        fs::remove_file(&path).expect("there");
        let other = Socket::bind(&path, 0o600).await.expect("bound");
        socket.restore().await;
        drop(socket);
        UnixStream::connect(&path).await.expect("the other serves");
        drop(other);
    }
}
