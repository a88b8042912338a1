//! A disk without room.
//!
//! Where there is little room, feeds and people are refused, with a word, and the mesh goes on with what is kept
//! for it. Where there is none, the round waits until there is: as on a slow disk, nothing of it is let out before
//! it is durable. Meanwhile look-ups and questions are answered from memory, what feeds and people hand in is
//! refused, and what peers say is dropped: they say it again.
//!
//! Invariant: nothing is refused that has been acknowledged, and nothing acknowledged that is not durable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairmesh_round::Op;
use fairmesh_site::{ForwardCall, Reply, Reported, Verdict};
use tokio::sync::{mpsc, watch};

use super::data::Data;
use super::{Arrived, Call, Command, Driver};
use crate::network::{NetworkCommand, NetworkEvent};
use crate::store::{DataDir, Filling, Room, Store, StoreError};

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a round is tried again with: less than its journal and store take would only fail again.
const TRY_BYTES: u64 = 4 << 20;

/// After so long it is tried all the same: not every file system says what a user may write.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// Most that waits for room, of what cannot be dropped.
const LATER_MAX: usize = 1_024;

/// What a node knows of its disk.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// What there is; `None` where the system does not say.
    pub room: Option<Room>,
    /// What the files of the store take.
    pub store_bytes: Option<u64>,
    /// What was damaged when the node started, and has been set aside.
    pub set_aside: Vec<String>,
    /// How many damaged records were met in it since it was opened.
    pub damaged_reads: u64,
    /// Why nothing that is handed in is taken.
    pub refusal: Option<String>,
    /// Whether a round waits for room.
    pub is_full: bool,
    /// Whole days until it is full, if it goes on as in the last day.
    pub days_left: Option<u64>,
}

pub(super) type Arrivals<'a> = (
    &'a mut mpsc::Receiver<Command>,
    &'a mut mpsc::Receiver<NetworkEvent>,
);

/// Looks at the disk.
#[derive(Debug)]
pub(super) struct DiskWatch {
    said: watch::Sender<Disk>,
    filling: Filling,
    looked: Option<Instant>,
    noted: Option<Instant>,
}

impl DiskWatch {
    /// `set_aside` is what was damaged at the start.
    pub(super) fn new(set_aside: Vec<String>) -> Self {
        let disk = Disk {
            set_aside,
            ..Disk::default()
        };
        Self {
            said: watch::Sender::new(disk),
            filling: Filling::default(),
            looked: None,
            noted: None,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Disk> {
        self.said.subscribe()
    }

    /// Why a call that adds to the disk is refused now.
    pub(super) fn refuses(&self, call: &Call) -> Option<String> {
        use Call::{Correct, Forward, Publish, Remap, Report, Running};
        let adds = matches!(
            call,
            Report(_)
                | Running(_)
                | Correct { .. }
                | Remap(_)
                | Publish { .. }
                | Forward(ForwardCall::HandIn(..))
        );
        let said = adds.then(|| self.said.borrow())?;
        said.refusal.clone()
    }

    /// Whether nothing is taken that need not be.
    pub(super) fn is_low(&self) -> bool {
        self.said.borrow().refusal.is_some()
    }

    /// Looks, if it is time.
    pub(super) fn look(&mut self, data: &Data) {
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        if !is_due(self.looked, LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let (room, store_bytes, damaged_reads) = data.read(|data| {
            let damaged = data.store().map_or(0, Store::damaged_reads);
            (data.room().ok(), data.store_bytes().ok(), damaged)
        });
        if let Some(room) = room.filter(|_| is_due(self.noted, 3_600 * LOOK_EVERY)) {
            self.noted = Some(Instant::now());
            self.filling.note(room.free);
        }
        let refusal = room.filter(Room::is_low).map(|room| {
            let [free, reserve] = [room.free, room.reserve()].map(|bytes| bytes >> 20);
            format!(
                "{free} MiB are left on the disk of the data folder: below {reserve} MiB nothing is taken but what \
                 members publish"
            )
        });
        let days_left = self.filling.days_left();
        self.said.send_if_modified(|said| {
            let is_news = said.refusal.is_some() != refusal.is_some();
            if let Some(refusal) = refusal.as_ref().filter(|_| is_news) {
                tracing::error!("reports are refused: {refusal}");
            }
            *said = Disk {
                set_aside: std::mem::take(&mut said.set_aside),
                room,
                store_bytes,
                damaged_reads,
                refusal,
                is_full: false,
                days_left,
            };
            is_news
        });
    }

    /// Says that a round waits.
    fn is_full(&self, error: &StoreError) {
        tracing::error!(
            %error,
            "there is no room for what is to be durable: reports are refused and look-ups answered as things \
             stand; the node goes on when there is room"
        );
        self.said.send_modify(|said| {
            said.is_full = true;
            let is_read_only = said.room.is_some_and(|room| room.is_read_only);
            let what = if is_read_only { "read-only" } else { "full" };
            said.refusal = Some(format!("the disk is {what} ({error})"));
        });
    }

    fn refusal(&self) -> String {
        let said = self.said.borrow();
        said.refusal.clone().unwrap_or_default()
    }
}

/// The reply to a call that is refused.
pub(super) fn refusal_of(call: Call, why: &str) -> Reply {
    let all = |records: usize| {
        let refused = (0..records).map(|index| (index, why.to_owned()));
        Reply::Reported(Reported {
            refused: refused.collect(),
            for_now: u64::try_from(records).unwrap_or(u64::MAX),
            ..Reported::default()
        })
    };
    match call {
        Call::Report(records) | Call::Correct { records, .. } => all(records.len()),
        Call::Running(jobs) => all(jobs.len()),
        Call::Remap(_) => all(1),
        Call::Publish { .. } => Reply::Published(Err(why.to_owned())),
        Call::Forward(_) => Reply::Forward(Box::new(Err(why.to_owned()))),
        Call::Quota(_) => Reply::Quota(Box::new(Err(why.to_owned()))),
        Call::Advert(_) => unreachable!("adds nothing to the disk"),
    }
}

impl Driver {
    /// Does `ops` in order. Where there is no room they wait for it.
    pub(super) async fn write(
        &mut self,
        mut ops: VecDeque<Op>,
        arrivals: &mut Arrivals<'_>,
    ) -> Result<(), StoreError> {
        let mut waited = false;
        while let Err(error) =
            tokio::task::block_in_place(|| self.data.write(|data| data.carry_out(&mut ops)))
        {
            if !error.lacks_room() {
                return Err(error);
            }
            if !waited {
                self.disk.is_full(&error);
            }
            waited = true;
            self.wait_for_room(error, arrivals).await?;
        }
        if waited {
            tracing::info!("there is room again: what waited is durable, and reports are taken");
            self.disk.looked = None;
        }
        Ok(())
    }

    /// Goes on without the disk for as long as it has no room. An error when the node is told to stop: what waits
    /// was not acknowledged.
    async fn wait_for_room(
        &mut self,
        error: StoreError,
        (commands, network): &mut Arrivals<'_>,
    ) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.tick().await;
        loop {
            tokio::select! {
                _ = look.tick() => {
                    let room = self.data.read(DataDir::room).ok();
                    let has_room = |room: Room| !room.is_read_only && room.free >= TRY_BYTES;
                    if room.is_some_and(has_room) || began.elapsed() >= TRY_AGAIN {
                        return Ok(());
                    }
                }
                Some(command) = commands.recv() => match command {
                    Command::Stop(_) => return Err(error),
                    Command::Ask(question) => self.answer(question),
                    Command::Call(Call::Advert(_), _) | Command::Reconfigure(_) => {
                        keep_for_later(&mut self.later, Arrived::Command(command));
                    }
                    Command::Call(call, on_reply) => {
                        self.refuse(call, on_reply, &self.disk.refusal());
                    }
                },
                Some(event) = network.recv() => self.without_disk(event).await,
            }
        }
    }

    /// What a peer says, or that it is there or gone.
    async fn without_disk(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Gossip {
                message_id, from, ..
            } => {
                self.send(NetworkCommand::ReportValidation {
                    message_id,
                    from,
                    verdict: Verdict::Ignore,
                })
                .await;
            }
            NetworkEvent::Request { .. } | NetworkEvent::Called(_) => {}
            NetworkEvent::Connected(peer) | NetworkEvent::Disconnected(peer) => {
                // Of each peer the last is what is true.
                self.later.retain(|later| !matches!(later,
                    Arrived::Network(NetworkEvent::Connected(of) | NetworkEvent::Disconnected(of)) if *of == peer));
                self.later.push_back(Arrived::Network(event));
            }
            event => keep_for_later(&mut self.later, Arrived::Network(event)),
        }
    }
}

/// Keeps what cannot be dropped for when there is room: of configurations the last, whatever else waits.
pub(super) fn keep_for_later(later: &mut VecDeque<Arrived>, arrived: Arrived) {
    let is_config = |of: &Arrived| matches!(of, Arrived::Command(Command::Reconfigure(_)));
    if is_config(&arrived) {
        later.retain(|of| !is_config(of));
    } else if later.len() >= LATER_MAX {
        return;
    }
    later.push_back(arrived);
}
