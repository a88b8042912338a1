//! Work for an answer that takes long: on a thread of its own, and only while somebody waits for it.
//!
//! Invariant: whoever asked has his turn until the work has ended, also where he is gone by then, so nobody has more of it
//! under way than his turns. The work is told to end when its time is over, the client has hung up, or the server has
//! dropped the request because the node stops; a runtime that waits for its threads then waits for no answer.
//! Deliberately not here: what is worked out.

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

/// Pieces of a streamed answer, for whoever makes them on a thread that may block.
pub(super) type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Who waits for an answer, and for how long.
#[derive(Debug)]
pub(super) struct Beside {
    turn: Option<Arc<Turn>>,
    hung_up: Option<HungUp>,
    time_max: Duration,
}

/// Whether somebody still waits: whoever does holds what this points to. Cheap to share.
#[derive(Debug, Clone)]
pub(super) struct Wanted(Weak<()>);

impl FromRequestParts<Arc<Shared>> for Beside {
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

impl Beside {
    /// The same, with this turn and so much time.
    pub(super) fn with(self, turn: Turn, time_max: Duration) -> Self {
        Self {
            turn: Some(Arc::new(turn)),
            time_max,
            ..self
        }
    }

    /// Works something out, which is to look now and then whether it is still wanted.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Wanted) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self {
            turn,
            hung_up,
            time_max,
        } = self;
        let waiting = Arc::new(());
        let wanted = Wanted(Arc::downgrade(&waiting));
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&wanted)
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
        make: impl FnOnce(&Wanted) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let written = self.run(move |wanted| {
            let answer = Answer {
                schema: format!("fairmesh.{what}/1"),
                rests_on,
                body: make(wanted)?,
            };
            let mut text = Text {
                bytes: Vec::new(),
                wanted,
            };
            serde_json::to_writer(&mut text, &answer).map_err(|error| wanted.fault(error))?;
            Ok::<_, ApiError>(text.bytes)
        });
        Ok(json(written.await??))
    }

    /// An answer that is sent while it is made. It takes as long as its reader, and ends with him.
    pub(super) fn streamed(
        self,
        waiting_max: usize,
        make: impl FnOnce(&Wanted, &Pieces) + Send + 'static,
    ) -> Response {
        let Self { turn, hung_up, .. } = self;
        let waiting = Arc::new(());
        let wanted = Wanted(Arc::downgrade(&waiting));
        let (pieces, mut sent) = mpsc::channel(waiting_max);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make(&wanted, &pieces);
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

impl Wanted {
    /// Whether it does.
    pub(super) fn is(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Why it failed: the node is at fault only where it was still wanted. Users hang up as often as they like, and the
    /// log is read by people.
    pub(super) fn fault(&self, error: impl Display) -> ApiError {
        match self.is() {
            true => ApiError::internal(error),
            false => nobody_waits(),
        }
    }
}

fn nobody_waits() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "the client has hung up")
}

/// A text that is written while somebody waits for it.
struct Text<'a> {
    bytes: Vec<u8>,
    wanted: &'a Wanted,
}

impl Write for Text<'_> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if !self.wanted.is() {
            return Err(io::Error::other("nobody waits for the answer any more"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends when the client has hung up; where nobody tells, never.
async fn gone(hung_up: Option<HungUp>) {
    if let Some(mut hung_up) = hung_up
        && hung_up.wait_for(|gone| *gone).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Serves a client to the end, and tells when he has closed his socket: what he waited for is not wanted any more then, and
/// what he has reported counts all the same.
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

/// Ends when the other side of a socket has closed it. One that has only said all that it has to say waits for an answer.
async fn closed(socket: OwnedFd) -> io::Result<()> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    while !socket.ready(Interest::WRITABLE).await?.is_write_closed() {
        // Nothing is written here: that there is room is forgotten, so that the next to be heard is something else.
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

    fn beside(turn: Option<Turn>, hung_up: Option<HungUp>, time_max: Duration) -> Beside {
        Beside {
            turn: turn.map(Arc::new),
            hung_up,
            time_max,
        }
    }

    const LONG: Duration = Duration::from_secs(3_600);

    /// Goes on until it is not wanted, and says when it begins.
    fn endless(began: std_mpsc::Sender<()>) -> impl FnOnce(&Wanted) + Send + 'static {
        move |wanted| {
            began.send(()).expect("the test waits");
            while wanted.is() {
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
        let work = tokio::spawn(beside(turn, Some(hung_up), LONG).run(endless(began)));
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
            let work = move |wanted: &Wanted| {
                endless(began)(wanted);
                ends.send(()).expect("the test waits");
            };
            let work = tokio::spawn(beside(None, None, time_max).run(work));
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
        let wanted = Wanted(Arc::downgrade(&waiting));
        let status = |wanted: &Wanted| {
            let mut text = Text {
                bytes: Vec::new(),
                wanted,
            };
            let written =
                serde_json::to_writer(&mut text, "a").map_err(|error| wanted.fault(error));
            written.map_err(|error| error.into_response().status())
        };
        assert_eq!(status(&wanted), Ok(()));
        let broken = wanted.fault("the disk").into_response();
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
        drop(waiting);
        assert_eq!(status(&wanted), Err(StatusCode::REQUEST_TIMEOUT));
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
