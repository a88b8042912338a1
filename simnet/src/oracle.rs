//! What the Grid must have counted, added up without any of its code.
//!
//! For each (VO, site, account) there are two bounds. *Certain* is what was acknowledged and cannot
//! have been lost by a declared fault; *most* is all that any feed ever offered. Where no disk was
//! lost the two are equal, to the unit, and so is the Grid's own sum.
//!
//! Invariant: `certain` ≤ what the Grid counts ≤ `most`, and a record counts once in either however
//! often it was offered. Deliberately not here: when faults happen, and the comparison itself.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, VoId};

mod published;

pub use published::{Published, held_on_disk};

/// An account of a site's ledger: of a VO, or the site's own.
pub type AccountKey = (Option<VoId>, AccountPath);

/// Core-milliseconds by account of one VO or of a site itself.
pub type Amounts = BTreeMap<AccountPath, u64>;

/// What is known of one site's reports.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Acknowledged before the last loss, and known to have survived it.
    base: BTreeMap<Option<VoId>, Amounts>,
    /// Acknowledged since.
    since: BTreeMap<Option<VoId>, Amounts>,
    most: BTreeMap<Option<VoId>, Amounts>,
    jobs: BTreeMap<String, Job>,
    losses: u32,
}

/// One job as its feed has told of it: cumulative charge.
#[derive(Debug, Clone, Copy, Default)]
struct Job {
    offered: u64,
    acknowledged: u64,
}

/// The ledger of all sites.
#[derive(Debug, Default)]
pub struct Oracle {
    places: Vec<Place>,
    /// Under which incarnations anything was signed.
    pub published: Published,
}

impl Oracle {
    /// Knows nothing of `sites` sites.
    pub fn new(sites: usize) -> Self {
        Self {
            places: vec![Place::default(); sites],
            published: Published::default(),
        }
    }

    /// A feed offers a job that has cost `charge` from its start until now.
    pub fn offered(&mut self, site: usize, account: &AccountKey, job: &str, charge: u64) {
        let place = &mut self.places[site];
        let known = place.jobs.entry(job.to_owned()).or_default();
        let more = charge.saturating_sub(known.offered);
        known.offered += more;
        add(&mut place.most, account, more);
    }

    /// The site has said that all of that is counted durably.
    pub fn acknowledged(&mut self, site: usize, account: &AccountKey, job: &str, charge: u64) {
        let place = &mut self.places[site];
        let known = place.jobs.entry(job.to_owned()).or_default();
        let more = charge.saturating_sub(known.acknowledged);
        known.acknowledged += more;
        add(&mut place.since, account, more);
    }

    /// A site's store was lost, or replaced by an older one. What survives is what is stored of its
    /// streams anywhere; of its own accounts, `local`.
    pub fn lost(&mut self, site: usize, survived: &BTreeMap<VoId, Amounts>, local: &Amounts) {
        let place = &mut self.places[site];
        let before = merged(&place.base, &place.since);
        let kept = before.into_iter().map(|(vo, amounts)| {
            let limit = match vo {
                None => Some(local),
                Some(vo) => survived.get(&vo),
            };
            (vo, at_most(amounts, limit))
        });
        place.base = kept.collect();
        place.since.clear();
        place.losses += 1;
    }

    /// Another site's store was lost: what had survived of this one's losses may have been there.
    pub fn lost_elsewhere(&mut self, site: usize, survived: &BTreeMap<VoId, Amounts>) {
        let place = &mut self.places[site];
        for (vo, amounts) in &mut place.base {
            if let Some(vo) = vo {
                *amounts = at_most(std::mem::take(amounts), survived.get(vo));
            }
        }
    }

    /// How often a site's store was lost.
    pub fn losses(&self, site: usize) -> u32 {
        self.places[site].losses
    }

    /// What must be counted of a site's reports, by account.
    pub fn certain(&self, site: usize, vo: Option<VoId>) -> Amounts {
        let place = &self.places[site];
        let mut sums = place.base.get(&vo).cloned().unwrap_or_default();
        for (path, amount) in place.since.get(&vo).into_iter().flatten() {
            *sums.entry(path.clone()).or_default() += amount;
        }
        sums
    }

    /// The same, over all accounts.
    pub fn certain_total(&self, site: usize, vo: Option<VoId>) -> u64 {
        let place = &self.places[site];
        let of = |amounts: &BTreeMap<Option<VoId>, Amounts>| -> u64 {
            amounts.get(&vo).map_or(0, |amounts| amounts.values().sum())
        };
        of(&place.base) + of(&place.since)
    }

    /// The most that may be counted of a site's reports, by account.
    pub fn most(&self, site: usize, vo: Option<VoId>) -> Amounts {
        let most = self.places[site].most.get(&vo);
        most.cloned().unwrap_or_default()
    }

    /// The same of all sites and accounts.
    pub fn bounds(&self, vo: VoId) -> BTreeMap<AccountPath, (u64, u64)> {
        let mut bounds: BTreeMap<AccountPath, (u64, u64)> = BTreeMap::new();
        for site in 0..self.places.len() {
            for (path, amount) in self.certain(site, Some(vo)) {
                bounds.entry(path).or_default().0 += amount;
            }
            for (path, amount) in self.most(site, Some(vo)) {
                bounds.entry(path).or_default().1 += amount;
            }
        }
        bounds
    }
}

fn add(sums: &mut BTreeMap<Option<VoId>, Amounts>, (vo, path): &AccountKey, amount: u64) {
    let amounts = sums.entry(*vo).or_default();
    *amounts.entry(path.clone()).or_default() += amount;
}

fn merged(
    a: &BTreeMap<Option<VoId>, Amounts>,
    b: &BTreeMap<Option<VoId>, Amounts>,
) -> BTreeMap<Option<VoId>, Amounts> {
    let mut sums = a.clone();
    for (vo, amounts) in b {
        for (path, amount) in amounts {
            add(&mut sums, &(*vo, path.clone()), *amount);
        }
    }
    sums
}

fn at_most(amounts: Amounts, limit: Option<&Amounts>) -> Amounts {
    let of = |path: &AccountPath| limit.and_then(|limit| limit.get(path)).copied();
    amounts
        .into_iter()
        .map(|(path, amount)| {
            let most = of(&path).unwrap_or(0);
            (path, amount.min(most))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(path: &str) -> AccountKey {
        (Some(VoId::from_bytes([1; 32])), crate::vo::path(path))
    }

    #[test]
    fn a_job_counts_once_however_often_it_is_told_of() {
        let mut oracle = Oracle::new(1);
        let ann = account("/ann");
        for charge in [5, 9, 9, 7] {
            oracle.offered(0, &ann, "job", charge);
            oracle.acknowledged(0, &ann, "job", charge);
        }
        oracle.offered(0, &ann, "unanswered", 4);
        assert_eq!(oracle.bounds(ann.0.expect("a VO"))[&ann.1], (9, 13));
    }

    #[test]
    fn a_lost_store_leaves_what_others_hold() {
        let mut oracle = Oracle::new(1);
        let (ann, vo) = (account("/ann"), VoId::from_bytes([1; 32]));
        oracle.offered(0, &ann, "old", 9);
        oracle.acknowledged(0, &ann, "old", 9);
        let survived = BTreeMap::from([(vo, Amounts::from([(ann.1.clone(), 6)]))]);
        oracle.lost(0, &survived, &Amounts::new());
        oracle.offered(0, &ann, "new", 2);
        oracle.acknowledged(0, &ann, "new", 2);
        assert_eq!(oracle.bounds(vo)[&ann.1], (8, 11));
        oracle.lost_elsewhere(0, &BTreeMap::new());
        assert_eq!(oracle.bounds(vo)[&ann.1], (2, 11));
    }
}
