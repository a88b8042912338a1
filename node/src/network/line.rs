//! Gossip on one connection.
//!
//! Invariant: of several connections with one peer (two, where both have dialled at once) a node pushes on
//! one, the first on which it heard the peer, and takes what comes on all. gossipsub 0.50.1 hands a
//! peer's messages to whichever connection is ready. So a GRAFT could overtake the subscription that it needs, and
//! is dropped without a word: the peer pushes nothing to a node that counts on it, and neither finds out. And a
//! subscription could go to a connection that the peer refuses, which it does after the handshake, while the other stays.

use std::task::{Context, Poll};

use libp2p::swarm::handler::ConnectionEvent;
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, SubstreamProtocol};

/// gossipsub's handler of a connection, which opens no stream of its own before it may.
pub(crate) struct Line<H: ConnectionHandler> {
    inner: H,
    pushes: bool,
    /// The stream that gossipsub has asked for meanwhile. It takes it to be on its way, and does not ask again.
    asked: Option<SubstreamProtocol<H::OutboundProtocol, H::OutboundOpenInfo>>,
}

/// What the handler is told.
#[derive(Debug)]
pub(crate) enum ToLine<E> {
    /// This connection is the one to push on.
    Push,
    /// What gossipsub says.
    Inner(E),
}

impl<H: ConnectionHandler> Line<H> {
    pub(crate) fn new(inner: H) -> Self {
        Self {
            inner,
            pushes: false,
            asked: None,
        }
    }
}

impl<H: ConnectionHandler> ConnectionHandler for Line<H>
where
    H::OutboundProtocol: Send,
{
    type FromBehaviour = ToLine<H::FromBehaviour>;
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
            ToLine::Push => self.pushes = true,
            ToLine::Inner(event) => self.inner.on_behaviour_event(event),
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
