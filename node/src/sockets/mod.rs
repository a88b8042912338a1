//! What the node's two Unix sockets share: the file, who is let in, and whose turn it is; and the loop that takes
//! connections, of these and of the page's.
//!
//! Users of a cluster are not friends of each other. Root, the node's own user and the owner's writers (the
//! scheduler's user among them) are *trusted*: places are kept for them, and they wait for nobody. Any other
//! user has few places, whatever users he makes of himself with `unshare`, and has his requests answered one
//! after the other; so have all users together but for [`TURNS`].
//!
//! Invariant: what other users ask, however much, costs a trusted client one place of none and no turn.
//! Deliberately not here: what is asked and answered (`lookup`, `control`).

mod file;
mod owner;
mod slots;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::network::Throttle;

pub use file::BindError;
pub(crate) use file::Socket;
pub(crate) use slots::{Own, Slot, Slots, Turn};
pub use slots::{SlotLimits, TURNS, Trusted};

/// Pause after `accept` has failed (out of file descriptors, mostly): trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections come from.
pub(crate) trait Accepts {
    type Connection;

    fn next(&mut self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Accepts for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    async fn next(&mut self) -> io::Result<Self::Connection> {
        self.accept().await
    }
}

/// Hands connections to `take`, and runs what that returns, until `stop` holds true (or its sender is
/// gone). Then connections have `grace` to finish the requests that have arrived, and the listener goes.
pub(crate) async fn serve_all<L: Accepts, F>(
    mut listener: L,
    what: &'static str,
    grace: Duration,
    mut stop: watch::Receiver<bool>,
    take: impl Fn(L::Connection) -> Option<F>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut trouble = Throttle::default();
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.next() => match accepted {
                Ok(connection) => {
                    take(connection).map(|connection| tasks.spawn(connection.boxed()));
                }
                Err(error) => {
                    if let Some(held_back) = trouble.pass(Instant::now()) {
                        tracing::warn!(%error, held_back, "cannot accept connections of {what}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all_ended).await.is_err() {
        tracing::warn!("connections of {what} did not finish in {grace:?} and were cut");
    }
}

/// Waits until the server is told to stop, or nobody is left who could tell it.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if let Err(error) = stop.wait_for(|stop| *stop).await {
        tracing::debug!(%error, "nobody is left to stop the server, so it stops");
    }
}
