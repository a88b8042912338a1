//! Accepts connections, within limits, and stops when told to.
//!
//! Invariant: a connection is counted for its user from before its task starts until that has ended,
//! however it ends. Refused clients are told why. The lock around the counts is held for a look-up in
//! a map, never over IO.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairmesh_client::protocol::{Status, encode_error};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::socket::Socket;
use super::{BindError, End, LookupConfig, LookupSource};
use crate::slots::Slots;

/// Pause after `accept` has failed (out of file descriptors, mostly): trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Counters for the metrics; they only grow.
#[derive(Debug, Default)]
pub struct LookupStats {
    /// Requests answered with factors.
    pub answered: AtomicU64,
    /// Rows in those answers.
    pub rows: AtomicU64,
    /// Requests answered with an error.
    pub refused: AtomicU64,
    /// Connections taken.
    pub connections: AtomicU64,
    /// Connections refused because there were too many.
    pub connections_refused: AtomicU64,
    /// Connections ended for a stuck frame or for being idle.
    pub timed_out: AtomicU64,
}

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
            config: Arc::new(config),
            stats: Arc::default(),
            slots: Arc::default(),
        })
    }

    /// The counters, which stay readable while the server runs and afterwards.
    pub fn stats(&self) -> Arc<LookupStats> {
        Arc::clone(&self.stats)
    }

    /// Serves until `stop` holds true (or its sender is gone), then lets connections finish the
    /// requests that have arrived, and removes the socket file.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        let connections_stop = stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(_) = tasks.join_next() => {}
                accepted = self.socket.listener.accept() => match accepted {
                    Ok((stream, _)) => self.take(stream, &mut tasks, &connections_stop),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept look-up connections");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        let grace = self.config.stop_grace;
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!("look-up connections did not finish in {grace:?} and were cut");
        }
    }

    fn take(&self, stream: UnixStream, tasks: &mut JoinSet<()>, stop: &watch::Receiver<bool>) {
        let uid = match stream.peer_cred() {
            Ok(credentials) => credentials.uid(),
            Err(error) => {
                tracing::warn!(%error, "a look-up client without credentials was sent away");
                return;
            }
        };
        let (max, per_uid_max) = (
            self.config.connections_max,
            self.config.connections_per_uid_max,
        );
        let Some(slot) = Slots::take(&self.slots, Some(uid), max, per_uid_max) else {
            self.stats
                .connections_refused
                .fetch_add(1, Ordering::Relaxed);
            tracing::debug!(uid, "too many look-up connections");
            refuse(&stream);
            return;
        };
        self.stats.connections.fetch_add(1, Ordering::Relaxed);
        let stats = Arc::clone(&self.stats);
        let connection = Connection::new(
            stream,
            Arc::clone(&self.source),
            Arc::clone(&self.config),
            Arc::clone(&stats),
        );
        let stop = stop.clone();
        tasks.spawn(async move {
            let end = connection.serve(stop).await;
            drop(slot);
            if matches!(end, End::Idle | End::Deadline) {
                stats.timed_out.fetch_add(1, Ordering::Relaxed);
            }
            tracing::debug!(uid, %end, "look-up connection ended");
        });
    }
}

/// Waits until the server is told to stop, or nobody is left who could tell it.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if let Err(error) = stop.wait_for(|stop| *stop).await {
        tracing::debug!(%error, "nobody is left to stop the look-up server, so it stops");
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
