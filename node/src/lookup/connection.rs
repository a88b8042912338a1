//! One client: frames in, frames out, in order.
//!
//! Invariant: memory grows with bytes received, never with bytes announced, up to one frame and its
//! answer, and is given back when a large frame is done; what the connection has asked before (`memo`) is bounded
//! apart. In the steady state a request allocates nothing and arms no timer: the one timer of a connection is set
//! anew only when it has gone off or a frame is half sent.

use std::collections::BTreeSet;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairmesh_client::protocol::{
    Accounts, ProtocolError, Request, Status, UNKNOWN, View, Want, decode_request, encode_answer,
    encode_error, split_frame,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::memo::Memo;
use super::{End, LookupConfig, LookupSnapshot, LookupSource, LookupStats};
use crate::privacy::{Privacy, PrivateData};
use crate::sockets::{Slot, stopped};

/// Room for what is read at once at the least.
const READ_BYTES: usize = 16 << 10;

/// Room that a buffer may keep between requests: a batch of ten thousand names and some. Bounds an
/// idle connection's memory; what is beyond is given back.
const KEEP_BYTES: usize = 512 << 10;

/// Answers are written when this many bytes have gathered, or nothing more has arrived.
const GATHER_BYTES: usize = 64 << 10;

pub(super) struct Connection<S> {
    stream: UnixStream,
    uid: Option<u32>,
    slot: Slot,
    source: Arc<S>,
    config: Arc<LookupConfig>,
    stats: Arc<LookupStats>,
    inbox: Vec<u8>,
    /// Bytes of `inbox` that hold data.
    filled: usize,
    outbox: Vec<u8>,
    /// Entries of the request at hand.
    entries: Vec<u32>,
    memo: Memo,
    /// Of which entries this client is told, where that is not all of them.
    seen: Option<Seen>,
}

/// What one who does not see all sees of one tree.
struct Seen {
    generation: u64,
    privacy: Arc<Privacy>,
    entries: BTreeSet<u32>,
}

impl<S: LookupSource> Connection<S> {
    pub(super) fn new(
        (stream, uid): (UnixStream, Option<u32>),
        slot: Slot,
        source: Arc<S>,
        config: Arc<LookupConfig>,
        stats: Arc<LookupStats>,
    ) -> Self {
        Self {
            stream,
            uid,
            slot,
            source,
            config,
            stats,
            inbox: vec![0; READ_BYTES],
            filled: 0,
            outbox: Vec::new(),
            entries: Vec::new(),
            memo: Memo::default(),
            seen: None,
        }
    }

    /// Serves until the client leaves, errs or is overdue, or `stop` holds true.
    pub(super) async fn serve(mut self, mut stop: watch::Receiver<bool>) -> End {
        let mut stopping = pin!(stopped(&mut stop));
        let mut timer = pin!(sleep_until(Instant::now() + self.config.idle_max));
        // Whether a request came since the timer was set.
        let mut active = false;
        let LookupConfig {
            frame_deadline,
            idle_max,
            ..
        } = *self.config;
        loop {
            let partial = self.filled > 0;
            if partial {
                timer.as_mut().reset(Instant::now() + frame_deadline);
                active = false;
            }
            // Read until there is a whole frame; what has arrived is answered even when stopping.
            loop {
                let read = tokio::select! {
                    biased;
                    read = read_some(&mut self.stream, &mut self.inbox, &mut self.filled) => read,
                    () = &mut stopping => return End::Stopped,
                    () = overdue(timer.as_mut(), &mut active, idle_max) => {
                        return if partial { End::Deadline } else { End::Idle };
                    }
                };
                match read {
                    Ok(0) if self.filled == 0 => return End::Closed,
                    Ok(0) => return End::CutOff,
                    Ok(_) => {}
                    Err(error) => return End::Io(error),
                }
                match split_frame(&self.inbox[..self.filled]) {
                    Ok(None) if partial => {}
                    _ => break,
                }
            }
            if let Err(end) = self.answer_all().await {
                return end;
            }
            active = true;
        }
    }

    /// Answers every whole frame that has arrived, and keeps the rest.
    async fn answer_all(&mut self) -> Result<(), End> {
        let mut used = 0;
        loop {
            let more = match split_frame(&self.inbox[used..self.filled]) {
                Ok(None) => false,
                Ok(Some((body, bytes))) => {
                    let range = used + bytes - body.len()..used + bytes;
                    used += bytes;
                    let met = async {
                        if let Some(resolver) = &self.config.resolver {
                            resolver.meet(self.uid).await;
                        }
                    };
                    // Only while the answer is made: a client that does not read it keeps nobody waiting.
                    let turn = self.slot.turn_after(met).await;
                    let snapshot = self.source.snapshot();
                    self.look(&snapshot).await;
                    let answered = self.answer(range, &snapshot);
                    drop(turn);
                    if let Err(error) = answered {
                        return Err(self.send_last(error).await);
                    }
                    true
                }
                Err(error) => {
                    self.refuse(0, &error);
                    return Err(self.send_last(error).await);
                }
            };
            if !self.outbox.is_empty() && (!more || self.outbox.len() >= GATHER_BYTES) {
                self.send().await?;
            }
            if !more {
                break;
            }
        }
        self.inbox.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.give_back();
        Ok(())
    }

    /// Works out what this client sees of a tree, where that is not all, and it has not been worked out.
    async fn look(&mut self, snapshot: &Arc<S::Snapshot>) {
        let resolver = self.config.resolver.as_ref();
        let hidden = resolver.and_then(|resolver| {
            Some((resolver, resolver.hidden(self.uid, PrivateData::Priority)?))
        });
        let Some((resolver, privacy)) = hidden else {
            self.seen = None;
            return;
        };
        let generation = snapshot.generation();
        let is_same =
            |seen: &Seen| seen.generation == generation && Arc::ptr_eq(&seen.privacy, &privacy);
        if self.seen.as_ref().is_some_and(is_same) {
            return;
        }
        let entries = match snapshot.tree() {
            Some(view) => {
                resolver
                    .entries(self.uid, view, PrivateData::Priority)
                    .await
            }
            None => BTreeSet::new(),
        };
        self.seen = Some(Seen {
            generation,
            privacy,
            entries,
        });
    }

    /// Puts the answer to one body into the outbox. After an error the connection is to be closed;
    /// the client's copy of it is in the outbox.
    #[inline(never)] // So that a profile can tell it from the reading and the sending.
    fn answer(
        &mut self,
        body: std::ops::Range<usize>,
        snapshot: &S::Snapshot,
    ) -> Result<(), ProtocolError> {
        let request = match decode_request(&self.inbox[body]) {
            Ok(request) => request,
            Err((id, error)) => {
                self.refuse(id, &error);
                return Err(error);
            }
        };
        let id = request.id;
        match fill_entries(&mut self.entries, &mut self.memo, &request, snapshot) {
            Ok(true) => {
                if let Some(seen) = &self.seen {
                    let hidden = self.entries.iter_mut();
                    let hidden = hidden.filter(|entry| !seen.entries.contains(entry));
                    hidden.for_each(|entry| *entry = UNKNOWN);
                }
            }
            Ok(false) => {
                self.stats.refused.fetch_add(1, Ordering::Relaxed);
                let text = "the handles are of another generation: ask by name";
                encode_error(&mut self.outbox, id, Status::StaleHandles, text);
                return Ok(());
            }
            Err(error) => {
                self.refuse(id, &error);
                return Err(error);
            }
        }
        let with_handles = request.want == Want::FactorsAndHandles;
        let mut view = View {
            generation: snapshot.generation(),
            ..snapshot.view()
        };
        if self.seen.is_some() {
            // Of others' factors, and when they change.
            (view.ranking, view.step) = (0, 0);
        }
        encode_answer(
            &mut self.outbox,
            id,
            &view,
            &self.entries,
            with_handles,
            |entry| snapshot.factor(entry),
        )?;
        self.stats.answered.fetch_add(1, Ordering::Relaxed);
        let rows = self.entries.len() as u64;
        self.stats.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    fn refuse(&mut self, id: u64, error: &ProtocolError) {
        self.stats.refused.fetch_add(1, Ordering::Relaxed);
        encode_error(
            &mut self.outbox,
            id,
            Status::from(error),
            &error.to_string(),
        );
    }

    async fn send(&mut self) -> Result<(), End> {
        // Most answers fit in the socket at once, and then no time is to be kept.
        let sent = match self.stream.try_write(&self.outbox) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(End::Io(error)),
        };
        if sent < self.outbox.len() {
            let write = self.stream.write_all(&self.outbox[sent..]);
            match timeout(self.config.frame_deadline, write).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(End::Io(error)),
                Err(_) => return Err(End::Deadline),
            }
        }
        self.outbox.clear();
        Ok(())
    }

    /// Sends what is in the outbox before the connection is closed for `error`.
    async fn send_last(&mut self, error: ProtocolError) -> End {
        match self.send().await {
            Ok(()) => End::Refused(error.to_string()),
            Err(end) => end,
        }
    }

    fn give_back(&mut self) {
        if self.inbox.len() > KEEP_BYTES && self.filled <= READ_BYTES {
            self.inbox.truncate(2 * READ_BYTES);
            self.inbox.shrink_to_fit();
        }
        if self.outbox.capacity() > KEEP_BYTES {
            self.outbox = Vec::new();
        }
        // Four bytes a row: a full batch is below the bound for the others.
        self.entries.clear();
    }
}

/// The entries that a request asks for, into `entries`; `false` if its handles are out of date.
fn fill_entries(
    entries: &mut Vec<u32>,
    memo: &mut Memo,
    request: &Request<'_>,
    snapshot: &impl LookupSnapshot,
) -> Result<bool, ProtocolError> {
    entries.clear();
    match request.accounts {
        Accounts::Names(block) => {
            entries.reserve(block.len());
            memo.move_to(snapshot.generation());
            for (at, row) in block.rows_as_sent().enumerate() {
                let row = row?;
                entries.push(memo.entry(row, || {
                    let who = row.who();
                    let who = who.map_err(|what| ProtocolError::Row { row: at, what })?;
                    Ok(snapshot.resolve(&who).unwrap_or(UNKNOWN))
                })?);
            }
        }
        Accounts::Handles {
            generation,
            handles,
        } => {
            if generation != snapshot.generation() {
                return Ok(false);
            }
            entries.extend(handles.iter());
        }
    }
    Ok(true)
}

/// Reads what there is, with room for a while; 0 is the end of the stream.
async fn read_some(
    stream: &mut UnixStream,
    inbox: &mut Vec<u8>,
    filled: &mut usize,
) -> io::Result<usize> {
    if inbox.len() < *filled + READ_BYTES {
        inbox.resize((*filled * 2).max(2 * READ_BYTES), 0);
    }
    let read = stream.read(&mut inbox[*filled..]).await?;
    *filled += read;
    Ok(read)
}

/// Waits until the timer has gone off with nothing asked since it was set. (So no clock is read for
/// a request, and an idle connection ends after once to twice the time it may lie idle.)
async fn overdue(mut timer: Pin<&mut Sleep>, active: &mut bool, idle_max: Duration) {
    loop {
        timer.as_mut().await;
        if !std::mem::take(active) {
            return;
        }
        timer.as_mut().reset(Instant::now() + idle_max);
    }
}
