//! Counting what passes a socket.
//!
//! Invariant: every byte that a TCP stream takes or gives is counted once, whatever is spoken in it:
//! handshakes, Noise, yamux, gossipsub, requests. Not in it are the headers of TCP and IP, which the
//! system adds, and QUIC, whose packets libp2p sends itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

/// Bytes that have passed the sockets of a node.
#[derive(Debug, Default)]
pub(crate) struct WireBytes {
    received: AtomicU64,
    sent: AtomicU64,
}

impl WireBytes {
    /// Received and sent so far.
    pub(crate) fn now(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.received), load(&self.sent))
    }
}

/// A stream whose bytes are counted.
pub(crate) struct Counted<S> {
    stream: S,
    bytes: Arc<WireBytes>,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S, bytes: Arc<WireBytes>) -> Self {
        Self { stream, bytes }
    }
}

/// Adds what a call has moved, if it has.
fn note(counter: &AtomicU64, moved: &Poll<io::Result<usize>>) {
    if let Poll::Ready(Ok(bytes)) = moved {
        counter.fetch_add(*bytes as u64, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        note(&self.bytes.received, &read);
        read
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read_vectored(context, buffers);
        note(&self.bytes.received, &read);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        note(&self.bytes.sent, &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        note(&self.bytes.sent, &written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::io::{AsyncReadExt as _, AsyncWriteExt as _, Cursor};

    use super::*;

    #[test]
    fn what_is_read_and_written_is_counted_once() {
        let bytes = Arc::new(WireBytes::default());
        let mut counted = Counted::new(Cursor::new(vec![7; 100]), bytes.clone());
        block_on(counted.read_exact(&mut [0; 60])).expect("there");
        block_on(counted.write_all(&[1; 15])).expect("room");
        assert_eq!(bytes.now(), (60, 15));
        let mut rest = Vec::new();
        block_on(counted.read_to_end(&mut rest)).expect("there");
        assert_eq!(bytes.now(), (85, 15));
    }
}
