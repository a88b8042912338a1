//! Gossip on one connection.
//!
//! Invariant: of several connections with one peer (two, where both have dialled at once) a node pushes on
//! one and takes what comes on all. gossipsub 0.50.1 hands a peer's messages to whichever connection is
//! ready, so a GRAFT can overtake the subscription that it needs, and is dropped without a word: the peer
//! pushes nothing to a node that counts on it, and neither finds out.

use std::task::{Context, Poll};

use libp2p::swarm::handler::ConnectionEvent;
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, SubstreamProtocol};

/// gossipsub's handler of a connection, which opens no stream of its own where it is `mute`.
pub(crate) struct Line<H> {
    pub(crate) inner: H,
    pub(crate) mute: bool,
}

impl<H: ConnectionHandler> ConnectionHandler for Line<H> {
    type FromBehaviour = H::FromBehaviour;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = H::InboundProtocol;
    type OutboundProtocol = H::OutboundProtocol;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<H::InboundProtocol, H::InboundOpenInfo> {
        self.inner.listen_protocol()
    }

    fn connection_keep_alive(&self) -> bool {
        self.inner.connection_keep_alive()
    }

    /// gossipsub takes the stream that it has asked for to be on its way, and does not ask again.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<H::OutboundProtocol, H::OutboundOpenInfo, H::ToBehaviour>>
    {
        loop {
            match self.inner.poll(context) {
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { .. })
                    if self.mute => {}
                other => return other,
            }
        }
    }

    fn on_behaviour_event(&mut self, event: H::FromBehaviour) {
        self.inner.on_behaviour_event(event);
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<
            '_,
            H::InboundProtocol,
            H::OutboundProtocol,
            H::InboundOpenInfo,
            H::OutboundOpenInfo,
        >,
    ) {
        self.inner.on_connection_event(event);
    }
}
