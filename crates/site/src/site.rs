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
        let mut parts = Parts {
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
        describe_all(&parts.cx.config, &mut parts.own, &mut parts.vos);
        parts.forward.follow_consent(&parts.cx.config);
        Self { parts }
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

    fn quotas(&mut self) -> QuotaHandler<'_> {
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

    fn confirms(&mut self) -> ConfirmHandler<'_> {
        ConfirmHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            sources: &mut self.parts.jobs.sources,
            peers: &mut self.parts.peers,
        }
    }

    fn adverts(&mut self) -> AdvertHandler<'_> {
        AdvertHandler::new(
            &mut self.parts.cx,
            &mut self.parts.own,
            &mut self.parts.vos,
            &mut self.parts.jobs.sources,
        )
    }

    fn heads(&mut self) -> HeadHandler<'_> {
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

    fn publishing(&mut self) -> PublishHandler<'_> {
        PublishHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            sources: &mut self.parts.jobs.sources,
        }
    }

    fn garbage(&mut self) -> GcHandler<'_> {
        GcHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            jobs: &mut self.parts.jobs,
        }
    }

    fn configuration(&mut self) -> ConfigHandler<'_> {
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

    fn forwarding(&mut self) -> ForwardHandler<'_> {
        ForwardHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            sources: &mut self.parts.jobs.sources,
            forward: &mut self.parts.forward,
            gossip: &self.parts.peers.gossip,
        }
    }

    fn jobs(&mut self) -> JobHandler<'_> {
        JobHandler {
            cx: &mut self.parts.cx,
            own: &mut self.parts.own,
            vos: &mut self.parts.vos,
            shares: &mut self.parts.shares,
            jobs: &mut self.parts.jobs,
            quotas: &mut self.parts.quotas,
        }
    }

    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(
            &mut self.parts.cx,
            &mut self.parts.own,
            &mut self.parts.vos,
            &mut self.parts.shares,
        )
    }

    /// Takes an event and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let Parts {
            cx,
            own,
            vos,
            peers,
            ..
        } = &mut self.parts;
        watch_own_clock(cx, own, vos, &mut peers.gossip, now);
        match event {
            Event::Tick => cx.notices.expire(now.mono),
            Event::Connected(peer) => peers.gossip.connected(peer),
            Event::Disconnected(peer) => {
                peers.gossip.disconnected(peer, &mut **vos);
                vos.cancel_requests(peer);
                cx.clear_clock(peer);
            }
            Event::Called(peer) => peers.take_caller(vos, peer),
            Event::Pushed {
                from,
                vo,
                bytes,
                token,
            } => self.heads().take_push(now, from, vo, &bytes, token),
            Event::Requested {
                from,
                bytes,
                channel,
            } => self.answer(now, from, channel, &bytes),
            Event::Answered { from, id, bytes } => self.answered(now, from, id, bytes.as_deref()),
            Event::Report { ticket, records } => self.jobs().take_report(now, ticket, &records),
            Event::Running { ticket, jobs } => self.jobs().take_running(now, ticket, jobs),
            Event::Correct { ticket, correction } => {
                self.jobs().take_correction(now, ticket, &correction);
            }
            Event::Remap { ticket, change } => self.jobs().take_remap(now, ticket, *change),
            Event::Quota { ticket, call } => self.quotas().take_quota(now, ticket, call),
            Event::Advert { ticket, call } => match call {
                AdvertCall::Report(occupancy) => {
                    self.adverts().take_occupancy(now, ticket, occupancy);
                }
                AdvertCall::Confirm { vo, sites } => {
                    self.confirms().ask_to_confirm(now, ticket, vo, sites);
                }
            },
            Event::Forward { ticket, call } => {
                self.forwarding().take_forward_call(now, ticket, call)
            }
            Event::Publish { ticket, bytes, by } => self.parts.inbox.hand_in(ticket, by, bytes),
            Event::Done(Done(Outcome::Read(document))) => self.heads().take_read(now, document),
            Event::Done(Done(Outcome::Built(tree))) => self.trees().take_tree(*tree),
            Event::Done(Done(Outcome::Summed(vo, summed))) => self.parts.vos.take_sum(vo, *summed),
            Event::Reconfigured(config) => self.configuration().reconfigure(now, *config),
            Event::Stopping => self.publishing().publish_all(now),
        }
        self.advance(now);
        std::mem::take(&mut self.parts.cx.effects)
    }

    /// When the site has something to do although nothing happens.
    pub fn next_wakeup(&self, now: MonoTime) -> MonoTime {
        let next = self.shares.next.as_ref();
        let is_loading = next
            .is_some_and(|next| matches!(next, Next::Loading(next) if next.is_ready(&self.vos)));
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

    fn answer(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        match bytes.first() {
            Some(&WANT) => self.quotas().answer_want(now, from, channel, bytes),
            Some(&FREE) => self.confirms().answer_question(now, from, channel, bytes),
            Some(&JOBS) => self.forwarding().answer_forward(now, from, channel, bytes),
            Some(&WITNESS) => self.quotas().answer_witness(from, channel, bytes),
            _ => {
                let Parts { cx, vos, peers, .. } = &mut self.parts;
                let response = peers.gossip.answer(now, from, bytes, &*vos);
                cx.watch_peer(&peers.gossip, now, from);
                self.heads().follow_agreements(now, from);
                self.parts.cx.answer(channel, response.to_bytes());
            }
        }
    }

    /// A peer has answered, or has not.
    fn answered(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        match id.to_be_bytes()[0] {
            WANT => self.parts.vos.take_given(now, from, bytes),
            FREE => self.confirms().take_confirmed(from, id, bytes),
            JOBS => self.forwarding().take_reply(now, from, id, bytes),
            WITNESS => self.quotas().take_witnessed(from, id, bytes),
            _ => self.heads().take_answer(now, from, id, bytes),
        }
    }

    /// Whatever is due by now: rebuild what documents changed, publish, ask, move on in time.
    fn advance(&mut self, now: Now) {
        self.heads().take_in(now);
        self.usage().follow_members(now);
        self.trees().feed_shares(now);
        if self.shares.is_stale && self.shares.next.is_none() {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
        if self.peers.are_stale {
            let Parts { cx, vos, peers, .. } = &mut self.parts;
            peers.announce(cx, vos);
        }
        self.quotas().advance_quotas(now);
        self.confirms().advance_confirms(now);
        self.forwarding().advance_forward(now);
        self.publishing().publish_due(now);
        // What has come and waits is not asked for once more.
        if self.inbox.is_empty() {
            let Parts { cx, vos, peers, .. } = &mut self.parts;
            for Outgoing { to, id, bytes } in peers.gossip.tick(now, vos) {
                cx.ask(to, id, bytes);
            }
        }
        self.usage().update_silent_members(now);
        self.parts.cx.forget_twin(now.mono);
        self.garbage().collect_garbage(now);
        let entries_max = self.cx.config.timing.sweep_entries;
        let shares = &mut self.parts.shares;
        if !shares.tree.advance(now.wall, entries_max) && shares.next.is_none() {
            self.trees().begin_shares(now);
            self.trees().feed_shares(now);
        }
    }
}
