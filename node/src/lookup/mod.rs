//! The server of `lookup.sock`: schedulers ask, the node answers from the view that it holds.
//!
//! Invariant: a look-up waits for nobody: no other site, no disk, no lock that is held over IO. All
//! rows of an answer come from one [`LookupSnapshot`]. Connections (in all and of each user), frame
//! sizes, batches, buffers and waiting times are bounded by [`LookupConfig`] and the protocol, and
//! what a client sends wrong costs that client its connection and nobody anything else.
//!
//! The protocol itself is `fairmesh_client::protocol`; `socket` makes the socket file, `server`
//! accepts, `connection` serves one client, `memo` is what it asked before.
//!
//! Deliberately not here: writing anything to the node. Whoever can open the socket may read; of what the owner hides
//! (`crate::privacy`) others' factors are answered as those of nobody.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fairmesh_client::protocol::{View, Who};

use crate::privacy::VisibilityResolver;
use crate::sockets::{SlotLimits, Trusted};

pub(crate) mod connection;
mod memo;
mod server;

pub use server::LookupServer;

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

/// Where look-ups are answered from.
pub trait LookupSource: Send + Sync + 'static {
    /// What one answer is made from.
    type Snapshot: LookupSnapshot;

    /// The newest state. Called once for each request: cheap, and never waits for a writer's IO.
    fn snapshot(&self) -> Arc<Self::Snapshot>;
}

/// One state of the share tree and its usage.
pub trait LookupSnapshot: Send + Sync + 'static {
    /// The entry of the share tree that `who` is charged to; `None` if nobody is known by these
    /// names. `u32::MAX` is no entry. Clients keep entries as handles.
    fn resolve(&self, who: &Who<'_>) -> Option<u32>;

    /// The factor of an entry, 0 to 1,000,000,000; `None` if there is no such entry (clients may
    /// send any number).
    fn factor(&self, entry: u32) -> Option<u32>;

    /// What the factors rest on. Its `generation` is filled in from [`LookupSnapshot::generation`].
    fn view(&self) -> View;

    /// The tree of the view; `None` for a snapshot without one.
    fn tree(&self) -> Option<Arc<fairmesh_site::View>> {
        None
    }

    /// Changes whenever an entry, known or unknown, may have come to mean something else.
    fn generation(&self) -> u64;
}

/// Limits of the server.
#[derive(Debug, Clone)]
pub struct LookupConfig {
    /// Mode of the socket file: who may ask (connecting takes the right to write).
    pub mode: u32,
    /// Most connections: each may hold a frame of 4 MiB.
    pub slots: SlotLimits,
    /// Who waits for nobody.
    pub trusted: Trusted,
    /// Who sees whose factors; without, everybody sees all.
    pub resolver: Option<VisibilityResolver>,
    /// How long a frame may take to arrive, and an answer to be taken.
    pub frame_deadline: Duration,
    /// How long a connection may lie idle; it may take twice that until it is closed.
    pub idle_max: Duration,
    /// How long connections get to finish when the server stops.
    pub stop_grace: Duration,
}

impl Default for LookupConfig {
    fn default() -> Self {
        Self {
            mode: 0o666,
            slots: SlotLimits {
                all: 96,
                reserved: 32,
                of_one: 16,
            },
            trusted: Trusted::default(),
            resolver: None,
            frame_deadline: Duration::from_secs(5),
            idle_max: Duration::from_secs(900),
            stop_grace: Duration::from_secs(2),
        }
    }
}

/// Why a connection ended, for the log and the counters.
#[derive(Debug, thiserror::Error)]
enum End {
    /// The client left between frames.
    #[error("closed")]
    Closed,
    /// The client left in the middle of a frame.
    #[error("closed in the middle of a frame")]
    CutOff,
    /// Nothing came for too long.
    #[error("idle for too long")]
    Idle,
    /// A frame or an answer got stuck.
    #[error("a frame was not sent or an answer not read in time")]
    Deadline,
    /// What came is not the protocol.
    #[error("refused: {0}")]
    Refused(String),
    #[error("{0}")]
    Io(std::io::Error),
    #[error("the node stops")]
    Stopped,
}

#[cfg(test)]
mod tests;
