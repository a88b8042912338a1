//! Takes connections, and stops when told to.
//!
//! Invariant: a connection is counted from before its task starts until that has ended, however it ends.
//! Refused clients are told why.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairmesh_client::protocol::{Status, encode_error};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::connection::Connection;
use super::{End, LookupConfig, LookupSource, LookupStats};
use crate::sockets::{BindError, Slots, Socket, serve_all};

/// A server that is bound and not yet running.
#[derive(Debug)]
pub struct LookupServer<S> {
    socket: Socket,
    source: Arc<S>,
    config: Arc<LookupConfig>,
    stats: Arc<LookupStats>,
    slots: Arc<Slots>,
}

impl<S: LookupSource> LookupServer<S> {
    /// Makes the socket at `path`. A stale one is replaced; one that another server answers on is an
    /// error. Must be called within a tokio runtime.
    pub async fn bind(
        path: &Path,
        source: Arc<S>,
        config: LookupConfig,
    ) -> Result<Self, BindError> {
        Ok(Self {
            socket: Socket::bind(path, config.mode).await?,
            source,
            slots: Slots::new(config.slots, config.trusted.clone()),
            config: Arc::new(config),
            stats: Arc::default(),
        })
    }

    /// The counters, which stay readable while the server runs and afterwards.
    pub fn stats(&self) -> Arc<LookupStats> {
        Arc::clone(&self.stats)
    }

    /// Serves until `stop` holds true (or its sender is gone), then lets connections finish the
    /// requests that have arrived, and removes the socket file.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self {
            socket,
            source,
            config,
            stats,
            slots,
        } = self;
        let (grace, connections_stop) = (config.stop_grace, stop.clone());
        let take = |stream: UnixStream| {
            let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
            let Some(slot) = Slots::take(&slots, uid) else {
                stats.connections_refused.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(uid, "too many look-up connections");
                refuse(&stream);
                return None;
            };
            stats.connections.fetch_add(1, Ordering::Relaxed);
            let (source, config) = (Arc::clone(&source), Arc::clone(&config));
            let connection =
                Connection::new((stream, uid), slot, source, config, Arc::clone(&stats));
            let (stats, stop) = (Arc::clone(&stats), connections_stop.clone());
            Some(async move {
                let end = connection.serve(stop).await;
                if matches!(end, End::Idle | End::Deadline) {
                    stats.timed_out.fetch_add(1, Ordering::Relaxed);
                }
                tracing::debug!(uid, %end, "look-up connection ended");
            })
        };
        serve_all(socket, "lookup.sock", grace, stop, take).await;
    }
}

/// Says why, as far as the socket takes it at once: nobody waits for a client that is sent away.
fn refuse(stream: &UnixStream) {
    let mut frame = Vec::new();
    encode_error(&mut frame, 0, Status::Busy, "too many connections");
    if let Err(error) = stream.try_write(&frame) {
        tracing::debug!(%error, "a refused client was not told");
    }
}
