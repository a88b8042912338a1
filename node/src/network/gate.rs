//! Who may begin a handshake.
//!
//! Before it has ended nobody has proved who he is, and it may take [`CONNECT_TIMEOUT`] and end in nothing. So
//! slots are counted by the addresses that connections come from, and some are kept for those of members: where
//! charters and the configuration say that they are, and where they have been connected from or at.
//!
//! Invariant: however many connections strangers open, they hold no more than half of the slots; one address of
//! theirs has no more than an eighth, one of members' no more than a quarter. A slot is given back when its
//! handshake ends, one way or the other. Deliberately not here: who may stay, which the allow list says.
//!
//! [`CONNECT_TIMEOUT`]: crate::network::config::CONNECT_TIMEOUT

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::behaviour::{ConnectionEstablished, ListenFailure};
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

/// Addresses remembered of members that have been connected: several for each of the largest VO's sites.
const MET_MAX: usize = 8_192;

/// Counts handshakes under way by where they come from.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: usize,
    /// Where members are said to be.
    given: BTreeSet<IpAddr>,
    /// Where members have been.
    met: BTreeSet<IpAddr>,
    under_way: HashMap<ConnectionId, IpAddr>,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Crowded {
    #[error("{0} handshakes are under way already")]
    All(usize),
    #[error("{0} handshakes are under way already from its address")]
    Address(usize),
    #[error("{0} handshakes are under way already from addresses of no member")]
    Strangers(usize),
}

impl Gate {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: usize::try_from(slots).unwrap_or(usize::MAX),
            given: BTreeSet::new(),
            met: BTreeSet::new(),
            under_way: HashMap::new(),
        }
    }

    /// Members are at these addresses, as charters and the configuration say; those with names are not known
    /// before they are met.
    pub(crate) fn expect<'a>(&mut self, addresses: impl Iterator<Item = &'a Multiaddr>) {
        self.given = addresses.filter_map(origin).collect();
    }

    fn is_of_member(&self, origin: &IpAddr) -> bool {
        self.given.contains(origin) || self.met.contains(origin)
    }

    fn admit(&mut self, connection: ConnectionId, origin: IpAddr) -> Result<(), Crowded> {
        let all = self.under_way.len();
        let is_of_member = self.is_of_member(&origin);
        let share = if is_of_member { 4 } else { 8 };
        let of_one = self.under_way.values().filter(|of| **of == origin).count();
        let of_strangers = self.under_way.values();
        let of_strangers = of_strangers.filter(|of| !self.is_of_member(of)).count();
        if all >= self.slots {
            return Err(Crowded::All(all));
        }
        if of_one >= (self.slots / share).max(1) {
            return Err(Crowded::Address(of_one));
        }
        if !is_of_member && of_strangers >= self.slots.div_ceil(2) {
            return Err(Crowded::Strangers(of_strangers));
        }
        self.under_way.insert(connection, origin);
        Ok(())
    }
}

/// Where an address is: whoever has one of IPv6 has 2^64 of them.
fn origin(address: &Multiaddr) -> Option<IpAddr> {
    address.iter().find_map(|part| match part {
        Protocol::Ip4(address) => Some(IpAddr::V4(address)),
        Protocol::Ip6(address) => Some(match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        }),
        _ => None,
    })
}

impl NetworkBehaviour for Gate {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let origin = origin(remote).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        self.admit(connection, origin)
            .map_err(ConnectionDenied::new)
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.under_way.remove(&connection);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            // Only members come so far.
            FromSwarm::ConnectionEstablished(ConnectionEstablished { endpoint, .. })
                if self.met.len() < MET_MAX =>
            {
                self.met.extend(origin(endpoint.get_remote_address()));
            }
            FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) => {
                self.under_way.remove(&connection_id);
            }
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
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn take(gate: &mut Gate, from: IpAddr, times: usize) -> Result<(), Crowded> {
        (0..times).try_for_each(|at| {
            gate.admit(
                ConnectionId::new_unchecked(at + 1_000 * gate.under_way.len()),
                from,
            )
        })
    }

    #[test]
    fn strangers_leave_half_of_the_slots_to_members() {
        let mut gate = Gate::new(64);
        gate.expect([&"/ip4/192.0.2.200/tcp/1".parse().expect("an address")].into_iter());
        assert_eq!(take(&mut gate, from(1), 9), Err(Crowded::Address(8)));
        for stranger in 2..5 {
            assert_eq!(take(&mut gate, from(stranger), 8), Ok(()));
        }
        assert_eq!(take(&mut gate, from(5), 1), Err(Crowded::Strangers(32)));
        assert_eq!(take(&mut gate, from(200), 17), Err(Crowded::Address(16)));
        // Where one of the strangers has been let in, somebody else of the same place may be a member.
        gate.met.insert(from(5));
        assert_eq!(take(&mut gate, from(5), 16), Ok(()));
        gate.met.insert(from(6));
        assert_eq!(take(&mut gate, from(6), 1), Err(Crowded::All(64)));
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let origin = |text: &str| origin(&text.parse().expect("an address"));
        assert_eq!(
            origin("/ip6/2001:db8::1/tcp/1"),
            origin("/ip6/2001:db8::ffff:2/tcp/9")
        );
        assert_ne!(
            origin("/ip6/2001:db8::1/tcp/1"),
            origin("/ip6/2001:db8:0:1::1/tcp/1")
        );
        assert_eq!(origin("/ip6/::ffff:192.0.2.1/tcp/1"), Some(from(1)));
        assert_eq!(origin("/dns4/hpc1.example/tcp/1"), None);
    }
}
