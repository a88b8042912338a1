//! What a site says about its machines and queues, in its own name.
//!
//! With it, the VO's charter and a job's record anybody can compute the charge again
//! ([`Site::estimate_at`]) and compare.
//!
//! Invariant: once the members of a VO can reach each other they all hold what this site charges by,
//! or will within a heartbeat. What they hold decides: where it is not what the configuration says, a
//! newer version is signed, so a site that lost its memory goes on behind the last version of before.
//!
//! Deliberately not here: which description counts (`fairmesh-policy`).

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Replica};
use fairmesh_model::documents::BATCH_BYTES_MAX;
use fairmesh_model::{Now, Signed, SiteDescription, SiteId, Verified, VoId};
use serde_bytes::ByteBuf;

use crate::config::Charging;
use crate::event::Effect;
use crate::identity::Pattern;
use crate::site::Site;
use crate::store::{Table, Write, site_key};

impl Site {
    /// What the sites of `vo` say about their machines and queues, by site.
    pub fn descriptions(&self, vo: VoId) -> impl Iterator<Item = &Verified<SiteDescription>> {
        let replica = self.replicas.get(&vo).into_iter();
        replica.flat_map(|replica| replica.descriptions().iter())
    }

    /// Signs a description for every VO that holds another one of this site than the configuration
    /// says: at most one in a heartbeat, for two machines with one key would go on for ever.
    pub(crate) fn describe_due(&mut self, now: Now) {
        if self.undescribed.is_empty() {
            return;
        }
        for vo in self.publishing_vos(now.mono) {
            let stream = self.streams.entry(vo).or_default();
            let last = stream.described_at;
            let is_due = last.is_none_or(|at| now.mono >= at.after(self.config.timing.heartbeat));
            if is_due && self.undescribed.remove(&vo) {
                self.describe(now, vo);
            }
        }
    }

    fn describe(&mut self, now: Now, vo: VoId) {
        let replica = &self.replicas[&vo];
        let said = replica.descriptions().of(self.id).map(Verified::body);
        let version = said.map_or(0, |said| said.version).saturating_add(1);
        let charging = &self.config.charging;
        let hosts = charging.hosts.iter();
        let description = SiteDescription {
            vo,
            site: self.id,
            version,
            at: now.wall,
            prices: (*charging.prices).clone(),
            hosts: hosts
                .map(|(hosts, class)| (hosts.text(), class.clone()))
                .collect(),
        };
        let is_said = match said {
            Some(said) => said.prices == description.prices && said.hosts == description.hosts,
            // Nobody is told that there is nothing to tell.
            None => description.prices == Default::default(),
        };
        if !is_said {
            self.sign_description(now, description);
        }
    }

    fn sign_description(&mut self, now: Now, description: SiteDescription) {
        let vo = description.vo;
        let signed = Signed::sign(description, &[&self.key]);
        let bytes = signed
            .expect("a configuration's prices are valid")
            .bytes()
            .to_vec();
        let replica = self.replicas.get_mut(&vo).expect("it was asked for");
        match replica.absorb_description(&bytes) {
            Ok(Absorbed::Description { .. }) => {}
            other => panic!("our own description is newer than our own last one: {other:?}"),
        }
        self.streams.entry(vo).or_default().described_at = Some(now.mono);
        self.keep_description(vo, self.id, &bytes);
        // A longer one than others pass on at once goes to them in the next exchange.
        if bytes.len() <= BATCH_BYTES_MAX {
            self.effects.push(Effect::Push {
                vo,
                bytes: Push::Description(ByteBuf::from(bytes)).to_bytes(),
            });
        }
    }

    /// Keeps a description that was taken. Our own, given back by a peer, may be older than what the
    /// configuration says.
    pub(crate) fn keep_description(&mut self, vo: VoId, site: SiteId, bytes: &[u8]) {
        if site == self.id {
            self.undescribed.insert(vo);
        }
        let row = Write::set(Table::Descriptions, site_key(vo, site), bytes.to_vec());
        self.effects.push(Effect::Persist(vec![row]));
    }

    /// What jobs cost at `site`, as the VO's members know it.
    pub(crate) fn charging_at(&self, vo: VoId, site: SiteId) -> Option<Charging> {
        let described = self.replicas.get(&vo).map(Replica::descriptions);
        let said = described?.of(site)?.body();
        let hosts = said.hosts.iter();
        Some(Charging {
            prices: said.prices.clone().into(),
            hosts: hosts
                .map(|(hosts, class)| (Pattern::parse(hosts), class.clone()))
                .collect(),
            ..Charging::default()
        })
    }
}
