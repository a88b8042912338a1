//! Gossip that stays within each VO: gossipsub behind a filter that knows who belongs to a topic.
//!
//! The allow list is the union over all VOs of this site, so a connected peer may well be no member
//! of a given VO. Gossipsub sends a topic's messages to whoever subscribed to it, and its filter for
//! subscriptions is not told who subscribes. [`MemberGossip`] notes who is speaking before it hands
//! an RPC on, so that [`MemberFilter`] can tell.
//!
//! Gossipsub remembers a message before it looks whether anybody here wants it. So the filter is its transform of
//! messages, too: what is of no topic of ours, or of no member, is refused before it is remembered; and whatever a peer
//! sends of which nobody hears, duplicates too, is told as [`GossipEvent::Unheard`], for its budget.
//!
//! Invariant: gossipsub believes a peer to be subscribed to a topic of ours only while the peer is
//! one of the topic's members; therefore publishing, forwarding, IHAVE and GRAFT leave others out
//! (gossipsub 0.50.1 drops a GRAFT for a topic that the peer is not subscribed to). Gossipsub cannot
//! be made to ask again, so a peer whose membership changes has to reconnect.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use fairmesh_model::VoId;
use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::gossipsub::{
    self, DataTransform, IdentTopic, MaxCountSubscriptionFilter, RawMessage, TopicHash,
    TopicSubscriptionFilter,
};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler,
    THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::config::{RENEW_AFTER, TOPICS_PER_PEER_MAX};
use crate::network::primary_connection::{HandlerCommand, PrimaryConnectionHandler};

/// Refused subscriptions that are remembered, so that a peer that becomes a member can be made to
/// subscribe again. What is forgotten costs speed only: anti-entropy needs no subscription.
const REFUSED_MAX: usize = 4096;

/// Bytes of a VO's name in its topic. A topic stands in every copy of every message, so it is short;
/// of two VOs with one topic the second gets no gossip, only anti-entropy.
const VO_BYTES: usize = 8;

/// The gossip topic of a VO.
pub(crate) fn topic_of(vo: VoId) -> IdentTopic {
    let digits = vo.as_bytes()[..VO_BYTES].iter();
    let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
    IdentTopic::new(format!("fm/{digits}"))
}

/// Who belongs to which topic.
#[derive(Debug, Default)]
struct Members {
    /// Whose RPC is being handled; `None` when gossipsub asks about our own subscription.
    speaking: Option<PeerId>,
    by_topic: BTreeMap<TopicHash, (VoId, BTreeSet<PeerId>)>,
    refused: BTreeSet<(PeerId, TopicHash)>,
    /// What came and was not handed on yet.
    unheard: BTreeMap<PeerId, Unheard>,
}

/// Messages of a peer that were dropped since the last event about it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unheard {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Messages among them of topics whose VO does not list the peer.
    pub(crate) foreign: usize,
}

/// An event of gossipsub, or of the filter in front of it.
#[derive(Debug)]
pub(crate) enum GossipEvent {
    /// An event of gossipsub itself.
    Gossip(gossipsub::Event),
    /// Messages of a peer that the filter dropped.
    Unheard(PeerId, Unheard),
}

/// The half that gossipsub asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemberFilter(Arc<Mutex<Members>>);

impl MemberFilter {
    /// Held for a look-up at a time, by the one task that polls the swarm.
    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}

impl TopicSubscriptionFilter for MemberFilter {
    /// Topics that we do not take part in are nobody's secret of ours, and allowed.
    fn can_subscribe(&mut self, topic: &TopicHash) -> bool {
        let mut members = self.lock();
        let (Some(peer), Some((_, of_topic))) = (members.speaking, members.by_topic.get(topic))
        else {
            return true;
        };
        let allowed = of_topic.contains(&peer);
        if !allowed && members.refused.len() < REFUSED_MAX {
            members.refused.insert((peer, topic.clone()));
        }
        allowed
    }
}

impl DataTransform for MemberFilter {
    fn inbound_transform(&self, raw: RawMessage) -> io::Result<gossipsub::Message> {
        let mut members = self.lock();
        let members = &mut *members;
        let of_topic = members.by_topic.get(&raw.topic);
        let peer = members.speaking.ok_or(io::ErrorKind::NotConnected)?;
        let is_member = of_topic.is_some_and(|(_, of_topic)| of_topic.contains(&peer));
        let unheard = members.unheard.entry(peer).or_default();
        unheard.messages += 1;
        unheard.bytes += raw.data.len();
        if !is_member {
            unheard.foreign += 1;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(gossipsub::Message {
            source: raw.source,
            data: raw.data,
            sequence_number: raw.sequence_number,
            topic: raw.topic,
        })
    }

    fn outbound_transform(&self, _: &TopicHash, data: Vec<u8>) -> io::Result<Vec<u8>> {
        Ok(data)
    }
}

type Gossipsub = gossipsub::Behaviour<MemberFilter, MaxCountSubscriptionFilter<MemberFilter>>;

/// Gossipsub that leaves those who are no members out.
pub(crate) struct MemberGossip {
    inner: Gossipsub,
    filter: MemberFilter,
    /// Of each peer that was heard the connection that this node pushes on.
    lines: BTreeMap<PeerId, ConnectionId>,
    /// The connections on which a peer was heard.
    heard: BTreeSet<(PeerId, ConnectionId)>,
    /// Peers whose line has ended, and when they were heard on a connection that was new then.
    without_line: BTreeMap<PeerId, Option<Instant>>,
    /// What the swarm is told beside what gossipsub has it told.
    orders: VecDeque<ToSwarm<GossipEvent, THandlerInEvent<Self>>>,
}

impl MemberGossip {
    /// Anonymous gossipsub: our own signatures are inside the messages, checked once per message.
    pub(crate) fn new(config: gossipsub::Config) -> Result<Self, &'static str> {
        let filter = MemberFilter::default();
        let counted = MaxCountSubscriptionFilter {
            filter: filter.clone(),
            max_subscribed_topics: TOPICS_PER_PEER_MAX,
            max_subscriptions_per_request: TOPICS_PER_PEER_MAX,
        };
        let anonymous = gossipsub::MessageAuthenticity::Anonymous;
        let inner = Gossipsub::new_with_subscription_filter_and_transform(
            anonymous,
            config,
            counted,
            filter.clone(),
        )?;
        Ok(Self {
            inner,
            filter,
            lines: BTreeMap::new(),
            heard: BTreeSet::new(),
            without_line: BTreeMap::new(),
            orders: VecDeque::new(),
        })
    }

    /// The peer said who it is, or answered, on an open connection: so it has let us in there, and is pushed to on
    /// the first such one.
    pub(crate) fn heard(&mut self, peer_id: PeerId, connection: ConnectionId) {
        let is_new = self.heard.insert((peer_id, connection));
        if let Some(heard_at) = self.without_line.get_mut(&peer_id) {
            if is_new {
                heard_at.get_or_insert_with(Instant::now);
            }
            return;
        }
        self.lines.entry(peer_id).or_insert_with(|| {
            self.orders.push_back(ToSwarm::NotifyHandler {
                peer_id,
                handler: NotifyHandler::One(connection),
                event: HandlerCommand::Push,
            });
            connection
        });
    }

    /// What was under way on the line is lost, perhaps a subscription, and of a peer that is connected gossipsub
    /// sends none again: so other connections with it are to end, too. One that is new ends in
    /// [`MemberGossip::renew`].
    fn closed(&mut self, peer_id: PeerId, connection: ConnectionId, remaining: usize) {
        self.heard.remove(&(peer_id, connection));
        if self.lines.get(&peer_id) == Some(&connection) {
            self.lines.remove(&peer_id);
            self.without_line.insert(peer_id, None);
            let others = self.heard.iter().filter(|(peer, _)| *peer == peer_id);
            let close = |(peer_id, other): &(PeerId, ConnectionId)| ToSwarm::CloseConnection {
                peer_id: *peer_id,
                connection: CloseConnection::One(*other),
            };
            self.orders.extend(others.map(close));
        }
        if remaining == 0 {
            self.without_line.remove(&peer_id);
            let mut known = self.filter.lock();
            known.refused.retain(|(refused, _)| *refused != peer_id);
        }
    }

    /// Ends the connections that were new when a peer's line ended, some time after the peer was heard on them: by then
    /// the peer has heard this node too, so it knows that it was not refused, and comes again at once.
    pub(crate) fn renew(&mut self, now: Instant) {
        let is_due = |at: &Option<Instant>| at.is_some_and(|at| now >= at + RENEW_AFTER);
        let due = self.without_line.iter().filter(|(_, at)| is_due(at));
        self.orders
            .extend(due.map(|(peer, _)| ToSwarm::CloseConnection {
                peer_id: *peer,
                connection: CloseConnection::All,
            }));
    }

    /// Takes part in the topic among `members`. Returns the peers that must reconnect for the
    /// change of membership to hold; until they have, they must hear nothing more.
    pub(crate) fn subscribe(&mut self, vo: VoId, members: BTreeSet<PeerId>) -> Vec<PeerId> {
        let topic = topic_of(vo);
        let hash = topic.hash();
        if self.vo_of(&hash).is_some_and(|other| other != vo) {
            tracing::error!(%vo, "no gossip of this VO: another one has its topic");
            return Vec::new();
        }
        let mut changed: BTreeSet<PeerId> = self
            .inner
            .all_peers()
            .filter(|(peer, topics)| topics.contains(&&hash) && !members.contains(peer))
            .map(|(peer, _)| *peer)
            .collect();
        {
            let mut known = self.filter.lock();
            known.refused.retain(|(peer, refused)| {
                let joins = *refused == hash && members.contains(peer);
                if joins {
                    changed.insert(*peer);
                }
                !joins
            });
            known.by_topic.insert(hash, (vo, members));
        }
        if let Err(error) = self.inner.subscribe(&topic) {
            tracing::error!(%vo, ?error, "cannot subscribe to the gossip of a VO");
        }
        changed.into_iter().collect()
    }

    pub(crate) fn unsubscribe(&mut self, vo: VoId) {
        let topic = topic_of(vo);
        if self.vo_of(&topic.hash()) == Some(vo) {
            self.inner.unsubscribe(&topic);
            self.filter.lock().by_topic.remove(&topic.hash());
        }
    }

    /// The VO of a topic that we take part in.
    pub(crate) fn vo_of(&self, topic: &TopicHash) -> Option<VoId> {
        let members = self.filter.lock();
        members.by_topic.get(topic).map(|(vo, _)| *vo)
    }

    /// Whether `peer` is a member of a topic that we take part in.
    pub(crate) fn is_member(&self, topic: &TopicHash, peer: &PeerId) -> bool {
        let members = self.filter.lock();
        let of_topic = members.by_topic.get(topic);
        of_topic.is_some_and(|(_, of_topic)| of_topic.contains(peer))
    }

    /// Sends to the members that are there. A topic that we do not take part in has no members.
    pub(crate) fn publish(
        &mut self,
        vo: VoId,
        bytes: Vec<u8>,
    ) -> Result<(), gossipsub::PublishError> {
        let topic = topic_of(vo).hash();
        if self.vo_of(&topic) != Some(vo) {
            return Err(gossipsub::PublishError::NoPeersSubscribedToTopic);
        }
        self.inner.publish(topic, bytes).map(|_| ())
    }

    /// Somebody hears of a message, and charges for it.
    fn hand_on<T>(&self, order: &ToSwarm<gossipsub::Event, T>) {
        let ToSwarm::GenerateEvent(gossipsub::Event::Message {
            propagation_source: peer,
            message,
            ..
        }) = order
        else {
            return;
        };
        let unheard = &mut self.filter.lock().unheard;
        if let Some(of_peer) = unheard.get_mut(peer) {
            of_peer.messages = of_peer.messages.saturating_sub(1);
            of_peer.bytes = of_peer.bytes.saturating_sub(message.data.len());
            if of_peer.messages == 0 {
                unheard.remove(peer);
            }
        }
    }

    /// Says what becomes of a message.
    pub(crate) fn judge(
        &mut self,
        id: &gossipsub::MessageId,
        source: &PeerId,
        acceptance: gossipsub::MessageAcceptance,
    ) {
        self.inner
            .report_message_validation_result(id, source, acceptance);
    }
}

/// Everything is gossipsub's, but that it is noted who speaks, and on which connection this node does.
impl NetworkBehaviour for MemberGossip {
    type ConnectionHandler =
        PrimaryConnectionHandler<<Gossipsub as NetworkBehaviour>::ConnectionHandler>;
    type ToSwarm = GossipEvent;

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let handler = self
            .inner
            .handle_established_inbound_connection(id, peer, local, remote)?;
        Ok(PrimaryConnectionHandler::new(handler))
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let handler = self
            .inner
            .handle_established_outbound_connection(id, peer, address, role, port)?;
        Ok(PrimaryConnectionHandler::new(handler))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ConnectionClosed(closed) = &event {
            let remaining = closed.remaining_established;
            self.closed(closed.peer_id, closed.connection_id, remaining);
        }
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        id: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        self.filter.lock().speaking = Some(peer);
        self.inner.on_connection_handler_event(peer, id, event);
        self.filter.lock().speaking = None;
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some(order) = self.orders.pop_front() {
            return Poll::Ready(order);
        }
        match self.inner.poll(context) {
            Poll::Ready(order) => {
                self.hand_on(&order);
                let order = order.map_in(HandlerCommand::Inner);
                Poll::Ready(order.map_out(GossipEvent::Gossip))
            }
            // All that will be handed on has been.
            Poll::Pending => match self.filter.lock().unheard.pop_first() {
                Some((peer, unheard)) => {
                    Poll::Ready(ToSwarm::GenerateEvent(GossipEvent::Unheard(peer, unheard)))
                }
                None => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use libp2p::core::ConnectedPoint;
    use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
    use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent};

    use super::*;

    fn anonymous() -> MemberGossip {
        let config = gossipsub::ConfigBuilder::default()
            .validation_mode(gossipsub::ValidationMode::Anonymous)
            .build();
        MemberGossip::new(config.expect("valid")).expect("anonymous")
    }

    #[test]
    fn of_two_vos_with_one_topic_the_first_has_it() {
        let mut gossip = anonymous();
        let (vo, mut other) = ([0xa5; 32], [0xa5; 32]);
        other[31] = 0;
        let (vo, other) = (VoId::from_bytes(vo), VoId::from_bytes(other));
        gossip.subscribe(vo, BTreeSet::new());
        gossip.subscribe(other, BTreeSet::new());
        gossip.unsubscribe(other);
        assert_eq!(gossip.vo_of(&topic_of(other).hash()), Some(vo));
        let refused = gossip.publish(other, vec![1]);
        assert!(matches!(
            refused,
            Err(gossipsub::PublishError::NoPeersSubscribedToTopic)
        ));
    }

    #[test]
    fn of_two_connections_with_a_peer_one_pushes_and_with_it_both_end() {
        let mut gossip = anonymous();
        let peer = PeerId::random();
        gossip.subscribe(VoId::from_bytes([1; 32]), [peer].into());
        let at: Multiaddr = "/memory/1".parse().expect("an address");
        let endpoint = ConnectedPoint::Listener {
            local_addr: at.clone(),
            send_back_addr: at.clone(),
        };
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        let ids = [1, 2].map(ConnectionId::new_unchecked);
        let mut handlers = [0, 1].map(|others| {
            let handler = gossip
                .handle_established_inbound_connection(ids[others], peer, &at, &at)
                .expect("gossipsub refuses nobody");
            gossip.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id: peer,
                connection_id: ids[others],
                endpoint: &endpoint,
                failed_addresses: &[],
                other_established: others,
            }));
            handler
        });
        // The subscription waits for a stream from the first connection on.
        let asks = |handler: &mut THandler<MemberGossip>| {
            let mut context = Context::from_waker(futures::task::noop_waker_ref());
            let polled = handler.poll(&mut context);
            matches!(
                polled,
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { .. })
            )
        };
        assert_eq!(handlers.each_mut().map(asks), [false, false]);
        gossip.heard(peer, ids[1]);
        gossip.heard(peer, ids[0]);
        while let Poll::Ready(order) = gossip.poll(&mut context) {
            if let ToSwarm::NotifyHandler { handler, event, .. } = order {
                assert!(matches!(handler, NotifyHandler::One(id) if id == ids[1]));
                handlers[1].on_behaviour_event(event);
            }
        }
        assert_eq!(handlers.each_mut().map(asks), [false, true]);
        let mut close = |connection_id, remaining_established| {
            gossip.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id: peer,
                connection_id,
                endpoint: &endpoint,
                cause: None,
                remaining_established,
            }));
            let polled = gossip.poll(&mut context);
            matches!(polled, Poll::Ready(ToSwarm::CloseConnection { peer_id, .. }) if peer_id == peer)
        };
        assert!(close(ids[1], 1), "the other is to end, too");
        assert!(!close(ids[0], 0), "nothing is left");
    }

    #[test]
    fn a_new_connection_ends_with_the_old_line_only_when_the_peer_was_heard_on_it() {
        let mut gossip = anonymous();
        let (peer, ids) = (PeerId::random(), [1, 2].map(ConnectionId::new_unchecked));
        let closes = |gossip: &mut MemberGossip| {
            let mut orders = gossip.orders.drain(..);
            orders.any(|order| matches!(order, ToSwarm::CloseConnection { .. }))
        };
        gossip.heard(peer, ids[0]);
        gossip.closed(peer, ids[0], 1);
        let later = Instant::now() + 2 * RENEW_AFTER;
        gossip.renew(later);
        assert!(
            !closes(&mut gossip),
            "the peer may not know yet that it is let in"
        );
        gossip.heard(peer, ids[1]);
        gossip.renew(later);
        assert!(closes(&mut gossip));
        gossip.closed(peer, ids[1], 0);
        assert!(gossip.heard.is_empty() && gossip.without_line.is_empty());
    }

    #[test]
    fn only_members_may_subscribe_to_our_topics() {
        let topic = topic_of(VoId::from_bytes([1; 32])).hash();
        let (member, other) = (PeerId::random(), PeerId::random());
        let mut filter = MemberFilter::default();
        filter
            .lock()
            .by_topic
            .insert(topic.clone(), (VoId::from_bytes([1; 32]), [member].into()));
        assert!(filter.can_subscribe(&topic), "we ourselves");
        filter.lock().speaking = Some(member);
        assert!(filter.can_subscribe(&topic));
        filter.lock().speaking = Some(other);
        assert!(!filter.can_subscribe(&topic));
        assert!(filter.can_subscribe(&TopicHash::from_raw("not ours")));
        assert_eq!(filter.lock().refused, [(other, topic)].into());
    }
}
