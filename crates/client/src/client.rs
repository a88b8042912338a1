//! A blocking client: what a scheduler links.
//!
//! Invariant: answers are matched to requests by order and by id; after any failure that could
//! leave half a frame on the stream the client is broken, says so at once, and stays so until
//! [`Client::reconnect`]. Buffers are reused: in the steady state a look-up allocates nothing.
//!
//! Deliberately not here: retries and a policy for stale views. The caller knows what a scheduling
//! cycle can wait for.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::protocol::{
    Accounts, Answer, HandleColumn, NameBlockBuf, PIPELINE_BYTES_MAX, ProtocolError, Reply,
    Request, Status, Want, Who, decode_reply, encode_request,
};

mod inbox;

use inbox::{Inbox, InboxError};

/// What an answer takes of the socket's room beside its columns: the kernel counts the 768 bytes of
/// its own that each small write takes, too.
const ANSWER_HEAD_BYTES: usize = 1024;

/// Why a look-up failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket.
    #[error("{}", no_node_at(path, source))]
    Unreachable {
        /// Path of the look-up socket.
        path: PathBuf,
        /// Why it could not be opened.
        source: io::Error,
    },
    /// The socket failed, or the node did not answer in time. The client is broken.
    #[error("{path}: {source}")]
    Io {
        /// Path of the look-up socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The accounts cannot be asked for as given (nothing was sent), or the answer made no sense
    /// (the client is broken).
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The node refused. The client is broken unless [`Status::closes`] is false.
    #[error("the node refused ({status:?}): {text}")]
    Refused {
        /// The reason as a code, for programs.
        status: Status,
        /// The reason as a sentence, for people.
        text: String,
    },
    /// An answer came to something that was not asked. The client is broken.
    #[error("answer {got} came where {expected} was due")]
    OutOfOrder {
        /// The id that came.
        got: u64,
        /// The id that was due.
        expected: u64,
    },
    /// More answers are waited for than fit in the socket: receive first. Nothing was sent.
    #[error("too many requests under way: receive their answers first")]
    PipelineFull,
    /// [`Client::receive`] with nothing sent.
    #[error("no request is under way")]
    NothingSent,
    /// An earlier failure left the stream unusable: [`Client::reconnect`].
    #[error("the connection is broken since an earlier failure")]
    Broken,
}

/// That no node answers at `socket`, why, and what to do about it: the one wording of it.
pub fn no_node_at(socket: &Path, why: &io::Error) -> String {
    let elsewhere = "name its socket if it has another (--socket, FAIRMESH_SOCKET)";
    let (what, mend) = match why.kind() {
        io::ErrorKind::NotFound => ("there is no such socket", "start it (fairmesh run)"),
        io::ErrorKind::ConnectionRefused => (
            "the socket is there, and the node that made it has ended",
            "start it again (fairmesh run)",
        ),
        io::ErrorKind::PermissionDenied => (
            "this user may not open it",
            "ask whoever runs the node for access",
        ),
        _ => return format!("no node answers at {}: {why}", socket.display()),
    };
    format!(
        "no node answers at {}: {what}; {mend}, or {elsewhere}",
        socket.display()
    )
}

/// Accounts that are asked for again and again: the node is told their names once, and then only
/// the handles that it gave them.
#[derive(Debug, Clone)]
pub struct Roster {
    names: NameBlockBuf,
    /// Which connection the handles came on; 0 before the first.
    session: u64,
    generation: u64,
    handles: Vec<u8>,
}

impl Roster {
    /// The accounts, in the order in which the factors will come.
    pub fn new(accounts: &[Who<'_>]) -> Result<Self, ProtocolError> {
        Ok(Self {
            names: NameBlockBuf::of(accounts)?,
            session: 0,
            generation: 0,
            handles: Vec::new(),
        })
    }

    /// Number of accounts in the roster.
    pub fn len(&self) -> usize {
        self.names.as_block().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connection to a node's `lookup.sock`.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    timeout: Duration,
    stream: UnixStream,
    broken: bool,
    /// Tells one connection from another, so that a handle is never used on the wrong one.
    session: u64,
    next_id: u64,
    /// The id of the answer that is due; equal to `next_id` when none is.
    due_id: u64,
    /// Answer bytes waited for, at the most.
    due_bytes: usize,
    names: NameBlockBuf,
    outbox: Vec<u8>,
    inbox: Inbox,
}

impl Client {
    /// Connects to the socket at `path`, for which a node has `timeout`. A call that gets no answer
    /// fails after `timeout`; one whose answer trickles in fails after twice that at the latest. `timeout` is not zero.
    pub fn connect(path: impl Into<PathBuf>, timeout: Duration) -> Result<Self, ClientError> {
        let path = path.into();
        let stream = open(&path, timeout)?;
        Ok(Self {
            path,
            timeout,
            stream,
            broken: false,
            session: next_session(),
            next_id: 1,
            due_id: 1,
            due_bytes: 0,
            names: NameBlockBuf::new(),
            outbox: Vec::new(),
            inbox: Inbox::default(),
        })
    }

    /// Connects anew; answers that were under way are lost.
    pub fn reconnect(&mut self) -> Result<(), ClientError> {
        self.broken = true;
        self.stream = open(&self.path, self.timeout)?;
        self.session = next_session();
        self.due_id = self.next_id;
        self.due_bytes = 0;
        self.inbox = Inbox::default();
        self.broken = false;
        Ok(())
    }

    /// Whether an earlier failure left the connection unusable.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// The factors of `accounts`, in their order. Waits for the answer; answers that were already
    /// under way are received and dropped first.
    pub fn lookup(&mut self, accounts: &[Who<'_>]) -> Result<Answer<'_>, ClientError> {
        self.drain()?;
        self.send(accounts)?;
        self.receive()
    }

    /// The factors of a roster, in its order. Asks by name where the node does not know the
    /// handles (any more).
    pub fn lookup_roster<'a>(&'a mut self, roster: &mut Roster) -> Result<Answer<'a>, ClientError> {
        self.drain()?;
        if roster.session == self.session {
            match self.ask_by_handle(roster) {
                // The frame stays in the inbox; it is looked at once more to satisfy the borrow.
                Ok(()) => return self.inbox.last_answer(),
                Err(ClientError::Refused {
                    status: Status::StaleHandles,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        self.ask_for_handles(roster)?;
        self.inbox.last_answer()
    }

    /// Sends a request without waiting; returns its id. [`Client::receive`] gives the answers in
    /// the order of the requests.
    pub fn send(&mut self, accounts: &[Who<'_>]) -> Result<u64, ClientError> {
        self.names.clear();
        self.names.extend(accounts)?;
        self.begin(accounts.len() * 4)?;
        let request = Request {
            id: self.next_id,
            want: Want::Factors,
            accounts: Accounts::Names(self.names.as_block()),
        };
        encode_request(&mut self.outbox, &request)?;
        self.finish(accounts.len() * 4)
    }

    /// Waits for the answer that is due next.
    pub fn receive(&mut self) -> Result<Answer<'_>, ClientError> {
        self.await_answer()?;
        self.inbox.last_answer()
    }

    fn ask_by_handle(&mut self, roster: &Roster) -> Result<(), ClientError> {
        self.begin(roster.handles.len())?;
        let request = Request {
            id: self.next_id,
            want: Want::Factors,
            accounts: Accounts::Handles {
                generation: roster.generation,
                handles: HandleColumn::new(&roster.handles)?,
            },
        };
        encode_request(&mut self.outbox, &request)?;
        self.finish(roster.handles.len())?;
        self.await_answer()
    }

    fn ask_for_handles(&mut self, roster: &mut Roster) -> Result<(), ClientError> {
        let answer_bytes = roster.len() * 8;
        self.begin(answer_bytes)?;
        let request = Request {
            id: self.next_id,
            want: Want::FactorsAndHandles,
            accounts: Accounts::Names(roster.names.as_block()),
        };
        encode_request(&mut self.outbox, &request)?;
        self.finish(answer_bytes)?;
        self.await_answer()?;
        let answer = self.inbox.last_answer()?;
        roster.session = 0;
        roster.handles.clear();
        let handles = answer
            .handles()
            .filter(|handles| handles.len() == roster.names.as_block().len() * 4)
            .ok_or(ProtocolError::Missing("handle column"))?;
        roster.handles.extend_from_slice(handles);
        roster.generation = answer.view.generation;
        roster.session = self.session;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), ClientError> {
        while self.due_id < self.next_id {
            match self.await_answer() {
                Ok(()) => {}
                Err(ClientError::Refused { status, .. }) if !status.closes() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether another request may go out whose answer has columns of `answer_bytes`.
    fn begin(&mut self, answer_bytes: usize) -> Result<(), ClientError> {
        if self.broken {
            return Err(ClientError::Broken);
        }
        let due_bytes = self.due_bytes + answer_bytes + ANSWER_HEAD_BYTES;
        if self.due_id < self.next_id && due_bytes > PIPELINE_BYTES_MAX {
            return Err(ClientError::PipelineFull);
        }
        self.outbox.clear();
        Ok(())
    }

    fn finish(&mut self, answer_bytes: usize) -> Result<u64, ClientError> {
        if let Err(source) = self.stream.write_all(&self.outbox) {
            // A node that refuses says why before it closes; that is the better message.
            if source.kind() == io::ErrorKind::BrokenPipe && self.due_id == self.next_id {
                self.next_id += 1;
                self.await_answer()?;
            }
            return Err(self.fail(source));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.due_bytes += answer_bytes + ANSWER_HEAD_BYTES;
        Ok(id)
    }

    /// Reads up to the end of the frame that is due; it then is the inbox's last answer.
    fn await_answer(&mut self) -> Result<(), ClientError> {
        if self.broken {
            return Err(ClientError::Broken);
        }
        if self.due_id == self.next_id {
            return Err(ClientError::NothingSent);
        }
        // Unset again only behind a whole, sensible answer.
        self.broken = true;
        if let Err(error) = self.inbox.read_frame(&mut self.stream, self.timeout) {
            return Err(match error {
                InboxError::Io(source) => self.io(source),
                InboxError::Protocol(error) => error.into(),
            });
        }
        let expected = self.due_id;
        let Reply { id, outcome } = decode_reply(self.inbox.frame())?;
        let refused = outcome.err();
        if id != expected && refused.is_none_or(|(status, _)| !status.closes()) {
            return Err(ClientError::OutOfOrder { got: id, expected });
        }
        self.due_id += 1;
        if self.due_id == self.next_id {
            self.due_bytes = 0;
        }
        match refused {
            None => {
                self.broken = false;
                Ok(())
            }
            Some((status, text)) => {
                self.broken = status.closes();
                Err(ClientError::Refused {
                    status,
                    text: text.to_owned(),
                })
            }
        }
    }

    fn fail(&mut self, source: io::Error) -> ClientError {
        self.broken = true;
        self.io(source)
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn open(path: &Path, timeout: Duration) -> Result<UnixStream, ClientError> {
    let open = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        // Before it connects: that waits as long as a write where a node takes nobody in.
        set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(timeout))?;
        Ok(stream)
    };
    open().map_err(|source: io::Error| ClientError::Unreachable {
        path: path.to_owned(),
        source: match source.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => source,
        },
    })
}

fn next_session() -> u64 {
    static SESSIONS: AtomicU64 = AtomicU64::new(1);
    SESSIONS.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
