//! What each consumer is entitled to, down a document's tree, and where siblings are promised too much.
//!
//! Where targets or limits of siblings add up to more than their parent, each counts as `share × 100 / sum` for
//! entitlement, and limits stay as they are written. Where guarantees do, the document is refused.
//!
//! Invariant: entitlements of siblings never add up to more than their parent's.
//! Deliberately not here: what was used of them.
//! Source: our own decision; over-subscription is left open in GRUBER (Euro-Par 2005), section 6.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Share, mutant};

use super::{Amount, Sign, Sla, SlaEntry, part_of};

const ONE: u64 = Share::ONE as u64;

/// Siblings that are promised more than there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversubscribed {
    /// The common parent of the entries.
    pub above: AccountPath,
    /// What their shares add up to, in units of 10⁻⁹ of the parent's.
    pub sum: u64,
}

impl Sla {
    /// What each consumer is entitled to, in units of 10⁻⁹ of `total` CPUs: at a site of those of the site, over a
    /// Grid of all that sites contribute. Rounded down at each level; siblings without a share count as promised
    /// the whole, so that those without any share alike.
    pub fn entitlements(&self, total: u64) -> BTreeMap<AccountPath, u64> {
        let siblings = self.siblings();
        let mut entitled = BTreeMap::from([(AccountPath::root(), ONE)]);
        let mut wholes: BTreeMap<AccountPath, u64> = BTreeMap::new();
        for path in self.entries.keys() {
            let mut levels: Vec<AccountPath> = path.ancestors().collect();
            levels.reverse();
            for (above, level) in levels.iter().zip(levels.iter().skip(1)) {
                if entitled.contains_key(level) {
                    continue;
                }
                let of_parent = entitled[above];
                let parent = of_units(total, of_parent);
                let whole = *wholes.entry(above.clone()).or_insert_with(|| {
                    let siblings = siblings.get(above.as_str()).into_iter().flatten();
                    let shares = siblings.map(|path| self.share_of(path, parent));
                    let promised = shares.fold(0, u64::saturating_add);
                    mutant!(OversubscribedWhole, promised.max(ONE), ONE)
                });
                let share = u128::from(self.share_of(level, parent));
                let part = u128::from(of_parent) * share / u128::from(whole);
                entitled.insert(level.clone(), u64::try_from(part).unwrap_or(ONE));
            }
        }
        entitled.retain(|path, _| self.entries.contains_key(path));
        entitled
    }

    /// CPUs that may not be passed, for each entry that bounds any: an upper limit's share of what the level
    /// above has, and `at_most`. The root's is `contributed`, the sum of what sites contribute.
    pub fn limits(&self, contributed: u64) -> BTreeMap<AccountPath, u64> {
        let mut bases = BTreeMap::from([(AccountPath::root(), contributed)]);
        let mut limits = bases.clone();
        // In order of paths, so that parents come before their children.
        for (path, entry) in &self.entries {
            let above = path.parent().and_then(|above| bases.get(&above).copied());
            let above = above.unwrap_or(contributed);
            let grant = entry.cpu.filter(|grant| grant.sign != Sign::AtLeast);
            let share = grant
                .and_then(|grant| grant.share)
                .map(|bound| match bound.amount {
                    Amount::Percent(share) => part_of(above, share),
                    Amount::Units(cpus) => cpus,
                });
            let base = [share, entry.at_most]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(above);
            bases.insert(path.clone(), base);
            let binds = grant.is_some_and(|grant| grant.sign == Sign::AtMost);
            let bound = if binds { Some(base) } else { entry.at_most };
            if let Some(bound) = bound {
                let held = limits.entry(path.clone()).or_insert(bound);
                *held = bound.min(*held);
            }
        }
        limits
    }

    /// Siblings whose shares add up to more than the whole, at a site of `total` CPUs.
    pub fn oversubscribed(&self, total: u64) -> Vec<Oversubscribed> {
        let entitled = self.entitlements(total);
        let promised = |(above, siblings): (&str, Vec<&AccountPath>)| {
            let parent = of_units(total, entitled.get(above).copied().unwrap_or(ONE));
            let written = siblings
                .iter()
                .filter_map(|path| self.written_share(path, parent));
            let sum = written.fold(0, u64::saturating_add);
            let above = siblings.first()?.parent()?;
            (sum > ONE).then_some(Oversubscribed { above, sum })
        };
        self.siblings().into_iter().filter_map(promised).collect()
    }

    /// The first siblings whose guarantees add up to more than their parent: the parent, the first of them and the sum.
    pub(super) fn guaranteed_beyond_all(&self) -> Option<(AccountPath, AccountPath, u64)> {
        let mut sums: BTreeMap<AccountPath, (AccountPath, u64)> = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let (Some(above), Some(share)) = (path.parent(), guaranteed(entry)) {
                let (_, sum) = sums.entry(above).or_insert_with(|| (path.clone(), 0));
                *sum += u64::from(share.units());
            }
        }
        let beyond = sums.into_iter().find(|(_, (_, sum))| *sum > ONE);
        beyond.map(|(above, (first, sum))| (above, first, sum))
    }

    /// The entries right below each path.
    fn siblings(&self) -> BTreeMap<&str, Vec<&AccountPath>> {
        let mut siblings: BTreeMap<&str, Vec<&AccountPath>> = BTreeMap::new();
        for path in self.entries.keys() {
            if let Some(above) = path.parent_str() {
                siblings.entry(above).or_default().push(path);
            }
        }
        siblings
    }

    /// Of the parent's, in units of 10⁻⁹; all of it where nothing is written.
    fn share_of(&self, path: &AccountPath, parent: u64) -> u64 {
        self.written_share(path, parent).unwrap_or(ONE)
    }

    fn written_share(&self, path: &AccountPath, parent: u64) -> Option<u64> {
        let bound = self.entries.get(path)?.cpu?.share?;
        Some(match bound.amount {
            Amount::Percent(share) => u64::from(share.units()),
            Amount::Units(cpus) => u64::from(Share::from_ratio(cpus, parent).units()),
        })
    }
}

/// So many units of 10⁻⁹ of `whole`, rounded down.
fn of_units(whole: u64, units: u64) -> u64 {
    let part = u128::from(whole) * u128::from(units) / u128::from(ONE);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// What an entry guarantees, in percent of its parent's.
fn guaranteed(entry: &SlaEntry) -> Option<Share> {
    let grant = entry.cpu.filter(|grant| grant.sign == Sign::AtLeast)?;
    match grant.share?.amount {
        Amount::Percent(share) => Some(share),
        Amount::Units(_) => None,
    }
}
