//! Answers that are made and not yet read.
//!
//! Invariant: whoever is not trusted has one of them, however many connections he has: his turn is over when it is sent or
//! dropped. What is then still in buffers of the connection is a piece of it, and not the whole.
//! Deliberately not here: when a connection ends whose client never reads (`connections`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::sockets::Own;

/// Bytes that are handed to a connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// The same answer, with its owner's turn until it is read.
pub(super) fn until_read(answer: Response, own: Option<Own>) -> Response {
    let Some(own) = own else { return answer };
    answer.map(|body| {
        Body::new(Unread {
            body,
            rest: Bytes::new(),
            _own: own,
        })
    })
}

/// A body in pieces.
struct Unread {
    body: Body,
    /// What is left of its last frame.
    rest: Bytes,
    _own: Own,
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = this.rest.len().min(PIECE_BYTES);
        let piece = this.rest.split_to(length);
        // Not a part of it: as long as one is left, all of it is held.
        let piece = Bytes::copy_from_slice(&piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
