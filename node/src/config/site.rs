//! From the node's configuration to what the site and the network take.
//!
//! Invariant: nothing is decided here; every field is taken over. Deliberately not here: what
//! neither knows of (sockets, files).

use std::collections::BTreeMap;

use fairmesh_model::SiteId;
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig};

use libp2p::Multiaddr;

use super::Config;

impl Config {
    /// The part that the state machine needs.
    pub fn to_site_config(&self) -> SiteConfig {
        SiteConfig {
            policy: self.policy.clone(),
            vos: self.vos.clone(),
            identity: self.identity_map(),
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

    fn identity_map(&self) -> IdentityMap {
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::parse);
        let rules = self.identity.iter().map(|rule| Rule {
            user: pattern(&rule.user),
            account: pattern(&rule.account),
            group: pattern(&rule.group),
            subject: pattern(&rule.subject),
            vo: rule.vo,
            path: rule.path.clone(),
        });
        IdentityMap::new(rules.collect())
    }
}
