//! How many connections one peer may have, and which of them gives way.
//!
//! A node dials a peer only when it has no connection with it. So a third one means that the others are dead at the
//! peer's side, as after a power failure, which says nothing to this one: until pings notice, they would hold the peer's
//! places. The new connection takes the place of the one on which the peer was not heard for longest.
//!
//! Invariant: a peer has at most [`CONNECTIONS_PER_PEER_MAX`] connections that are not about to be closed, and a
//! connection on which it was heard within [`SILENT_AFTER`] stays. Deliberately not here: whose connections, which the
//! allow list says, and whether a connection is dead, which pings say.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Instant;

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler,
    THandlerInEvent, THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::config::{CONNECTIONS_PER_PEER_MAX, SILENT_AFTER};

/// The connections of all peers.
#[derive(Debug, Default)]
pub(crate) struct PerPeer {
    /// Each with when the peer was last heard on it.
    open: HashMap<PeerId, Vec<(ConnectionId, Instant)>>,
    closing: VecDeque<(PeerId, ConnectionId)>,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {CONNECTIONS_PER_PEER_MAX} connections already, and was heard on them just now")]
pub(crate) struct Crowded;

impl PerPeer {
    /// The peer was heard on a connection.
    pub(crate) fn heard(&mut self, peer: PeerId, connection: ConnectionId, now: Instant) {
        let mut open = self.open.get_mut(&peer).into_iter().flatten();
        if let Some((_, heard)) = open.find(|(id, _)| *id == connection) {
            *heard = now;
        }
    }

    fn opened(&mut self, peer: PeerId, connection: ConnectionId, now: Instant) {
        self.open.entry(peer).or_default().push((connection, now));
    }

    fn closed(&mut self, peer: PeerId, connection: ConnectionId) {
        if let Some(open) = self.open.get_mut(&peer) {
            open.retain(|(id, _)| *id != connection);
            if open.is_empty() {
                self.open.remove(&peer);
            }
        }
    }

    /// Sees to it that there is a place for one more, if there is one.
    fn make_room(&mut self, peer: PeerId, now: Instant) -> Result<(), Crowded> {
        let open = self.open.get(&peer).map_or(&[][..], Vec::as_slice);
        if open.len() < CONNECTIONS_PER_PEER_MAX {
            return Ok(());
        }
        let longest_silent = open.iter().min_by_key(|(_, heard)| *heard);
        let is_silent = |heard| now.saturating_duration_since(heard) >= SILENT_AFTER;
        match longest_silent.copied() {
            Some((connection, heard)) if is_silent(heard) => {
                self.closed(peer, connection);
                self.closing.push_back((peer, connection));
                Ok(())
            }
            _ => Err(Crowded),
        }
    }
}

impl NetworkBehaviour for PerPeer {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let room = self.make_room(peer, Instant::now());
        room.map_err(ConnectionDenied::new)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let room = self.make_room(peer, Instant::now());
        room.map_err(ConnectionDenied::new)?;
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id,
                ..
            }) => self.opened(peer_id, connection_id, Instant::now()),
            FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id,
                connection_id,
                ..
            }) => self.closed(peer_id, connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        match self.closing.pop_front() {
            Some((peer_id, connection)) => Poll::Ready(ToSwarm::CloseConnection {
                peer_id,
                connection: CloseConnection::One(connection),
            }),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ConnectionId {
        ConnectionId::new_unchecked(number)
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_longest_silent() {
        let (peer, start) = (PeerId::random(), Instant::now());
        let mut per_peer = PerPeer::default();
        for number in 1..=CONNECTIONS_PER_PEER_MAX {
            assert_eq!(per_peer.make_room(peer, start), Ok(()));
            per_peer.opened(peer, id(number), start);
        }
        // Both sides have dialled at once: nobody gives way.
        assert_eq!(per_peer.make_room(peer, start), Err(Crowded));
        per_peer.heard(peer, id(1), start + SILENT_AFTER / 3);
        per_peer.heard(peer, id(3), start + SILENT_AFTER / 2);
        assert_eq!(per_peer.make_room(peer, start + SILENT_AFTER), Ok(()));
        assert_eq!(per_peer.closing, [(peer, id(2))]);
        per_peer.opened(peer, id(4), start + SILENT_AFTER);
        // Its end is reported later than its place is taken.
        per_peer.closed(peer, id(2));
        assert_eq!(per_peer.make_room(peer, start + SILENT_AFTER), Err(Crowded));
        assert_eq!(per_peer.make_room(peer, start + 2 * SILENT_AFTER), Ok(()));
        assert_eq!(per_peer.closing, [(peer, id(2)), (peer, id(1))]);
        assert_eq!(per_peer.make_room(PeerId::random(), start), Ok(()));
    }

    #[test]
    fn nothing_is_kept_of_a_peer_that_is_gone() {
        let (peer, now) = (PeerId::random(), Instant::now());
        let mut per_peer = PerPeer::default();
        per_peer.opened(peer, id(1), now);
        per_peer.closed(peer, id(1));
        assert!(per_peer.open.is_empty());
    }
}
