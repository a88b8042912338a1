//! The state machine: who gets an event, and when time has something to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use fairmesh_gossip::{Gossip, Outgoing};
use fairmesh_model::{
    HashSecret, Incarnation, Millis, MonoTime, Now, SigningKey, SiteId, VoId, mutant,
};
use fairmesh_policy::HighestSeen;

use crate::advert::AdvertCall;
use crate::advert::confirm::ConfirmHandler;
use crate::advert::own::AdvertHandler;
use crate::advert::pending::Confirms;
use crate::clocks::watch_own_clock;
use crate::config::SiteConfig;
use crate::cx::SiteStats;
use crate::describe::describe_all;
use crate::event::{Effect, Event};
use crate::forward::handler::ForwardHandler;
use crate::gc::GcHandler;
use crate::notice::Notices;
use crate::parts::{Cx, Forwarding, Inbox, Jobs, Own, Parts, Peers, Quotas, Shares, Vos};
use crate::publish::{PublishHandler, publish_due_at, publishing_vos};
use crate::quota::handler::QuotaHandler;
use crate::receive::HeadHandler;
use crate::reconfigure::ConfigHandler;
use crate::report::JobHandler;
use crate::requests::{FREE, JOBS, WANT, WITNESS};
use crate::restore::{RestoreHandler, Row, Tell};
use crate::shares::Next;
use crate::shares::building::Blueprint;
use crate::shares::tree::Tree;
use crate::tickets::Channel;
use crate::time::Clock;
use crate::trees::TreeHandler;
use crate::usage::UsageHandler;
use crate::vo::Vo;
use crate::work::{Done, Outcome};

/// Longest time between two ticks while anything is connected or counted. Windows move on by the
/// wall clock, which may jump, so no timer can be set for it.
const TICK_MAX: Millis = Millis(1_000);

/// One site. Events change it ([`Site::handle`]); whoever asks reads its [`Parts`].
#[derive(Debug)]
pub struct Site {
    parts: Parts,
}

impl Deref for Site {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
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
        let parts = Parts {
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
        let mut site = Self { parts };
        describe_all(
            &site.parts.cx.config,
            &mut site.parts.own,
            &mut site.parts.vos,
        );
        site.parts.forward.follow_consent(&site.parts.cx.config);
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
            cx: &mut site.parts.cx,
            own: &mut site.parts.own,
            vos: &mut site.parts.vos,
            shares: &mut site.parts.shares,
            jobs: &mut site.parts.jobs,
            forward: &mut site.parts.forward,
        };
        restore.restore(incarnation, seed, now, rows, tell);
        site
    }

    pub(crate) fn quota_handler(&mut self) -> QuotaHandler<'_> {
        QuotaHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &self.parts.shares,
            sources: &mut self.parts.jobs.sources,
            quotas: &mut self.parts.quotas,
            peers: &mut self.parts.peers,
        }
    }

    pub(crate) fn confirm_handler(&mut self) -> ConfirmHandler<'_> {
        ConfirmHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            sources: &mut self.parts.jobs.sources,
            peers: &mut self.parts.peers,
        }
    }

    pub(crate) fn adverts_handler(&mut self) -> AdvertHandler<'_> {
        AdvertHandler::new(
            &mut self.parts.cx,
            &mut self.parts.own,
            &mut self.parts.vos,
            &mut self.parts.jobs.sources,
        )
    }

    pub(crate) fn head_handler(&mut self) -> HeadHandler<'_> {
        HeadHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            inbox: &mut self.parts.inbox,
            peers: &mut self.parts.peers,
        }
    }

    fn trees(&mut self) -> TreeHandler<'_> {
        TreeHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            running: &self.parts.jobs.running,
        }
    }

    fn publisher(&mut self) -> PublishHandler<'_> {
        PublishHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            sources: &mut self.parts.jobs.sources,
        }
    }

    fn gc_handler(&mut self) -> GcHandler<'_> {
        GcHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            jobs: &mut self.parts.jobs,
        }
    }

    fn config_handler(&mut self) -> ConfigHandler<'_> {
        ConfigHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            jobs: &mut self.parts.jobs,
            forward: &mut self.parts.forward,
            peers: &mut self.parts.peers,
        }
    }

    fn forward_handler(&mut self) -> ForwardHandler<'_> {
        ForwardHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            sources: &mut self.parts.jobs.sources,
            forward: &mut self.parts.forward,
            gossip: &self.parts.peers.gossip,
        }
    }

    fn job_handler(&mut self) -> JobHandler<'_> {
        JobHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            jobs: &mut self.parts.jobs,
            quotas: &mut self.parts.quotas,
        }
    }

    pub(crate) fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(
            &mut self.parts.cx,
            &mut self.parts.own,
            &mut self.parts.vos,
            &mut self.parts.shares,
        )
    }

    /// Takes an event and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        watch_own_clock(
            &mut self.parts.cx,
            &mut self.parts.own,
            &self.parts.vos,
            &mut self.parts.peers.gossip,
            now,
        );
        match event {
            Event::Tick => self.parts.cx.notices.expire(now.mono),
            Event::Connected(peer) => self.parts.peers.gossip.connected(peer),
            Event::Disconnected(peer) => {
                self.parts
                    .peers
                    .gossip
                    .disconnected(peer, &mut self.parts.vos);
                self.parts.vos.cancel_requests(peer);
                self.parts.cx.clear_clock(peer);
            }
            Event::Called(peer) => self.parts.peers.take_caller(&self.parts.vos, peer),
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
            Event::Publish { ticket, bytes, by } => self.parts.inbox.hand_in(ticket, by, bytes),
            Event::Done(Done(Outcome::Read(document))) => {
                self.head_handler().take_read(now, document)
            }
            Event::Done(Done(Outcome::Built(tree))) => self.trees().take_tree(*tree),
            Event::Done(Done(Outcome::Summed(vo, summed))) => self.parts.vos.take_sum(vo, *summed),
            Event::Reconfigured(config) => self.config_handler().reconfigure(now, *config),
            Event::Stopping => self.publisher().publish_all(now),
        }
        self.advance(now);
        std::mem::take(&mut self.parts.cx.effects)
    }

    /// When the site has something to do although nothing happens.
    pub fn next_wakeup(&self, now: MonoTime) -> MonoTime {
        let is_loading = matches!(&self.parts.shares.next, Some(Next::Loading(next)) if next.is_ready(&self.parts.vos));
        let is_behind = self.parts.vos.values().any(|vo| vo.published.is_ready());
        if self.parts.shares.tree.is_sweeping
            || is_loading
            || is_behind
            || self.parts.inbox.is_ready()
        {
            return now;
        }
        // While a document is read nobody is asked for anything.
        let rests = self.parts.vos.values();
        let rests = rests.filter_map(|vo| vo.replica.rests_until());
        let gossip = self
            .parts
            .peers
            .gossip
            .next_wakeup()
            .into_iter()
            .chain(rests);
        let gossip = gossip.filter(|_| self.parts.inbox.is_empty());
        let publishing = publishing_vos(&self.parts.cx, &self.parts.vos).into_iter();
        let publish = publishing
            .map(|vo| publish_due_at(&self.parts.cx, &self.parts.own, &self.parts.vos, vo));
        publish
            .chain(gossip)
            .chain(self.parts.vos.quota_wakeup())
            .chain(self.parts.peers.confirms.wakeup())
            .chain([now.after(mutant!(TicksHourly, TICK_MAX, Millis(3_600_000)))])
            .min()
            .expect("not empty")
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
        let response = self
            .parts
            .peers
            .gossip
            .answer(now, from, bytes, &self.parts.vos);
        self.parts
            .cx
            .watch_peer(&self.parts.peers.gossip, now, from);
        self.head_handler().follow_agreements(now, from);
        let bytes = response.to_bytes();
        self.parts.cx.answer(channel, bytes);
    }

    /// A peer has answered, or has not.
    fn answered(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        match id.to_be_bytes()[0] {
            WANT => self.parts.vos.take_given(bytes),
            FREE => self.confirm_handler().take_confirmed(from, id, bytes),
            JOBS => self.forward_handler().take_told(now, from, id, bytes),
            WITNESS => self.quota_handler().take_witnessed(from, id, bytes),
            _ => self.head_handler().take_answer(now, from, id, bytes),
        }
    }

    /// Whatever is due by now: rebuild what documents changed, publish, ask, move on in time.
    fn advance(&mut self, now: Now) {
        self.head_handler().take_in(now);
        self.usage().follow_members(now);
        self.trees().feed_shares(now);
        if self.parts.shares.is_stale && self.parts.shares.next.is_none() {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
        if self.parts.peers.are_stale {
            self.parts
                .peers
                .announce(&mut self.parts.cx, &self.parts.vos);
        }
        self.quota_handler().advance_quotas(now);
        self.confirm_handler().advance_confirms(now);
        self.forward_handler().advance_forward(now);
        self.publisher().publish_due(now);
        // What has come and waits is not asked for once more.
        if self.parts.inbox.is_empty() {
            for Outgoing { to, id, bytes } in self.parts.peers.gossip.tick(now, &mut self.parts.vos)
            {
                self.parts.cx.effects.push(Effect::Ask { to, id, bytes });
            }
        }
        self.usage().update_silent_members(now);
        self.parts.cx.forget_twin(now.mono);
        self.gc_handler().collect_garbage(now);
        let entries_max = self.parts.cx.config.timing.sweep_entries;
        if !self.parts.shares.tree.advance(now.wall, entries_max)
            && self.parts.shares.next.is_none()
        {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
    }
}
