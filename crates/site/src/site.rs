//! The state machine: who gets an event, and when time has something to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::{Gossip, GossipStats, Intervals, Replica};
use fairmesh_model::{
    Incarnation, Millis, MonoTime, Now, Origin, SigningKey, SiteId, VoId, WallTime, mutant, mutated,
};

use crate::config::SiteConfig;
use crate::event::{Effect, Event};
use crate::ledger::Ledger;
use crate::notice::Notice;
use crate::publish::OwnStream;
use crate::shares::Shares;
use crate::view::View;

/// Longest time between two ticks while anything is connected or counted. Windows move on by the
/// wall clock, which may jump, so no timer can be set for it.
const TICK_MAX: Millis = Millis(1_000);

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteStats {
    /// Records that counted something new.
    pub records_counted: u64,
    /// Records that said nothing new.
    pub records_known: u64,
    /// Records that were refused.
    pub records_refused: u64,
    /// Records that map nowhere.
    pub records_unmapped: u64,
    /// Batches signed.
    pub batches_published: u64,
    /// Batches of others taken.
    pub batches_taken: u64,
    /// Documents and counters of others refused.
    pub refused: u64,
    /// Checkpoints signed.
    pub checkpoints: u64,
    /// Cells that changed by what others said.
    pub cells_taken: u64,
}

/// What is known of an origin that maps nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unmapped {
    pub(crate) records: u64,
    pub(crate) charge: u64,
    pub(crate) last: WallTime,
}

/// One site.
#[derive(Debug)]
pub struct Site {
    pub(crate) config: SiteConfig,
    pub(crate) key: SigningKey,
    pub(crate) id: SiteId,
    pub(crate) ledger: Ledger,
    pub(crate) replicas: BTreeMap<VoId, Replica>,
    /// What is held of VOs that the configuration names no more. They are not heard, served or
    /// shared by; but our own stream must go on where it ended should one be named again.
    pub(crate) left: BTreeMap<VoId, Replica>,
    pub(crate) streams: BTreeMap<VoId, OwnStream>,
    pub(crate) gossip: Gossip,
    pub(crate) shares: Shares,
    pub(crate) unmapped: BTreeMap<Origin, Unmapped>,
    pub(crate) clocks_off: BTreeMap<SiteId, bool>,
    /// The latest day on which two sites of a VO have signed something.
    pub(crate) days_signed: BTreeMap<VoId, u64>,
    /// VOs that may not hold what this site's machines cost now.
    pub(crate) undescribed: BTreeSet<VoId>,
    pub(crate) notices: BTreeSet<Notice>,
    pub(crate) stats: SiteStats,
    pub(crate) effects: Vec<Effect>,
    pub(crate) tree_is_stale: bool,
    pub(crate) allow_is_stale: bool,
    pub(crate) started: Now,
    /// When peers are asked again how far our earlier lives got.
    pub(crate) ask_witnesses_at: MonoTime,
    /// What our own clock says, right or wrong.
    pub(crate) own_clock: WallTime,
    forgotten_on_day: u32,
}

impl Site {
    /// A site without a past. `incarnation` must be one that no earlier life of this site can have
    /// used; `seed` decides whom it asks in which order.
    pub fn new(
        config: SiteConfig,
        key: SigningKey,
        incarnation: Incarnation,
        seed: u64,
        now: Now,
    ) -> Self {
        let id = key.site_id();
        let gossip = Gossip::new(intervals(&config), seed);
        let replicas = config
            .vos
            .values()
            .map(|vo| (*vo, Replica::new(*vo, id)))
            .collect();
        let shares = Shares::build(&config, &replicas, now.wall);
        let undescribed = config.vos.values().copied().collect();
        Self {
            config,
            key,
            id,
            ledger: Ledger::new(incarnation),
            replicas,
            left: BTreeMap::new(),
            streams: BTreeMap::new(),
            gossip,
            shares,
            unmapped: BTreeMap::new(),
            clocks_off: BTreeMap::new(),
            days_signed: BTreeMap::new(),
            undescribed,
            notices: BTreeSet::new(),
            stats: SiteStats::default(),
            effects: Vec::new(),
            tree_is_stale: true,
            allow_is_stale: true,
            started: now,
            ask_witnesses_at: now.mono,
            own_clock: now.wall,
            forgotten_on_day: 0,
        }
    }

    /// Takes an event and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let now = self.go_by_peers(now);
        match event {
            Event::Tick => {}
            Event::Connected(peer) => self.gossip.connected(peer),
            Event::Disconnected(peer) => self.gossip.disconnected(peer),
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
            } => {
                let response = self
                    .gossip
                    .answer(self.stated(now), from, &bytes, &self.replicas);
                self.watch_peer(now, from);
                self.effects.push(Effect::Answer {
                    channel,
                    bytes: response.to_bytes(),
                });
            }
            Event::Answered { from, id, bytes } => {
                self.take_answer(now, from, id, bytes.as_deref())
            }
            Event::Report { ticket, records } => self.take_report(now, ticket, &records),
            Event::Running { ticket, jobs } => self.take_running(now, ticket, jobs),
            Event::Publish { ticket, bytes } => self.take_document(now, ticket, &bytes),
            Event::Reconfigured(config) => self.reconfigure(now, *config),
            Event::Stopping => self.publish_all(now),
        }
        self.advance(now);
        std::mem::take(&mut self.effects)
    }

    /// When the site has something to do although nothing happens.
    pub fn next_wakeup(&self, now: MonoTime) -> MonoTime {
        if self.shares.is_sweeping {
            return now;
        }
        let publish = self.publishing_vos(now).into_iter().filter_map(|vo| {
            let stream = self.streams.get(&vo)?;
            Some(stream.due(self.ledger.has_unpublished(vo), &self.config.timing))
        });
        publish
            .chain(self.gossip.next_wakeup())
            .chain([now.after(TICK_MAX)])
            .min()
            .expect("not empty")
    }

    /// The site's identity.
    pub fn id(&self) -> SiteId {
        self.id
    }

    /// Counters for the metrics.
    pub fn stats(&self) -> SiteStats {
        self.stats
    }

    /// Counters of the anti-entropy, for the metrics.
    pub fn gossip_stats(&self) -> GossipStats {
        self.gossip.stats()
    }

    /// What look-ups read.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shares.view)
    }

    /// What an operator should know now.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter()
    }

    /// Whatever is due by now: rebuild what documents changed, publish, probe, move on in time.
    fn advance(&mut self, now: Now) {
        if self.tree_is_stale {
            self.rebuild_shares(now);
        }
        if self.allow_is_stale {
            self.announce_peers();
        }
        self.settle_carried(now);
        self.publish_due(now);
        self.describe_due(now);
        for out in self.gossip.tick(self.stated(now), &self.replicas) {
            self.effects.push(Effect::Ask {
                to: out.to,
                id: out.id,
                bytes: out.bytes,
            });
        }
        self.weigh_silence(now);
        self.keep_house(now);
        let entries_max = self.config.timing.sweep_entries;
        if !self.shares.advance(now.wall, entries_max) {
            self.rebuild_shares(now);
        }
    }

    /// The time to go by: our own clock, unless it runs ahead of all peers' by more than the
    /// tolerance. Usage that still weighs would be forgotten, and windows be signed that nobody
    /// believes; what a clock that is behind does is less than that.
    fn go_by_peers(&mut self, now: Now) -> Now {
        self.own_clock = now.wall;
        let Some(peers) = self.gossip.peers_clock(now.mono) else {
            return now;
        };
        let latest = peers.after(self.config.timing.clock_tolerance);
        let ahead = now.wall > latest;
        if self.clocks_off.insert(self.id, ahead) != Some(ahead) && ahead {
            let by = now.wall.since(peers);
            self.notice(Notice::OwnClockAhead { by });
        }
        let latest = mutant!(OwnClockBelieved, latest, now.wall);
        Now {
            wall: now.wall.min(latest),
            ..now
        }
    }

    /// What we tell peers: what our own clock says, so that they can name it where it is wrong.
    fn stated(&self, now: Now) -> Now {
        Now {
            wall: self.own_clock,
            ..now
        }
    }

    fn reconfigure(&mut self, now: Now, config: SiteConfig) {
        let named: BTreeSet<VoId> = config.vos.values().copied().collect();
        let leaves: Vec<VoId> = self
            .replicas
            .keys()
            .filter(|vo| !named.contains(*vo))
            .copied()
            .collect();
        if !leaves.is_empty() {
            // What was counted for them is theirs.
            self.publish_all(now);
        }
        for vo in leaves {
            let left = self.replicas.remove_entry(&vo);
            self.left
                .extend(left.filter(|_| !mutated!(LeftIsForgotten)));
            self.effects.push(Effect::Unsubscribe { vo });
        }
        self.config = config;
        self.gossip.set_intervals(intervals(&self.config));
        for vo in named {
            let held = self.left.remove(&vo);
            self.replicas
                .entry(vo)
                .or_insert_with(|| held.unwrap_or_else(|| Replica::new(vo, self.id)));
        }
        self.tree_is_stale = true;
        self.allow_is_stale = true;
        if !mutated!(NewPricesUnsaid) {
            self.undescribed = self.replicas.keys().copied().collect();
        }
        self.publish_due(now);
    }

    /// Says who may speak: members of our VOs, and those whom the owner trusts to introduce us.
    fn announce_peers(&mut self) {
        self.allow_is_stale = false;
        let mut sites = self.config.introducers.clone();
        let mut addresses: BTreeMap<SiteId, Vec<String>> = BTreeMap::new();
        for charter in self.replicas.values().filter_map(Replica::charter) {
            for member in charter.sites.iter().filter(|member| member.site != self.id) {
                sites.insert(member.site);
                let known = addresses.entry(member.site).or_default();
                known.extend(
                    member
                        .addresses
                        .iter()
                        .filter(|address| !known.contains(address))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
            }
        }
        self.effects.push(Effect::Allow { sites, addresses });
        for (vo, replica) in &self.replicas {
            if let Some(charter) = replica.charter() {
                let members = charter.sites.iter().map(|member| member.site).collect();
                self.effects.push(Effect::Subscribe { vo: *vo, members });
            }
        }
    }

    /// Once a day: old windows are merged, and what no history weighs any more goes. Not right after
    /// the start: the clock may not be set yet, and peers have not said yet what they hold.
    fn keep_house(&mut self, now: Now) {
        if now.mono < self.started.mono.after(KEEP_HOUSE_AFTER) {
            return;
        }
        let day = u32::try_from(now.wall.0 / fairmesh_model::window::DAY_MS).unwrap_or(u32::MAX);
        if day > self.forgotten_on_day {
            self.forgotten_on_day = day;
            self.compact_days(now);
            let local = mutant!(LocalForgottenEarly, now.wall, WallTime(u64::MAX));
            self.forget_local(local);
            self.retire_old_lives(now);
            self.warn_of_documents(now);
        }
    }

    /// Says something to the operator, once.
    pub(crate) fn notice(&mut self, notice: Notice) {
        if self.notices.insert(notice.clone()) {
            self.effects.push(Effect::Notice(notice));
        }
        // What was said long ago may be said again; the list must not grow with time.
        if self.notices.len() > NOTICES_MAX && !mutated!(NoticesUnbounded) {
            self.notices.pop_first();
        }
    }
}

/// Time after its start in which a site lets go of nothing: long enough to hear from its peers what
/// time it is and what they hold of its earlier lives.
const KEEP_HOUSE_AFTER: Millis = Millis::from_secs(3_600);

/// Most notices remembered: bounds memory under peers that send nonsense.
const NOTICES_MAX: usize = 256;

fn intervals(config: &SiteConfig) -> Intervals {
    Intervals {
        sync: config.timing.sync,
        request_timeout: config.timing.request_timeout,
    }
}
