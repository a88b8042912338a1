//! One simulated node: a site while it runs, its disk, its clock, and what it said.
//!
//! Invariant: whatever survives a crash is in `disk`; all else of a life is gone with it, except what
//! is kept for those who watch (notices, verdicts, traffic), which add up over all lives.
//!
//! Deliberately not here: carrying effects out (the world's part).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairmesh_model::{JobKey, MonoTime, Now, SigningKey, SiteId, UsageRecord};
use fairmesh_site::{
    JobMark, Notice, Reply, Site, SiteConfig, Table, Ticket, Verdict, View, job_key,
};

use crate::clock::SiteClock;
use crate::disk::{Disk, Snapshot};
use crate::network::Seen;

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
    pub(crate) stopped: StopReason,
    pub(crate) life: u32,
    pub(crate) replies: VecDeque<(Ticket, Reply)>,
    /// Peers that were asked and have not answered, by request.
    pub(crate) asks: BTreeMap<u64, usize>,
    pub(crate) channels: BTreeMap<u64, Asker>,
    pub(crate) seen: Seen,
    /// Effects that are still carried out before the process ends.
    pub(crate) crash_after: Option<usize>,
    /// True time of the next wake-up, as of the last event.
    pub(crate) due_ms: u64,
    /// True time of the earliest wake-up in the queue.
    pub(crate) wake_queued_ms: Option<u64>,
    pub(crate) ticked_ms: u64,
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
            stopped: StopReason::NotStarted,
            life: 0,
            replies: VecDeque::new(),
            asks: BTreeMap::new(),
            channels: BTreeMap::new(),
            seen: Seen::default(),
            crash_after: None,
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
        self.stopped = why;
        self.crash_after = None;
        self.asks.clear();
        self.channels.clear();
        self.seen = Seen::default();
    }

    /// The mark that the store holds of a job, as a driver looks it up: where it cannot be read the
    /// job is left out, which is better than counting it twice.
    pub fn mark(&self, record: &UsageRecord) -> Option<JobMark> {
        match self.disk.get(Table::Jobs, &job_key(&record.key)) {
            Ok(value) => value.and_then(JobMark::from_bytes),
            Err(_) => Some(JobMark {
                charged_until: record.end,
                ended: true,
                corrected: false,
            }),
        }
    }

    /// The mark of a job that the store holds, if it holds a good one.
    pub fn stored_mark(&self, job: &JobKey) -> Option<JobMark> {
        let value = self.disk.get(Table::Jobs, &job_key(job)).ok()??;
        JobMark::from_bytes(value)
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
