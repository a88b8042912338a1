//! The log of a service: lines on standard error, which may be full, closed, slow or unread.
//!
//! Invariant: a caller that logs a line never waits and never fails. A thread writes the lines. A line that cannot be
//! written is counted, and the log reports the count as soon as it can be written again; until then `status` does.
//! A command that ends soon writes to standard error itself, in the order in which it works, and ignores an error.
//!
//! Deliberately not here: `tracing-appender`, which drops the error of a failed write, and whose end prints to standard
//! output, which may be the same full pipe.

mod journal;

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fairmesh_api::words::timestamp;
use tracing_subscriber::fmt::MakeWriter;

use crate::driver::wall_now;

pub use journal::Lines;

/// Lines that wait for the thread. A burst of libp2p's warnings has some hundreds; with 64 KiB a line, the longest that
/// a peer's words can make, this bounds the memory by 64 MiB.
const WAITING_LINES_MAX: usize = 1_024;

/// How often a log without new lines is tried again if lines were lost: a node at rest logs nothing for hours, and its
/// status would report the log as unwritten long after the disk has room again.
const RETRY: Duration = Duration::from_secs(10);

/// How long the end of a service waits for its last lines. systemd kills after 90 s.
const FINISH_MAX: Duration = Duration::from_secs(1);

/// The log of this process, if it is a service.
static SERVICE: OnceLock<Log> = OnceLock::new();

/// Its standard output, likewise.
static OUTPUT: OnceLock<Log> = OnceLock::new();

/// Lines on their way to a thread that writes them.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    lines: SyncSender<Message>,
    losses: Arc<Losses>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// The sender waits until all lines before this message are written.
    Finish(Sender<()>),
}

/// Lines that could not be written.
#[derive(Debug, Default)]
struct Losses {
    all: AtomicU64,
    /// Those that a line in the log has reported.
    reported: AtomicU64,
    /// Why a line could not be written; absent if the thread waits for a slow reader.
    why: Mutex<Option<String>>,
}

/// What a monitor reads about the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogLosses {
    /// Lines that were lost since the start.
    pub(crate) all: u64,
    /// Those of them that the log itself does not report yet, because it still cannot be written.
    pub(crate) unreported: u64,
    /// The error of the last line that could not be written.
    pub(crate) why: Option<String>,
}

impl Losses {
    fn add(&self, why: Option<&io::Error>) {
        self.all.fetch_add(1, Ordering::Relaxed);
        *self.why.lock().expect("no panic") = why.map(ToString::to_string);
    }

    fn unreported(&self) -> u64 {
        let all = self.all.load(Ordering::Relaxed);
        all - self.reported.load(Ordering::Relaxed)
    }
}

impl Log {
    /// Starts the thread, which writes to `out`. `mark` begins the line that reports lost ones: its level for systemd's
    /// journal.
    fn start(
        out: impl Write + Send + 'static,
        mark: &'static str,
        retry: Duration,
    ) -> io::Result<Self> {
        let (lines, arrived) = sync_channel(WAITING_LINES_MAX);
        let losses = Arc::<Losses>::default();
        let mut writer = LineWriter {
            out,
            mark,
            losses: Arc::clone(&losses),
            retry,
            is_within_line: false,
        };
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || writer.write_all(&arrived))?;
        Ok(Self { lines, losses })
    }

    fn push(&self, line: Vec<u8>) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.losses.add(None);
        }
    }

    /// Waits until the lines so far are written, at most for `at_most`.
    fn finish(&self, at_most: Duration) {
        let (done, written) = channel();
        if self.lines.try_send(Message::Finish(done)).is_ok() {
            // An error means that the time is over, or that the thread has ended: nothing is left to be done.
            let _ = written.recv_timeout(at_most);
        }
    }
}

struct LineWriter<W> {
    out: W,
    mark: &'static str,
    losses: Arc<Losses>,
    retry: Duration,
    /// A line broke off, so the next one begins with an end of line.
    is_within_line: bool,
}

impl<W: Write> LineWriter<W> {
    fn write_all(&mut self, arrived: &Receiver<Message>) {
        loop {
            match arrived.recv_timeout(self.retry) {
                Ok(Message::Finish(done)) => {
                    let _ = done.send(());
                }
                Ok(Message::Line(line)) => {
                    let written = self.report_losses().and_then(|()| self.write(&line));
                    if let Err(error) = written {
                        self.losses.add(Some(&error));
                    }
                }
                // The next try may succeed; no further line is lost.
                Err(RecvTimeoutError::Timeout) => drop(self.report_losses()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn report_losses(&mut self) -> io::Result<()> {
        let unreported = self.losses.unreported();
        if unreported == 0 {
            return Ok(());
        }
        let why = self.losses.why.lock().expect("no panic").clone();
        let why = why.unwrap_or_else(|| "its reader is too slow".to_owned());
        let now = timestamp(wall_now());
        let what = match unreported {
            1 => "1 line of this log is lost".to_owned(),
            lines => format!("{lines} lines of this log are lost"),
        };
        let line = format!("{}{now}  WARN fairmesh::log: {what}: {why}\n", self.mark);
        self.write(line.as_bytes())?;
        self.losses
            .reported
            .fetch_add(unreported, Ordering::Relaxed);
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_within_line {
            self.out.write_all(b"\n")?;
            self.is_within_line = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    rest = &rest[bytes..];
                    self.is_within_line = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// One line, which `tracing` writes in one or several pieces.
pub struct Line {
    log: Option<Log>,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        match &self.log {
            Some(log) => log.push(bytes),
            // Nobody is left to be told.
            None => drop(io::stderr().write_all(&bytes)),
        }
    }
}

/// Makes lines of the log of this process.
#[derive(Debug, Clone, Copy)]
pub struct Logged;

impl MakeWriter<'_> for Logged {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line {
            log: SERVICE.get().cloned(),
            bytes: Vec::new(),
        }
    }
}

/// Makes this process a service: from now on, its lines go through a thread.
pub fn start_service() -> io::Result<()> {
    let mark = match Lines::for_standard_error().is_for_journal() {
        true => "<4>",
        false => "",
    };
    // Called once, by `main`.
    let _ = SERVICE.set(Log::start(io::stderr(), mark, RETRY)?);
    let _ = OUTPUT.set(Log::start(io::stdout(), "", RETRY)?);
    Ok(())
}

/// Waits a moment for the last lines of a service.
pub fn finish() {
    for log in [&SERVICE, &OUTPUT].into_iter().filter_map(OnceLock::get) {
        log.finish(FINISH_MAX);
    }
}

/// Lines that the log of this process has lost.
pub(crate) fn losses() -> LogLosses {
    let Some(log) = SERVICE.get() else {
        return LogLosses::default();
    };
    LogLosses {
        all: log.losses.all.load(Ordering::Relaxed),
        unreported: log.losses.unreported(),
        why: log.losses.why.lock().expect("no panic").clone(),
    }
}

/// Writes a line to standard error, through the log if this is a service. Called by `note!`.
pub fn note(line: fmt::Arguments<'_>) {
    let mut to = Logged.make_writer();
    // A line in memory takes all.
    let _ = writeln!(to, "{line}");
}

/// Writes a line to standard output. If this is a service, the caller does not wait, and an error does not end it.
pub fn say(line: &str) {
    let line = format!("{line}\n").into_bytes();
    match OUTPUT.get() {
        Some(log) => log.push(line),
        None => drop(io::stdout().write_all(&line)),
    }
}

#[cfg(test)]
mod tests;
