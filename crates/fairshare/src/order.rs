//! An [`Order`] is what a site serves by: the ranks of one moment, under the projection that its owner
//! chose, with a factor for each entry. Whoever answers from one order never contradicts himself.
//! Deliberately not here: when an order is made anew (the node says that).

use fairmesh_model::{AccountPath, Share, mutated};

use crate::projection::{Context, Priority, Projection};
use crate::ranking::Ranking;
use crate::tree::{EntryId, Snapshot};

/// The order in which the entries of a tree are served: all ranks and factors of one moment.
pub struct Order {
    snapshot: Snapshot,
    projection: Box<dyn Projection>,
    ranking: Ranking,
    factors: Vec<Share>,
    step: u32,
}

/// Who stands before all others, whatever the projection says.
pub struct Bands<'a> {
    /// Whether an entry does.
    pub is_first: &'a dyn Fn(&AccountPath) -> bool,
    /// What becomes of a factor, of who does and of who does not: those of the first never below the others'.
    pub factor: fn(Share, bool) -> Share,
}

impl Order {
    /// The order of `snapshot` under a projection that was prepared for it: O(N log N).
    pub fn of(snapshot: Snapshot, projection: Box<dyn Projection>) -> Self {
        Self::in_bands(snapshot, projection, None)
    }

    /// The same where some stand before all others, each in their own order.
    pub fn in_bands(
        snapshot: Snapshot,
        projection: Box<dyn Projection>,
        bands: Option<&Bands<'_>>,
    ) -> Self {
        let is_first = |entry| bands.is_none_or(|bands| (bands.is_first)(snapshot.path(entry)));
        let in_band = |factor, first| bands.map_or(factor, |bands| (bands.factor)(factor, first));
        let priority = |entry| {
            let priority = projection.priority_of(&snapshot, entry);
            (is_first(entry), priority, entry)
        };
        let mut entries: Vec<(bool, Priority, EntryId)> = snapshot.ids().map(priority).collect();
        entries.sort_unstable_by(|a, b| b.cmp(a));
        let (mut ranks, mut count) = (vec![0; entries.len()], 0);
        let (mut factors, mut least) = (vec![Share::ZERO; entries.len()], Share::WHOLE);
        let (mut above, mut last, mut step) = (None, None, Share::ONE);
        for (first, priority, entry) in entries {
            let context = Context::of(&snapshot, entry);
            let stands = Some((first, priority));
            let is_other = above.is_some_and(|(before, _)| before != first);
            if is_other && !mutated!(BandsContinue) {
                least = Share::WHOLE;
            }
            // A factor has fewer digits than a priority, and cutting those of each level may turn two that
            // are near each other: the later one then gets what the earlier one has.
            let factor = least.min(projection.factor(&priority, &context));
            if !snapshot.is_present(entry) {
                ranks[entry.index()] = count + u32::from(above != stands);
                factors[entry.index()] = in_band(factor, first);
                continue;
            }
            count += u32::from(above != stands);
            above = stands;
            ranks[entry.index()] = count;
            least = factor;
            let factor = in_band(least, first);
            factors[entry.index()] = factor;
            let before = last.replace(factor).unwrap_or(factor);
            if before > factor {
                step = step.min(before.units() - factor.units());
            }
        }
        let ranking = Ranking::from_ranks(ranks, count);
        Self {
            snapshot,
            projection,
            ranking,
            factors,
            step,
        }
    }

    /// The sums that it is made of.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The projection that it goes by.
    pub fn projection(&self) -> &dyn Projection {
        &*self.projection
    }

    /// The ranks: 1 is served first, ties are equal.
    pub const fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    /// The factors of all entries, by their indices.
    pub fn factors(&self) -> &[Share] {
        &self.factors
    }

    /// The factor of `entry`.
    pub fn factor(&self, entry: EntryId) -> Share {
        self.factors[entry.index()]
    }

    /// How far apart two different factors are at the least, in units of a share; the whole where all are
    /// equal. So much belongs to the jobs of each entry, for their own importance.
    pub const fn step(&self) -> u32 {
        self.step
    }

    /// The priority of `entry`.
    pub fn priority(&self, entry: EntryId) -> Priority {
        self.projection.priority_of(&self.snapshot, entry)
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order")
            .field("projection", &self.projection.name())
            .field("entries", &self.factors.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
