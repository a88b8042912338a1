//! The state machine: who gets an event, and when time has something to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fairmesh_broker::Known;
use fairmesh_fairshare::OLD_DAYS;
use fairmesh_gossip::{Gossip, GossipStats, Intervals, Outgoing, Shared};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, CoreMillis, Factor, HashSecret, Importance, Incarnation, JobKey, Millis, MonoTime,
    Now, SigningKey, SiteId, Span, UsageRecord, VoId, WallTime, mutant, mutated,
};
use fairmesh_policy::HighestSeen;
use fairmesh_quota::Ledger;

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
use crate::event::{Effect, Event};
use crate::forward::Forwarding;
use crate::inbox::Inbox;
use crate::jobs::Jobs;
use crate::notice::{Notice, Notices};
use crate::own::Own;
use crate::peers::Peers;
use crate::quota::calls::{HoldCall, QuotaReply};
use crate::quota::handler::QuotaHandler;
use crate::quota::prices::{Bands, Quote};
use crate::quota::query::QuotaQuery;
use crate::quota::rights::RightsHandler;
use crate::quota::transfers::Moved;
use crate::quota::{QuotaStats, Quotas};
use crate::reach::Reach;
use crate::refund::{Refund, Relocation};
use crate::remap::Remapper;
use crate::report::JobHandler;
use crate::shares::{Blueprint, Fed, Loading, Next, Shares, Tree};
use crate::store::{JobMark, head_row};
use crate::terms::Terms;
use crate::time::Clock;
use crate::usage::UsageHandler;
use crate::view::View;
use crate::vo::Vo;
use crate::vos::Vos;
use crate::work::{Done, Outcome, Work};

/// Longest time between two ticks while anything is connected or counted. Windows move on by the
/// wall clock, which may jump, so no timer can be set for it.
const TICK_MAX: Millis = Millis(1_000);

/// Time after its start in which a site lets go of nothing: long enough to learn from its peers what
/// time it is and what they hold of its earlier incarnations.
pub(crate) const GC_GRACE: Millis = Millis::from_secs(3_600);

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
                gossip: Gossip::new(intervals(&config), seed),
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
        site.follow_consent();
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

    pub(crate) fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(&mut self.cx, &mut self.own, &mut self.vos)
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
            Event::Called(peer) => self.take_caller(peer),
            Event::Pushed {
                from,
                vo,
                bytes,
                token,
            } => self.take_push(now, from, vo, &bytes, token),
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
            Event::Forward { ticket, call } => self.take_forward_call(now, ticket, call),
            Event::Publish { ticket, bytes, by } => self.inbox.hand_in(ticket, by, bytes),
            Event::Done(Done(Outcome::Read(document))) => self.take_read(now, document),
            Event::Done(Done(Outcome::Built(tree))) => self.take_tree(*tree),
            Event::Done(Done(Outcome::Summed(vo, summed))) => self.take_sum(vo, *summed),
            Event::Reconfigured(config) => self.reconfigure(now, *config),
            Event::Stopping => self.publish_all(now),
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
        let publishing = self.publishing_vos().into_iter();
        let publish = publishing.map(|vo| self.publish_due_at(vo));
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

    /// What an operator should know now.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.cx.notices.iter()
    }

    /// Whatever is due by now: rebuild what documents changed, publish, ask, move on in time.
    fn advance(&mut self, now: Now) {
        self.take_in(now);
        self.follow_members(now);
        self.feed_shares(now);
        if self.shares.is_stale && self.shares.next.is_none() {
            self.begin_shares(now);
            self.feed_shares(now);
        }
        if self.peers.are_stale {
            self.announce_peers();
        }
        self.quota_handler().advance_quotas(now);
        self.confirm_handler().advance_confirms(now);
        self.advance_forward(now);
        self.publish_due(now);
        // What has come and waits is not asked for once more.
        if self.inbox.is_empty() {
            for Outgoing { to, id, bytes } in self.peers.gossip.tick(now, &mut self.vos) {
                self.cx.effects.push(Effect::Ask { to, id, bytes });
            }
        }
        self.update_silent_members(now);
        self.cx.forget_twin(now.mono);
        self.collect_garbage(now);
        let entries_max = self.cx.config.timing.sweep_entries;
        if !self.shares.tree.advance(now.wall, entries_max) && self.shares.next.is_none() {
            self.begin_shares(now);
            self.feed_shares(now);
        }
    }

    /// Begins to build the tree anew: documents or the configuration changed. What changes while it is built
    /// and fed is for the one behind it, so that each comes into force however often they change.
    fn begin_shares(&mut self, now: Now) {
        self.shares.is_stale = false;
        self.warn_of_documents(now);
        let blueprint = self.blueprint(now);
        if blueprint.entries_max() <= self.cx.config.timing.build_entries {
            return self.load_shares(Tree::build(&blueprint));
        }
        self.shares.next = Some(Next::Building);
        self.cx.effects.push(Effect::Work(Work::build(blueprint)));
    }

    fn blueprint(&self, now: Now) -> Blueprint {
        let policies = |(id, vo): (&VoId, &Vo)| (*id, Arc::clone(&vo.policies));
        Blueprint {
            config: Arc::clone(&self.cx.config),
            vos: self.vos.iter().map(policies).collect(),
            read: self.vos.read.clone(),
            secret: HashSecret::of(&self.cx.key),
            now: now.wall,
        }
    }

    /// A tree was built beside the site.
    fn take_tree(&mut self, tree: Tree) {
        if matches!(self.shares.next, Some(Next::Building)) {
            self.shares.is_stale &= mutant!(ChangeWhileBuildingLost, true, false);
            self.load_shares(tree);
        }
    }

    fn load_shares(&mut self, tree: Tree) {
        let loading = Loading::begin(tree, &mut self.fed());
        self.shares.follow_by(loading);
    }

    /// Feeds the tree that is built anew, if there is one; once it holds everything it is in force.
    fn feed_shares(&mut self, now: Now) {
        let mut next = match self.shares.next.take() {
            Some(Next::Loading(next)) => next,
            other => return self.shares.next = other,
        };
        let entries_max = self.cx.config.timing.sweep_entries;
        if next.step(&mut self.fed(), now.wall, entries_max) {
            self.shares.tree = next.into_tree();
            self.cx.effects.push(Effect::View(self.view()));
            // Feeding it has clamped all usage by the charters that it is of.
            for vo in self.vos.ids() {
                self.notice_all_over_capacity(now, vo);
            }
            self.vos.values_mut().for_each(|vo| vo.published.wake());
        } else {
            self.shares.next = Some(Next::Loading(next));
        }
    }

    /// Builds the tree anew, whatever time that takes.
    pub(crate) fn rebuild_shares(&mut self, now: Now) {
        self.shares.is_stale = false;
        self.warn_of_documents(now);
        self.load_shares(Tree::build(&self.blueprint(now)));
        while self.shares.next.is_some() {
            self.feed_shares(now);
        }
    }

    fn fed(&mut self) -> Fed<'_> {
        Fed {
            own: &self.own,
            running: &self.jobs.running,
            vos: &mut self.vos,
        }
    }

    /// Says what is not as it should be with the documents in force, while it is: expired ones, say.
    pub(crate) fn warn_of_documents(&mut self, now: Now) {
        let founded = self.vos.iter().filter(|(_, vo)| vo.is_founded());
        let policies = founded.map(|(vo, held)| (*vo, &*held.policies));
        let warnings = policies.chain(self.vos.read_policies());
        let warnings = warnings.flat_map(|(vo, policies)| {
            let warnings = policies.warnings(now.wall).into_iter();
            warnings.map(move |warning| Notice::Policy {
                vo,
                what: warning.to_string(),
            })
        });
        let snapshots = self.vos.iter().flat_map(|(vo, held)| {
            let warnings = held.policies.snapshot_warnings(now.wall).into_iter();
            warnings.map(|warning| Notice::Snapshot {
                vo: *vo,
                what: warning.to_string(),
            })
        });
        let warnings: BTreeSet<Notice> = warnings.chain(snapshots).collect();
        let holds = |notice: &Notice| {
            let is_of_documents = matches!(notice, Notice::Policy { .. } | Notice::Snapshot { .. });
            !is_of_documents || warnings.contains(notice)
        };
        self.cx.notices.clear(holds);
        for warning in warnings {
            self.cx.notice(now.mono, warning);
        }
    }

    fn reconfigure(&mut self, now: Now, mut config: SiteConfig) {
        self.jobs.marks_moved += 1;
        let named: BTreeSet<VoId> = config.vos.values().copied().collect();
        let mut leaves = self.vos.ids();
        leaves.retain(|vo| !named.contains(vo));
        if !leaves.is_empty() {
            // What was counted for them is theirs.
            self.publish_all(now);
        }
        for vo in leaves {
            let mut left = self.vos.remove_entry(&vo);
            // A change that is not counted to its end is none of a tree without the VO.
            left.iter_mut()
                .for_each(|(_, held)| held.forget_published());
            self.vos
                .left
                .extend(left.filter(|_| !mutated!(LeftIsForgotten)));
            self.cx.notices.clear(|notice| notice.vo() != Some(vo));
            self.cx.effects.push(Effect::Unsubscribe { vo });
        }
        // Counters are kept by the window, so its length stays until the next start, and with it the history, which is
        // told in windows.
        if config.local_window != self.cx.config.local_window {
            config.local_window = self.cx.config.local_window;
            config.local_history = self.cx.config.local_history;
        }
        self.cx.config = Arc::new(config);
        self.follow_consent();
        self.peers.gossip.set_intervals(intervals(&self.cx.config));
        for vo in named {
            if self.vos.contains_key(&vo) {
                continue;
            }
            let held = self.vos.left.remove(&vo);
            let mut held =
                held.unwrap_or_else(|| Vo::new(vo, &self.cx.key, &HighestSeen::default()));
            self.vos.join_read(vo, &mut held);
            self.vos.insert(vo, held);
            if !mutated!(RejoinedUnread) {
                self.read_members(now, vo);
            }
        }
        for held in self.vos.values_mut() {
            held.silence_checked = None;
        }
        self.vos.follow_mounts();
        self.shares.is_stale = true;
        self.peers.are_stale = true;
        if !mutated!(NewPricesUnsaid) {
            describe_all(&self.cx.config, &mut self.own, &mut self.vos);
        }
        self.adverts_handler().follow_sources(now);
    }

    /// The moment before which no usage counts of VOs that the owner has left: that is there when he names one again,
    /// and jobs must be known until then.
    fn horizon_of_left(&self, now: WallTime) -> WallTime {
        let counting = self.vos.left.iter().filter_map(|(vo, held)| {
            let past = held.horizon(now);
            let past = if held.is_founded() { past } else { WallTime(0) };
            let counts = |span: Span| span.end(held.window()) > past;
            self.own.spans(Some(*vo)).any(counts).then_some(past)
        });
        counting.min().unwrap_or(WallTime(u64::MAX))
    }

    /// Once a day: days that are over take their windows in, and what no history weighs any more goes.
    fn collect_garbage(&mut self, now: Now) {
        let day = now.wall.0 / DAY_MS;
        let is_early = now.mono < self.cx.clock.started.mono.after(GC_GRACE);
        let is_done = mutant!(
            HouseKeptOnce,
            day == self.cx.clock.last_gc_day,
            self.cx.clock.last_gc_day > 0
        );
        if is_early || is_done || !self.cx.clock.standing.may_forget() {
            return;
        }
        self.cx.clock.last_gc_day = day;
        let mut horizon = self.shares.tree.local_horizon(&self.cx.config, now.wall);
        let past = mutant!(LocalForgottenEarly, horizon, now.wall);
        let window = self.cx.config.local_window;
        self.usage()
            .change_own(None, |own| own.forget(None, past, window));
        for vo in self.vos.ids() {
            let held = self.vos.listed(vo);
            if !self.cx.clock.standing.may_sign(held.is_alone()) || !held.is_founded() {
                horizon = WallTime(0);
                continue;
            }
            let (window, past) = (held.window(), held.horizon(now.wall));
            horizon = mutant!(LastHorizonHolds, horizon.min(past), past);
            let left_out = std::mem::take(&mut held.left_out);
            let rows = held
                .replica
                .forget_removed(mutant!(RemovedForgotten, past, now.wall));
            self.cx
                .persist(rows.iter().map(|row| head_row(vo, row)).collect());
            let today = window.day_of(window.window_at(now.wall));
            let is_old = |day: Span| today.saturating_sub(day.day(window)) >= OLD_DAYS;
            self.usage()
                .change_own(Some(vo), |own| own.merge_days(Some(vo), window, is_old));
            let past = mutant!(ForgottenEarly, past, now.wall);
            self.usage()
                .change_own(Some(vo), |own| own.forget(Some(vo), past, window));
            self.vos
                .change_audit(&mut self.own, vo, |audit| audit.forget(past));
            self.rights().forget_quota(vo, past);
            self.try_left_out(now, vo, left_out);
        }
        horizon = horizon.min(self.horizon_of_left(now.wall));
        self.warn_of_documents(now);
        let rows = self.jobs.forget_refunds(now.wall, horizon);
        self.cx.persist(rows);
        let rows = self.jobs.forget_instalments(horizon);
        self.cx.persist(rows);
        let before = mutant!(MarksForgottenEarly, horizon, now.wall);
        let at = now.wall;
        self.cx.effects.push(Effect::ForgetMarks { before, at });
    }
}

fn intervals(config: &SiteConfig) -> Intervals {
    Intervals {
        sync: config.timing.sync,
        request_timeout: config.timing.request_timeout,
    }
}
