//! Which addresses of a peer are worth dialling.
//!
//! Invariant: what comes out ends without a `/p2p` part, has no duplicates, and is at most
//! `ADDRESSES_MAX` long. Addresses that a peer says of itself are its word only: without
//! `allow_private` they cannot make us knock at our own or our neighbours' doors.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, Ipv6Addr, TcpListener};

use fairmesh_model::SiteId;
use libp2p::Multiaddr;
use libp2p::core::transport::TransportError;
use libp2p::multiaddr::Protocol;

use crate::network::config::ADDRESSES_MAX;
use crate::network::peer_id_of;

/// How `EAFNOSUPPORT` ends, which systemd answers with for a family of sockets that a unit leaves out. libp2p's errors
/// give no other way to the system's than their words.
const NO_SUCH_FAMILY: &str = "(os error 97)";

pub(crate) type Addresses = BTreeMap<SiteId, Vec<Multiaddr>>;

/// The usable ones among the addresses that an operator or a charter gives for `site`.
pub(crate) fn given(
    site: SiteId,
    addresses: impl IntoIterator<Item = Multiaddr>,
) -> Vec<Multiaddr> {
    let mut usable = Vec::new();
    for address in addresses {
        if let Some(address) = without_peer(site, address)
            && !usable.contains(&address)
            && usable.len() < ADDRESSES_MAX
        {
            usable.push(address);
        }
    }
    usable
}

/// The usable ones among the addresses that the configuration gives for each of `peers`.
pub(crate) fn of_peers(peers: Vec<(SiteId, Vec<Multiaddr>)>) -> Addresses {
    let given = |(site, addresses)| (site, given(site, addresses));
    peers.into_iter().map(given).collect()
}

/// The usable ones among the addresses that `site` says of itself.
pub(crate) fn learnt(
    site: SiteId,
    addresses: impl IntoIterator<Item = Multiaddr>,
    allow_private: bool,
) -> Vec<Multiaddr> {
    let worthwhile = addresses
        .into_iter()
        .filter(|address| is_specified(address) && (allow_private || is_public(address)));
    given(site, worthwhile)
}

/// Fails where another process listens at a TCP address already. libp2p shares ports (SO_REUSEPORT),
/// so it would not notice, and two nodes would each get some of the other's connections.
pub(crate) fn check_free(address: &Multiaddr) -> std::io::Result<()> {
    let mut parts = address.iter();
    let ip: IpAddr = match parts.next() {
        Some(Protocol::Ip4(ip)) => ip.into(),
        // The unspecified address would take IPv4 too, which libp2p does not.
        Some(Protocol::Ip6(ip)) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        Some(Protocol::Ip6(ip)) => ip.into(),
        _ => return Ok(()),
    };
    match parts.next() {
        Some(Protocol::Tcp(port)) if port != 0 => TcpListener::bind((ip, port)).map(drop),
        _ => Ok(()),
    }
}

/// Why listening failed, in words that help.
pub(crate) fn listen_failure(
    address: &Multiaddr,
    error: &TransportError<std::io::Error>,
) -> String {
    let quic = address.iter().any(|part| part == Protocol::QuicV1);
    match error {
        TransportError::MultiaddrNotSupported(_) if quic && !cfg!(feature = "quic") => {
            "this binary was built without the feature `quic`".to_owned()
        }
        TransportError::MultiaddrNotSupported(_) => {
            "not an address of the form /ip4/0.0.0.0/tcp/7400".to_owned()
        }
        TransportError::Other(error) => {
            let mut reason = innermost(error);
            if !is_specified(address) && reason.ends_with(NO_SUCH_FAMILY) {
                reason += ". All addresses take netlink: where a unit does not allow that, name this machine's address in \
                           network.listen, or add AF_NETLINK to RestrictAddressFamilies (`systemctl edit fairmesh`)";
            }
            reason
        }
    }
}

/// The innermost cause of an error, which is the one that says something.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Without a trailing `/p2p` part.
pub(crate) fn without_name(mut address: Multiaddr) -> Multiaddr {
    if let Some(Protocol::P2p(_)) = address.iter().last() {
        address.pop();
    }
    address
}

/// Drops a trailing `/p2p` part; `None` where it names somebody else.
fn without_peer(site: SiteId, address: Multiaddr) -> Option<Multiaddr> {
    let named = address.iter().last();
    let is_other = matches!(named, Some(Protocol::P2p(peer)) if peer != peer_id_of(site));
    let address = without_name(address);
    (!is_other && !address.is_empty()).then_some(address)
}

fn is_specified(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => !ip.is_unspecified() && !ip.is_multicast(),
        Some(Protocol::Ip6(ip)) => !ip.is_unspecified() && !ip.is_multicast(),
        Some(Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_)) => true,
        _ => false,
    }
}

/// Whether anybody on the Internet would mean the same machine by it. Host names are not: a peer
/// could let one point anywhere.
fn is_public(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            !(ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_broadcast()
                || shared)
        }
        Some(Protocol::Ip6(ip)) => match ip.to_ipv4_mapped() {
            Some(_) => false,
            None => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Multiaddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn site(byte: u8) -> SiteId {
        SiteId::from_bytes([byte; 32])
    }

    #[test]
    fn a_peer_cannot_send_us_to_private_addresses() {
        let said = addresses(&[
            "/ip4/127.0.0.1/tcp/1",
            "/ip4/10.1.2.3/tcp/1",
            "/ip4/169.254.169.254/tcp/80",
            "/ip4/100.64.0.1/tcp/1",
            "/ip4/0.0.0.0/tcp/1",
            "/ip6/::1/tcp/1",
            "/ip6/::ffff:127.0.0.1/tcp/1",
            "/ip6/fd00::1/tcp/1",
            "/dns/localhost/tcp/1",
            "/memory/7",
            "/ip4/192.0.32.8/tcp/7400",
        ]);
        let public = addresses(&["/ip4/192.0.32.8/tcp/7400"]);
        assert_eq!(learnt(site(1), said.clone(), false), public);
        assert_eq!(learnt(site(1), said, true).len(), 9);
    }

    #[test]
    fn the_peer_part_is_dropped_or_decides() {
        let own = format!("/ip4/192.0.2.1/tcp/1/p2p/{}", peer_id_of(site(1)));
        let other = format!("/ip4/192.0.2.2/tcp/1/p2p/{}", peer_id_of(site(2)));
        let said = addresses(&[&own, &other, "/ip4/192.0.2.1/tcp/1"]);
        assert_eq!(given(site(1), said), addresses(&["/ip4/192.0.2.1/tcp/1"]));
    }

    #[test]
    fn the_number_is_bounded() {
        let many = (1..100).map(|port| format!("/ip4/192.0.2.1/tcp/{port}").parse().unwrap());
        assert_eq!(given(site(1), many).len(), ADDRESSES_MAX);
    }
}
