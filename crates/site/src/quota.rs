//! Quotas at a site: its rights in each VO, what jobs hold of them, and how they move between members.
//!
//! The rules are `fairmesh-quota`'s; here a [`Ledger`] meets documents, heads, the store and time. Own rows are
//! parts of the site's head; what others publish is received when their heads come into force. Every change is
//! made durable with the event that made it, in front of whatever it lets out: a transfer is on the disk before
//! its head is signed, a hold before it is answered, a charge with the counters of the usage that it is for.
//!
//! A start cannot know whether its store is an old copy, so it spends nothing until every other member has been
//! heard: until that one holds a head of this start, and this site all heads that it holds (`RightsHandler::hear`).
//!
//! Invariant: whatever a ledger changes is kept by `RightsHandler::keep_quota` within the same event.
//! Deliberately not here: what is decided, and what counts of others (`fairmesh-quota`); a VO without
//! allocations keeps nothing, asks nobody and says nothing.

pub(crate) mod calls;
pub(crate) mod handler;
mod holds;
mod idle;
pub(crate) mod prices;
pub(crate) mod query;
pub(crate) mod rights;
mod rounds;
pub(crate) mod rows;
pub(crate) mod transfers;
pub(crate) mod wire;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{CoreMillis, Millis, MonoTime, SiteId, WallTime};
use fairmesh_quota::burn::Burns;
use fairmesh_quota::price::{Posted, Poster};
use fairmesh_quota::{Funded, Grants, Ledger, SliceId};

use calls::Waiting;
use rounds::Rounds;
use transfers::Transfers;

/// Before this a member is not asked again for rights to a slice.
const ASK_AGAIN: Millis = Millis::from_secs(5);

/// Shortest time between two transfers to one member: each is a write and a head.
const GIVE_AGAIN: Millis = Millis(250);

/// Shortest time between two heads where one of them sends rights: somebody waits for these. Half of what
/// members take of one site in a minute.
const PUBLISH_RIGHTS: Millis = Millis::from_secs(1);

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaStats {
    /// Holds that were granted at once, out of rights that were here.
    pub granted_locally: u64,
    /// Holds that were granted when rights had come from other members.
    pub granted_after_transfer: u64,
    /// Jobs that were let run without all the rights that they need.
    pub over_quota: u64,
    /// Jobs that were refused.
    pub refused: u64,
    /// Requests for rights to other members.
    pub asked: u64,
    /// Transfers to other members, and what they come to in core-milliseconds.
    pub transfers: u64,
    /// Core-milliseconds sent to other members.
    pub sent: u64,
    /// Jobs that were charged.
    pub committed: u64,
}

/// What concerns the quotas of all VOs together.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    pub(crate) stats: QuotaStats,
    /// Number of the last request for rights.
    last_want: u64,
}

/// The rights of a site in one VO, and what is under way of them.
#[derive(Debug)]
pub(crate) struct Quota {
    pub(crate) ledger: Ledger,
    /// Whether any allocation is in force.
    is_on: bool,
    /// Calls that wait for rights.
    waiting: Vec<Waiting>,
    /// Something came that those who wait may have waited for.
    has_news: bool,
    /// Rows came that may say that others have sent something.
    has_offers: bool,
    /// The next head sends rights.
    is_urgent: bool,
    ticked_at: Option<MonoTime>,
    /// The time then, by which holds expire. While the own clock is not believed it goes on as time passes.
    wall: WallTime,
    /// Rights that went and came.
    pub(crate) transfers: Transfers,
    /// Whom rights were asked of, and before when they are not asked again.
    asked: BTreeMap<(SiteId, SliceId), MonoTime>,
    /// When others may be asked for what is new because all that is known is too little for a job.
    probe_at: MonoTime,
    /// Who was given rights, and when.
    given: BTreeMap<SiteId, MonoTime>,
    /// What others are asked to witness before it is taken.
    rounds: Rounds,
    /// What the owner asks of the VO's jobs.
    poster: Poster,
    /// What of that is in the site's head, or goes into the next.
    pub(crate) described: Option<Posted>,
    /// Who is within his quota, where the owner wants these in front; as of the last look at the time.
    funded: Option<Arc<Funded>>,
    /// How fast credit is spent.
    pub(crate) burns: Burns,
}

impl Quota {
    pub(crate) fn new(own: SiteId) -> Self {
        let nothing = (BTreeMap::new(), BTreeMap::new());
        Self::of(Ledger::restore(
            own,
            BTreeSet::new(),
            Grants::default(),
            nothing,
            false,
        ))
    }

    fn of(ledger: Ledger) -> Self {
        Self {
            is_on: !ledger.grants().is_empty(),
            ledger,
            waiting: Vec::new(),
            has_news: false,
            has_offers: true,
            is_urgent: false,
            ticked_at: None,
            wall: WallTime(0),
            transfers: Transfers::default(),
            asked: BTreeMap::new(),
            probe_at: MonoTime(0),
            given: BTreeMap::new(),
            rounds: Rounds::new(),
            poster: Poster::default(),
            described: None,
            funded: None,
            burns: Burns::default(),
        }
    }

    /// The price that is to be published.
    pub(crate) fn posted(&self) -> Option<Posted> {
        self.poster.posted().filter(|_| self.is_on)
    }

    /// Whether any allocation is in force in the VO.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// When the VO's next head is due.
    pub(crate) fn due(&self, usual: MonoTime, last: Option<MonoTime>) -> MonoTime {
        let soon = last.map(|last| last.after(PUBLISH_RIGHTS));
        soon.filter(|_| self.is_urgent)
            .map_or(usual, |soon| soon.min(usual))
    }

    /// A head was signed.
    pub(crate) fn published(&mut self) {
        self.is_urgent = false;
    }

    /// There may be more to spend, and more that others have sent.
    fn heard(&mut self) {
        (self.has_news, self.has_offers) = (true, true);
    }

    fn may_ask(&self, now: MonoTime, site: SiteId, slice: SliceId) -> bool {
        let again = self.asked.get(&(site, slice));
        again.is_none_or(|again| now >= *again)
    }

    /// A member has answered a request for rights. Jobs that wait may need more of it, or it had none to spare and others
    /// are asked.
    fn take_given(&mut self, now: MonoTime, from: SiteId, given: CoreMillis) {
        self.has_news |= given.0 == 0;
        if self.waiting.is_empty() {
            return;
        }
        let of_peer = self.asked.iter_mut().filter(|((site, _), _)| *site == from);
        of_peer.for_each(|(_, again)| *again = (*again).min(now.after(GIVE_AGAIN)));
    }
}
