//! The network task: owns the swarm, dials, publishes counters.
//!
//! Invariant: the loop never waits for its consumer or for a peer; every branch is a bounded piece of work. Commands
//! are carried out in `commands`; what the swarm reports is handled in `swarm_events` and `protocol_events`; what to
//! dial when is decided by `dialer`; what the consumer does not take in time waits in `outbox`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairmesh_model::SiteId;
use futures::{FutureExt, StreamExt};
use libp2p::Multiaddr;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, DialError, Swarm};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::network::behaviour::Behaviour;
use crate::network::budget::{Budget, Charged, Cost};
use crate::network::config::{PING_TIMEOUT, STATS_INTERVAL};
use crate::network::counted::WireBytes;
use crate::network::dialer::Dialer;
use crate::network::former::Former;
use crate::network::outbox::Outbox;
use crate::network::reports::Throttle;
use crate::network::requests::Requests;
use crate::network::turns::Turns;
use crate::network::{
    NetworkCommand, NetworkConfig, NetworkEvent, NetworkStats, PeerStats, RequestFailure, address,
    peer_id_of,
};

/// The connections with one peer.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Whether the peer has said anything: until then it may yet refuse us.
    pub(crate) heard: bool,
    pub(crate) connections: HashMap<ConnectionId, Connection>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: Multiaddr,
    /// Which start of the peer's node is there, once it has said.
    pub(crate) incarnation: Option<u64>,
    /// Pings that failed in a row.
    pub(crate) pings_failed: u32,
    /// When a ping was answered, the connection was opened, or a probe was sent for want of an answer.
    pub(crate) pinged: Instant,
    /// When a probe was sent that has no outcome yet.
    pub(crate) probed: Option<Instant>,
    /// Whether this node closes it, because another machine of the peer has its turn.
    pub(crate) waits: bool,
}

/// The state of the network task.
pub(crate) struct Driver {
    pub(crate) swarm: Swarm<Behaviour>,
    pub(crate) dialer: Dialer,
    pub(crate) outbox: Outbox,
    pub(crate) requests: Requests,
    pub(crate) links: BTreeMap<SiteId, Link>,
    /// Whose turn it is where two machines run with one site's key.
    pub(crate) turns: Turns,
    pub(crate) stats: NetworkStats,
    bytes: Arc<WireBytes>,
    /// Within which each connection answers a ping, if its peer is alive.
    pub(crate) pinged_within: Duration,
    /// How long an answer may be on its way before it is the peer that is slow.
    pub(crate) slow_after: Duration,
    pub(crate) allow_private: bool,
    pub(crate) strangers: Throttle,
    /// When a caller was last reported that was turned away.
    pub(crate) called: Option<Instant>,
    pub(crate) trouble: Throttle,
    pub(crate) site: SiteId,
    pub(crate) allowed: BTreeSet<SiteId>,
    pub(crate) blocked: BTreeSet<SiteId>,
    /// Sites that an earlier charter named.
    pub(crate) former: Former,
    /// What allowed peers have used up.
    pub(crate) budgets: BTreeMap<SiteId, Budget>,
    /// Who has used up too much, and until when it is not let in.
    pub(crate) barred: BTreeMap<SiteId, Instant>,
    /// Who may be connected: allowed, or a visitor, neither blocked nor barred, not this node itself.
    pub(crate) admitted: BTreeSet<SiteId>,
    stats_out: watch::Sender<Arc<NetworkStats>>,
    randomness: RandomState,
    drawn: u64,
}

impl Driver {
    /// A driver that allows nobody yet.
    pub(crate) fn new(
        config: &NetworkConfig,
        site: SiteId,
        (mut swarm, bytes): (Swarm<Behaviour>, Arc<WireBytes>),
        events: mpsc::Sender<NetworkEvent>,
        stats_out: watch::Sender<Arc<NetworkStats>>,
    ) -> Self {
        let dialer = Dialer::new(config, address::of_peers(config.peers.clone()));
        swarm.behaviour_mut().gate.expect(dialer.given());
        Self {
            swarm,
            dialer,
            outbox: Outbox::new(events),
            requests: Requests::default(),
            links: BTreeMap::new(),
            turns: Turns::default(),
            stats: NetworkStats::default(),
            bytes,
            slow_after: config.request_timeout / 2,
            pinged_within: config.ping_interval + config.ping_interval.min(PING_TIMEOUT),
            allow_private: config.allow_private,
            strangers: Throttle::default(),
            called: None,
            trouble: Throttle::default(),
            site,
            allowed: BTreeSet::new(),
            blocked: BTreeSet::new(),
            former: Former::default(),
            budgets: BTreeMap::new(),
            barred: BTreeMap::new(),
            admitted: BTreeSet::new(),
            stats_out,
            randomness: RandomState::new(),
            drawn: 0,
        }
    }

    /// Runs until it is told to shut down, or until nobody holds the other ends any more.
    ///
    /// The swarm and its sockets are dropped before `commands`, on whose end `shutdown` waits.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<NetworkCommand>) {
        let mut stats_tick = tokio::time::interval(STATS_INTERVAL);
        stats_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let turn = match self.dialer.next_turn() {
                Some(turn) => tokio::time::sleep_until(turn.into()).left_future(),
                None => std::future::pending().right_future(),
            };
            tokio::select! {
                event = self.swarm.select_next_some() => self.on_swarm_event(event),
                command = commands.recv() => match command {
                    Some(NetworkCommand::Shutdown) | None => break,
                    Some(command) => self.on_command(command),
                },
                consumer_is_there = self.outbox.flush() => if !consumer_is_there {
                    break;
                },
                () = turn => self.dial_due(),
                _ = stats_tick.tick() => {
                    self.let_in_again();
                    self.end_visits();
                    self.report_machines();
                    self.probe_unanswering();
                    self.close_silent();
                    self.swarm.behaviour_mut().gossip.renew(Instant::now());
                    self.publish_stats();
                }
            }
        }
        self.publish_stats();
        drop(self);
        tracing::debug!("network task ended");
    }

    /// Hands a request's outcome over.
    pub(crate) fn finish_request(
        &mut self,
        from: SiteId,
        id: u64,
        result: Result<Vec<u8>, RequestFailure>,
    ) {
        self.count(from, |stats| match &result {
            Ok(bytes) => stats.bytes_in += bytes.len() as u64,
            Err(_) => stats.requests_failed += 1,
        });
        self.outbox
            .push(NetworkEvent::Response { from, id, result });
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        while let Some((site, addresses)) = self.dialer.take_due(now) {
            // A port of its own: with the listening port as source, two nodes that dial each other
            // at once meet in one TCP connection that both think they opened, and it fails.
            let options = DialOpts::peer_id(peer_id_of(site))
                .condition(PeerCondition::DisconnectedAndNotDialing)
                .allocate_new_port()
                .addresses(addresses)
                .build();
            match self.swarm.dial(options) {
                Ok(()) => {}
                Err(DialError::DialPeerConditionFalse(_)) if self.links.contains_key(&site) => {
                    self.dialer.opened(site);
                }
                Err(error) => self.dial_failed(site, &error.to_string()),
            }
        }
    }

    /// Notes a failed dial and arranges the next.
    pub(crate) fn dial_failed(&mut self, site: SiteId, error: &str) {
        self.count(site, |stats| {
            stats.dials_failed += 1;
            stats.dial_failure = Some(error.to_owned());
        });
        let random = self.random();
        if let Some(report) = self.dialer.failed(site, error, Instant::now(), random) {
            report.log();
        }
        tracing::debug!(peer = %site.short(), error, "dial failed");
    }

    /// Changes a peer's counters, if it is allowed.
    pub(crate) fn count(&mut self, site: SiteId, change: impl FnOnce(&mut PeerStats)) {
        if let Some(stats) = self.stats.peers.get_mut(&site) {
            change(stats);
        }
    }

    /// Charges what a peer does to its budget; false where it is to be dropped.
    pub(crate) fn charge(&mut self, site: SiteId, cost: Cost) -> bool {
        let now = Instant::now();
        let budget = self.budgets.entry(site).or_insert_with(|| Budget::new(now));
        let charged = budget.charge(now, cost);
        match charged {
            Charged::Within => return true,
            Charged::Throttled(what) => self.count(site, |stats| {
                stats.throttled += 1;
                stats.over_budget = Some(format!("throttled: too many {what}"));
            }),
            Charged::Barred(what, time) => {
                self.barred.insert(site, now + time);
                self.count(site, |stats| {
                    (stats.barred, stats.bars) = (true, stats.bars + 1);
                    stats.over_budget = Some(format!(
                        "disconnected for {} s: too many {what}",
                        time.as_secs()
                    ));
                });
                self.complain(
                    "peer disconnected",
                    &format!("{}: too many {what}", site.short()),
                );
                self.admit();
            }
        }
        false
    }

    /// Lets those in again whose time is over.
    fn let_in_again(&mut self) {
        let now = Instant::now();
        let before = self.barred.len();
        self.barred.retain(|_, until| *until > now);
        if self.barred.len() < before {
            let barred = &self.barred;
            for (site, stats) in &mut self.stats.peers {
                stats.barred &= barred.contains_key(site);
            }
            self.admit();
        }
    }

    /// Closes the connections of former members whose visit is over.
    fn end_visits(&mut self) {
        if self.former.advance(Instant::now()) {
            self.admit();
        }
    }

    /// Brings up to date which sites' keys two machines run with.
    fn report_machines(&mut self) {
        let now = Instant::now();
        for (site, stats) in &mut self.stats.peers {
            let machines = self.turns.machines(*site, now);
            if machines.is_some() && stats.machines.is_none() {
                tracing::warn!(peer = %site.short(), ?machines, "two machines run with the key of this site");
            }
            stats.machines = machines.cloned();
        }
    }

    /// One line of warning, at no faster than one pace for all that peers can provoke.
    pub(crate) fn complain(&mut self, what: &str, error: &str) {
        if let Some(held_back) = self.trouble.pass(Instant::now()) {
            tracing::warn!(held_back, "{what}: {error}");
        }
    }

    /// Uniform randomness, for jitter only: the standard library's keyed hash of a counter.
    pub(crate) fn random(&mut self) -> u64 {
        self.drawn += 1;
        self.randomness.hash_one(self.drawn)
    }

    fn publish_stats(&mut self) {
        (self.stats.wire_received_bytes, self.stats.wire_sent_bytes) = self.bytes.now();
        self.stats_out.send_if_modified(|published| {
            let changed = **published != self.stats;
            if changed {
                *published = Arc::new(self.stats.clone());
            }
            changed
        });
    }
}
