//! What the swarm reports, turned into events, counters and the next dial.
//!
//! Invariant: the consumer hears `Connected` when the peer has been heard, not when the connection
//! opens. A peer that does not allow us completes the handshake and then closes: from our side that
//! is an opened connection, but nobody is there.

use std::time::Instant;

use fairmesh_model::SiteId;
use libp2p::swarm::{ConnectionId, DialError, ListenError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, identify, ping};

use crate::network::behaviour::{BehaviourEvent, incarnation_in};
use crate::network::config::{CALLS_INTERVAL, PINGS_FAILED_MAX};
use crate::network::driver::{Connection, Driver};
use crate::network::turns::Admission;
use crate::network::{Met, NetworkEvent, address, site_of};

impl Driver {
    pub(crate) fn on_swarm_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.on_behaviour_event(event),
            SwarmEvent::NewListenAddr { address, .. } => {
                tracing::info!(%address, "listening");
                self.outbox.push(NetworkEvent::Listening(address));
            }
            SwarmEvent::ConnectionEstablished {
                peer_id,
                connection_id,
                endpoint,
                ..
            } => self.on_opened(peer_id, connection_id, endpoint.get_remote_address()),
            SwarmEvent::ConnectionClosed {
                peer_id,
                connection_id,
                num_established,
                cause,
                ..
            } => {
                let cause = cause.map(|cause| address::innermost(&cause));
                self.on_closed(peer_id, connection_id, num_established, cause);
            }
            SwarmEvent::OutgoingConnectionError {
                peer_id: Some(peer),
                error,
                ..
            } => self.on_dial_error(peer, &error),
            SwarmEvent::IncomingConnectionError {
                peer_id,
                error,
                send_back_addr,
                ..
            } => self.on_refused(peer_id, &send_back_addr, &error),
            SwarmEvent::ListenerError { error, .. } => {
                self.complain("listening", &error.to_string());
            }
            SwarmEvent::ListenerClosed {
                addresses, reason, ..
            } => tracing::error!(?addresses, ?reason, "no longer listening"),
            _ => {}
        }
    }

    fn on_behaviour_event(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Gossip(event) => self.on_gossip_event(event),
            BehaviourEvent::Sync(event) => self.on_sync_event(event),
            BehaviourEvent::Probe(event) => self.on_probe_event(&event),
            BehaviourEvent::Identify(identify::Event::Received {
                connection_id,
                peer_id,
                info,
            }) => self.on_identified(peer_id, connection_id, info),
            BehaviourEvent::Ping(event) => self.on_ping(&event),
            _ => {}
        }
    }

    fn on_opened(&mut self, peer: PeerId, id: ConnectionId, address: &Multiaddr) {
        let Some(site) = site_of(peer) else {
            return;
        };
        let link = self.links.entry(site).or_default();
        let connection = Connection {
            address: address::without_name(address.clone()),
            incarnation: None,
            pings_failed: 0,
            pinged: Instant::now(),
            probed: None,
            waits: false,
        };
        link.connections.insert(id, connection);
        let connections = u32::try_from(link.connections.len()).unwrap_or(u32::MAX);
        let held = link.connections.len();
        self.dialer.opened(site);
        self.stats.connections += 1;
        self.count(site, |stats| stats.connections = connections);
        let is_visitor = self.former.contains(site) && !self.allowed.contains(&site);
        if is_visitor && !self.former.opened(site, held, Instant::now()) {
            self.swarm.close_connection(id);
            return;
        }
        if connections > 1 {
            // Unless both sides dialled at once, the peer has lost the earlier one and knows none of our subscriptions.
            self.probe(peer);
        }
    }

    /// The peer said something, so it accepts us.
    pub(crate) fn on_heard(&mut self, peer: PeerId) -> Option<SiteId> {
        let site = site_of(peer)?;
        let link = self.links.get_mut(&site)?;
        if !std::mem::replace(&mut link.heard, true) {
            if let Some(report) = self.dialer.heard(site, Instant::now()) {
                report.log();
            }
            tracing::debug!(peer = %site.short(), "connected");
            self.count(site, |stats| {
                (stats.connected, stats.changed_at, stats.met) = (true, Some(Instant::now()), None);
            });
            self.outbox.push(NetworkEvent::Connected(site));
        }
        Some(site)
    }

    /// It said so on this connection, which is open as far as it is in `links`.
    fn on_heard_on(&mut self, peer: PeerId, connection: ConnectionId) -> Option<SiteId> {
        let site = self.on_heard(peer)?;
        if self.links[&site].connections.contains_key(&connection) {
            let behaviour = self.swarm.behaviour_mut();
            behaviour.gossip.heard(peer, connection);
            behaviour.per_peer.heard(peer, connection, Instant::now());
        }
        Some(site)
    }

    fn on_closed(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        remaining: u32,
        cause: Option<String>,
    ) {
        let Some(site) = site_of(peer) else {
            return;
        };
        self.stats.connections = self.stats.connections.saturating_sub(1);
        self.count(site, |stats| stats.connections = remaining);
        if remaining > 0 {
            if let Some(link) = self.links.get_mut(&site) {
                link.connections.remove(&connection);
            }
            return;
        }
        let link = self.links.remove(&site).unwrap_or_default();
        let connection = link.connections.get(&connection);
        if link.heard {
            tracing::debug!(peer = %site.short(), ?cause, "disconnected");
            let now = Instant::now();
            self.count(site, |stats| {
                stats.dials_failed_before = stats.dials_failed;
                stats.lasted = stats.changed_at.map(|at| now - at);
                (stats.connected, stats.changed_at) = (false, Some(now));
            });
            let random = self.random();
            self.dialer.lost(site, Instant::now(), random);
            self.outbox.push(NetworkEvent::Disconnected(site));
        } else if connection.is_some_and(|of| of.waits) {
            let random = self.random();
            self.dialer.lost(site, Instant::now(), random);
        } else {
            self.dial_failed(
                site,
                "it closed the connection: its charter may not list this site, or another machine runs with this site's \
                 key",
            );
            self.count(site, |stats| stats.met = Some(Met::Refusal));
        }
    }

    fn on_dial_error(&mut self, peer: PeerId, error: &DialError) {
        // A connection that the other side opened meanwhile is as good as ours would have been.
        if let Some(site) = site_of(peer)
            && !self.links.contains_key(&site)
        {
            self.dial_failed(site, &describe(error));
            let is_other = matches!(error, DialError::WrongPeerId { .. });
            self.count(site, |stats| stats.met = is_other.then_some(Met::OtherKey));
        }
    }

    fn on_refused(&mut self, peer: Option<PeerId>, from: &Multiaddr, error: &ListenError) {
        self.stats.connections_refused += 1;
        if !matches!(error, ListenError::Denied { .. }) {
            tracing::debug!(%from, %error, "incoming connection failed");
            return;
        }
        let now = Instant::now();
        let site = peer.and_then(site_of);
        let stranger = site.filter(|site| !self.allowed.contains(site));
        if let Some(caller) = stranger
            && self.called.is_none_or(|last| now >= last + CALLS_INTERVAL)
        {
            self.called = Some(now);
            self.outbox.push(NetworkEvent::Called(caller));
        }
        if let Some(held_back) = self.strangers.pass(now) {
            let reason = address::innermost(error);
            let site = site.map(|site| site.to_string());
            tracing::info!(site, %from, held_back, "connection refused: {reason}");
        }
    }

    fn on_identified(&mut self, peer: PeerId, connection: ConnectionId, info: identify::Info) {
        if !self.admit_machine(peer, connection, &info.agent_version) {
            return;
        }
        if let Some(site) = self.on_heard_on(peer, connection) {
            let addresses = address::learnt(site, info.listen_addrs, self.allow_private);
            self.dialer.learn(site, addresses);
        }
    }

    /// Whether the connection is kept, by which start of the peer's node is at its other end.
    fn admit_machine(&mut self, peer: PeerId, id: ConnectionId, agent_version: &str) -> bool {
        let Some((site, incarnation)) = site_of(peer).zip(incarnation_in(agent_version)) else {
            return true;
        };
        let Some(link) = self.links.get_mut(&site) else {
            return true;
        };
        let Some(connection) = link.connections.get_mut(&id) else {
            return true;
        };
        connection.incarnation = Some(incarnation);
        let machine = (incarnation, connection.address.to_string());
        let mut incarnations = link.connections.values().filter_map(|of| of.incarnation);
        let is_held = |current| incarnations.any(|of| of == current);
        match self.turns.admit(site, machine, is_held, Instant::now()) {
            Admission::Keeps => return true,
            Admission::Waits => {
                let connection = self.links.get_mut(&site);
                let connection = connection.and_then(|link| link.connections.get_mut(&id));
                connection.into_iter().for_each(|of| of.waits = true);
                self.swarm.close_connection(id);
            }
            Admission::Displaces => {
                // Of the machine before nothing may be left, what it acknowledged least of all: the peer is a new one.
                let _ = self.swarm.disconnect_peer_id(peer);
            }
        }
        false
    }

    fn on_ping(&mut self, event: &ping::Event) {
        let Some(site) = site_of(event.peer) else {
            return;
        };
        match &event.result {
            Ok(round_trip) => {
                self.on_heard_on(event.peer, event.connection);
                self.count(site, |stats| stats.round_trip = Some(*round_trip));
                self.pings_failed(site, event.connection, |_| 0);
                let link = self.links.get_mut(&site);
                if let Some(of) = link.and_then(|link| link.connections.get_mut(&event.connection))
                {
                    of.pinged = Instant::now();
                }
            }
            Err(ping::Failure::Unsupported) => {}
            Err(ping::Failure::Timeout | ping::Failure::Other { .. }) => {
                let failed = self.pings_failed(site, event.connection, |failed| failed + 1);
                if failed >= PINGS_FAILED_MAX {
                    tracing::debug!(peer = %site.short(), "closing a dead connection");
                    self.swarm.close_connection(event.connection);
                }
            }
        }
    }

    fn pings_failed(
        &mut self,
        site: SiteId,
        connection: ConnectionId,
        change: impl FnOnce(u32) -> u32,
    ) -> u32 {
        let link = self.links.get_mut(&site);
        match link.and_then(|link| link.connections.get_mut(&connection)) {
            Some(connection) => {
                connection.pings_failed = change(connection.pings_failed);
                connection.pings_failed
            }
            None => 0,
        }
    }
}

/// Why a dial failed, on one line. An address is shown without its `/p2p` part, which is another spelling of a
/// site's id: people know one.
fn describe(error: &DialError) -> String {
    let shown = |address: &Multiaddr| address::without_name(address.clone());
    match error {
        DialError::Transport(errors) => errors
            .iter()
            .map(|(address, error)| format!("{}: {}", shown(address), address::innermost(error)))
            .collect::<Vec<String>>()
            .join("; "),
        DialError::WrongPeerId { obtained, address } => match site_of(*obtained) {
            Some(site) => format!("{}: another site answers there, {site}", shown(address)),
            None => format!("{}: another node answers there, {obtained}", shown(address)),
        },
        DialError::LocalPeerId { address } => {
            format!("{}: that is this node itself", shown(address))
        }
        DialError::NoAddresses => "no address but our own".to_owned(),
        other => address::innermost(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::peer_id_of;

    #[test]
    fn a_site_has_one_spelling_in_what_is_told_of_dials() {
        let site = SiteId::from_bytes([7; 32]);
        let address = format!("/ip4/192.0.2.1/tcp/1/p2p/{}", peer_id_of(site));
        let address: Multiaddr = address.parse().expect("an address");
        let obtained = peer_id_of(site);
        let told = describe(&DialError::WrongPeerId { obtained, address });
        let expected = format!("/ip4/192.0.2.1/tcp/1: another site answers there, {site}");
        assert_eq!(told, expected);
    }
}
