//! Takes connections, and stops when told to.
//!
//! Invariant: a connection is counted from before its task starts until that has ended;
//! it ends by itself, by a deadline, or when the server stops. Refused clients are told why.
//! Deliberately not here: what is served on them.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use futures::FutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::access::{Peer, trusted};
use super::blocking::watched;
use super::{ControlOptions, Shared, router};
use crate::sockets::{BindError, Slots, Socket, serve_all, stopped};

/// Everybody may connect and read: who may write is decided by who one is.
const SOCKET_MODE: u32 = 0o666;

/// Bytes of a request's head: paths and parameters are below a kilobyte.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// What a client is told that is one too many.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    connection: close\r\ncontent-length: 83\r\n\r\n\
    {\"error\":\"too many connections\",\"hint\":\"close some, or try again in a few seconds\"}";

/// A server that is bound and not yet running.
pub struct ControlServer {
    socket: Socket,
    shared: Arc<Shared>,
    slots: Arc<Slots>,
}

impl ControlServer {
    pub(super) async fn bind(path: &Path, options: ControlOptions) -> Result<Self, BindError> {
        Ok(Self {
            socket: Socket::bind(path, SOCKET_MODE).await?,
            slots: Slots::new(options.limits.slots, trusted(&options.settings)),
            shared: Arc::new(Shared::new(options)),
        })
    }

    /// What it serves from, for another listener.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Serves until `stop` holds true (or its sender is gone), then lets connections finish the
    /// requests that have arrived, and removes the socket file.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self {
            socket,
            shared,
            slots,
        } = self;
        let (grace, connections_stop) = (shared.options.limits.stop_grace, stop.clone());
        let take = |stream: UnixStream| {
            let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
            let Some(slot) = Slots::take(&slots, uid) else {
                tracing::debug!(uid, "too many control connections");
                if let Err(error) = stream.try_write(BUSY) {
                    tracing::debug!(%error, "a refused client was not told");
                }
                return None;
            };
            let (shared, stop) = (Arc::clone(&shared), connections_stop.clone());
            let socket = stream.as_fd().try_clone_to_owned();
            Some(async move {
                let age_max = shared.options.limits.connection_age_max;
                let head_deadline = shared.options.limits.head_deadline;
                let router = router(shared).layer(Extension(Peer { uid }));
                let router = router.layer(Extension(Arc::new(slot)));
                let (tell, hung_up) = watch::channel(false);
                let router = router.layer(Extension(hung_up));
                let served = serve(stream, router, head_deadline, stop);
                let served = watched(served, socket, tell);
                match tokio::time::timeout(age_max, served).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(uid, %error, "control connection ended"),
                    Err(_) => {
                        tracing::debug!(uid, "a control connection was cut after {age_max:?}")
                    }
                }
            })
        };
        let retry = tokio::spawn(super::accounting::retry::retry(Arc::clone(&shared)).boxed());
        serve_all(socket, "control.sock", grace, stop, take).await;
        retry.abort();
    }
}

/// Serves HTTP/1.1 on one connection until it ends, or the request under way when `stop` comes is answered.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    head_deadline: Duration,
    mut stop: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_deadline)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let text = std::str::from_utf8(BUSY).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.ends_with(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
    }
}
