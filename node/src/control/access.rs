//! Who may write, who sees what, what is addressed to the node, and how long an answer may take.
//!
//! Invariant: each request is judged by the configuration in force, so a reload counts at once. What a reader sees of
//! an answer, [`Visibility`] decides; each handler whose answer names users takes one.
//! Deliberately not here: the rule ([`Access`](crate::privacy::Access)), and names of users (`users`).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fairmesh_api::client::HOST;
use tokio::sync::watch;

use super::error::ApiError;
use super::extract::whole;
use super::unread::until_read;
use super::{ControlSettings, Shared};
use crate::privacy::{CurrentAccess, Visibility};
use crate::sockets::{Slot, Trusted};

/// Largest body of a question: a job with what it requires, or a quote for one.
const QUESTION_BYTES_MAX: usize = 1 << 20;

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its user, if the system says.
    pub(super) uid: Option<u32>,
}

/// What whoever asks sees of the tree that he is answered from.
impl FromRequestParts<Arc<Shared>> for Visibility {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, ApiError> {
        // Nobody who came over another listener is a user of this machine.
        let peer = parts.extensions.get::<Peer>().copied();
        Ok(shared.visibility(peer.unwrap_or(Peer { uid: None })).await)
    }
}

impl Shared {
    /// What `peer` sees of the tree that is served.
    pub(super) async fn visibility(&self, peer: Peer) -> Visibility {
        let view = Arc::clone(&self.options.serving.newest().view);
        self.resolver.visibility(peer.uid, view).await
    }

    /// The same, where what is his own is shown to him whatever is hidden.
    pub(super) async fn own_sight(&self, peer: Peer) -> Visibility {
        let view = Arc::clone(&self.options.serving.newest().view);
        self.resolver.own_sight(peer.uid, view).await
    }
}

/// What is said to whoever asks for what is hidden from him.
pub(super) fn hidden(whose: impl std::fmt::Display) -> ApiError {
    let error = format!("{whose} is not shown to you");
    ApiError::new(StatusCode::FORBIDDEN, error).hint(
        "the owner of this node hides it ([privacy] of its configuration): you see what is yours, what you \
         coordinate, and the sums of your groups",
    )
}

/// Whom the node's sockets trust: those who may write, and those who see all.
pub fn trusted(settings: &watch::Receiver<ControlSettings>) -> Trusted {
    let settings = settings.clone();
    Trusted::new(move |uid| settings.borrow().access.may_read_all(Some(uid)))
}

/// What the owner's configuration grants at each moment.
pub fn current(settings: &watch::Receiver<ControlSettings>) -> CurrentAccess {
    let settings = settings.clone();
    CurrentAccess::new(move || Arc::clone(&settings.borrow().access))
}

/// Lets through what is addressed to the node.
///
/// Where a user has the socket carried to a port (`ssh -L`, a proxy), the kernel names him, whatever web page his
/// browser shows while it asks there. A page chooses all but the `Host` (a forbidden header of the Fetch standard),
/// which is what it asks for: an address, or a name that somebody could point there. Neither is [`HOST`].
pub(super) async fn require_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.map_or("nobody".into(), |host| {
        String::from_utf8_lossy(host.as_bytes())
    });
    if host.eq_ignore_ascii_case(HOST) {
        return next.run(request).await;
    }
    let error = format!("this socket answers what is addressed to `{HOST}`, and this is to {host}");
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, error)
        .hint("ask for http://fairmesh/v1/..., or send `Host: fairmesh`, which no web page can have a browser send")
        .into_response()
}

/// Lets only writers through.
pub(super) async fn require_writer(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match check_writer(&shared, peer, request.uri().path()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Whether the peer may write.
pub(super) fn is_writer(shared: &Shared, peer: Peer) -> bool {
    shared.options.settings.borrow().access.may_write(peer.uid)
}

/// Whether the peer may do at `path` what only writers may.
pub(super) fn check_writer(shared: &Shared, peer: Peer, path: &str) -> Result<(), ApiError> {
    if is_writer(shared, peer) {
        return Ok(());
    }
    if let Some(held_back) = shared.may_tell_of_refusal() {
        tracing::info!(
            uid = peer.uid,
            path,
            held_back,
            "refused: only writers may do this"
        );
    }
    let who = peer
        .uid
        .map_or_else(|| "an unknown user".to_owned(), |uid| format!("user {uid}"));
    let error = format!("{who} may only read from this socket");
    Err(ApiError::new(StatusCode::FORBIDDEN, error).hint(
        "root, the node's own user and those in sockets.writers of its configuration may write",
    ))
}

/// Waits until it is the client's turn, and gives up on an answer that takes too long. The body is read
/// before: a client that is slow to send it keeps nobody waiting.
pub(super) async fn answer_in_turn(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Extension(slot): Extension<Arc<Slot>>,
    request: Request,
    next: Next,
) -> Response {
    let limits = &shared.options.limits;
    let (parts, body) = request.into_parts();
    let body = match whole(body, QUESTION_BYTES_MAX, limits.body_idle_max).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let mut request = Request::from_parts(parts, body.into());
    let deadline = limits.answer_deadline;
    let answered = async {
        // What goes on beside the answer keeps it until that has ended.
        let turn = Arc::new(slot.turn_after(shared.resolver.meet(peer.uid)).await);
        request.extensions_mut().insert(Arc::clone(&turn));
        let answer = next.run(request).await;
        until_read(answer, turn.own())
    };
    match tokio::time::timeout(deadline, answered).await {
        Ok(response) => response,
        Err(_) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("no answer within {deadline:?}"),
        )
        .hint(
            "the node is busy, its disk is slow, or another answer of yours is not read yet: try again",
        )
        .into_response(),
    }
}
