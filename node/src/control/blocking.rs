//! Long work for an answer: on a blocking thread, and only while the client waits.
//!
//! Invariant: a client's turn lasts until the work has ended, even if the client is gone by then, so a client never has
//! more work running than it has turns. The work is cancelled when its time is over, the client has hung up, or the
//! server has dropped the request because the node stops; so a stopping runtime does not wait for answers.
//! Deliberately not here: what is computed.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use fairmesh_api::{Answer, RestsOn};
use futures::StreamExt as _;
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::Shared;
use super::error::ApiError;
use crate::sockets::Turn;

/// Holds true from when the client of a connection has closed it.
pub(super) type HungUp = watch::Receiver<bool>;

/// Pieces of a streamed answer, sent from a blocking thread.
pub(super) type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// The client's turn for one answer, how to learn that the client has hung up, and the deadline.
#[derive(Debug)]
pub(super) struct BlockingAnswer {
    turn: Option<Arc<Turn>>,
    hung_up: Option<HungUp>,
    time_max: Duration,
}

/// Set when no client waits for the answer any more: the waiting task owns the value that this points to. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CancelFlag(Weak<()>);

impl FromRequestParts<Arc<Shared>> for BlockingAnswer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self {
            turn: parts.extensions.get::<Arc<Turn>>().cloned(),
            hung_up: parts.extensions.get::<HungUp>().cloned(),
            time_max: shared.options.limits.answer_deadline,
        })
    }
}

impl BlockingAnswer {
    /// The same, with another turn and deadline.
    pub(super) fn with(self, turn: Turn, time_max: Duration) -> Self {
        Self {
            turn: Some(Arc::new(turn)),
            time_max,
            ..self
        }
    }

    /// Runs `work`, which must check the flag from time to time.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self {
            turn,
            hung_up,
            time_max,
        } = self;
        let waiting = Arc::new(());
        let cancel = CancelFlag(Arc::downgrade(&waiting));
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&cancel)
        });
        tokio::select! {
            worked = worked => worked.map_err(ApiError::internal),
            () = gone(hung_up) => Err(nobody_waits()),
            () = tokio::time::sleep(time_max) => {
                let error = format!("no answer within {time_max:?}");
                Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, error)
                    .hint("ask for less at once: a shorter period, or a part of the tree"))
            }
        }
    }

    /// Makes an answer of schema `fairmesh.<what>/1` and writes it out.
    pub(super) async fn answer<T: Serialize>(
        self,
        what: &'static str,
        rests_on: RestsOn,
        make: impl FnOnce(&CancelFlag) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let written = self.run(move |cancel| {
            let answer = Answer {
                schema: format!("fairmesh.{what}/1"),
                rests_on,
                body: make(cancel)?,
            };
            let mut text = Text {
                bytes: Vec::new(),
                cancel,
            };
            serde_json::to_writer(&mut text, &answer).map_err(|error| cancel.fault(error))?;
            Ok::<_, ApiError>(text.bytes)
        });
        Ok(json(written.await??))
    }

    /// An answer that is sent while it is made. There is no deadline: it ends with its reader.
    pub(super) fn streamed(
        self,
        waiting_max: usize,
        make: impl FnOnce(&CancelFlag, &Pieces) + Send + 'static,
    ) -> Response {
        let Self { turn, hung_up, .. } = self;
        let waiting = Arc::new(());
        let cancel = CancelFlag(Arc::downgrade(&waiting));
        let (pieces, mut sent) = mpsc::channel(waiting_max);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make(&cancel, &pieces);
        });
        let stream = futures::stream::poll_fn(move |context| {
            let _waiting = &waiting;
            sent.poll_recv(context)
        });
        json(Body::from_stream(
            stream.take_until(Box::pin(gone(hung_up))),
        ))
    }
}

fn json(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

impl CancelFlag {
    /// Whether the work should end.
    pub(super) fn is_set(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// The error of work that failed: an internal error only while a client waited. Clients hang up often, and these
    /// errors must not fill the log.
    pub(super) fn fault(&self, error: impl Display) -> ApiError {
        match self.is_set() {
            false => ApiError::internal(error),
            true => nobody_waits(),
        }
    }
}

fn nobody_waits() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "the client has hung up")
}

/// A text whose writing fails once the answer is cancelled.
struct Text<'a> {
    bytes: Vec<u8>,
    cancel: &'a CancelFlag,
}

impl Write for Text<'_> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.cancel.is_set() {
            return Err(io::Error::other("nobody waits for the answer any more"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends when the client has hung up; never, if nothing watches the socket.
async fn gone(hung_up: Option<HungUp>) {
    if let Some(mut hung_up) = hung_up
        && hung_up.wait_for(|gone| *gone).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Serves a client to the end, and signals when the client has closed its socket. That cancels the answers that it
/// waited for; what it has reported counts all the same.
pub(super) async fn watched<T>(
    served: impl Future<Output = T>,
    socket: io::Result<OwnedFd>,
    tell: watch::Sender<bool>,
) -> T {
    let watching = async {
        let closed = async { closed(socket?).await };
        match closed.await {
            Ok(()) => {
                tell.send_replace(true);
            }
            Err(error) => tracing::debug!(%error, "nobody sees when a client hangs up"),
        }
        std::future::pending().await
    };
    tokio::select! {
        served = served => served,
        never = watching => never,
    }
}

/// Ends when the other side has closed a socket. A client that has only shut down writing still waits for an answer.
async fn closed(socket: OwnedFd) -> io::Result<()> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    while !socket.ready(Interest::WRITABLE).await?.is_write_closed() {
        // The socket stays writable. Clearing its readiness makes the next wait end only on a new event.
        let full = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = socket.try_io(Interest::WRITABLE, full);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc as std_mpsc;

    use super::*;
    use crate::sockets::{SlotLimits, Slots, Trusted};

    fn blocking(turn: Option<Turn>, hung_up: Option<HungUp>, time_max: Duration) -> BlockingAnswer {
        BlockingAnswer {
            turn: turn.map(Arc::new),
            hung_up,
            time_max,
        }
    }

    const LONG: Duration = Duration::from_secs(3_600);

    /// Runs until it is cancelled, and signals its start.
    fn endless(began: std_mpsc::Sender<()>) -> impl FnOnce(&CancelFlag) + Send + 'static {
        move |cancel| {
            began.send(()).expect("the test waits");
            while !cancel.is_set() {
                std::thread::yield_now();
            }
        }
    }

    #[tokio::test]
    async fn work_ends_when_its_client_hangs_up_and_so_does_his_turn() {
        let limits = SlotLimits {
            all: 4,
            reserved: 1,
            of_one: 2,
        };
        let slots = Slots::new(limits, Trusted::new(|_| false));
        let slot = Slots::take(&slots, Some(1)).expect("a slot");
        let (tell, hung_up) = watch::channel(false);
        let (began, begun) = std_mpsc::channel();
        let turn = Some(slot.turn().await);
        let work = tokio::spawn(blocking(turn, Some(hung_up), LONG).run(endless(began)));
        tokio::task::spawn_blocking(move || begun.recv())
            .await
            .expect("no panic")
            .expect("began");
        assert!(
            futures::FutureExt::now_or_never(slot.turn()).is_none(),
            "it is under way"
        );
        tell.send_replace(true);
        work.await.expect("no panic").expect_err("nobody waits");
        // His next turn comes when the thread has ended.
        slot.turn().await;
    }

    #[tokio::test]
    async fn work_ends_when_its_time_is_over_and_when_the_request_is_dropped() {
        for time_max in [Duration::from_millis(10), LONG] {
            let (began, begun) = std_mpsc::channel();
            let (ends, ended) = std_mpsc::channel();
            let work = move |cancel: &CancelFlag| {
                endless(began)(cancel);
                ends.send(()).expect("the test waits");
            };
            let work = tokio::spawn(blocking(None, None, time_max).run(work));
            tokio::task::spawn_blocking(move || begun.recv())
                .await
                .expect("no panic")
                .expect("began");
            if time_max == LONG {
                work.abort();
            } else {
                work.await.expect("no panic").expect_err("too late");
            }
            tokio::task::spawn_blocking(move || ended.recv())
                .await
                .expect("no panic")
                .expect("ended");
        }
    }

    #[tokio::test]
    async fn work_that_nobody_wants_any_more_is_no_fault_of_the_node() {
        let waiting = Arc::new(());
        let cancel = CancelFlag(Arc::downgrade(&waiting));
        let status = |cancel: &CancelFlag| {
            let mut text = Text {
                bytes: Vec::new(),
                cancel,
            };
            let written =
                serde_json::to_writer(&mut text, "a").map_err(|error| cancel.fault(error));
            written.map_err(|error| error.into_response().status())
        };
        assert_eq!(status(&cancel), Ok(()));
        let broken = cancel.fault("the disk").into_response();
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
        drop(waiting);
        assert_eq!(status(&cancel), Err(StatusCode::REQUEST_TIMEOUT));
    }

    #[tokio::test]
    async fn who_has_said_all_waits_for_an_answer_and_who_has_closed_does_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut closes = tokio::spawn(closed(ours.into()));
        theirs.shutdown(Shutdown::Write).expect("shut");
        tokio::task::yield_now().await;
        let early = tokio::time::timeout(Duration::from_millis(50), &mut closes).await;
        assert!(early.is_err(), "he waits");
        drop(theirs);
        closes.await.expect("no panic").expect("closed");
    }
}
