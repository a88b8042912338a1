//! The node's `control.sock`: an HTTP/1.1 client over a Unix socket.
//!
//! Invariant: one request, one connection, within a deadline and a size; whatever fails says what to
//! do next. Deliberately not here: what is asked.

pub mod documents;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairmesh_model::clean;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::ErrorBody;

/// Whom every request is addressed to, by its `Host`: what is addressed to another the node does not answer.
pub const HOST: &str = "fairmesh";

/// How long an answer may take: longer than the server gives itself.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The same of an answer that goes through all job records, some minutes for ten million: as long as the node lets a
/// connection live.
const LONG_ANSWER_MAX: Duration = Duration::from_secs(1_800);

/// Largest answer: the largest share tree that a node lists.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// Why the node did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there.
    #[error("{}", fairmesh_client::no_node_at(path, why))]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The connection broke, or what came is not HTTP.
    #[error("the node on {path} broke off: {why}")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The node understood and refused.
    #[error("{error}{}", .hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What is wrong.
        error: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl AskError {
    /// What is wrong with what the call says: the node would refuse it again, and does not refuse others for it. None
    /// where it is no fault of the call: nobody listens, the caller has no right, the node is busy or has no such path.
    pub fn fault_of_call(&self) -> Option<&str> {
        match self {
            Self::Refused {
                status: 400 | 413 | 422,
                error,
                ..
            } => Some(error),
            _ => None,
        }
    }
}

/// The way to a node.
#[derive(Debug, Clone)]
pub struct Control {
    path: PathBuf,
    answer_max: Duration,
}

impl Control {
    /// The node whose `control.sock` is at `path`.
    pub fn new(path: PathBuf) -> Self {
        let answer_max = ANSWER_MAX;
        Self { path, answer_max }
    }

    /// The same, for answers that go through all job records.
    #[must_use]
    pub fn patient(self) -> Self {
        let answer_max = LONG_ANSWER_MAX;
        Self { answer_max, ..self }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for `path` with those of `parameters` that have a value; gives the answer, and its text.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
    ) -> Result<(T, String), AskError> {
        let request = Request::get(target(path, parameters)).body(Full::default());
        self.ask(request).await
    }

    /// Asks for `path`, whatever the form of the answer.
    pub async fn text(&self, path: &str) -> Result<String, AskError> {
        let request = Request::get(path).body(Full::default());
        let body = self.answered(request).await?;
        String::from_utf8(body.into()).map_err(|error| self.broken(error))
    }

    /// Sends `body` to `path`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        self.post_with(path, &[], body).await
    }

    /// Sends `body` to `path`, with those of `parameters` that have a value.
    pub async fn post_with<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, Option<&str>)],
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        let body = Full::new(Bytes::from(body));
        let request = Request::post(target(path, parameters)).body(body);
        Ok(self.ask(request).await?.0)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
    ) -> Result<(T, String), AskError> {
        let body = self.answered(request).await?;
        let answer = serde_json::from_slice(&body).map_err(|error| self.broken(error))?;
        // serde_json takes UTF-8 only.
        Ok((answer, String::from_utf8_lossy(&body).into_owned()))
    }

    /// What comes back where nothing is refused.
    async fn answered(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
    ) -> Result<Bytes, AskError> {
        let mut request = request.map_err(|error| self.broken(error))?;
        let host = hyper::header::HeaderValue::from_static(HOST);
        request.headers_mut().insert(hyper::header::HOST, host);
        let answer_max = self.answer_max;
        let exchanged = tokio::time::timeout(answer_max, self.exchange(request)).await;
        let (status, body) =
            exchanged.map_err(|_| self.broken(format!("no answer within {answer_max:?}")))??;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        Ok(body)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let stream =
            UnixStream::connect(&self.path)
                .await
                .map_err(|why| AskError::Unreachable {
                    path: self.path.clone(),
                    why,
                })?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(error))?;
        // How it ends is seen by the request, too.
        let connection = tokio::spawn(connection.boxed());
        let answered = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| self.broken(error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            Ok((
                head.status,
                body.map_err(|error| self.broken(error))?.to_bytes(),
            ))
        };
        let answered = answered.await;
        connection.abort();
        answered
    }

    fn broken(&self, why: impl ToString) -> AskError {
        AskError::Broken {
            path: self.path.clone(),
            why: clean(&why.to_string()),
        }
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> AskError {
    let told: Option<ErrorBody> = serde_json::from_slice(body).ok();
    let told = told.unwrap_or_else(|| ErrorBody {
        error: format!("the node answered {status}"),
        hint: None,
    });
    AskError::Refused {
        status: status.as_u16(),
        error: clean(&told.error),
        hint: told.hint.as_deref().map(clean),
    }
}

/// A path with those of `parameters` that have a value.
fn target(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut target = path.to_owned();
    let given = parameters
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    for (index, (name, value)) in given.enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.push_str(&encoded(value));
    }
    target
}

/// A text as a part of an address, percent-encoded.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes everything");
        }
    }
    out
}
