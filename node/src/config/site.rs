//! From the node's configuration to what the site and the network take.
//!
//! Invariant: nothing is decided here; every field is taken over. Deliberately not here: what
//! neither knows of (sockets, files).

use std::collections::BTreeMap;

use fairmesh_model::SiteId;
use fairmesh_site::SiteConfig;

use libp2p::Multiaddr;

use super::Config;

impl Config {
    /// The part that the state machine needs.
    pub fn to_site_config(&self) -> SiteConfig {
        SiteConfig {
            policy: self.policy.clone(),
            share_rule: self.projection.share_rule(),
            vos: self.vos.clone(),
            identity: self.identity.clone(),
            introducers: self.peers.iter().map(|peer| peer.site).collect(),
            local_history: self.history,
            local_window: self.window,
            charging: self.charging.clone(),
            advert: self.advert.clone(),
            forward: self.forward.clone(),
            quotas: self.quotas.clone(),
            timing: self.timing,
        }
    }

    /// The peers with all their addresses: the part that the network needs.
    pub fn peer_addresses(&self) -> Vec<(SiteId, Vec<Multiaddr>)> {
        let mut peers: BTreeMap<SiteId, Vec<Multiaddr>> = BTreeMap::new();
        for peer in &self.peers {
            peers
                .entry(peer.site)
                .or_default()
                .push(peer.address.clone());
        }
        peers.into_iter().collect()
    }
}
