//! Dense ranks of all entries, with exact ties.
//!
//! Invariants: rank 1 is served first; entries rank alike exactly where their deviation vectors are
//! equal, missing levels counting as 0; the next rank down is one more, whatever the tie's size.
//!
//! How: level by level from the root, entries are sorted by the class that their vector has so far
//! and then by their deviation at this level, and equal ones get one new class: O(N log N) a level.
//! A 62-bit digit, which never inverts two deviations of one distance, spares most exact comparisons.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005).

use std::cmp::Ordering;

use fairmesh_model::{Distance, mutant, mutated};

use crate::deviation::{Class, Level};
use crate::digit::sort_key;
use crate::tree::{EntryId, Snapshot};

/// The dense ranks of all entries of a snapshot.
#[derive(Debug, Clone)]
pub struct Ranking {
    ranks: Vec<u32>,
    count: u32,
}

/// An entry and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedEntry {
    /// The ranked entry.
    pub entry: EntryId,
    /// 1 is served first; equal ranks are exact ties.
    pub rank: u32,
}

/// What one level adds to the order of one entry.
struct Candidate {
    entry: EntryId,
    /// The class of the vector down to the level above.
    class: u32,
    key: (Class, u64),
    level: Level,
}

impl Ranking {
    /// Ranks every entry of `snapshot`, inner ones and the root too.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut ranks = vec![1; snapshot.entries()];
        let mut count = 1;
        // Accounts that have used nothing rank, too: as a new one does.
        let deepest = snapshot.topology.depth();
        for depth in 1..=mutant!(LowestLevelUnseen, deepest, deepest.min(1)) {
            let mut candidates: Vec<Candidate> = snapshot
                .ids()
                .filter_map(|entry| candidate(snapshot, &ranks, entry, depth))
                .collect();
            candidates.sort_unstable_by(Candidate::order);
            count = assign(&candidates, &mut ranks);
        }
        if !mutated!(AbsentRanked) {
            leave_out_absent(snapshot, &mut ranks, &mut count);
        }
        Self { ranks, count }
    }

    /// `count` different ranks, by the entries' indices.
    pub(crate) const fn from_ranks(ranks: Vec<u32>, count: u32) -> Self {
        Self { ranks, count }
    }

    /// The rank of `entry` among all.
    pub fn rank(&self, entry: EntryId) -> u32 {
        self.ranks[entry.index()]
    }

    /// How many different ranks there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// `entries` in order, ranked densely among themselves; tied ones in path order.
    pub fn among(&self, entries: &[EntryId]) -> Vec<RankedEntry> {
        let mut ranked: Vec<RankedEntry> = entries
            .iter()
            .map(|entry| RankedEntry {
                entry: *entry,
                rank: self.rank(*entry),
            })
            .collect();
        ranked.sort_unstable_by_key(|item| (item.rank, item.entry));
        let (mut previous, mut dense) = (0, 0);
        for item in &mut ranked {
            if item.rank != previous {
                previous = item.rank;
                dense += 1;
            }
            item.rank = dense;
        }
        ranked
    }
}

/// How `entry` takes part at `depth`: with its own level if it is that deep, with a missing one if
/// it is not, and not yet if it is deeper.
fn candidate(
    snapshot: &Snapshot,
    ranks: &[u32],
    entry: EntryId,
    depth: usize,
) -> Option<Candidate> {
    let (level, above) = match usize::from(snapshot.topology.node(entry).depth).cmp(&depth) {
        Ordering::Less => (Level::MISSING, entry),
        Ordering::Equal => (snapshot.level(entry), snapshot.parent(entry)?),
        Ordering::Greater => return None,
    };
    Some(Candidate {
        entry,
        class: ranks[above.index()],
        key: sort_key(&level),
        level,
    })
}

/// Numbers the ranks without those that nobody has: an entry `*` that nobody wrote and no account belongs to
/// ranks with the next one after it, so a tree that lists all its accounts has the ranks that it always had.
fn leave_out_absent(snapshot: &Snapshot, ranks: &mut [u32], count: &mut u32) {
    let last = usize::try_from(*count).expect("a count of entries");
    let mut before = vec![0u32; last + 2];
    for entry in snapshot.ids().filter(|entry| snapshot.is_present(*entry)) {
        let rank = usize::try_from(ranks[entry.index()]).expect("a rank of an entry");
        before[rank + 1] = 1;
    }
    for rank in 1..before.len() {
        before[rank] += before[rank - 1];
    }
    for rank in ranks {
        *rank = before[usize::try_from(*rank).expect("a rank of an entry")] + 1;
    }
    *count = before[last + 1];
}

/// Gives every run of equal candidates the next rank, and returns the last.
fn assign(candidates: &[Candidate], ranks: &mut [u32]) -> u32 {
    let mut rank = 0;
    let mut previous: Option<&Candidate> = None;
    for candidate in candidates {
        let ties =
            |previous: &Candidate| previous.order(candidate).is_eq() && !mutated!(TiesRanked);
        if !previous.is_some_and(ties) {
            rank += 1;
        }
        ranks[candidate.entry.index()] = rank;
        previous = Some(candidate);
    }
    rank
}

impl Candidate {
    /// Served first is less.
    fn order(&self, other: &Self) -> Ordering {
        self.class
            .cmp(&mutant!(LevelsCompareAlone, other.class, self.class))
            .then_with(|| {
                mutant!(
                    OverusersFirst,
                    other.deviates_as(self),
                    self.deviates_as(other)
                )
            })
    }

    fn deviates_as(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (&self.level, &other.level);
        let (class, key) = self.key;
        if class != other.key.0 {
            return class.cmp(&other.key.0);
        }
        let one_measure = class == Class::Last || same_measure(mine.distance, theirs.distance);
        if key != other.key.1 && one_measure {
            return key.cmp(&other.key.1);
        }
        if mine == theirs {
            Ordering::Equal
        } else {
            mine.deviation().cmp(&theirs.deviation())
        }
    }
}

/// Whether digits of the two distances can be compared: absolute ones are cut differently.
fn same_measure(a: Distance, b: Distance) -> bool {
    (a == Distance::Absolute) == (b == Distance::Absolute)
}
