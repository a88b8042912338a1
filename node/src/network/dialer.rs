//! Whom to dial, where and when. Pure: time and randomness are passed in, effects come out.
//!
//! libp2p dials once and then forgets. Here every wanted peer is up, being dialled, waiting for its
//! next turn with exponential back-off, or without a known address.
//!
//! Invariant: a wanted peer with an address that is not up is dialled again, at most `redial_max`
//! later; a peer is never dialled twice at once; at most `dials_max` dials are under way. Back-off is
//! reset when the peer has been *heard*, not when the connection opens: a peer that refuses us closes
//! only after the handshake, and would otherwise be redialled at full speed for ever.
//!
//! Of the peers that are due, those heard before come first, then those not yet tried, then those whose last dial
//! failed ([`Rank`]). A dial of a dead address takes `REACH_TIMEOUT`. So of `n` dead peers with one numeric address each
//! the last has its first dial after `n / dials_max` times that: 12 s for 2,000. A peer keeps the first rank for
//! [`KNOWN_TRIES`] tries, so the last rank gets its turns: 2,000 dead peers need 12 s of each `redial_max`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fairmesh_model::SiteId;
use libp2p::Multiaddr;

use crate::network::NetworkConfig;
use crate::network::address::Addresses;
use crate::network::backoff::Backoff;
use crate::network::config::LOG_INTERVAL;
use crate::network::reports::Report;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not wanted, or nowhere to go.
    Idle,
    /// Dialled again at this time.
    Waiting(Instant),
    /// A dial is under way.
    Dialling,
    /// Connected, heard or not.
    Up,
}

/// The order of peers that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Heard before, on a connection of either side, and just lost.
    Known,
    /// Not tried since it is wanted, or since its address is new.
    Fresh,
    /// Its last dial failed.
    Failing,
}

/// Tries for which a peer that was heard before keeps the first rank: one that is gone for good must not keep others
/// from their turns.
const KNOWN_TRIES: u32 = 3;

#[derive(Debug)]
struct Peer {
    state: State,
    /// The rank under which it waits.
    rank: Rank,
    backoff: Backoff,
    /// Whether it has ever been heard.
    known: bool,
    /// What the peer says of itself; charters and configuration are kept apart.
    learnt: Vec<Multiaddr>,
    down_since: Instant,
    reported: bool,
    reported_at: Option<Instant>,
}

impl Peer {
    fn rank(&self) -> Rank {
        match self.backoff.failures() {
            failures if self.known && failures < KNOWN_TRIES => Rank::Known,
            0 => Rank::Fresh,
            _ => Rank::Failing,
        }
    }
}

/// The state of all wanted peers.
#[derive(Debug)]
pub(crate) struct Dialer {
    redial_min: Duration,
    redial_max: Duration,
    unreachable_after: Duration,
    configured: Addresses,
    chartered: Addresses,
    wanted: BTreeMap<SiteId, Peer>,
    /// The turns of all waiting peers, by rank: exactly those in `State::Waiting`.
    turns: BTreeMap<Rank, BTreeSet<(Instant, SiteId)>>,
    dialling: usize,
    dials_max: usize,
}

impl Dialer {
    /// Knows the configured addresses, wants nobody.
    pub(crate) fn new(config: &NetworkConfig, configured: Addresses) -> Self {
        Self {
            redial_min: config.redial_min,
            redial_max: config.redial_max,
            unreachable_after: config.unreachable_after,
            configured,
            chartered: BTreeMap::new(),
            wanted: BTreeMap::new(),
            turns: BTreeMap::new(),
            dialling: 0,
            dials_max: config.limits.dials_max,
        }
    }

    /// Replaces the set of wanted peers; new ones are due at once.
    pub(crate) fn want(&mut self, sites: &BTreeSet<SiteId>, now: Instant) {
        let dropped: Vec<SiteId> = self
            .wanted
            .keys()
            .filter(|site| !sites.contains(site))
            .copied()
            .collect();
        for site in dropped {
            self.enter(site, State::Idle);
            self.wanted.remove(&site);
        }
        for site in sites {
            if !self.wanted.contains_key(site) {
                let peer = Peer {
                    state: State::Idle,
                    rank: Rank::Fresh,
                    backoff: Backoff::new(self.redial_min, self.redial_max),
                    known: false,
                    learnt: Vec::new(),
                    down_since: now,
                    reported: false,
                    reported_at: None,
                };
                self.wanted.insert(*site, peer);
                self.hasten(*site, now);
            }
        }
    }

    /// Replaces the addresses from charters; peers that have new ones are due at once.
    pub(crate) fn set_chartered(&mut self, addresses: Addresses, now: Instant) {
        let before = std::mem::replace(&mut self.chartered, addresses);
        self.hasten_all(changed(&before, &self.chartered), now);
    }

    /// Replaces the configured addresses, likewise.
    pub(crate) fn set_configured(&mut self, addresses: Addresses, now: Instant) {
        let before = std::mem::replace(&mut self.configured, addresses);
        self.hasten_all(changed(&before, &self.configured), now);
    }

    /// Where peers are, as charters and the configuration say.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Multiaddr> {
        let all = self.configured.values().chain(self.chartered.values());
        all.flatten()
    }

    fn hasten_all(&mut self, sites: Vec<SiteId>, now: Instant) {
        for site in sites {
            self.hasten(site, now);
        }
    }

    /// Notes what a wanted peer says of itself, for the day when it is gone.
    pub(crate) fn learn(&mut self, site: SiteId, addresses: Vec<Multiaddr>) {
        if let Some(peer) = self.wanted.get_mut(&site) {
            peer.learnt = addresses;
        }
    }

    /// When somebody is due; `None` where nobody waits or all places are taken.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        let firsts = self.turns.values().filter_map(BTreeSet::first);
        let (turn, _) = firsts.min()?;
        (self.dialling < self.dials_max).then_some(*turn)
    }

    /// Takes the first peer that is due: it counts as being dialled, at all its known addresses.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(SiteId, Vec<Multiaddr>)> {
        self.next_turn()?;
        let mut firsts = self.turns.values().filter_map(BTreeSet::first);
        let (_, site) = *firsts.find(|(turn, _)| *turn <= now)?;
        let addresses = self.addresses(site);
        let next = match addresses.is_empty() {
            true => State::Idle,
            false => State::Dialling,
        };
        self.enter(site, next);
        (next == State::Dialling).then_some((site, addresses))
    }

    /// A connection opened, whoever dialled.
    pub(crate) fn opened(&mut self, site: SiteId) {
        self.enter(site, State::Up);
    }

    /// The peer was heard over the connection, so it accepts us.
    pub(crate) fn heard(&mut self, site: SiteId, now: Instant) -> Option<Report> {
        let peer = self.wanted.get_mut(&site)?;
        peer.known = true;
        peer.backoff.reset();
        if !std::mem::take(&mut peer.reported) {
            return None;
        }
        let after = now.saturating_duration_since(peer.down_since);
        Some(Report::Back { site, after })
    }

    /// The last connection with a peer that had been heard is gone.
    pub(crate) fn lost(&mut self, site: SiteId, now: Instant, random: u64) {
        if let Some(peer) = self.wanted.get_mut(&site) {
            peer.down_since = now;
        }
        self.wait(site, now, random);
    }

    /// A dial failed, or the peer closed the connection before it was heard.
    pub(crate) fn failed(
        &mut self,
        site: SiteId,
        error: &str,
        now: Instant,
        random: u64,
    ) -> Option<Report> {
        if self.wanted.get(&site)?.state == State::Idle {
            return None;
        }
        self.wait(site, now, random);
        let unreachable_after = self.unreachable_after;
        let peer = self.wanted.get_mut(&site)?;
        let for_time = now.saturating_duration_since(peer.down_since);
        let recently = peer.reported_at.is_some_and(|at| now < at + LOG_INTERVAL);
        if peer.reported || recently || for_time < unreachable_after {
            return None;
        }
        peer.reported = true;
        peer.reported_at = Some(now);
        Some(Report::Unreachable {
            site,
            for_time,
            attempts: peer.backoff.failures(),
            error: error.to_owned(),
        })
    }

    /// Makes a peer that is not up due now, with a fresh back-off, if there is anywhere to go.
    fn hasten(&mut self, site: SiteId, now: Instant) {
        let Some(peer) = self.wanted.get_mut(&site) else {
            return;
        };
        if matches!(peer.state, State::Idle | State::Waiting(_)) {
            peer.backoff.reset();
            if !self.addresses(site).is_empty() {
                self.enter(site, State::Waiting(now));
            }
        }
    }

    fn wait(&mut self, site: SiteId, now: Instant, random: u64) {
        if let Some(peer) = self.wanted.get_mut(&site) {
            let turn = now + peer.backoff.fail(random);
            self.enter(site, State::Waiting(turn));
        }
    }

    /// The only place where a state changes: keeps `turns` and `dialling` in step.
    fn enter(&mut self, site: SiteId, next: State) {
        let Some(peer) = self.wanted.get_mut(&site) else {
            return;
        };
        match std::mem::replace(&mut peer.state, next) {
            State::Waiting(turn) => {
                let of_rank = self.turns.get_mut(&peer.rank);
                of_rank.map(|turns| turns.remove(&(turn, site)));
            }
            State::Dialling => self.dialling -= 1,
            State::Idle | State::Up => {}
        }
        match next {
            State::Waiting(turn) => {
                peer.rank = peer.rank();
                let of_rank = self.turns.entry(peer.rank).or_default();
                of_rank.insert((turn, site));
            }
            State::Dialling => self.dialling += 1,
            State::Idle | State::Up => {}
        }
    }

    /// All known addresses, the operator's own first.
    fn addresses(&self, site: SiteId) -> Vec<Multiaddr> {
        let learnt = self.wanted.get(&site).map(|peer| &peer.learnt);
        let mut all: Vec<Multiaddr> = Vec::new();
        for address in [
            self.configured.get(&site),
            self.chartered.get(&site),
            learnt,
        ]
        .into_iter()
        .flatten()
        .flatten()
        {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }
}

/// Whose addresses are new.
fn changed(before: &Addresses, after: &Addresses) -> Vec<SiteId> {
    let is_new =
        |(site, addresses): &(&SiteId, &Vec<Multiaddr>)| before.get(site) != Some(*addresses);
    after.iter().filter(is_new).map(|(site, _)| *site).collect()
}

#[cfg(test)]
mod tests;
