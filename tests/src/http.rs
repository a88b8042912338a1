//! HTTP over a Unix socket, one request a connection: what `curl --unix-socket` does.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// An answer of `control.sock`.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body, if it is JSON.
    pub body: Value,
    /// The body, whatever it is.
    pub text: String,
}

/// Sends one request and reads the answer to its end.
pub fn request(socket: &Path, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Answer> {
    let mut call = Call::open(socket, method, target, body.len())?;
    call.send(body)?;
    call.answer()
}

/// A request that is sent piece by piece.
#[derive(Debug)]
pub struct Call(UnixStream);

impl Call {
    /// Sends the head of a request with a body of `length` bytes.
    pub fn open(socket: &Path, method: &str, target: &str, length: usize) -> anyhow::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: fairmesh\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        )?;
        Ok(Self(stream))
    }

    /// Sends a piece of the body.
    pub fn send(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        Ok(self.0.write_all(piece)?)
    }

    /// Reads the answer to its end.
    pub fn answer(mut self) -> anyhow::Result<Answer> {
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer)?;
        let text = String::from_utf8(answer)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") {
            unchunk(body)?
        } else {
            body.to_owned()
        };
        Ok(Answer {
            status,
            body: serde_json::from_str(&body).unwrap_or(Value::Null),
            text: body,
        })
    }
}

fn unchunk(mut chunked: &str) -> anyhow::Result<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = chunked.split_once("\r\n").context("no chunk size")?;
        let size = usize::from_str_radix(size, 16)?;
        if size == 0 {
            return Ok(body);
        }
        ensure!(rest.len() >= size + 2, "the answer was cut off");
        body.push_str(&rest[..size]);
        chunked = &rest[size + 2..];
    }
}
