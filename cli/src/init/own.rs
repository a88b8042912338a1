//! Where a node listens under systemd, unless it is told: at the address of this machine by which others reach it.
//!
//! Listening on all addresses takes netlink, which tells of new ones, and which the packaged unit leaves out.
//! Deliberately not here: how others reach it from outside, which the charter says.

use std::net::{IpAddr, TcpListener, ToSocketAddrs as _, UdpSocket};

use fairmesh_node::config::PORT_DEFAULT;
use fairmesh_node::network::{Multiaddr, Protocol};

/// Nobody's addresses (RFC 5737 and 3849): the kernel says by which of its own it would reach them. Nothing is sent.
const ANYWHERE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];

/// The first of `told`, where others reach the node, that is of this machine, or else the address by which this machine
/// reaches others; none where it reaches nobody. Looks names up, which may take seconds.
pub(super) fn own_address(told: &[Multiaddr]) -> Option<Multiaddr> {
    let by_route = || ANYWHERE.iter().find_map(|(any, there)| routed(any, there));
    let of_machine = told.iter().find_map(|told| of_machine(told, is_own));
    let (ip, port) = of_machine.or_else(by_route)?;
    Some(Multiaddr::from(ip).with(Protocol::Tcp(port)))
}

/// The address and port behind an address as a charter has it, where they are of this machine.
fn of_machine(told: &Multiaddr, is_own: fn(IpAddr) -> bool) -> Option<(IpAddr, u16)> {
    let mut parts = told.iter();
    let (host, Protocol::Tcp(port)) = (parts.next()?, parts.next()?) else {
        return None;
    };
    let fits = |ip: &IpAddr| match host {
        Protocol::Dns4(_) => ip.is_ipv4(),
        Protocol::Dns6(_) => ip.is_ipv6(),
        _ => true,
    };
    let name = match &host {
        Protocol::Ip4(ip) => ip.to_string(),
        Protocol::Ip6(ip) => ip.to_string(),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => name.to_string(),
        _ => return None,
    };
    let found = (name, port).to_socket_addrs().ok()?.map(|found| found.ip());
    let ip = found.filter(fits).find(|ip| is_own(*ip))?;
    Some((ip, port))
}

fn routed(any: &str, there: &str) -> Option<(IpAddr, u16)> {
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(there).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    is_own(ip).then_some((ip, PORT_DEFAULT))
}

/// Whether others reach this machine there. A host's own name is often one of its loopback's.
fn is_own(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified() && TcpListener::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_listens_where_others_reach_it_and_never_where_nobody_does() {
        let told = |text: &str, is_own| of_machine(&text.parse().expect("an address"), is_own);
        for nobody in [
            "/ip4/127.0.0.1/tcp/7",
            "/dns4/localhost/tcp/7",
            "/ip4/198.51.100.1/tcp/7",
            "/ip4/0.0.0.0/tcp/7",
        ] {
            assert_eq!(told(nobody, is_own), None, "{nobody}");
        }
        let here = IpAddr::from([127, 0, 0, 1]);
        let is_here = |ip| ip == IpAddr::from([127, 0, 0, 1]);
        for at in ["/ip4/127.0.0.1/tcp/7", "/dns4/localhost/tcp/7"] {
            assert_eq!(told(at, is_here), Some((here, 7)), "{at}");
        }
        for other in ["/dns6/localhost/tcp/7", "/ip4/127.0.0.1/udp/7/quic-v1"] {
            assert_eq!(told(other, is_here), None, "{other}");
        }
        let routed = own_address(&[]).map(|address| address.to_string());
        assert!(routed.is_none_or(|at| at.ends_with("/tcp/7600") && !at.contains("127.0.0.1")));
    }
}
