//! What goes into a site and what comes out of it.
//!
//! Invariant: effects are carried out in their order, and a [`Effect::Persist`] is durable before
//! what follows it; so nothing is acknowledged, published or sent that a crash could take back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{RunningJob, SiteId, UsageRecord, VoId, WallTime};

use crate::advert::{AdvertAnswer, AdvertCall};
use crate::config::SiteConfig;
use crate::forward::calls::{ForwardCall, ForwardReply};
use crate::notice::Notice;
use crate::quota::calls::{QuotaCall, QuotaReply};
use crate::remap::change::Remap;
use crate::store::{JobMark, Write};
use crate::tickets::{Channel, PushToken, Ticket};
use crate::view::View;
use crate::work::{Done, Work};

/// An input of the site. What it causes is returned as [`Effect`]s.
#[derive(Debug)]
pub enum Event {
    /// Time has passed: do what is due.
    Tick,
    /// A peer can be reached.
    Connected(SiteId),
    /// A peer cannot be reached any more.
    Disconnected(SiteId),
    /// A site that is not allowed has called, and proved who it is.
    Called(SiteId),
    /// Somebody pushed a fresh document; `from` passed it on.
    Pushed {
        /// Who passed it on.
        from: SiteId,
        /// The VO on whose topic it came.
        vo: VoId,
        /// The encoded push, not verified yet.
        bytes: Vec<u8>,
        /// To be named with the verdict.
        token: PushToken,
    },
    /// A peer has sent a request, to be answered through its channel.
    Requested {
        /// The peer that sent the request.
        from: SiteId,
        /// The encoded request, not read yet.
        bytes: Vec<u8>,
        /// To be named with the answer.
        channel: Channel,
    },
    /// A peer has answered one of our requests, or has not (`None`).
    Answered {
        /// The peer that the request went to.
        from: SiteId,
        /// The number of the request, from [`Effect::Ask`].
        id: u64,
        /// The encoded reply; `None` if there was none.
        bytes: Option<Vec<u8>>,
    },
    /// A feed reports usage; with each record the mark that the store holds of its job.
    Report {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The records, each with its job's mark from the round.
        records: Vec<(UsageRecord, Option<JobMark>)>,
    },
    /// A feed lists the jobs that run now; replaces the list before.
    Running {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The jobs, each with the mark that the store holds of it.
        jobs: Vec<(RunningJob, Option<JobMark>)>,
    },
    /// Somebody takes jobs back that were reported in error.
    Correct {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// Which, by whom, and why.
        correction: Box<Correction>,
    },
    /// Usage of jobs that today's rules map elsewhere moves there.
    Remap {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// Which, by whom, and why.
        change: Box<Remap>,
    },
    /// A batch system asks about a job's quota, or tells of it.
    Quota {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The call, as the batch system made it.
        call: QuotaCall,
    },
    /// A scheduler says what is free, or a broker wants to know it of others.
    Advert {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The call of the scheduler or of a user.
        call: AdvertCall,
    },
    /// Somebody hands in a job for the mesh, or says what became of one here.
    Forward {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The call of a user or of the batch system.
        call: ForwardCall,
    },
    /// Somebody hands in a document of a VO. A large one is answered once it was read.
    Publish {
        /// Identifies the reply to the caller.
        ticket: Ticket,
        /// The bytes of the signed document, not read yet.
        bytes: Vec<u8>,
        /// Who does it, by the name that the system gives him.
        by: String,
    },
    /// Some [`Effect::Work`] is done: each once, in any order.
    Done(Done),
    /// The configuration was read again.
    Reconfigured(Box<SiteConfig>),
    /// Publish what is pending: the node is about to stop.
    Stopping,
}

/// Jobs that were reported in error.
#[derive(Debug, Clone)]
pub struct Correction {
    /// The records, as they were reported, each with the mark that the store holds of its job.
    pub records: Vec<(UsageRecord, Option<JobMark>)>,
    /// Who takes them back.
    pub by: String,
    /// The user's reason, for the audit.
    pub why: String,
}

/// What is to be done, in order.
#[derive(Debug)]
pub enum Effect {
    /// One atomic change of the store, durable before anything behind it.
    Persist(Vec<Write>),
    /// Delete the marks of jobs that ended before this: whatever is reported of them again is too old to
    /// count. In its own time: nothing depends on it.
    ForgetMarks {
        /// Marks of jobs that ended before this time may go.
        before: WallTime,
        /// What time it is, by a clock that the site believes.
        at: WallTime,
    },
    /// Push to all members of a VO.
    Push {
        /// The VO whose members receive it.
        vo: VoId,
        /// The encoded push.
        bytes: Vec<u8>,
    },
    /// Report gossipsub's verdict on a pushed message: accept, ignore or reject.
    ReportValidation {
        /// The token of [`Event::Pushed`].
        token: PushToken,
        /// Only an accepted message goes on to other peers.
        verdict: Verdict,
    },
    /// Send a request to a peer.
    Ask {
        /// The peer to ask.
        to: SiteId,
        /// To be named with the answer.
        id: u64,
        /// The encoded request.
        bytes: Vec<u8>,
    },
    /// Send the reply to a peer's request.
    Answer {
        /// The channel of [`Event::Requested`].
        channel: Channel,
        /// The encoded reply.
        bytes: Vec<u8>,
    },
    /// Answer a local caller.
    Reply {
        /// The ticket of the call.
        ticket: Ticket,
        /// The reply to the call.
        reply: Reply,
    },
    /// Who may speak, and where the charters say they are.
    Allow {
        /// Everybody that a charter or the configuration names.
        sites: BTreeSet<SiteId>,
        /// Sites that an earlier charter names, and none in force: they may come for the charters, and nothing else.
        former: BTreeSet<SiteId>,
        /// Addresses of the sites in `sites`, from charters.
        addresses: BTreeMap<SiteId, Vec<String>>,
    },
    /// Listen to a VO's pushes from now on, and let its members only take part in them.
    Subscribe {
        /// The VO whose topic is subscribed.
        vo: VoId,
        /// The sites whose messages of the topic are accepted.
        members: BTreeSet<SiteId>,
    },
    /// Listen to a VO's pushes no more.
    Unsubscribe {
        /// The VO whose topic is left.
        vo: VoId,
    },
    /// Run this beside the site, and hand in what comes of it.
    Work(Work),
    /// Look-ups go to this view from now on.
    View(Arc<View>),
    /// Something an operator may want to know.
    Notice(Notice),
}

/// What a pushed message was worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Fresh: pass it on.
    Accept,
    /// Known, or too early to tell: do not pass it on.
    Ignore,
    /// False: do not pass it on, and think less of who did.
    Reject,
}

/// The answer to a local caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To a report, a list of running jobs, a correction or a move of usage.
    Reported(Reported),
    /// To a call about a quota.
    Quota(Box<QuotaReply>),
    /// To a call about adverts.
    Advert(Box<AdvertAnswer>),
    /// To a call about jobs that are passed on.
    Forward(Box<ForwardReply>),
    /// To a handed-in document: what it changed, or why it was refused.
    Published(Result<String, String>),
}

/// What became of a report. Durable when it is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reported {
    /// Records that counted something new.
    pub counted: u64,
    /// Records that said nothing new.
    pub known: u64,
    /// Of these, jobs that were taken back as they are reported: how many, by the moment at which they were taken back;
    /// without one where that is not known.
    pub not_again: BTreeMap<Option<WallTime>, u64>,
    /// Of those known, jobs that are not known here, and had ended before a loss whose counters peers gave back.
    pub left_out: u64,
    /// Records whose origin maps nowhere; counted against the root.
    pub unmapped: u64,
    /// Records older than any history; counted nowhere.
    pub late: u64,
    /// Records that were refused: position in the report, and why.
    pub refused: Vec<(usize, String)>,
    /// Of these, what is refused for now only: whoever reports them has to do so again.
    pub for_now: u64,
    /// Charge that was counted, or taken back, core-milliseconds.
    pub charge: u64,
    /// Charge of instalments beyond what the final records of their jobs come to, core-milliseconds: it was refunded.
    pub credited: u64,
    /// Of a correction: positions of the jobs that were taken back, and how much of each.
    pub taken_back: Vec<(usize, u64)>,
}
