//! `GET /v1/peers`: three facts of each other site, and how it is reached.
//!
//! Invariant: reachable now, age of data and in sync are told apart; none is made of another.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::IntoResponse;
use fairmesh_model::{Charter, Millis, Now, Signed, SiteId};
use fairmesh_site::{PeerStatus, Site, Timing};

use super::answer::{PeerBody, PeersBody};
use super::error::ApiError;
use super::extract::{Nothing, Params};
use super::rests_on::{answer, rests_on};
use super::text::clean;
use super::{Shared, State};
use crate::network::{NetworkStats, PeerStats};

/// Rounds of anti-entropy after which a peer that was not found equal is not called in sync.
const ROUNDS_IN_SYNC: u64 = 3;

pub(super) async fn get(
    axum::extract::State(shared): State,
    Params(Nothing {}): Params<Nothing>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, found) = shared
        .node()
        .ask(|site, now| (rests_on(site, now), Found::ask(site, now)))
        .await?;
    let body = PeersBody {
        listening: shared.options.listening.clone(),
        peers: found.bodies(&shared),
    };
    Ok(answer("peers", rests_on, body))
}

/// What the site says of its peers.
pub(super) struct Found {
    peers: Vec<PeerStatus>,
    documents: Vec<Vec<u8>>,
    now: Now,
}

impl Found {
    /// Asks on the driver's task: only copies.
    pub(super) fn ask(site: &Site, now: Now) -> Self {
        let vos = site.vo_status(now);
        Self {
            peers: site.peers(),
            documents: vos.iter().flat_map(|vo| site.documents(vo.vo)).collect(),
            now,
        }
    }

    /// The peers, with what the network knows of them.
    pub(super) fn bodies(self, shared: &Shared) -> Vec<PeerBody> {
        let network = shared.node().network_stats();
        let timing = shared.options.settings.borrow().timing;
        let mut addresses = addresses(&self.documents);
        let in_sync_max = in_sync_max(&timing, &network);
        self.peers
            .iter()
            .map(|peer| {
                let stats = network.peers.get(&peer.site).cloned().unwrap_or_default();
                let known = addresses.remove(&peer.site).unwrap_or_default();
                peer_body(peer, &stats, known, self.now, in_sync_max)
            })
            .collect()
    }
}

/// One peer is asked each interval, so with many peers each one's turn comes more rarely.
fn in_sync_max(timing: &Timing, network: &NetworkStats) -> Millis {
    let connected = network.peers.values().filter(|peer| peer.connected).count();
    let turns = u64::try_from(connected.max(1)).unwrap_or(u64::MAX);
    timing.sync.times(ROUNDS_IN_SYNC.saturating_mul(turns))
}

fn peer_body(
    peer: &PeerStatus,
    stats: &PeerStats,
    addresses: Vec<String>,
    now: Now,
    in_sync_max: Millis,
) -> PeerBody {
    let agreed_age = peer.agreed.map(|agreed| now.mono.since(agreed));
    PeerBody {
        site: peer.site.to_string(),
        name: peer.name.as_deref().map(clean),
        reachable: stats.connected,
        data_age_ms: peer.signed_at.map(|at| now.wall.since(at).0),
        in_sync: stats.connected && agreed_age.is_some_and(|age| age <= in_sync_max),
        agreed_age_ms: agreed_age.map(|age| age.0),
        addresses,
        connections: stats.connections,
        round_trip_us: stats.round_trip.as_ref().map(micros),
        bytes_in: stats.bytes_in,
        bytes_out: stats.bytes_out,
        dials_failed: stats.dials_failed,
        dial_failure: stats.dial_failure.as_deref().map(clean),
        throttled: stats.throttled,
        over_budget: stats.over_budget.clone(),
        barred: stats.barred,
    }
}

fn micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Where the newest charter of each VO says that sites are.
fn addresses(documents: &[Vec<u8>]) -> BTreeMap<SiteId, Vec<String>> {
    let mut newest: BTreeMap<_, Signed<Charter>> = BTreeMap::new();
    // What is no charter is a share policy, and names no addresses.
    for charter in documents
        .iter()
        .filter_map(|bytes| Signed::<Charter>::parse(bytes).ok())
    {
        let known = newest.get(&charter.vo());
        if known.is_none_or(|known| known.claimed().version < charter.claimed().version) {
            newest.insert(charter.vo(), charter);
        }
    }
    let mut addresses: BTreeMap<SiteId, Vec<String>> = BTreeMap::new();
    for member in newest.values().flat_map(|charter| &charter.claimed().sites) {
        let known = addresses.entry(member.site).or_default();
        for address in member.addresses.iter().map(|address| clean(address)) {
            if !known.contains(&address) {
                known.push(address);
            }
        }
    }
    addresses
}
