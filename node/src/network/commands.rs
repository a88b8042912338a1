//! What the consumer orders, carried out.
//!
//! Invariant: nothing here waits. What cannot be done at once is refused with its reason (requests),
//! or dropped, because anti-entropy will make up for it (gossip).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fairmesh_gossip::wire::unpacked_bytes;
use fairmesh_model::{SiteId, VoId};
use libp2p::gossipsub::{MessageAcceptance, MessageId, PublishError};

use crate::network::budget::Cost;
use crate::network::codec::RequestFrame;
use crate::network::driver::Driver;
use crate::network::{
    GOSSIP_BYTES_MAX, MessageName, NetworkCommand, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX,
    RequestFailure, Verdict, address, peer_id_of,
};

impl Driver {
    /// Carries out one command.
    pub(crate) fn on_command(&mut self, command: NetworkCommand) {
        match command {
            NetworkCommand::Allow(sites) => {
                self.allowed = sites;
                self.admit();
            }
            NetworkCommand::Former(sites) => {
                self.former.set(sites);
                self.admit();
            }
            NetworkCommand::Block(sites) => {
                self.blocked = sites;
                self.admit();
            }
            NetworkCommand::Peers(addresses) => self.set_chartered(addresses),
            NetworkCommand::Configured(peers) => {
                let peers = address::of_peers(peers);
                self.dialer.set_configured(peers, Instant::now());
                self.expect_members();
            }
            NetworkCommand::Subscribe { topic, members } => self.subscribe(topic, &members),
            NetworkCommand::Unsubscribe(topic) => {
                self.swarm.behaviour_mut().gossip.unsubscribe(topic)
            }
            NetworkCommand::Publish { topic, bytes } => self.publish(topic, bytes),
            NetworkCommand::Request { to, id, bytes } => self.request(to, id, bytes),
            NetworkCommand::Respond { to, channel, bytes } => self.respond(to, channel, bytes),
            NetworkCommand::ReportValidation {
                message_id,
                from,
                verdict,
            } => self.judge(message_id, from, verdict),
            NetworkCommand::Shutdown => {}
        }
    }

    /// Brings the swarm's allow list, which closes connections, and the dialler in line with what
    /// is allowed, blocked and barred.
    pub(crate) fn admit(&mut self) {
        let is_known = |site: &SiteId| self.allowed.contains(site) || self.former.contains(*site);
        self.budgets.retain(|site, _| is_known(site));
        self.turns.retain(&self.allowed);
        let may_connect = |site: &SiteId| {
            let is_kept_out = self.blocked.contains(site) || self.barred.contains_key(site);
            !is_kept_out && *site != self.site
        };
        let allowed = self.allowed.iter().copied();
        let members: BTreeSet<SiteId> = allowed.filter(may_connect).collect();
        let visitors = self.former.admitted().filter(may_connect);
        let admitted: BTreeSet<SiteId> = visitors.chain(members.iter().copied()).collect();
        let list = &mut self.swarm.behaviour_mut().allowed;
        for site in self.admitted.difference(&admitted) {
            list.disallow_peer(peer_id_of(*site));
        }
        for site in admitted.difference(&self.admitted) {
            list.allow_peer(peer_id_of(*site));
        }
        self.stats
            .peers
            .retain(|site, _| self.allowed.contains(site));
        for site in &self.allowed {
            self.stats.peers.entry(*site).or_default();
        }
        self.dialer.want(&members, Instant::now());
        // A peer may still be connected whose connection is about to be closed for an earlier
        // command; it is dialled again when it is gone.
        for site in self.links.keys().copied() {
            self.dialer.opened(site);
            // A charter has just removed it, which it may lack yet.
            let is_visitor = self.former.contains(site) && !self.allowed.contains(&site);
            if is_visitor && !self.former.opened(site, 1, Instant::now()) {
                let _ = self.swarm.disconnect_peer_id(peer_id_of(site));
            }
        }
        self.admitted = admitted;
    }

    fn set_chartered(&mut self, texts: BTreeMap<SiteId, Vec<String>>) {
        let mut addresses = BTreeMap::new();
        for (site, texts) in texts {
            let parsed = texts.iter().filter_map(|text| match text.parse() {
                Ok(address) => Some(address),
                Err(error) => {
                    let peer = site.short();
                    tracing::warn!(%peer, "address `{text}` in a charter: {error}");
                    None
                }
            });
            addresses.insert(site, address::given(site, parsed));
        }
        self.dialer.set_chartered(addresses, Instant::now());
        self.expect_members();
    }

    /// Keeps room for handshakes from where members are said to be.
    fn expect_members(&mut self) {
        let given = self.dialer.given();
        self.swarm.behaviour_mut().gate.expect(given);
    }

    fn subscribe(&mut self, topic: VoId, members: &BTreeSet<SiteId>) {
        let peers = members.iter().map(|site| peer_id_of(*site)).collect();
        for peer in self.swarm.behaviour_mut().gossip.subscribe(topic, peers) {
            tracing::debug!(%peer, vo = %topic.short(), "membership changed: reconnecting");
            // An error means that the peer is not connected, which is as good.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    fn publish(&mut self, topic: VoId, bytes: Vec<u8>) {
        let size = bytes.len();
        if size > GOSSIP_BYTES_MAX {
            let vo = topic.short();
            tracing::warn!(%vo, size, "not published: more than {GOSSIP_BYTES_MAX} bytes");
            return;
        }
        match self.swarm.behaviour_mut().gossip.publish(topic, bytes) {
            Ok(()) => self.stats.gossip_published_bytes += size as u64,
            // Nobody there, or said already: anti-entropy does the rest.
            Err(PublishError::NoPeersSubscribedToTopic | PublishError::Duplicate) => {}
            Err(error) => self.complain("cannot publish", &error.to_string()),
        }
    }

    fn judge(&mut self, message_id: MessageName, from: SiteId, verdict: Verdict) {
        let acceptance = match verdict {
            Verdict::Accept => MessageAcceptance::Accept,
            Verdict::Ignore => MessageAcceptance::Ignore,
            Verdict::Reject => MessageAcceptance::Reject,
        };
        let id = MessageId::new(message_id.as_bytes());
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        gossip.judge(&id, &peer_id_of(from), acceptance);
        if verdict == Verdict::Reject {
            self.charge(from, Cost::Violation);
        }
    }

    fn request(&mut self, to: SiteId, id: u64, bytes: Vec<u8>) {
        let peer = peer_id_of(to);
        let size = bytes.len();
        let refusal = if size > REQUEST_BYTES_MAX {
            Some(RequestFailure::RequestTooLarge {
                bytes: size,
                bytes_max: REQUEST_BYTES_MAX,
            })
        } else if !self.swarm.is_connected(&peer) {
            // libp2p would dial, and keep the request for as long as that takes.
            Some(RequestFailure::NotConnected)
        } else if !self.requests.has_room_for(to) {
            Some(RequestFailure::TooManyInFlight)
        } else {
            None
        };
        if let Some(failure) = refusal {
            self.finish_request(to, id, Err(failure));
            return;
        }
        let request = RequestFrame::Whole(bytes);
        let sent = self.swarm.behaviour_mut().sync.send_request(&peer, request);
        self.requests.sent(sent, to, id);
        self.count(to, |stats| stats.bytes_out += size as u64);
    }

    fn respond(&mut self, to: SiteId, channel: u64, bytes: Vec<u8>) {
        let size = bytes.len();
        let Some(channel) = self.requests.answered(to, channel, Instant::now()) else {
            return;
        };
        // Also where it is not sent: it was made.
        self.charge(to, Cost::Answer(unpacked_bytes(&bytes)));
        if size > RESPONSE_BYTES_MAX {
            // Dropping the channel tells the peer that there is no answer.
            let error = format!("{size} bytes for {}, of {RESPONSE_BYTES_MAX}", to.short());
            self.complain("not answered", &error);
            return;
        }
        let sync = &mut self.swarm.behaviour_mut().sync;
        if sync.send_response(channel, bytes).is_ok() {
            self.count(to, |stats| stats.bytes_out += size as u64);
        }
    }
}
