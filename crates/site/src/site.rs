//! The state machine: who gets an event, and when time has something to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_gossip::{Gossip, GossipStats, Outgoing};
use fairmesh_model::{
    AccountPath, ContentHash, CoreMillis, Factor, HashSecret, Importance, Incarnation, JobKey,
    Millis, MonoTime, Now, SigningKey, SiteId, UsageRecord, VoId, WallTime, mutant,
};
use fairmesh_policy::HighestSeen;
use fairmesh_quota::Ledger;

use crate::adoptions::Adoption;
use crate::advert::AdvertCall;
use crate::advert::confirm::{ConfirmHandler, Confirms};
use crate::advert::own::AdvertHandler;
use crate::advert::part::Advert;
use crate::again::JobTerms;
use crate::audit::{AuditEntry, told};
use crate::clocks::{by_members, watch_own_clock};
use crate::config::{OwnerQuota, SiteConfig};
use crate::cx::{Cx, SiteStats};
use crate::describe::describe_all;
use crate::estimate::Estimate;
use crate::event::{Channel, Effect, Event};
use crate::forward::ForwardStats;
use crate::forward::calls::{ForwardedJob, HereJob, Withdrawn};
use crate::forward::handler::ForwardHandler;
use crate::forward::table::Forwarding;
use crate::gc::GcHandler;
use crate::inbox::Inbox;
use crate::jobs::Jobs;
use crate::notice::{Notice, Notices};
use crate::own::Own;
use crate::peers::Peers;
use crate::publish::{PublishHandler, publish_due_at, publishing_vos};
use crate::quota::calls::{HoldCall, QuotaReply};
use crate::quota::handler::QuotaHandler;
use crate::quota::prices::{Bands, Quote};
use crate::quota::query::QuotaQuery;
use crate::quota::transfers::Moved;
use crate::quota::{QuotaStats, Quotas};
use crate::reach::Reach;
use crate::receive::HeadHandler;
use crate::reconfigure::ConfigHandler;
use crate::refund::{Refund, Relocation};
use crate::remap::Remapper;
use crate::report::JobHandler;
use crate::requests::{FREE, JOBS, WANT, WITNESS};
use crate::restore::{RestoreHandler, Row, Tell};
use crate::shares::{Blueprint, Next, Shares, Tree};
use crate::store::JobMark;
use crate::terms::Terms;
use crate::time::Clock;
use crate::trees::TreeHandler;
use crate::usage::UsageHandler;
use crate::view::View;
use crate::vo::Vo;
use crate::vos::Vos;
use crate::work::{Done, Outcome};

/// Longest time between two ticks while anything is connected or counted. Windows move on by the
/// wall clock, which may jump, so no timer can be set for it.
const TICK_MAX: Millis = Millis(1_000);

/// One site.
#[derive(Debug)]
pub struct Site {
    pub(crate) cx: Cx,
    pub(crate) own: Own,
    pub(crate) vos: Vos,
    pub(crate) shares: Shares,
    pub(crate) jobs: Jobs,
    pub(crate) quotas: Quotas,
    /// Jobs that members pass on to each other.
    pub(crate) forward: Forwarding,
    pub(crate) inbox: Inbox,
    pub(crate) peers: Peers,
}

impl Site {
    /// A site without a past. `incarnation` must be one that no earlier start of this site can have
    /// used; `seed` decides whom it asks in which order.
    pub fn new(
        config: SiteConfig,
        key: SigningKey,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
    ) -> Self {
        let id = key.site_id();
        let vo = |vo: &VoId| (*vo, Vo::new(*vo, &key, &HighestSeen::default()));
        let vos: BTreeMap<VoId, Vo> = config.vos.values().map(vo).collect();
        let config = Arc::new(config);
        // Nothing is known of any VO: a moment later the documents make another tree.
        let nothing = Blueprint {
            config: Arc::clone(&config),
            vos: BTreeMap::new(),
            read: BTreeMap::new(),
            secret: HashSecret::of(&key),
            now: now.wall,
        };
        let mut site = Self {
            own: Own::new(incarnation, config.local_window),
            vos: Vos::new(vos),
            shares: Shares::new(Tree::build(&nothing)),
            jobs: Jobs::default(),
            quotas: Quotas::default(),
            forward: Forwarding::restore(id, BTreeSet::new(), Vec::new()),
            inbox: Inbox::default(),
            peers: Peers {
                gossip: Gossip::new(config.timing.intervals(), seed),
                callers: VecDeque::new(),
                are_stale: true,
                confirms: Confirms::default(),
            },
            cx: Cx {
                config,
                key,
                id,
                clock: Clock::new(now),
                effects: Vec::new(),
                notices: Notices::default(),
                stats: SiteStats::default(),
            },
        };
        describe_all(&site.cx.config, &mut site.own, &mut site.vos);
        site.forward.follow_consent(&site.cx.config);
        site
    }

    /// A site with a past. `incarnation` is taken unless the past knows one as high.
    pub fn restore(
        config: SiteConfig,
        key: SigningKey,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        Self::restore_telling(config, key, incarnation, seed, now, rows, &mut |_, _, _| {})
    }

    /// The same; `tell` hears what is being done, how many of it are done, and of how many.
    pub fn restore_telling(
        config: SiteConfig,
        key: SigningKey,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
        rows: impl IntoIterator<Item = Row>,
        tell: &mut Tell<'_>,
    ) -> Self {
        let mut site = Self::new(config, key, incarnation, seed, now);
        let mut restore = RestoreHandler {
            cx: &mut site.cx,
            own: &mut site.own,
            vos: &mut site.vos,
            shares: &mut site.shares,
            jobs: &mut site.jobs,
            forward: &mut site.forward,
        };
        restore.restore(incarnation, seed, now, rows, tell);
        site
    }

    pub(crate) fn quota_handler(&mut self) -> QuotaHandler<'_> {
        QuotaHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &self.shares,
            sources: &mut self.jobs.sources,
            quotas: &mut self.quotas,
            peers: &mut self.peers,
        }
    }

    fn quota_query(&self) -> QuotaQuery<'_> {
        QuotaQuery {
            cx: &self.cx,
            vos: &self.vos,
            tree: &self.shares.tree,
            sources: &self.jobs.sources,
            gossip: &self.peers.gossip,
        }
    }

    pub(crate) fn confirm_handler(&mut self) -> ConfirmHandler<'_> {
        ConfirmHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            sources: &mut self.jobs.sources,
            peers: &mut self.peers,
        }
    }

    pub(crate) fn adverts_handler(&mut self) -> AdvertHandler<'_> {
        AdvertHandler::new(
            &mut self.cx,
            &mut self.own,
            &mut self.vos,
            &mut self.jobs.sources,
        )
    }

    pub(crate) fn head_handler(&mut self) -> HeadHandler<'_> {
        HeadHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            inbox: &mut self.inbox,
            peers: &mut self.peers,
        }
    }

    fn trees(&mut self) -> TreeHandler<'_> {
        TreeHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            running: &self.jobs.running,
        }
    }

    fn publisher(&mut self) -> PublishHandler<'_> {
        PublishHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            sources: &mut self.jobs.sources,
        }
    }

    fn gc_handler(&mut self) -> GcHandler<'_> {
        GcHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            jobs: &mut self.jobs,
        }
    }

    fn config_handler(&mut self) -> ConfigHandler<'_> {
        ConfigHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            jobs: &mut self.jobs,
            forward: &mut self.forward,
            peers: &mut self.peers,
        }
    }

    fn forward_handler(&mut self) -> ForwardHandler<'_> {
        ForwardHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            sources: &mut self.jobs.sources,
            forward: &mut self.forward,
            gossip: &self.peers.gossip,
        }
    }

    fn job_handler(&mut self) -> JobHandler<'_> {
        JobHandler {
            cx: &mut self.cx,
            own: &mut self.own,
            vos: &mut self.vos,
            shares: &mut self.shares,
            jobs: &mut self.jobs,
            quotas: &mut self.quotas,
        }
    }

    fn job_terms(&self) -> JobTerms<'_> {
        JobTerms::new(self.terms(), &self.own, &self.jobs)
    }

    pub(crate) fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(&mut self.cx, &mut self.own, &mut self.vos, &mut self.shares)
    }

    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms::new(&self.cx, &self.vos, &self.shares.tree)
    }

    /// Takes an event and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        watch_own_clock(
            &mut self.cx,
            &mut self.own,
            &self.vos,
            &mut self.peers.gossip,
            now,
        );
        match event {
            Event::Tick => self.cx.notices.expire(now.mono),
            Event::Connected(peer) => self.peers.gossip.connected(peer),
            Event::Disconnected(peer) => {
                self.peers.gossip.disconnected(peer, &mut self.vos);
                self.vos.cancel_requests(peer);
                self.cx.clear_clock(peer);
            }
            Event::Called(peer) => self.peers.take_caller(&self.vos, peer),
            Event::Pushed {
                from,
                vo,
                bytes,
                token,
            } => self.head_handler().take_push(now, from, vo, &bytes, token),
            Event::Asked {
                from,
                bytes,
                channel,
            } => self.answer(now, from, channel, &bytes),
            Event::Answered { from, id, bytes } => self.answered(now, from, id, bytes.as_deref()),
            Event::Report { ticket, records } => {
                self.job_handler().take_report(now, ticket, &records)
            }
            Event::Running { ticket, jobs } => self.job_handler().take_running(now, ticket, jobs),
            Event::Correct { ticket, correction } => {
                self.job_handler().take_correction(now, ticket, &correction);
            }
            Event::Remap { ticket, change } => self.job_handler().take_remap(now, ticket, *change),
            Event::Quota { ticket, call } => self.quota_handler().take_quota(now, ticket, call),
            Event::Advert { ticket, call } => match call {
                AdvertCall::Tell(occupancy) => {
                    self.adverts_handler()
                        .take_occupancy(now, ticket, occupancy);
                }
                AdvertCall::Confirm { vo, sites } => {
                    self.confirm_handler()
                        .ask_to_confirm(now, ticket, vo, sites);
                }
            },
            Event::Forward { ticket, call } => {
                self.forward_handler().take_forward_call(now, ticket, call)
            }
            Event::Publish { ticket, bytes, by } => self.inbox.hand_in(ticket, by, bytes),
            Event::Done(Done(Outcome::Read(document))) => {
                self.head_handler().take_read(now, document)
            }
            Event::Done(Done(Outcome::Built(tree))) => self.trees().take_tree(*tree),
            Event::Done(Done(Outcome::Summed(vo, summed))) => self.vos.take_sum(vo, *summed),
            Event::Reconfigured(config) => self.config_handler().reconfigure(now, *config),
            Event::Stopping => self.publisher().publish_all(now),
        }
        self.advance(now);
        std::mem::take(&mut self.cx.effects)
    }

    /// When the site has something to do although nothing happens.
    pub fn next_wakeup(&self, now: MonoTime) -> MonoTime {
        let is_loading =
            matches!(&self.shares.next, Some(Next::Loading(next)) if next.is_ready(&self.vos));
        let is_behind = self.vos.values().any(|vo| vo.published.is_ready());
        if self.shares.tree.is_sweeping || is_loading || is_behind || self.inbox.is_ready() {
            return now;
        }
        // While a document is read nobody is asked for anything.
        let rests = self.vos.values();
        let rests = rests.filter_map(|vo| vo.replica.rests_until());
        let gossip = self.peers.gossip.next_wakeup().into_iter().chain(rests);
        let gossip = gossip.filter(|_| self.inbox.is_empty());
        let publishing = publishing_vos(&self.cx, &self.vos).into_iter();
        let publish = publishing.map(|vo| publish_due_at(&self.cx, &self.own, &self.vos, vo));
        publish
            .chain(gossip)
            .chain(self.vos.quota_wakeup())
            .chain(self.peers.confirms.wakeup())
            .chain([now.after(mutant!(TicksHourly, TICK_MAX, Millis(3_600_000)))])
            .min()
            .expect("not empty")
    }

    /// The site's identity.
    pub fn id(&self) -> SiteId {
        self.cx.id
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> SiteStats {
        self.cx.stats
    }

    /// Counters of the anti-entropy, for the metrics.
    pub fn gossip_stats(&self) -> GossipStats {
        self.peers.gossip.stats()
    }

    /// What look-ups read.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shares.tree.view)
    }

    /// The same moment by the members' clock if the local one is off, by which all that others have signed would be old.
    pub fn by_members(&self, now: Now) -> Now {
        by_members(&self.cx, &self.vos, &self.peers.gossip, now)
    }

    /// Until when counters reach whose jobs' marks are lost; `None` where nothing was lost.
    pub fn recovered(&self, vo: Option<VoId>) -> Option<Reach> {
        self.own.recovered(vo)
    }

    /// Which accounts are within their quotas.
    pub fn bands(&self) -> Bands {
        self.vos.bands(&self.shares.tree.view)
    }

    /// What a site asks of a VO's jobs, and since when; `None` of the usual price.
    pub fn price_at(&self, vo: VoId, site: SiteId) -> Option<(Factor, WallTime)> {
        self.vos.price_at(self.cx.id, vo, site)
    }

    /// What a job of usual importance that spends an account costs here now, × its charge.
    pub fn price_of(&self, vo: VoId, account: &AccountPath, now: Now) -> Factor {
        self.quota_query().price_of(vo, account, now)
    }

    /// What `site` would charge for a job that runs as long as its record says, at the price that it asks now as
    /// far as is known.
    ///
    /// # Errors
    /// Why nobody can say, or why it could not run there.
    pub fn quote(
        &self,
        now: Now,
        record: &UsageRecord,
        importance: Importance,
        site: SiteId,
    ) -> Result<Quote, String> {
        self.quota_query().quote(now, record, importance, site)
    }

    /// What a hold of a job that is not known yet would be answered, without holding anything; `ahead` is what
    /// others are about to hold of the same account.
    pub fn check_quota(&self, now: Now, call: HoldCall, ahead: CoreMillis) -> QuotaReply {
        self.quota_query().check_quota(now, call, ahead)
    }

    /// Whether any quota was charged for a job.
    pub fn is_quota_charged(&self, job: &JobKey) -> bool {
        self.vos.is_quota_charged(job)
    }

    /// Whether a job has an open hold.
    pub fn has_hold(&self, job: &JobKey) -> bool {
        self.vos.has_hold(job)
    }

    /// What the owner says of a VO's quotas.
    pub fn owner_quota(&self, vo: VoId) -> Option<&OwnerQuota> {
        self.cx.config.quotas.get(&vo)
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

    /// The member sites of a VO, each with what it has said last of its free CPUs; of this site as it is now.
    pub fn adverts(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Option<&Advert>)> {
        self.vos.adverts(self.cx.id, vo)
    }

    /// What a broker of a VO's jobs here knows of each member; `None` of one that says nothing. The VO's name
    /// in views is its id.
    pub fn known_sites(&self, now: Now, vo: VoId) -> Vec<(SiteId, Option<Known>)> {
        self.vos.known_sites(self.cx.id, now, vo)
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all sites.
    pub fn known_by(
        &self,
        now: Now,
        vo: (VoId, &Arc<str>),
        site: SiteId,
        advert: &Advert,
    ) -> Known {
        self.vos.known_by(self.cx.id, now, vo, site, advert)
    }

    /// After which a site of which nothing is heard is silent.
    pub fn silence(&self) -> Millis {
        self.cx.config.timing.silence
    }

    /// Whether the owner lets VOs know what is free.
    pub fn tells_what_is_free(&self) -> bool {
        self.cx.config.advert.is_some()
    }

    /// The name of a site in the charter of a VO: no other VO's says what it is called there.
    pub fn site_name_in(&self, vo: VoId, site: SiteId) -> Option<&str> {
        self.vos.site_name_in(vo, site)
    }

    /// What `record` would count beyond what `mark` says is charged already.
    pub fn estimate(&self, now: Now, record: &UsageRecord, mark: Option<JobMark>) -> Estimate {
        self.job_terms().estimate(now, record, mark)
    }

    /// What `site` charges for the jobs by what it has told the members of their VOs about its
    /// machines and queues, whatever is counted already. Whose jobs they are is decided here.
    pub fn estimate_at(
        &self,
        now: Now,
        records: impl Iterator<Item = UsageRecord>,
        site: SiteId,
    ) -> Vec<Estimate> {
        self.job_terms().estimate_at(now, records, site)
    }

    /// The reasons for which records are refused for good, by their positions.
    pub fn refusals(&self, now: Now, records: &[UsageRecord]) -> BTreeMap<usize, String> {
        self.terms().refusals(now, records)
    }

    /// Whether any of a job was taken back.
    pub fn has_refunds(&self, job: &JobKey) -> bool {
        self.jobs.has_refunds(job)
    }

    /// Whether a job whose mark is known was taken back, and its record counts it again.
    pub fn counts_again(&self, record: &UsageRecord, mark: Option<JobMark>) -> bool {
        self.job_terms().counts_again(record, mark)
    }

    /// What compares jobs that ended at or after `since` with the rules in force.
    pub fn remapper(&self, now: Now, since: WallTime) -> Remapper {
        Remapper::new(&self.job_terms(), now, since)
    }

    /// What other members of a VO have taken back, by their newest heads.
    pub fn audit_of_members(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Vec<AuditEntry>)> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(|held| {
            let sites: BTreeSet<SiteId> =
                held.replica.heads().map(|head| head.body().site).collect();
            let others = sites.into_iter().filter(|site| *site != self.cx.id);
            others.map(|site| (site, told(&held.replica, site)))
        })
    }

    /// What was taken back here, by when.
    pub fn refunds(&self) -> impl Iterator<Item = &Refund> {
        self.jobs.refunds.values()
    }

    /// Usage that moved here, by when.
    pub fn relocations(&self) -> impl Iterator<Item = &Relocation> {
        self.jobs.relocations.values()
    }

    /// The documents that came into force here, by VO, in the order in which they did.
    pub fn adoptions(&self) -> impl Iterator<Item = (VoId, &Adoption)> {
        let adoptions = self.vos.adoptions.iter();
        adoptions.map(|((vo, _), adoption)| (*vo, adoption))
    }

    /// A peer asks.
    fn answer(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        match bytes.first() {
            Some(&WANT) => return self.quota_handler().answer_want(now, from, channel, bytes),
            Some(&FREE) => {
                return self
                    .confirm_handler()
                    .answer_question(now, from, channel, bytes);
            }
            Some(&JOBS) => {
                return self
                    .forward_handler()
                    .answer_forward(now, from, channel, bytes);
            }
            Some(&WITNESS) => return self.quota_handler().answer_witness(from, channel, bytes),
            _ => {}
        }
        let response = self.peers.gossip.answer(now, from, bytes, &self.vos);
        self.cx.watch_peer(&self.peers.gossip, now, from);
        self.head_handler().follow_agreements(now, from);
        let bytes = response.to_bytes();
        self.cx.answer(channel, bytes);
    }

    /// A peer has answered, or has not.
    fn answered(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        match id.to_be_bytes()[0] {
            WANT => self.vos.take_given(bytes),
            FREE => self.confirm_handler().take_confirmed(from, id, bytes),
            JOBS => self.forward_handler().take_told(now, from, id, bytes),
            WITNESS => self.quota_handler().take_witnessed(from, id, bytes),
            _ => self.head_handler().take_answer(now, from, id, bytes),
        }
    }

    /// The names of all jobs that were handed in or taken here and are remembered, of those that were handed in first.
    pub fn forwarded_ids(&self) -> impl Iterator<Item = ContentHash> + '_ {
        self.forward.ids()
    }

    /// One of them.
    pub fn forwarded_job(&self, id: ContentHash) -> Option<ForwardedJob> {
        self.forward.job(id)
    }

    /// Those that are to be handed to the batch system here.
    pub fn forwarded_here(&self) -> impl Iterator<Item = HereJob> + '_ {
        self.forward.here(&self.cx.clock)
    }

    /// Jobs that the batch system here has, and whose users take them back.
    pub fn to_withdraw(&self) -> impl Iterator<Item = Withdrawn> + '_ {
        self.forward.jobs_to_withdraw()
    }

    /// Counters for the metrics.
    pub fn forward_stats(&self) -> ForwardStats {
        self.forward.stats()
    }

    /// How many of its kind a peer has made new since the one that was said before this one.
    pub fn held_back(&self, notice: &Notice) -> u64 {
        self.cx.notices.held_back(notice)
    }

    /// What an operator should know now.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.cx.notices.iter()
    }

    /// Whatever is due by now: rebuild what documents changed, publish, ask, move on in time.
    fn advance(&mut self, now: Now) {
        self.head_handler().take_in(now);
        self.usage().follow_members(now);
        self.trees().feed_shares(now);
        if self.shares.is_stale && self.shares.next.is_none() {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
        if self.peers.are_stale {
            self.peers.announce(&mut self.cx, &self.vos);
        }
        self.quota_handler().advance_quotas(now);
        self.confirm_handler().advance_confirms(now);
        self.forward_handler().advance_forward(now);
        self.publisher().publish_due(now);
        // What has come and waits is not asked for once more.
        if self.inbox.is_empty() {
            for Outgoing { to, id, bytes } in self.peers.gossip.tick(now, &mut self.vos) {
                self.cx.effects.push(Effect::Ask { to, id, bytes });
            }
        }
        self.usage().update_silent_members(now);
        self.cx.forget_twin(now.mono);
        self.gc_handler().collect_garbage(now);
        let entries_max = self.cx.config.timing.sweep_entries;
        if !self.shares.tree.advance(now.wall, entries_max) && self.shares.next.is_none() {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
    }
}
