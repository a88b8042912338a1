//! What peers say: gossip, requests and responses.
//!
//! Invariant: a peer's word gets no further than there is room for it. Gossip that the consumer has
//! no room for is dropped and counted, requests beyond the bounds are turned away at once, so that
//! the peer knows; only answers to what we asked always get through.

use std::time::Instant;

use fairmesh_gossip::wire::unpacked_bytes;
use fairmesh_model::SiteId;
use libp2p::PeerId;
use libp2p::gossipsub::{self, MessageAcceptance};
use libp2p::request_response::{self, InboundFailure, Message, OutboundFailure};

use crate::network::budget::Cost;
use crate::network::codec::RequestFrame;
use crate::network::config::PROBE_TIMEOUT;
use crate::network::driver::{Connection, Driver};
use crate::network::topics::{GossipEvent, Unheard};
use crate::network::{MessageName, NetworkEvent, RequestFailure, peer_id_of, requests, site_of};

impl Driver {
    /// Handles an event of gossip.
    pub(crate) fn on_gossip_event(&mut self, event: GossipEvent) {
        let event = match event {
            GossipEvent::Gossip(event) => event,
            GossipEvent::Unheard(peer, unheard) => return self.on_unheard(peer, unheard),
        };
        match event {
            gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            } => self.on_gossip(propagation_source, &message_id, message),
            gossipsub::Event::Subscribed { peer_id, .. } => {
                self.on_heard(peer_id);
            }
            gossipsub::Event::SlowPeer {
                peer_id,
                failed_messages,
            } => {
                if let Some(site) = site_of(peer_id) {
                    let failed = failed_messages.non_priority + failed_messages.priority;
                    self.count(site, |stats| stats.gossip_undelivered += failed as u64);
                }
            }
            _ => {}
        }
    }

    /// A peer pays for what nobody hears, too: it was read.
    fn on_unheard(&mut self, peer: PeerId, unheard: Unheard) {
        self.stats.gossip_foreign += unheard.foreign as u64;
        let Some(site) = self.on_heard(peer) else {
            return;
        };
        let each = unheard.bytes / unheard.messages.max(1);
        for _ in 0..unheard.messages {
            if !self.charge(site, Cost::Message(each)) && self.barred.contains_key(&site) {
                return;
            }
        }
    }

    fn on_gossip(
        &mut self,
        source: PeerId,
        id: &gossipsub::MessageId,
        message: gossipsub::Message,
    ) {
        let heard = self.on_heard(source);
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        let vo = gossip.vo_of(&message.topic);
        let vo = vo.filter(|_| gossip.is_member(&message.topic, &source));
        let name = MessageName::from_bytes(&id.0);
        let (Some(from), Some(topic), Some(message_id)) = (heard, vo, name) else {
            return gossip.judge(id, &source, MessageAcceptance::Ignore);
        };
        let bytes = message.data;
        let is_within = self.charge(from, Cost::Message(bytes.len()));
        let has_room = self.outbox.has_room_for_gossip();
        if !is_within || !has_room {
            self.stats.gossip_dropped += u64::from(!has_room);
            let gossip = &mut self.swarm.behaviour_mut().gossip;
            return gossip.judge(id, &source, MessageAcceptance::Ignore);
        }
        self.count(from, |stats| stats.bytes_in += bytes.len() as u64);
        self.outbox.push(NetworkEvent::Gossip {
            topic,
            from,
            message_id,
            bytes,
        });
    }

    /// Handles an event of the request-response protocol.
    pub(crate) fn on_sync_event(&mut self, event: request_response::Event<RequestFrame, Vec<u8>>) {
        match event {
            request_response::Event::Message { peer, message, .. } => match message {
                Message::Request {
                    request_id,
                    request,
                    channel,
                } => {
                    let from = self.on_heard(peer);
                    let request = match request {
                        RequestFrame::Whole(request) => request,
                        RequestFrame::Oversize(of) => {
                            return self.blame(from, Cost::Violation, &of.to_string());
                        }
                        RequestFrame::Late => {
                            return self.blame(
                                from,
                                Cost::Slow,
                                "its request did not arrive in time",
                            );
                        }
                    };
                    let from = from.filter(|from| {
                        self.charge(*from, Cost::Request(unpacked_bytes(&request)))
                            && self.outbox.has_room_for_requests()
                    });
                    let channel = from.and_then(|from| {
                        let channel = self.requests.received(from, request_id, channel)?;
                        Some((from, channel))
                    });
                    self.on_request(channel, request);
                }
                Message::Response {
                    request_id,
                    response,
                } => {
                    self.on_heard(peer);
                    self.on_outcome(request_id, Ok(response));
                }
            },
            request_response::Event::OutboundFailure {
                peer,
                request_id,
                error,
                ..
            } => {
                if matches!(error, OutboundFailure::Timeout) {
                    self.probe(peer);
                }
                self.on_outcome(request_id, Err(requests::failure(&error)));
            }
            request_response::Event::InboundFailure {
                peer,
                request_id,
                error,
                ..
            } => self.on_inbound_failure(peer, request_id, &error),
            request_response::Event::ResponseSent { request_id, .. } => {
                self.requests.gone(request_id);
            }
        }
    }

    /// Sends a probe on each connection with a peer, which libp2p takes in turn: those on which nothing comes of it are
    /// closed by [`Driver::close_silent`].
    pub(crate) fn probe(&mut self, peer: PeerId) {
        let link = site_of(peer).and_then(|site| self.links.get_mut(&site));
        let Some(link) = link else {
            return;
        };
        if link
            .connections
            .values()
            .any(|health| health.probed.is_some())
        {
            return;
        }
        for health in link.connections.values_mut() {
            health.probed = Some(Instant::now());
            let probe = &mut self.swarm.behaviour_mut().probe;
            probe.send_request(&peer, RequestFrame::Whole(Vec::new()));
        }
    }

    /// A probe has ended. Every outcome but silence shows that the peer is there.
    pub(crate) fn on_probe_event(
        &mut self,
        event: &request_response::Event<RequestFrame, Vec<u8>>,
    ) {
        let request_response::Event::OutboundFailure {
            peer,
            connection_id,
            error,
            ..
        } = event
        else {
            return;
        };
        let link = site_of(*peer).and_then(|site| self.links.get_mut(&site));
        let health = link.and_then(|link| link.connections.get_mut(connection_id));
        if let Some(health) = health.filter(|_| !matches!(error, OutboundFailure::Timeout)) {
            health.probed = None;
        }
    }

    /// Probes the peers that have left a ping without an answer. A large mesh asks a peer for data only now and then, so
    /// pings are the first to find a hung peer; libp2p reports none but the second of two that fail, a whole interval
    /// later.
    pub(crate) fn probe_unanswering(&mut self) {
        let now = Instant::now();
        let mut peers = Vec::new();
        for (site, link) in &mut self.links {
            for connection in link.connections.values_mut() {
                if now > connection.pinged + self.pinged_within {
                    connection.pinged = now;
                    peers.push(peer_id_of(*site));
                }
            }
        }
        peers.into_iter().for_each(|peer| self.probe(peer));
    }

    /// Closes the connections on which a probe has had no outcome for too long.
    pub(crate) fn close_silent(&mut self) {
        let now = Instant::now();
        let is_silent =
            |connection: &Connection| connection.probed.is_some_and(|at| now > at + PROBE_TIMEOUT);
        for (site, link) in &self.links {
            for (connection, _) in link.connections.iter().filter(|(_, of)| is_silent(of)) {
                tracing::debug!(peer = %site.short(), "closing a connection on which nobody answers");
                self.swarm.close_connection(*connection);
            }
        }
    }

    fn on_request(&mut self, accepted: Option<(SiteId, u64)>, bytes: Vec<u8>) {
        let Some((from, channel)) = accepted else {
            self.stats.requests_turned_away += 1;
            return;
        };
        self.count(from, |stats| stats.bytes_in += bytes.len() as u64);
        self.outbox.push(NetworkEvent::Request {
            from,
            channel,
            bytes,
        });
    }

    fn on_outcome(
        &mut self,
        request: request_response::OutboundRequestId,
        result: Result<Vec<u8>, RequestFailure>,
    ) {
        if let Some((from, id)) = self.requests.done(request) {
            self.finish_request(from, id, result);
        }
    }

    fn on_inbound_failure(
        &mut self,
        peer: PeerId,
        request: request_response::InboundRequestId,
        error: &InboundFailure,
    ) {
        let leaving = self.requests.gone(request);
        let is_slow = |since: Instant| since.elapsed() > self.slow_after;
        // Otherwise it was this node that took its time.
        if matches!(error, InboundFailure::Timeout) && leaving.is_some_and(is_slow) {
            self.blame(
                site_of(peer),
                Cost::Slow,
                "it did not take its answer in time",
            );
        }
    }

    /// Charges a peer what it has done, and names it.
    fn blame(&mut self, site: Option<SiteId>, cost: Cost, what: &str) {
        let Some(site) = site else {
            return;
        };
        self.complain("peer", &format!("{}: {what}", site.short()));
        if cost == Cost::Slow {
            self.count(site, |stats| stats.slow += 1);
        }
        self.charge(site, cost);
    }
}
