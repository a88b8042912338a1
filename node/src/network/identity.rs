//! Sites and libp2p peers are the same thing under two names.
//!
//! Invariant: `site_of(peer_id_of(site)) == Some(site)` for every site. A peer id of another key
//! type has no site. The peer id of an Ed25519 key is the identity multihash of its protobuf form
//! (libp2p specification, "Peer Ids and Keys").

use fairmesh_model::SiteId;
use libp2p::PeerId;

/// Identity multihash (0x00) of 36 bytes: protobuf key type 1 (Ed25519), 32 bytes of data.
const PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// The libp2p name of a site.
pub fn peer_id_of(site: SiteId) -> PeerId {
    let mut bytes = PREFIX.to_vec();
    bytes.extend_from_slice(site.as_bytes());
    PeerId::from_bytes(&bytes).expect("an identity multihash of 36 bytes is a peer id")
}

/// The site behind a libp2p name; `None` where the key is not Ed25519.
pub fn site_of(peer: PeerId) -> Option<SiteId> {
    let bytes = peer.to_bytes();
    let key = bytes.strip_prefix(&PREFIX)?;
    Some(SiteId::from_bytes(key.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use fairmesh_model::SigningKey;
    use libp2p::identity::Keypair;

    use super::*;

    #[test]
    fn a_site_and_its_peer_id_are_one() {
        let secret = [7; 32];
        let site = SigningKey::from_secret(&secret).site_id();
        let peer = Keypair::ed25519_from_bytes(secret)
            .unwrap()
            .public()
            .to_peer_id();
        assert_eq!(peer_id_of(site), peer);
        assert_eq!(site_of(peer), Some(site));
    }

    #[test]
    fn a_peer_id_of_another_kind_has_no_site() {
        assert_eq!(site_of(PeerId::random()), None);
    }
}
