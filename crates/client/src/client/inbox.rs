//! What was read and not yet taken: answers come in pieces, and several at a time.
//!
//! Invariant: the buffer grows with bytes received, up to one frame and a bit, and never with a
//! length that was only announced.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::ClientError;
use crate::protocol::{Answer, ProtocolError, decode_reply, split_frame};

/// Bytes to read at once at the least: a whole answer of a small request.
const READ_BYTES: usize = 4096;

pub(super) enum InboxError {
    Io(io::Error),
    Protocol(ProtocolError),
}

/// The bytes of the last frame and of what came behind it.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold data.
    filled: usize,
    /// Where the last frame's body lies.
    body: std::ops::Range<usize>,
}

impl Inbox {
    pub(super) fn frame(&self) -> &[u8] {
        &self.buffer[self.body.clone()]
    }

    pub(super) fn last_answer(&self) -> Result<Answer<'_>, ClientError> {
        match decode_reply(self.frame())?.outcome {
            Ok(answer) => Ok(answer),
            Err((status, text)) => Err(ClientError::Refused {
                status,
                text: text.to_owned(),
            }),
        }
    }

    /// Drops the last frame and reads the next.
    pub(super) fn read_frame(
        &mut self,
        stream: &mut UnixStream,
        timeout: Duration,
    ) -> Result<(), InboxError> {
        self.buffer.copy_within(self.body.end..self.filled, 0);
        self.filled -= self.body.end;
        self.body = 0..0;
        let begun = Instant::now();
        loop {
            let data = &self.buffer[..self.filled];
            if let Some((body, used)) = split_frame(data).map_err(InboxError::Protocol)? {
                self.body = used - body.len()..used;
                return Ok(());
            }
            if self.filled > 0 && begun.elapsed() > timeout {
                return Err(InboxError::Io(io::ErrorKind::TimedOut.into()));
            }
            if self.buffer.len() < self.filled + READ_BYTES {
                self.buffer.resize((self.filled * 2).max(2 * READ_BYTES), 0);
            }
            match stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(InboxError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(InboxError::Io(io::ErrorKind::TimedOut.into()));
                }
                Err(error) => return Err(InboxError::Io(error)),
            }
        }
    }
}
