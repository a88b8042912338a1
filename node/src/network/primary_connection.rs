//! Gossip on the primary one of several connections with a peer.
//!
//! Invariant: a node pushes on one connection with a peer, the first on which it received something, and accepts
//! messages on all of them. There are two where both peers dialled at once. gossipsub 0.50.1 gives a peer's messages
//! to whichever connection is ready. So a GRAFT could overtake the subscription that it needs; the peer then drops it
//! silently and pushes nothing, and neither side notices. A subscription could also go to a connection that the peer
//! refuses after the handshake, while the other connection stays.

use std::task::{Context, Poll};

use libp2p::swarm::handler::ConnectionEvent;
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, SubstreamProtocol};

/// gossipsub's handler of a connection. It opens no outbound stream before the connection is the primary one.
pub(crate) struct PrimaryConnectionHandler<H: ConnectionHandler> {
    inner: H,
    pushes: bool,
    /// The stream that gossipsub requested before. gossipsub considers it pending and does not request it again.
    asked: Option<SubstreamProtocol<H::OutboundProtocol, H::OutboundOpenInfo>>,
}

/// A command of the behaviour to the handler.
#[derive(Debug)]
pub(crate) enum HandlerCommand<E> {
    /// This connection is the primary one: push on it.
    Push,
    /// A command of gossipsub.
    Inner(E),
}

impl<H: ConnectionHandler> PrimaryConnectionHandler<H> {
    pub(crate) fn new(inner: H) -> Self {
        Self {
            inner,
            pushes: false,
            asked: None,
        }
    }
}

impl<H: ConnectionHandler> ConnectionHandler for PrimaryConnectionHandler<H>
where
    H::OutboundProtocol: Send,
{
    type FromBehaviour = HandlerCommand<H::FromBehaviour>;
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

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<H::OutboundProtocol, H::OutboundOpenInfo, H::ToBehaviour>>
    {
        if self.pushes
            && let Some(protocol) = self.asked.take()
        {
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        loop {
            match self.inner.poll(context) {
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol })
                    if !self.pushes =>
                {
                    self.asked = Some(protocol);
                }
                other => return other,
            }
        }
    }

    fn on_behaviour_event(&mut self, event: Self::FromBehaviour) {
        match event {
            HandlerCommand::Push => self.pushes = true,
            HandlerCommand::Inner(event) => self.inner.on_behaviour_event(event),
        }
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
