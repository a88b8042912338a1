//! Quotas at a site: its rights in each VO, what jobs hold of them, and how they move between members.
//!
//! The rules are `fairmesh-quota`'s; here a [`Ledger`] meets documents, heads, the store and time. Own rows are
//! parts of the site's head; what others publish is received when their heads come into force. Every change is
//! made durable with the event that made it, in front of whatever it lets out: a transfer is on the disk before
//! its head is signed, a hold before it is answered, a charge with the counters of the usage that it is for.
//!
//! A start cannot know whether its store is an old copy, so it spends nothing until every other member has been
//! heard: until that one holds a head of this start, and this site all heads that it holds ([`Site::hear`]).
//!
//! Invariant: whatever a ledger changes is kept by [`Site::keep_quota`] within the same event.
//! Deliberately not here: what is decided, and what counts of others (`fairmesh-quota`); a VO without
//! allocations keeps nothing, asks nobody and says nothing.

mod calls;
mod ended;
mod idle;
mod prices;
mod rows;
mod transfers;
mod wire;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::PartKey;
use fairmesh_model::{
    AccountPath, CoreMillis, JobKey, Millis, MonoTime, Now, SiteId, VoId, WallTime, mutant, mutated,
};
use fairmesh_quota::burn::Burns;
use fairmesh_quota::price::{Posted, Poster};
use fairmesh_quota::{Changes, Funded, Grants, Ledger, Mark, Row, SliceId, Want};

use crate::event::{Channel, Effect};
use crate::heads::due;
use crate::kinds::RIGHTS;
use crate::requests::{WANT, numbered};
use crate::site::Site;
use crate::store::Write;
use crate::vo::Vo;
use calls::Waiting;
pub use calls::{HoldCall, QuotaAnswer, QuotaCall, QuotaReply};
pub(crate) use ended::Ended;
pub(crate) use idle::Waits;
pub use prices::{Bands, Quote};
pub(crate) use rows::{check, parse_hold, parse_rights};
pub use transfers::Moved;
use transfers::Transfers;
pub(crate) use transfers::parse_transfer;
pub use wire::{read_given, read_want};
use witness::{Round, Rounds};

/// How often a ledger looks at the time, and at what it lacks.
const TICK: Millis = Millis::from_secs(1);

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
    transfers: Transfers,
    /// Whom rights were asked of, and when.
    asked: BTreeMap<(SiteId, SliceId), MonoTime>,
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
    burns: Burns,
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
        let asked = self.asked.get(&(site, slice));
        asked.is_none_or(|at| now >= at.after(ASK_AGAIN))
    }
}

/// What documents, heads and stores say.
impl Site {
    /// Own rows and jobs as the store has them, in the VOs whose documents are there.
    pub(crate) fn restore_quotas(
        &mut self,
        rights: Vec<(VoId, SliceId, Row)>,
        holds: Vec<(VoId, JobKey, Mark)>,
    ) {
        type Held = (BTreeMap<SliceId, Row>, BTreeMap<JobKey, Mark>);
        let mut of_vos: BTreeMap<VoId, Held> = BTreeMap::new();
        for (vo, id, row) in rights {
            of_vos.entry(vo).or_default().0.insert(id, row);
        }
        for (vo, job, mark) in holds {
            of_vos.entry(vo).or_default().1.insert(job, mark);
        }
        for (vo, held) in self.vos.iter_mut() {
            let of_vo = of_vos.remove(vo).unwrap_or_default();
            let (members, grants) = (held.members(), grants_of(held));
            let ledger =
                Ledger::restore(self.cx.id, members, grants, of_vo, mutated!(StoreTrusted));
            held.quota = Quota::of(ledger);
            for (id, row) in held.quota.ledger.own_rows() {
                let bytes = rows::part(id, row);
                self.own.set_part(*vo, rows::part_key(id), Some(bytes));
            }
        }
        for vo in self.vos.ids() {
            self.read_rights(vo);
        }
    }

    /// Transfers as the store has them.
    pub(crate) fn keep_transfers(&mut self, rows: Vec<(VoId, u64, Moved)>) {
        let mut of_vos: BTreeMap<VoId, Vec<(u64, Moved)>> = BTreeMap::new();
        for (vo, number, moved) in rows {
            of_vos.entry(vo).or_default().push((number, moved));
        }
        for (vo, of_vo) in of_vos {
            if let Some(held) = self.vos.get_mut(&vo) {
                held.quota.transfers = Transfers::restore(of_vo);
            }
        }
    }

    /// Documents of a VO have changed: members, allocations. With a charter members may have come back, with what
    /// was kept of them, and with an allocation counts what was said of it before it came; what else the others say was
    /// received when they said it.
    pub(crate) fn follow_grants(&mut self, vo: VoId, is_charter: bool) {
        let Some(held) = self.vos.get_mut(&vo) else {
            return;
        };
        let (members, grants) = (held.members(), grants_of(held));
        let known = held.quota.ledger.grants();
        let is_new = grants.iter().any(|(id, _)| known.get(id).is_none());
        held.quota.ledger.set_members(members);
        held.quota.is_on = !grants.is_empty();
        held.quota.ledger.set_grants(grants);
        held.quota.heard();
        // Others may be members of what has credit now.
        held.quota.funded = None;
        if is_charter || is_new {
            self.read_rights(vo);
        }
        self.keep_quota(vo);
    }

    /// Receives all rights that the heads held say.
    fn read_rights(&mut self, vo: VoId) {
        let held = self.vos.listed(vo);
        let mut heads: Vec<_> = held
            .replica
            .heads()
            .map(|head| (head.body().incarnation, head.body().site))
            .collect();
        heads.sort_unstable();
        for (incarnation, site) in heads {
            let parts = held.replica.parts_of(site, incarnation, RIGHTS);
            let rows: Vec<_> = parts
                .filter_map(|(_, bytes)| rows::read_part(bytes))
                .collect();
            held.quota.ledger.receive(site, incarnation, rows);
        }
        let forked: Vec<SiteId> = held.replica.forked().collect();
        forked
            .into_iter()
            .for_each(|site| held.quota.ledger.distrust(site));
    }

    /// A member's head came into force: what it changed of its rights, or all of them where it is the first of
    /// its incarnation.
    pub(crate) fn take_rights(
        &mut self,
        vo: VoId,
        head: &fairmesh_gossip::Head,
        parts: &[PartKey],
    ) {
        let held = self.vos.listed(vo);
        let (site, incarnation) = (head.site, head.incarnation);
        let is_first = held.quota.ledger.newest_of(site) < incarnation;
        let is_rights = |key: &&PartKey| key.kind() == RIGHTS;
        let has_rights = parts.iter().any(|key| is_rights(&key));
        if !is_first && !has_rights || mutated!(RightsUnheard) {
            return;
        }
        let replica = &held.replica;
        let rows: Vec<(SliceId, Row)> = if is_first {
            let all = replica.parts_of(site, incarnation, RIGHTS);
            all.filter_map(|(_, bytes)| rows::read_part(bytes))
                .collect()
        } else {
            let changed = parts.iter().filter(is_rights);
            let changed = changed.filter_map(|key| replica.part(site, incarnation, key));
            changed.filter_map(|bytes| rows::read_part(bytes)).collect()
        };
        held.quota.ledger.receive(site, incarnation, rows);
        held.quota.heard();
        self.keep_quota(vo);
    }

    /// A peer gave back what this site had published of its rights.
    pub(crate) fn absorb_own_rights(&mut self, vo: VoId, parts: &[PartKey]) {
        let held = self.vos.listed(vo);
        let own = parts.iter().filter(|key| key.kind() == RIGHTS);
        let forms = own.flat_map(|key| held.replica.variants(self.cx.id, key));
        let rows: Vec<_> = forms.filter_map(|bytes| rows::read_part(bytes)).collect();
        if rows.is_empty() || mutated!(OwnRightsUnread) {
            return;
        }
        let incarnation = self.own.incarnation();
        held.quota.ledger.receive(self.cx.id, incarnation, rows);
        held.quota.has_offers = true;
        self.keep_quota(vo);
    }

    /// A site has signed two heads that contradict each other.
    pub(crate) fn distrust_rights(&mut self, vo: VoId, site: SiteId) {
        if let Some(held) = self.vos.get_mut(&vo) {
            held.quota.ledger.distrust(site);
            held.quota.has_offers = true;
        }
    }

    /// A peer holds what this site does of a VO. Where a head of this start is among it, the peer takes nothing
    /// any more of what heads before that had sent, and there is nothing of this site's own that it holds and
    /// this site does not.
    pub(crate) fn hear(&mut self, now: Now, from: SiteId, vo: VoId) {
        let incarnation = self.own.incarnation();
        let held = self.vos.listed(vo);
        let is_of_this_start = held
            .replica
            .heads_of(self.cx.id)
            .any(|head| head.body().incarnation == incarnation);
        if !held.quota.ledger.is_frozen() || (!is_of_this_start && !mutated!(HeardBeforeSigned)) {
            return;
        }
        held.quota.ledger.hear(now.wall, from);
        held.quota.heard();
        self.keep_quota(vo);
    }

    /// Makes durable, and publishes, what the ledger of a VO has changed.
    pub(crate) fn keep_quota(&mut self, vo: VoId) {
        let writes = self.quota_writes(vo);
        self.cx.persist(writes);
    }

    /// The rows of what the ledger of a VO has changed, which the next head says, too.
    pub(crate) fn quota_writes(&mut self, vo: VoId) -> Vec<Write> {
        let Some(held) = self.vos.get_mut(&vo) else {
            return Vec::new();
        };
        let Quota {
            ledger,
            transfers: kept,
            wall,
            ..
        } = &mut held.quota;
        let Changes {
            rows,
            marks,
            transfers,
        } = ledger.take_changes();
        let mut writes = Vec::with_capacity(rows.len() + marks.len());
        for id in rows.iter().filter(|_| !mutated!(RightsUnwritten)) {
            writes.push(rows::rights_row(vo, *id, ledger.own_row(*id)));
        }
        for id in mutant!(RightsUnpublished, rows, BTreeSet::new()) {
            let part = ledger.own_row(id).map(|row| rows::part(id, row));
            self.own.set_part(vo, rows::part_key(id), part);
        }
        for job in mutant!(HoldsUnwritten, marks, BTreeSet::new()) {
            writes.push(rows::hold_row(vo, &job, ledger.mark(&job)));
        }
        let moved = |transfer| Moved {
            at: *wall,
            transfer,
        };
        writes.extend(transfers.into_iter().flat_map(|of| kept.add(vo, moved(of))));
        writes
    }

    /// Own rows, and holds that are open: what no peer has, or has the news of.
    pub(crate) fn quota_rows_held_alone(&self) -> Vec<Write> {
        let vos = self.vos.iter().chain(&self.vos.left);
        let rows = vos.flat_map(|(vo, held)| {
            let ledger = &held.quota.ledger;
            let rights = ledger.own_rows();
            let rights = rights.map(|(id, row)| rows::rights_row(*vo, id, Some(row)));
            let open = ledger.marks().filter(|(_, mark)| mark.is_open());
            rights.chain(open.map(|(job, mark)| rows::hold_row(*vo, job, Some(mark))))
        });
        rows.collect()
    }

    /// Lets go of slices that ended before what the VO's history has passed over, and of jobs of then.
    pub(crate) fn forget_quota(&mut self, vo: VoId, before: WallTime) {
        let quota = &mut self.vos.listed(vo).quota;
        let ledger = &mut quota.ledger;
        let Changes { rows, marks, .. } = ledger.forget(before);
        let mut writes = Vec::with_capacity(rows.len() + marks.len());
        for id in rows {
            writes.push(rows::rights_row(vo, id, None));
            self.own.set_part(vo, rows::part_key(id), None);
        }
        writes.extend(marks.iter().map(|job| rows::hold_row(vo, job, None)));
        writes.extend(quota.transfers.forget(vo, before));
        self.cx.persist(writes);
    }
}

/// What time brings, and what members ask.
impl Site {
    /// Whatever is due: holds that expire, rights that thaw, requests, and calls that have waited.
    pub(crate) fn advance_quotas(&mut self, now: Now) {
        for vo in self.vos.ids() {
            let held = &self.vos[&vo];
            let last = held.quota.ticked_at;
            let is_due = last.is_none_or(|at| now.mono >= at.after(TICK));
            if is_due && held.charter().is_some() {
                self.tick_quota(now, vo);
            }
            self.advance_witnesses(now, vo);
            self.answer_waiting(now, vo);
        }
    }

    /// When a call has waited for long enough, a member is to be asked, or a look at the time is due where there are
    /// quotas.
    pub(crate) fn quota_wakeup(&self) -> Option<MonoTime> {
        let due = self.vos.values().filter_map(|held| {
            let waits = held.quota.waiting.iter().map(|call| call.until);
            let ticks = held.quota.ticked_at.filter(|_| held.quota.is_on);
            let rounds = held.quota.rounds.values().map(Round::wakeup);
            waits
                .chain(rounds)
                .chain(ticks.map(|at| at.after(TICK)))
                .min()
        });
        due.min()
    }

    fn tick_quota(&mut self, now: Now, vo: VoId) {
        let connected: BTreeSet<SiteId> = self.peers.gossip.peers().collect();
        self.post_price(now, vo);
        let held = self.vos.listed(vo);
        let quota = &mut held.quota;
        let before = quota.ticked_at.replace(now.mono).unwrap_or(now.mono);
        quota.wall = match self.cx.clock.standing.may_forget() || mutated!(WrongClockExpires) {
            true => now.wall,
            false => quota.wall.after(now.mono.since(before)),
        };
        let wall = quota.wall;
        let was_frozen = quota.ledger.is_frozen();
        quota.ledger.tick(wall);
        if was_frozen && !quota.ledger.is_frozen() {
            quota.heard();
        }
        if quota.is_on {
            quota.burns.look(wall, &quota.ledger);
            quota.asked.retain(|_, at| now.mono < at.after(ASK_AGAIN));
            quota.given.retain(|_, at| now.mono < at.after(GIVE_AGAIN));
            for site in quota
                .ledger
                .unheard()
                .filter(|site| connected.contains(site))
            {
                self.peers.gossip.probe(site);
            }
            let asked = std::mem::take(&mut quota.asked);
            let can_hear =
                |site, slice| connected.contains(&site) && !asked.contains_key(&(site, slice));
            let wants = quota.ledger.wants(wall, can_hear);
            quota.asked = asked;
            self.ask_for_rights(now, vo, wants);
        }
        self.follow_funded(now, vo);
        self.keep_quota(vo);
    }

    fn ask_for_rights(&mut self, now: Now, vo: VoId, wants: Vec<(SiteId, Want)>) {
        for (to, want) in wants {
            let quota = &mut self.vos.listed(vo).quota;
            quota.asked.insert((to, want.slice), now.mono);
            self.quotas.last_want += 1;
            let id = numbered(WANT, self.quotas.last_want);
            let bytes = wire::want(vo, &want);
            self.quotas.stats.asked += 1;
            self.cx.effects.push(Effect::Ask { to, id, bytes });
        }
    }

    /// A member asks for rights: it gets what can be spared, which the next head says.
    pub(crate) fn answer_want(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        let given = wire::read_want(bytes).map_or(CoreMillis(0), |(vo, want)| {
            self.give_rights(now, from, vo, &want)
        });
        let bytes = wire::given(given);
        self.cx.effects.push(Effect::Answer { channel, bytes });
    }

    fn give_rights(&mut self, now: Now, to: SiteId, vo: VoId, want: &Want) -> CoreMillis {
        let Some(held) = self.vos.get_mut(&vo) else {
            return CoreMillis(0);
        };
        let is_early = held.quota.given.get(&to);
        let is_early = is_early.is_some_and(|at| now.mono < at.after(GIVE_AGAIN));
        if is_early || !held.replica.is_member(to) {
            return CoreMillis(0);
        }
        let given = held.quota.ledger.give(now.wall, to, want);
        if given.0 == 0 {
            return given;
        }
        held.quota.given.insert(to, now.mono);
        held.quota.is_urgent = true;
        self.quotas.stats.transfers += 1;
        self.quotas.stats.sent = self.quotas.stats.sent.saturating_add(given.0);
        self.keep_quota(vo);
        given
    }

    /// A member has answered a request for rights: where it had none to spare, others are asked.
    pub(crate) fn take_given(&mut self, bytes: Option<&[u8]>) {
        let given = bytes.and_then(wire::read_given).unwrap_or_default();
        if given.0 == 0 {
            let vos = self.vos.values_mut();
            vos.for_each(|held| held.quota.has_news = true);
        }
    }

    /// When a VO's next head is due.
    pub(crate) fn publish_due_at(&self, vo: VoId) -> MonoTime {
        let held = &self.vos[&vo];
        let last = held.published_at;
        let timing = &self.cx.config.timing;
        let usual = due(last, self.own.has_unpublished(vo), timing);
        let advert = self.advert_due_at(vo, due(last, true, timing));
        let usual = usual.min(advert.unwrap_or(usual));
        let usual = usual.min(self.cx.twin_due(last).unwrap_or(usual));
        held.quota.due(usual, last)
    }

    /// The rights of a VO as this site knows them.
    pub fn ledger(&self, vo: VoId) -> Option<&Ledger> {
        self.vos.get(&vo).map(|held| &held.quota.ledger)
    }

    /// Rights of a VO that went to other members and came from them, the oldest first.
    pub fn transfers(&self, vo: VoId) -> impl Iterator<Item = &Moved> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(|held| held.quota.transfers.iter())
    }

    /// What an account of a VO spends at all sites, core-milliseconds a day; none before it was watched for an hour.
    pub fn burn(&self, vo: VoId, account: &AccountPath) -> Option<u64> {
        self.vos.get(&vo)?.quota.burns.per_day(account)
    }

    /// Counters for the metrics.
    pub fn quota_stats(&self) -> QuotaStats {
        self.quotas.stats
    }
}

/// The allocations in force: the first version of each, and what a later one says of it.
fn grants_of(vo: &Vo) -> Grants {
    let mut grants = Grants::after(vo.quota.ledger.grants());
    for document in vo.policies.allocations() {
        // One that is refused here changes what its first version grants, and is not in force.
        let _ = grants.adopt(document);
    }
    grants
}
