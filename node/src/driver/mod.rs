//! The one task that owns the site: events in, effects out, in order.
//!
//! Sockets, peers, feeds and timers turn into events; what a handful of them comes to is carried out
//! together, in the order that `fairmesh-round` says.
//!
//! Invariant: what is sent, answered or acknowledged is durable. Where the disk is full a round waits for room;
//! when the store fails otherwise, the node stops: its memory is ahead of its disk, and starting again from the
//! disk is the way back.
//!
//! Deliberately not here: what events mean (`fairmesh-site`), what is durable before what
//! (`fairmesh-round`), and what people see (`control`).

mod clock;
mod data;
mod effects;
mod handle;
mod room;
mod start;
mod starting;

pub use clock::wall_now;
pub use clock::{Clock, FastClock, SystemClock};
pub use handle::{Gone, NodeHandle};
pub use room::Disk;
pub use start::{NodeOptions, NodeTask, Running, start, start_or_show};
pub use starting::Starting;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairmesh_model::{Now, RunningJob, SiteId, UsageRecord, WallTime};
use fairmesh_round::{Input, Op, Round};
use fairmesh_site::{
    AdvertCall, Done, Event, ForwardCall, HeadId, JobMark, QuotaCall, Remap, Reply, Site, View,
    brings_job,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::network::{MessageName, NetworkEvent, NetworkHandle};
use crate::store::StoreError;
use data::Data;
use room::{Arrivals, DiskWatch};

/// Something to ask the site and its round, on the driver's task.
pub(crate) type Question = Box<dyn FnOnce(&Site, &Round, Now) + Send>;

/// Takes the site's reply to a call, and may ask the site what else belongs to the answer.
pub(crate) type OnReply = Box<dyn FnOnce(Reply, &Site, Now) + Send>;

/// What callers within the node ask of the driver.
pub(crate) enum Command {
    Call(Call, OnReply),
    Ask(Question),
    Reconfigure(Box<fairmesh_site::SiteConfig>),
    Stop(oneshot::Sender<()>),
}

/// What the site answers with a reply.
pub(crate) enum Call {
    Report(Vec<UsageRecord>),
    Running(Vec<RunningJob>),
    /// Jobs to be taken back.
    Correct {
        records: Vec<UsageRecord>,
        by: String,
        why: String,
    },
    /// Usage to be moved to other accounts.
    Remap(Box<Remap>),
    Publish {
        bytes: Vec<u8>,
        by: String,
    },
    Quota(QuotaCall),
    Advert(AdvertCall),
    Forward(ForwardCall),
}

/// A head became durable at a node.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// The site that observed it.
    pub node: SiteId,
    /// The head, and its number.
    pub head: (HeadId, fairmesh_model::Seq),
    /// The monotonic time at which the head was durable.
    pub at: Instant,
}

/// The driver's state beside the site itself.
pub(crate) struct Driver {
    site: Site,
    round: Round,
    data: Data,
    /// What the start has still to write, before anything else.
    late: VecDeque<Op>,
    /// What arrived while a round waited for room.
    later: VecDeque<Arrived>,
    disk: DiskWatch,
    /// When the site last let go of what was too old.
    believed: watch::Sender<WallTime>,
    network: NetworkHandle,
    clock: Arc<dyn Clock>,
    view: watch::Sender<Arc<View>>,
    replies: HashMap<u64, OnReply>,
    next_ticket: u64,
    /// Pushed messages that wait for a verdict, by token: a head without its content does so until that has come.
    pushes: BTreeMap<u64, (MessageName, SiteId)>,
    /// Peers' requests that wait for an answer: always settled within one round.
    channels: HashMap<u64, SiteId>,
    observer: Option<mpsc::UnboundedSender<Observation>>,
    /// What the site has handed out, on other threads.
    works: JoinSet<Done>,
}

/// How long a round takes inputs in before it writes and answers: questions count as inputs and cost what they cost.
const ROUND_TIME_MAX: Duration = Duration::from_millis(5);

enum Arrived {
    Command(Command),
    Network(NetworkEvent),
    Done(Done),
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
        self.round.push_effects(first);
        let mut arrivals = (&mut commands, &mut network);
        self.carry_out(&mut arrivals).await?;
        let mut due: Option<Instant> = None;
        loop {
            // A moment that has come is not put off by what else arrives.
            let wakeup = Instant::now() + self.until_wakeup();
            let wake_at = due.map_or(wakeup, |due| due.min(wakeup));
            // What waited comes first: of a peer that is there and gone again the last is what is true.
            let arrived = match self.later.pop_front() {
                Some(later) => Some(later),
                None => self.arrived(&mut arrivals, wake_at).await,
            };
            let Some(arrived) = arrived else {
                return Ok(());
            };
            due = (!matches!(arrived, Arrived::Timer)).then_some(wake_at);
            let stop = self.take_round(arrived, &mut arrivals);
            self.carry_out(&mut arrivals).await?;
            if let Some(done) = stop {
                self.network.shutdown().await;
                // The store is closed before anybody hears that the node has stopped.
                drop(self);
                let _ = done.send(());
                return Ok(());
            }
        }
    }

    /// What arrives next; `None` where nobody is left who could send anything.
    async fn arrived(
        &mut self,
        (commands, network): &mut Arrivals<'_>,
        wake_at: Instant,
    ) -> Option<Arrived> {
        tokio::select! {
            command = commands.recv() => command.map(Arrived::Command),
            event = network.recv() => event.map(Arrived::Network),
            Some(done) = self.works.join_next() => {
                Some(Arrived::Done(done.expect("work is pure and does not end otherwise")))
            }
            () = tokio::time::sleep_until(wake_at.into()) => Some(Arrived::Timer),
        }
    }

    /// Takes in what has arrived and what waits behind it, until the round is full or has had its time; whoever waits
    /// for the node's end, where it is to stop.
    fn take_round(
        &mut self,
        first: Arrived,
        arrivals: &mut Arrivals<'_>,
    ) -> Option<oneshot::Sender<()>> {
        let began = Instant::now();
        let mut next = Some(first);
        while let Some(arrived) = next {
            let was_of_network = matches!(arrived, Arrived::Network(_));
            let has_room = match arrived {
                Arrived::Command(Command::Stop(done)) => {
                    self.round.end_with_store();
                    self.handle(Input::Event(Event::Stopping));
                    return Some(done);
                }
                arrived => self.take(arrived),
            };
            if !has_room || began.elapsed() >= ROUND_TIME_MAX {
                break;
            }
            let later = self.later.pop_front();
            next = later.or_else(|| waiting(arrivals, was_of_network));
        }
        None
    }

    fn until_wakeup(&self) -> Duration {
        let now = self.clock.now().mono;
        Duration::from_millis(self.site.next_wakeup(now).since(now).0.max(1))
    }

    /// True while the round may take another input.
    fn handle(&mut self, input: Input) -> bool {
        let event = self.round.event(input, |record| self.mark_of(record));
        let effects = self.site.handle(self.clock.now(), event);
        self.round.push_effects(effects)
    }

    fn take(&mut self, arrived: Arrived) -> bool {
        let input = match arrived {
            Arrived::Timer => Some(Input::Event(Event::Tick)),
            Arrived::Done(done) => Some(Input::Event(Event::Done(done))),
            Arrived::Network(event) => self.network_event(event).map(Input::Event),
            Arrived::Command(command) => self.command_input(command),
        };
        match input {
            Some(input) => self.handle(input),
            None => self.round.push_effects(Vec::new()),
        }
    }

    fn network_event(&mut self, event: NetworkEvent) -> Option<Event> {
        Some(match event {
            NetworkEvent::Connected(peer) => Event::Connected(peer),
            NetworkEvent::Disconnected(peer) => Event::Disconnected(peer),
            NetworkEvent::Called(peer) => Event::Called(peer),
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
            // Its sender keeps it, and asks again.
            NetworkEvent::Request { bytes, .. } if self.disk.is_low() && brings_job(&bytes) => {
                return None;
            }
            NetworkEvent::Request {
                from,
                channel,
                bytes,
            } => {
                self.channels.insert(channel, from);
                Event::Requested {
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
        })
    }

    fn command_input(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Call(call, on_reply) => match self.disk.refuses(&call) {
                Some(why) => {
                    self.refuse(call, on_reply, &why);
                    None
                }
                None => Some(self.call_input(call, on_reply)),
            },
            Command::Ask(question) => {
                self.answer(question);
                None
            }
            Command::Reconfigure(config) => Some(Input::Event(Event::Reconfigured(config))),
            Command::Stop(_) => unreachable!("taken by the loop"),
        }
    }

    fn answer(&self, question: Question) {
        question(&self.site, &self.round, self.clock.now());
    }

    fn refuse(&self, call: Call, on_reply: OnReply, why: &str) {
        on_reply(room::refusal_of(call, why), &self.site, self.clock.now());
    }

    fn call_input(&mut self, call: Call, on_reply: OnReply) -> Input {
        let ticket = self.ticket();
        self.replies.insert(ticket, on_reply);
        match call {
            Call::Report(records) => Input::Report { ticket, records },
            Call::Running(jobs) => Input::Running { ticket, jobs },
            Call::Correct { records, by, why } => Input::Correct {
                ticket,
                records,
                by,
                why,
            },
            Call::Remap(change) => Input::Event(Event::Remap { ticket, change }),
            Call::Publish { bytes, by } => Input::Event(Event::Publish { ticket, bytes, by }),
            Call::Quota(call) => Input::Event(Event::Quota { ticket, call }),
            Call::Advert(call) => Input::Event(Event::Advert { ticket, call }),
            Call::Forward(call) => Input::Event(Event::Forward { ticket, call }),
        }
    }

    fn mark_of(&self, record: &UsageRecord) -> Option<JobMark> {
        let read = |key: &[u8]| {
            self.data
                .read(|data| data::value_of(Some(data), key, record))
        };
        self.round.mark_of(record, read)
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

/// What waits, of commands and the network in turn: however much there is of one, the other waits for one of it.
fn waiting((commands, network): &mut Arrivals<'_>, was_of_network: bool) -> Option<Arrived> {
    let mut command = || commands.try_recv().ok().map(Arrived::Command);
    let mut event = || network.try_recv().ok().map(Arrived::Network);
    match was_of_network {
        true => command().or_else(event),
        false => event().or_else(command),
    }
}

#[cfg(test)]
mod tests;
