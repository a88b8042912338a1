//! What the sites of a VO say about their machines and queues: one register per site.
//!
//! Invariant: per site the maximum of (version, hash) is held, so the same documents make the same
//! registers in any order; a site that lost its memory and signs an old version again is outvoted by
//! what it said before, hears of it from its peers, and signs a newer one.
//!
//! Deliberately not here: who may sign (the caller verifies), and what a job costs
//! (`fairmesh-fairshare`).

use std::collections::BTreeMap;

use fairmesh_model::{ContentHash, SiteDescription, SiteId, Verified, cbor, mutated};

/// The newest description of each site of one VO.
#[derive(Debug, Clone)]
pub struct Descriptions {
    registers: BTreeMap<SiteId, Verified<SiteDescription>>,
    /// Over the versions held: compared with every peer, while they hardly ever change.
    digest: ContentHash,
}

impl Default for Descriptions {
    fn default() -> Self {
        let mut none = Self {
            registers: BTreeMap::new(),
            digest: ContentHash::from_bytes([0; 32]),
        };
        none.renew_digest();
        none
    }
}

impl Descriptions {
    /// Takes a description, if it is newer than the one known of its site. Says whether it was.
    pub fn offer(&mut self, description: Verified<SiteDescription>) -> bool {
        let site = description.body().site;
        let is_newer = |known| version(known) < version(&description);
        if !self.registers.get(&site).is_none_or(is_newer) && !mutated!(OlderPricesWin) {
            return false;
        }
        self.registers.insert(site, description);
        self.renew_digest();
        true
    }

    /// Lets go of what a site said that takes part no more.
    pub fn drop_site(&mut self, site: SiteId) {
        if self.registers.remove(&site).is_some() {
            self.renew_digest();
        }
    }

    /// What a site says.
    pub fn of(&self, site: SiteId) -> Option<&Verified<SiteDescription>> {
        self.registers.get(&site)
    }

    /// What all sites say, by site.
    pub fn iter(&self) -> impl Iterator<Item = &Verified<SiteDescription>> {
        self.registers.values()
    }

    /// One hash, equal where the registers are.
    pub fn digest(&self) -> ContentHash {
        self.digest
    }

    /// The version known of each site: what peers compare where their digests differ.
    pub fn versions(&self) -> Vec<(SiteId, u64, ContentHash)> {
        let row = |(site, known): (&SiteId, _)| {
            let (number, hash) = version(known);
            (*site, number, hash)
        };
        self.registers.iter().map(row).collect()
    }

    /// Descriptions that a peer with `versions` lacks.
    pub fn newer_than(
        &self,
        versions: &[(SiteId, u64, ContentHash)],
    ) -> impl Iterator<Item = &Verified<SiteDescription>> {
        let theirs: BTreeMap<SiteId, (u64, ContentHash)> = versions
            .iter()
            .map(|(site, number, hash)| (*site, (*number, *hash)))
            .collect();
        self.registers.iter().filter_map(move |(site, known)| {
            let is_news = theirs.get(site).is_none_or(|held| *held < version(known));
            is_news.then_some(known)
        })
    }

    /// Whether a peer with `versions` holds anything newer.
    pub fn is_behind(&self, versions: &[(SiteId, u64, ContentHash)]) -> bool {
        versions.iter().any(|(site, number, hash)| {
            let known = self.registers.get(site).map(version);
            known.is_none_or(|known| known < (*number, *hash))
        })
    }

    fn renew_digest(&mut self) {
        self.digest = ContentHash::of(&cbor::to_vec(&self.versions()));
    }
}

fn version(description: &Verified<SiteDescription>) -> (u64, ContentHash) {
    (description.body().version, description.hash())
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{Factor, PriceList, Role, Signed, SigningKey, VoId, WallTime};
    use proptest::prelude::*;

    use super::*;

    fn key(site: u8) -> SigningKey {
        SigningKey::from_secret(&[site + 1; 32])
    }

    fn description(site: u8, version: u64, cost: u32) -> Verified<SiteDescription> {
        let key = key(site);
        let cost = Factor::from_millionths(cost);
        let body = SiteDescription {
            vo: VoId::from_bytes([1; 32]),
            site: key.site_id(),
            version,
            at: WallTime(0),
            prices: PriceList {
                queues: BTreeMap::from([("long".to_owned(), cost)]),
                ..PriceList::default()
            },
            hosts: Vec::new(),
        };
        let role = Role::single(key.site_id());
        let signed = Signed::sign(body, &[&key]).and_then(|signed| signed.verify(&[&role]));
        signed.expect("verifies")
    }

    proptest! {
        #[test]
        fn any_order_makes_the_same_registers_and_what_is_lacking_makes_them_equal(
            said in proptest::collection::vec((0..3u8, 1..4u64, 0..3u32), 0..12),
            split in any::<proptest::sample::Index>(),
        ) {
            let all: Vec<_> = said.iter().map(|(site, version, cost)| description(*site, *version, *cost)).collect();
            let take = |some: &mut dyn Iterator<Item = &Verified<SiteDescription>>| {
                let mut held = Descriptions::default();
                for said in some {
                    let _ = held.offer(said.clone());
                }
                held
            };
            let whole = take(&mut all.iter());
            let reversed = take(&mut all.iter().rev());
            prop_assert_eq!(whole.versions(), reversed.versions());
            prop_assert_eq!(whole.digest(), reversed.digest());

            let (one, other) = all.split_at(split.index(all.len() + 1));
            let (mut a, mut b) = (take(&mut one.iter()), take(&mut other.iter()));
            let (of_a, of_b) = (a.versions(), b.versions());
            let (for_a, for_b): (Vec<_>, Vec<_>) = (b.newer_than(&of_a).cloned().collect(), a.newer_than(&of_b).cloned().collect());
            prop_assert_eq!((a.is_behind(&of_b), b.is_behind(&of_a)), (!for_a.is_empty(), !for_b.is_empty()));
            for news in for_a {
                prop_assert!(a.offer(news));
            }
            for news in for_b {
                prop_assert!(b.offer(news));
            }
            prop_assert_eq!((a.digest(), b.digest()), (whole.digest(), whole.digest()));
        }
    }

    #[test]
    fn a_site_that_is_dropped_leaves_nothing_behind() {
        let mut held = Descriptions::default();
        let empty = held.digest();
        assert!(held.offer(description(0, 1, 1)));
        assert!(!held.offer(description(0, 1, 1)), "known");
        held.drop_site(key(0).site_id());
        assert_eq!((held.digest(), held.iter().count()), (empty, 0));
    }
}
