//! The one task that owns the site: events in, effects out, in order.
//!
//! Sockets, peers, feeds and timers turn into events; the effects of a handful of events are
//! carried out together, all that must be durable first, in one write. So a busy node pays for one
//! sync of the disk where a naive one pays for hundreds, and still acknowledges nothing that a crash
//! could take back.
//!
//! Invariant: what is sent, answered or acknowledged is durable. When the store fails, the node
//! stops: its memory is ahead of its disk, and starting again from the disk is the way back.
//!
//! Deliberately not here: what events mean (`fairmesh-site`), and what people see (`control`).

mod clock;
mod effects;
mod handle;
mod start;

pub use clock::{Clock, FastClock, SystemClock};
pub use handle::{Gone, NodeHandle};
pub use start::{NodeOptions, Running, start};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairmesh_model::{ContentHash, Now, RunningJob, SiteId, UsageRecord};
use fairmesh_site::{BatchId, Estimate, Event, JobMark, Reply, Site, Table, View, job_key};
use tokio::sync::{mpsc, oneshot, watch};

use crate::network::{NetworkEvent, NetworkHandle};
use crate::store::{JournaledStore, StoreError};

/// Most inputs that one round takes in before it writes: bounds how long the first of them waits.
const ROUND_MAX: usize = 64;

/// Something to ask the site, on the driver's task.
pub(crate) type Question = Box<dyn FnOnce(&Site, Now) + Send>;

/// What callers within the node ask of the driver.
pub(crate) enum Command {
    Report(Vec<UsageRecord>, oneshot::Sender<Reply>),
    Running(Vec<RunningJob>, oneshot::Sender<Reply>),
    Publish(Vec<u8>, oneshot::Sender<Reply>),
    Estimate(Vec<UsageRecord>, oneshot::Sender<Vec<Estimate>>),
    Ask(Question),
    Reconfigure(Box<fairmesh_site::SiteConfig>),
    Stop(oneshot::Sender<()>),
}

/// A batch became durable at a node.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// The node.
    pub node: SiteId,
    /// The batch.
    pub batch: BatchId,
    /// When.
    pub at: Instant,
}

/// The driver's state beside the site itself.
pub(crate) struct Driver {
    site: Site,
    store: JournaledStore,
    network: NetworkHandle,
    clock: Arc<dyn Clock>,
    view: watch::Sender<Arc<View>>,
    replies: HashMap<u64, oneshot::Sender<Reply>>,
    next_ticket: u64,
    /// Pushed messages that wait for a verdict, by token: always settled within one round.
    pushes: HashMap<u64, (ContentHash, SiteId)>,
    /// Peers' requests that wait for an answer: always settled within one round.
    channels: HashMap<u64, SiteId>,
    /// Marks of jobs that this round's events have moved and that are not in the store yet.
    marks: HashMap<Vec<u8>, JobMark>,
    observer: Option<mpsc::UnboundedSender<Observation>>,
}

enum Input {
    Command(Command),
    Network(NetworkEvent),
    Timer,
}

impl Driver {
    /// Runs until told to stop, or until the store fails.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut network: mpsc::Receiver<NetworkEvent>,
        first: Vec<fairmesh_site::Effect>,
    ) -> Result<(), StoreError> {
        self.carry_out(first).await?;
        loop {
            let wait = self.until_wakeup();
            let input = tokio::select! {
                command = commands.recv() => command.map(Input::Command),
                event = network.recv() => event.map(Input::Network),
                () = tokio::time::sleep(wait) => Some(Input::Timer),
            };
            let Some(input) = input else { return Ok(()) };
            let mut effects = Vec::new();
            let mut stop = None;
            let mut next = Some(input);
            let mut taken = 0;
            while let Some(input) = next.take() {
                match input {
                    Input::Command(Command::Stop(done)) => {
                        effects.extend(self.handle(Event::Stopping));
                        stop = Some(done);
                        break;
                    }
                    input => self.take(input, &mut effects),
                }
                taken += 1;
                if taken < ROUND_MAX {
                    next = commands
                        .try_recv()
                        .ok()
                        .map(Input::Command)
                        .or_else(|| network.try_recv().ok().map(Input::Network));
                }
            }
            self.carry_out(effects).await?;
            if let Some(done) = stop {
                self.network.shutdown().await;
                // The store is closed before anybody hears that the node has stopped.
                drop(self);
                let _ = done.send(());
                return Ok(());
            }
        }
    }

    fn until_wakeup(&self) -> Duration {
        let now = self.clock.now().mono;
        Duration::from_millis(self.site.next_wakeup(now).since(now).0.max(1))
    }

    fn handle(&mut self, event: Event) -> Vec<fairmesh_site::Effect> {
        let effects = self.site.handle(self.clock.now(), event);
        self.remember_marks(&effects);
        effects
    }

    fn take(&mut self, input: Input, effects: &mut Vec<fairmesh_site::Effect>) {
        let event = match input {
            Input::Timer => Some(Event::Tick),
            Input::Network(event) => self.network_event(event),
            Input::Command(command) => self.command_event(command),
        };
        if let Some(event) = event {
            effects.extend(self.handle(event));
        }
    }

    fn network_event(&mut self, event: NetworkEvent) -> Option<Event> {
        Some(match event {
            NetworkEvent::Connected(peer) => Event::Connected(peer),
            NetworkEvent::Disconnected(peer) => Event::Disconnected(peer),
            NetworkEvent::Gossip {
                topic,
                from,
                message_id,
                bytes,
            } => {
                let token = self.ticket();
                self.pushes.insert(token, (message_id, from));
                Event::Pushed {
                    from,
                    vo: topic,
                    bytes,
                    token,
                }
            }
            NetworkEvent::Request {
                from,
                channel,
                bytes,
            } => {
                self.channels.insert(channel, from);
                Event::Asked {
                    from,
                    bytes,
                    channel,
                }
            }
            NetworkEvent::Response { from, id, result } => {
                if let Err(failure) = &result {
                    tracing::debug!(peer = %from.short(), %failure, "request failed");
                }
                Event::Answered {
                    from,
                    id,
                    bytes: result.ok(),
                }
            }
            NetworkEvent::Listening(address) => {
                tracing::info!(%address, "listening");
                return None;
            }
            NetworkEvent::Addresses { .. } => return None,
        })
    }

    fn command_event(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Report(records, reply) => {
                let ticket = self.expect_reply(reply);
                let records = records
                    .into_iter()
                    .map(|record| self.with_mark(record))
                    .collect();
                Some(Event::Report { ticket, records })
            }
            Command::Running(jobs, reply) => {
                let ticket = self.expect_reply(reply);
                let jobs = jobs
                    .into_iter()
                    .map(|job| (self.mark_of(&job.record), job))
                    .map(|(mark, job)| (job, mark))
                    .collect();
                Some(Event::Running { ticket, jobs })
            }
            Command::Publish(bytes, reply) => Some(Event::Publish {
                ticket: self.expect_reply(reply),
                bytes,
            }),
            Command::Estimate(records, reply) => {
                let now = self.clock.now();
                let estimate =
                    |record: &UsageRecord| self.site.estimate(now, record, self.mark_of(record));
                // Nobody waits any more: then the answer is not needed.
                let _ = reply.send(records.iter().map(estimate).collect());
                None
            }
            Command::Ask(question) => {
                question(&self.site, self.clock.now());
                None
            }
            Command::Reconfigure(config) => Some(Event::Reconfigured(config)),
            Command::Stop(_) => unreachable!("taken by the loop"),
        }
    }

    fn with_mark(&self, record: UsageRecord) -> (UsageRecord, Option<JobMark>) {
        let mark = self.mark_of(&record);
        (record, mark)
    }

    /// How much of a job is charged: as this round left it, or as the store has it.
    fn mark_of(&self, record: &UsageRecord) -> Option<JobMark> {
        let key = job_key(&record.key);
        if let Some(mark) = self.marks.get(&key) {
            return Some(*mark);
        }
        match self.store.get(Table::Jobs, &key) {
            Ok(value) => value.as_deref().and_then(JobMark::from_bytes),
            Err(error) => {
                // Better to leave a job out than to count it twice; the operator is told how.
                tracing::error!(%error, job = %record.key.job, "mark of a job cannot be read; the job is not counted");
                Some(JobMark {
                    charged_until: record.end,
                    ended: true,
                })
            }
        }
    }

    fn remember_marks(&mut self, effects: &[fairmesh_site::Effect]) {
        for effect in effects {
            let fairmesh_site::Effect::Persist(writes) = effect else {
                continue;
            };
            for write in writes.iter().filter(|write| write.table == Table::Jobs) {
                if let Some(mark) = write.value.as_deref().and_then(JobMark::from_bytes) {
                    self.marks.insert(write.key.clone(), mark);
                }
            }
        }
    }

    fn expect_reply(&mut self, reply: oneshot::Sender<Reply>) -> u64 {
        let ticket = self.ticket();
        self.replies.insert(ticket, reply);
        ticket
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

#[cfg(test)]
mod tests;
