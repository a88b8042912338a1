//! `GET /v1/peers`: three facts of each other site, and how it is reached.
//!
//! Invariant: the state of a peer is a function of [`Facts`], so all that shows it at one time agrees.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use fairmesh_api::{PeerBody, PeerState, PeersBody};
use fairmesh_gossip::Exchanges;
use fairmesh_model::{Millis, Now, SiteId, clean};
use fairmesh_site::{PeerStatus, Site, Timing};

use super::error::ApiError;
use super::extract::{Nothing, Params};
use super::rests_on::answer;
use super::text::all_clean;
use super::{Shared, State};
use crate::network::{Met, PeerStats, TURN};

/// Sync intervals after which a connected peer without an exchange is a fault: the first one begins at once.
const FIRST_EXCHANGE_ROUNDS: u64 = 3;

/// Sync intervals after which a connection that ended without an exchange is one, too: where large packets are lost the
/// kernel ends it after 25 s.
const NO_EXCHANGE_ROUNDS: u64 = 2;

/// For so long a peer may close each connection before it counts as refusing: it does so for a turn to the second of
/// two machines with one key, and both learn the reason in that time.
const REFUSAL_MIN: Millis = Millis(1_000 * (TURN.as_secs() + 5));

/// Requests in a row that a peer leaves unanswered until it counts as silent. One may be lost.
const UNANSWERED_MAX: u64 = 3;

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
            now: site.by_members(now),
        }
    }

    /// The peers, with what the network knows of them.
    pub(super) fn bodies(mut self, shared: &Shared) -> Vec<PeerBody> {
        let network = shared.node().network_stats();
        let timing = shared.options.settings.borrow().timing;
        let absent = PeerStats::default();
        let up = elapsed(shared.started);
        let stats = |peer: &PeerStatus| network.peers.get(&peer.site).unwrap_or(&absent);
        let facts = |peer| Facts::new(peer, stats(peer), self.now, up);
        let mut facts: Vec<Facts> = self.peers.iter().map(facts).collect();
        let has_link = facts.iter().any(|of| of.is_link(&timing));
        facts.iter_mut().for_each(|of| of.has_link = has_link);
        let body = |(peer, facts): (&PeerStatus, Facts)| {
            let known = self.addresses.remove(&peer.site).unwrap_or_default();
            let state = (peer, facts.state(&timing));
            peer_body(state, stats(peer), all_clean(known), self.now)
        };
        self.peers.iter().zip(facts).map(body).collect()
    }
}

/// What the state of a peer depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Facts {
    is_member: bool,
    is_connected: bool,
    is_barred: bool,
    /// Whether any peer is connected or may be in a moment, so that news of others can arrive.
    has_link: bool,
    /// For how long it has been connected, or has not; since the node's start if it never was.
    for_time: Millis,
    was_connected: bool,
    /// Calls that have failed since it was connected last.
    dials_failed: u64,
    met: Option<Met>,
    /// Absent where the site does not know of the connection yet, or knows of its end before the network's figures do.
    exchanges: Option<Exchanges>,
    /// How long its last connection took, if no exchange has ended in that time and since.
    unexchanged: Option<Millis>,
    /// How long ago it signed the newest head that is here.
    data_age: Option<Millis>,
    /// How long ago a head of it arrived, through whomever.
    received_age: Option<Millis>,
}

impl Facts {
    fn new(peer: &PeerStatus, stats: &PeerStats, now: Now, up: Millis) -> Self {
        Self {
            is_member: peer.is_member,
            is_connected: stats.connected,
            is_barred: stats.barred,
            has_link: true,
            for_time: stats.changed_at.map_or(up, elapsed),
            was_connected: stats.changed_at.is_some(),
            dials_failed: stats.dials_failed - stats.dials_failed_before,
            met: stats.met,
            exchanges: peer.connected.then_some(peer.exchanges),
            unexchanged: stats.lasted.filter(|_| peer.had_no_exchange).map(millis),
            data_age: peer.signed_at.map(|at| now.wall.since(at)),
            received_age: peer.received.map(|at| now.mono.since(at)),
        }
    }

    fn state(&self, timing: &Timing) -> PeerState {
        match self.is_connected {
            _ if self.is_barred => PeerState::OverBudget,
            _ if !self.is_member => PeerState::NoMember,
            true => self.state_of_connected(timing),
            false => self.state_of_absent(timing),
        }
    }

    fn state_of_connected(&self, timing: &Timing) -> PeerState {
        let Some(Exchanges {
            ended,
            failed,
            agrees,
        }) = self.exchanges
        else {
            return PeerState::Exchanging;
        };
        let is_new = self.for_time <= timing.sync.times(FIRST_EXCHANGE_ROUNDS);
        let signed_age = self.data_age.unwrap_or(self.for_time);
        match ended {
            0 if is_new && !self.is_unexchanged(timing) => PeerState::Exchanging,
            0 => PeerState::NeverExchanged,
            _ if failed >= UNANSWERED_MAX || signed_age > timing.silence => PeerState::Silent,
            _ if agrees => PeerState::InSync,
            _ => PeerState::Exchanging,
        }
    }

    fn state_of_absent(&self, timing: &Timing) -> PeerState {
        match self.met {
            Some(Met::Refusal) if self.for_time <= REFUSAL_MIN => PeerState::Exchanging,
            Some(Met::Refusal) => PeerState::Refused,
            Some(Met::OtherKey) => PeerState::OtherKey,
            None if self.is_unexchanged(timing) => PeerState::NeverExchanged,
            None if self.has_link && self.is_alive(timing) => PeerState::ThroughOthers,
            None if self.is_call_pending(timing) => PeerState::Exchanging,
            None => PeerState::Unreachable,
        }
    }

    /// Whether it is connected, or may be in a moment.
    fn is_link(&self, timing: &Timing) -> bool {
        let may_be = self.met.is_none() && !self.is_unexchanged(timing);
        self.is_connected || (may_be && self.is_call_pending(timing))
    }

    /// Whether its last connection was long enough for an exchange and saw none. A call that fails is another reason.
    fn is_unexchanged(&self, timing: &Timing) -> bool {
        let long = timing.sync.times(NO_EXCHANGE_ROUNDS);
        self.dials_failed == 0 && self.unexchanged.is_some_and(|lasted| lasted >= long)
    }

    /// Whether the node or the peer may have just started: no call has ended yet, or the peer has to call.
    fn is_call_pending(&self, timing: &Timing) -> bool {
        let long = match self.was_connected {
            true => timing.sync,
            false => timing.sync.times(FIRST_EXCHANGE_ROUNDS),
        };
        self.for_time <= long && self.dials_failed == 0
    }

    /// Whether others show that it lives. A head that arrives soon after the connection has ended may be one of before.
    fn is_alive(&self, timing: &Timing) -> bool {
        let data_age = self.data_age.unwrap_or(Millis(u64::MAX));
        if !self.was_connected && data_age <= timing.heartbeat.times(2) {
            return true;
        }
        let since_then = self.received_age.unwrap_or(Millis(u64::MAX));
        data_age <= timing.silence
            && Millis(since_then.0.saturating_add(timing.sync.0)) < self.for_time
    }
}

fn peer_body(
    (peer, state): (&PeerStatus, PeerState),
    stats: &PeerStats,
    addresses: Vec<String>,
    now: Now,
) -> PeerBody {
    PeerBody {
        site: peer.site.to_string(),
        name: peer.name.as_deref().map(clean),
        state,
        reachable: stats.connected,
        data_age_ms: peer.signed_at.map(|at| now.wall.since(at).0),
        usage_age_ms: peer.usage_until.map(|until| now.wall.since(until).0),
        in_sync: state == PeerState::InSync,
        agreed_age_ms: peer.agreed.map(|agreed| now.mono.since(agreed).0),
        addresses,
        connections: stats.connections,
        round_trip_us: stats.round_trip.as_ref().map(micros),
        bytes_in: stats.bytes_in,
        bytes_out: stats.bytes_out,
        dials_failed: stats.dials_failed,
        // A failure of before its last connection is no reason why it is not connected now.
        dial_failure: stats
            .dial_failure
            .as_deref()
            .filter(|_| stats.connected || stats.dials_failed > stats.dials_failed_before)
            .map(clean),
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

pub(super) fn elapsed(since: Instant) -> Millis {
    millis(since.elapsed())
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Millis = Millis::from_secs;

    #[test]
    fn each_state_has_its_facts() {
        let timing = Timing::default();
        let exchanges = |ended, failed, agrees| {
            Some(Exchanges {
                ended,
                failed,
                agrees,
            })
        };
        let up = Facts {
            is_member: true,
            is_connected: true,
            has_link: true,
            was_connected: true,
            for_time: S(3_600),
            exchanges: exchanges(9, 0, true),
            data_age: Some(S(100)),
            received_age: Some(S(99)),
            ..Facts::default()
        };
        let down = Facts {
            is_connected: false,
            exchanges: None,
            ..up
        };
        let never = Facts {
            was_connected: false,
            received_age: None,
            for_time: S(5),
            ..down
        };
        use PeerState as Is;
        for (facts, state) in [
            (up, Is::InSync),
            (
                Facts {
                    exchanges: exchanges(9, 2, true),
                    ..up
                },
                Is::InSync,
            ),
            (
                Facts {
                    exchanges: exchanges(9, 0, false),
                    ..up
                },
                Is::Exchanging,
            ),
            (
                Facts {
                    exchanges: exchanges(9, 3, true),
                    ..up
                },
                Is::Silent,
            ),
            (
                Facts {
                    data_age: Some(S(601)),
                    ..up
                },
                Is::Silent,
            ),
            (
                Facts {
                    data_age: None,
                    ..up
                },
                Is::Silent,
            ),
            (
                Facts {
                    exchanges: exchanges(0, 1, false),
                    for_time: S(30),
                    ..up
                },
                Is::Exchanging,
            ),
            (
                Facts {
                    exchanges: exchanges(0, 1, false),
                    for_time: S(31),
                    ..up
                },
                Is::NeverExchanged,
            ),
            // The connection has just ended.
            (
                Facts {
                    exchanges: None,
                    ..up
                },
                Is::Exchanging,
            ),
            (
                Facts {
                    is_member: false,
                    ..up
                },
                Is::NoMember,
            ),
            (
                Facts {
                    is_barred: true,
                    ..down
                },
                Is::OverBudget,
            ),
            // Its last heads are of before the connection ended, or may be.
            (
                Facts {
                    for_time: S(90),
                    ..down
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    for_time: S(105),
                    ..down
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    for_time: S(110),
                    ..down
                },
                Is::ThroughOthers,
            ),
            (
                Facts {
                    data_age: Some(S(601)),
                    ..down
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    met: Some(Met::Refusal),
                    ..down
                },
                Is::Refused,
            ),
            (
                Facts {
                    met: Some(Met::Refusal),
                    for_time: S(15),
                    ..down
                },
                Is::Exchanging,
            ),
            // It has just gone, and may start again; or a call has failed since.
            (
                Facts {
                    for_time: S(10),
                    ..down
                },
                Is::Exchanging,
            ),
            (
                Facts {
                    for_time: S(10),
                    dials_failed: 1,
                    ..down
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    met: Some(Met::OtherKey),
                    ..down
                },
                Is::OtherKey,
            ),
            // The node has just started: no call has ended, one has failed, and none has ended for long.
            (
                Facts {
                    data_age: None,
                    ..never
                },
                Is::Exchanging,
            ),
            (
                Facts {
                    data_age: None,
                    dials_failed: 1,
                    ..never
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    data_age: None,
                    for_time: S(31),
                    ..never
                },
                Is::Unreachable,
            ),
            // Each connection ends before an exchange does, until a call fails.
            (
                Facts {
                    unexchanged: Some(S(25)),
                    ..down
                },
                Is::NeverExchanged,
            ),
            (
                Facts {
                    unexchanged: Some(S(25)),
                    exchanges: exchanges(0, 0, false),
                    for_time: S(1),
                    ..up
                },
                Is::NeverExchanged,
            ),
            (
                Facts {
                    unexchanged: Some(S(25)),
                    dials_failed: 1,
                    for_time: S(1),
                    ..down
                },
                Is::Unreachable,
            ),
            // The only connection has ended.
            (
                Facts {
                    for_time: S(110),
                    has_link: false,
                    ..down
                },
                Is::Unreachable,
            ),
            // A site that only calls out, right after the start and later.
            (never, Is::ThroughOthers),
            (
                Facts {
                    data_age: Some(S(300)),
                    for_time: S(400),
                    ..never
                },
                Is::Unreachable,
            ),
            (
                Facts {
                    data_age: Some(S(300)),
                    for_time: S(400),
                    received_age: Some(S(299)),
                    ..never
                },
                Is::ThroughOthers,
            ),
        ] {
            assert_eq!(facts.state(&timing), state, "{facts:?}");
        }
    }
}
