//! `GET /v1/peers`: three facts of each other site, and how it is reached.
//!
//! Invariant: reachable now, age of data and in sync are told apart; none is made of another.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::IntoResponse;
use fairmesh_model::{Millis, Now, SiteId};
use fairmesh_site::{PeerStatus, Site, Timing};

use super::answer::{PeerBody, PeersBody};
use super::error::ApiError;
use super::extract::{Nothing, Params};
use super::rests_on::answer;
use super::text::{all_clean, clean};
use super::{Shared, State};
use crate::network::{NetworkStats, PeerStats};

/// Rounds of anti-entropy after which a peer that was not found equal is not called in sync.
const ROUNDS_IN_SYNC: u64 = 3;

pub(super) async fn get(
    axum::extract::State(shared): State,
    Params(Nothing {}): Params<Nothing>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, found) = shared.ask(|site, now| Ok(Found::ask(site, now))).await?;
    let body = PeersBody {
        listening: shared.options.listening.clone(),
        peers: found.bodies(&shared),
    };
    Ok(answer("peers", rests_on, body))
}

/// What the site says of its peers.
pub(super) struct Found {
    peers: Vec<PeerStatus>,
    addresses: BTreeMap<SiteId, Vec<String>>,
    now: Now,
}

impl Found {
    /// Asks on the driver's task: only copies.
    pub(super) fn ask(site: &Site, now: Now) -> Self {
        Self {
            peers: site.peers(),
            addresses: site.member_addresses(),
            now,
        }
    }

    /// The peers, with what the network knows of them.
    pub(super) fn bodies(mut self, shared: &Shared) -> Vec<PeerBody> {
        let network = shared.node().network_stats();
        let timing = shared.options.settings.borrow().timing;
        let in_sync_max = in_sync_max(&timing, &network);
        self.peers
            .iter()
            .map(|peer| {
                let stats = network.peers.get(&peer.site).cloned().unwrap_or_default();
                let known = self.addresses.remove(&peer.site).unwrap_or_default();
                peer_body(peer, &stats, all_clean(known), self.now, in_sync_max)
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
        machines: stats
            .machines
            .iter()
            .flatten()
            .map(|at| clean(at))
            .collect(),
    }
}

fn micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
