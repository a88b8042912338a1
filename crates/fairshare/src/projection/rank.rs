//! Rank: the exact order itself, of any depth, as a number.
//!
//! Invariant: a greater priority means an earlier rank, and equal ones are exact ties. It needs all
//! entries, so it is prepared from a snapshot, O(N log N), and is as old as that.
//! Deliberately not here: distances between ranks; a rank says who is first, not by how much.

use ethnum::U256;
use fairmesh_model::{Share, mutant};

use super::{Context, Priority, Projection, fraction, units_of};
use crate::deviation::DeviationVector;
use crate::ranking::Ranking;
use crate::tree::{EntryId, Snapshot};

/// Ranks of one snapshot.
#[derive(Debug, Clone)]
pub struct RankProjection {
    ranking: Ranking,
}

impl RankProjection {
    /// Ranks all entries of `snapshot`.
    pub fn prepare(snapshot: &Snapshot) -> Self {
        Self {
            ranking: Ranking::of(snapshot),
        }
    }

    /// One more than the number of ranks behind the entry's.
    fn behind(&self, entry: EntryId) -> u32 {
        let rank = self.ranking.rank(entry);
        mutant!(RankFromBelow, self.ranking.count() + 1 - rank, rank)
    }
}

impl Projection for RankProjection {
    fn name(&self) -> &'static str {
        "rank"
    }

    /// The vector is not looked at.
    fn project(&self, _vector: &DeviationVector, context: &Context) -> Priority {
        Priority::whole(u64::from(self.behind(context.entry)))
    }

    fn factor(&self, priority: &Priority, _context: &Context) -> Share {
        fraction(units_of(priority), U256::from(self.ranking.count()))
    }

    fn priority_of(&self, _snapshot: &Snapshot, entry: EntryId) -> Priority {
        Priority::whole(u64::from(self.behind(entry)))
    }

    fn is_exact(&self) -> bool {
        true
    }
}
