//! One simulated node: a site while it runs, its disk, its clock, and what it said.
//!
//! Invariant: whatever survives a crash is in `disk`; all else of a life is gone with it, except what
//! is kept for those who watch (notices, verdicts, traffic), which add up over all lives.
//!
//! Deliberately not here: carrying effects out (the world's part).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairmesh_model::{MonoTime, Now, SigningKey, SiteId};
use fairmesh_round::{Input, Round};
use fairmesh_site::{Notice, PushToken, Reply, Site, SiteConfig, Ticket, Verdict, View};

use crate::clock::SiteClock;
use crate::disk::{Disk, Snapshot};
use crate::network::{Content, Payload, Seen, wire_length};

/// Replies that wait to be read, at most: a story that never reads them must not fill memory.
const REPLIES_MAX: usize = 1_024;

/// Notices that are remembered of a node.
const NOTICES_MAX: usize = 4_096;

/// Bytes and messages of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Messages that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that came.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Bytes that left as they are on the wire, with all that is around the payload.
    pub sent_wire_bytes: u64,
    /// The same of what came.
    pub received_wire_bytes: u64,
}

impl Flow {
    pub(crate) fn send(&mut self, content: Content, payload: usize) {
        self.sent += 1;
        self.sent_bytes += payload as u64;
        self.sent_wire_bytes += wire_length(content, payload) as u64;
    }

    pub(crate) fn take(&mut self, content: Content, payload: usize) {
        self.received += 1;
        self.received_bytes += payload as u64;
        self.received_wire_bytes += wire_length(content, payload) as u64;
    }
}

/// What went over a node's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Pushes, relayed ones included.
    pub push: Flow,
    /// Requests.
    pub ask: Flow,
    /// Answers.
    pub answer: Flow,
    /// What nodes tell each other about pushes; their payload is counted as 16 bytes for each name.
    pub control: Flow,
}

/// How a node's site judged what was pushed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// Fresh.
    pub accepted: u64,
    /// Known.
    pub ignored: u64,
    /// False.
    pub rejected: u64,
    /// Copies that never reached the site.
    pub duplicates: u64,
}

/// Why a node does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It was never started.
    NotStarted,
    /// It was told to stop.
    Stopped,
    /// Its process ended without a word.
    Crashed,
    /// Its disk is full: a node whose store fails stops.
    DiskFull,
}

/// A peer that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) node: usize,
    pub(crate) id: u64,
    pub(crate) life: u32,
}

/// A push that a site has not judged yet.
#[derive(Debug)]
pub(crate) struct Judging {
    pub(crate) from: usize,
    pub(crate) topic: usize,
    pub(crate) payload: Payload,
}

/// One simulated node.
#[derive(Debug)]
pub struct SimNode {
    /// Its number.
    pub index: usize,
    /// Its identity.
    pub id: SiteId,
    /// The owner's decisions, as it is started with them.
    pub config: SiteConfig,
    /// Its store.
    pub disk: Disk,
    /// Its clock.
    pub clock: SiteClock,
    /// What it told its operator, over all lives; the newest of many.
    pub notices: VecDeque<Notice>,
    /// How its site judged pushes.
    pub verdicts: Verdicts,
    /// What went over its links.
    pub traffic: Traffic,
    /// What look-ups read; kept after the end of the process.
    pub view: Option<Arc<View>>,
    /// Backups of its data folder, oldest first.
    pub backups: Vec<Snapshot>,
    pub(crate) key: SigningKey,
    pub(crate) site: Option<Site>,
    /// Its round; there while the site is.
    pub(crate) round: Option<Round>,
    /// What has arrived and waits for the round before to be on the disk, with the peer that sent it
    /// and the payload's hash.
    pub(crate) inbox: Vec<(Input, Option<(usize, u128)>)>,
    /// Pushes that the site has been handed, or will be, and has not judged yet.
    pub(crate) judging: BTreeMap<PushToken, Judging>,
    pub(crate) stopped: StopReason,
    pub(crate) life: u32,
    pub(crate) replies: VecDeque<(Ticket, Reply)>,
    /// Peers that were asked and have not answered, by request.
    pub(crate) asks: BTreeMap<u64, usize>,
    pub(crate) channels: BTreeMap<u64, Asker>,
    pub(crate) seen: Seen,
    /// Effects that are still carried out before the process ends.
    pub(crate) crash_after: Option<usize>,
    /// What its rounds and starts have done that none may.
    pub(crate) faults: RoundFaults,
    /// True time of the next wake-up, as of the last event.
    pub(crate) due_ms: u64,
    /// True time of the earliest wake-up in the queue.
    pub(crate) wake_queued_ms: Option<u64>,
    pub(crate) ticked_ms: u64,
}

/// What no round and no start may do (`docs/round.md`), whether a crash makes it felt or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundFaults {
    /// The store has taken own counters or marks before they were in the journal.
    pub is_ahead: bool,
    /// The round under way has rows that its journal has to have before anything else is done.
    pub owes_journal: bool,
    /// A journal was begun anew though a bit of it was flipped, and nobody was told.
    pub hides_damage: bool,
}

impl SimNode {
    pub(crate) fn new(index: usize, config: SiteConfig, clock: SiteClock, disk: Disk) -> Self {
        let key = crate::vo::site_key(index);
        Self {
            index,
            id: key.site_id(),
            config,
            disk,
            clock,
            notices: VecDeque::new(),
            verdicts: Verdicts::default(),
            traffic: Traffic::default(),
            view: None,
            backups: Vec::new(),
            key,
            site: None,
            round: None,
            inbox: Vec::new(),
            judging: BTreeMap::new(),
            stopped: StopReason::NotStarted,
            life: 0,
            replies: VecDeque::new(),
            asks: BTreeMap::new(),
            channels: BTreeMap::new(),
            seen: Seen::default(),
            crash_after: None,
            faults: RoundFaults::default(),
            due_ms: 0,
            wake_queued_ms: None,
            ticked_ms: 0,
        }
    }

    /// The site, while the node runs.
    pub fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// Whether the node runs.
    pub fn is_up(&self) -> bool {
        self.site.is_some()
    }

    /// Why it does not run; `None` while it does.
    pub fn stopped(&self) -> Option<StopReason> {
        self.site.is_none().then_some(self.stopped)
    }

    /// How many times it was started.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// What time it believes it is.
    pub fn now(&self, now: MonoTime) -> Now {
        self.clock.now(now)
    }

    /// What is left of the process: nothing.
    pub(crate) fn end(&mut self, why: StopReason) {
        self.site = None;
        self.round = None;
        self.inbox.clear();
        self.judging.clear();
        self.stopped = why;
        self.crash_after = None;
        self.asks.clear();
        self.channels.clear();
        self.seen = Seen::default();
    }

    pub(crate) fn say(&mut self, notice: Notice) {
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        if self.replies.len() == REPLIES_MAX {
            self.replies.pop_front();
        }
        self.replies.push_back((ticket, reply));
    }

    pub(crate) fn take_reply(&mut self, ticket: Ticket) -> Option<Reply> {
        let at = self.replies.iter().rposition(|(of, _)| *of == ticket)?;
        self.replies.remove(at).map(|(_, reply)| reply)
    }

    pub(crate) fn judged(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Accept => self.verdicts.accepted += 1,
            Verdict::Ignore => self.verdicts.ignored += 1,
            Verdict::Reject => self.verdicts.rejected += 1,
        }
    }
}
