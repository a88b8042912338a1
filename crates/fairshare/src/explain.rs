//! Why an entry stands where it stands: its levels, and where it loses to (or beats) another.
//!
//! Invariant: every number is of the one moment that is explained, and who is served first is what the
//! order says that look-ups are answered from; the amount for parity is the least one that does it, found
//! with the exact order itself.
//! Deliberately not here: which sites' usage caused it (the caller knows), and how long to wait: as
//! all usage decays alike, waiting alone moves nobody past anybody; what moves is what others use.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005).

use std::cmp::Ordering;

use fairmesh_model::{AccountPath, CoreMillis, Date, Distance, Scope, Share};
use serde::Serialize;

use crate::deviation::{Class, Deviation, DeviationVector, Level};
use crate::history::ONE;
use crate::order::Order;
use crate::tree::{EntryId, EntryKind, Snapshot};

/// One level of an entry.
#[derive(Debug, Clone, Serialize)]
pub struct LevelExplanation {
    /// The entry at this level.
    pub path: AccountPath,
    /// Whether usage of all sites counts at this level, or only of this one.
    pub global: bool,
    /// How its distance from the target is measured.
    pub distance: Distance,
    /// What it should have of its parent, rounded to seven decimals of a percent.
    pub target: Share,
    /// The same, exactly: its weight, and the sum of its siblings' weights, divided by what divides all of them.
    pub weight: (u64, u64),
    /// What the entry at this level is.
    #[serde(skip)]
    pub kind: EntryKind,
    /// For an account without a line: the entry `*` that it shares with all such accounts of its level.
    pub among: Option<AccountPath>,
    /// The date from which on usage counts at this level.
    pub since: Option<Date>,
    /// Whether all its siblings that have a share go first, because its own is zero.
    pub last: bool,
    /// What it has, rounded down; 0 where the parent has no usage.
    pub actual: Share,
    /// The most that it may have before all others of its level go first; `None` where there is no limit.
    pub at_most: Option<Share>,
    /// Whether it has more than that.
    pub over: bool,
    /// The exact deviation, which prints as a percentage.
    pub deviation: Deviation,
    /// Its weighted usage in core-ms, rounded down.
    pub usage: u128,
    /// Its parent's weighted usage in core-ms, rounded down.
    pub parent_usage: u128,
}

/// How an entry compares with another.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The entry that it is compared with.
    pub versus: AccountPath,
    /// The deepest entry that both lie below (or are).
    pub common_ancestor: AccountPath,
    /// Whether the explained entry is served before, with, or after the other.
    pub standing: Standing,
    /// The first level at which they differ (0 is below the root); `None` where none does.
    pub level: Option<usize>,
    /// The explained entry's deviation there, 0 where it has no such level.
    pub deviation: Option<Deviation>,
    /// The deviation of the other entry on this level; `None` if it has none.
    pub versus_deviation: Option<Deviation>,
    /// What would have to be charged, now and at this site, to the one that is served first until
    /// the other stands no worse; `None` in a tie, where no amount would do, and in an order that is not
    /// the exact one.
    pub parity: Option<CoreMillis>,
}

/// Who is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The explained entry ranks first.
    Before,
    /// Neither: an exact tie.
    Tied,
    /// The other entry ranks first.
    After,
}

/// Everything there is to say about an entry's place.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The explained entry.
    pub path: AccountPath,
    /// Its levels, from the root down.
    pub levels: Vec<LevelExplanation>,
    /// How it compares, if asked.
    pub comparison: Option<Comparison>,
}

/// Explains the place of `entry`, and how it compares with `versus`.
pub fn explain(order: &Order, entry: EntryId, versus: Option<EntryId>) -> Explanation {
    let snapshot = order.snapshot();
    let comparison = versus.map(|versus| compare(order, entry, versus));
    Explanation {
        path: snapshot.path(entry).clone(),
        levels: levels(snapshot, entry),
        comparison,
    }
}

/// The levels of `entry`, from the root down.
pub fn levels(snapshot: &Snapshot, entry: EntryId) -> Vec<LevelExplanation> {
    let below_root = chain(snapshot, entry).into_iter().skip(1);
    below_root.map(|id| explain_level(snapshot, id)).collect()
}

/// The entries from the root down to `entry`.
fn chain(snapshot: &Snapshot, entry: EntryId) -> Vec<EntryId> {
    let mut chain: Vec<_> =
        std::iter::successors(Some(entry), |entry| snapshot.parent(*entry)).collect();
    chain.reverse();
    chain
}

fn explain_level(snapshot: &Snapshot, entry: EntryId) -> LevelExplanation {
    let level = snapshot.level(entry);
    let kind = snapshot.kind(entry);
    let above = snapshot.parent(entry);
    let among = above.filter(|_| kind == EntryKind::Unlisted);
    let actual = crate::ratio::floor_scaled(
        ethnum::U256::from(level.usage.min(level.parent_usage)),
        level.parent_usage_or_one(),
        &[Share::ONE],
    );
    LevelExplanation {
        path: snapshot.path(entry).clone(),
        global: snapshot.topology.scope(entry) == Scope::Global,
        distance: level.distance,
        target: level.target.rounded(),
        weight: level.target.ratio(),
        kind,
        among: among.map(|others| snapshot.path(others).clone()),
        since: snapshot.since(entry),
        last: level.class() == Class::Last,
        actual: u32::try_from(actual)
            .ok()
            .and_then(Share::from_units)
            .unwrap_or(Share::WHOLE),
        at_most: Some(level.at_most).filter(|most| *most < Share::WHOLE),
        over: level.is_over(),
        deviation: level.deviation(),
        usage: level.usage / u128::from(ONE),
        parent_usage: level.parent_usage / u128::from(ONE),
    }
}

fn compare(order: &Order, entry: EntryId, versus: EntryId) -> Comparison {
    let (snapshot, ranking) = (order.snapshot(), order.ranking());
    let (mine, theirs) = (snapshot.vector(entry), snapshot.vector(versus));
    let depth = mine.levels().len().max(theirs.levels().len());
    let level = (0..depth).find(|level| mine.deviation(*level) != theirs.deviation(*level));
    let common = common_levels(snapshot, entry, versus);
    let (standing, loser, winner) = match ranking.rank(entry).cmp(&ranking.rank(versus)) {
        Ordering::Equal => (Standing::Tied, &mine, &theirs),
        Ordering::Less => (Standing::Before, &theirs, &mine),
        Ordering::Greater => (Standing::After, &mine, &theirs),
    };
    let has_parity = standing != Standing::Tied && order.projection().is_exact();
    let parity = has_parity.then(|| parity(loser, winner, common)).flatten();
    Comparison {
        versus: snapshot.path(versus).clone(),
        common_ancestor: snapshot.path(chain(snapshot, entry)[common]).clone(),
        standing,
        level,
        deviation: level.map(|level| mine.deviation(level)),
        versus_deviation: level.map(|level| theirs.deviation(level)),
        parity,
    }
}

/// How many levels below the root the two entries share.
fn common_levels(snapshot: &Snapshot, a: EntryId, b: EntryId) -> usize {
    let (a, b) = (chain(snapshot, a), chain(snapshot, b));
    a.iter().zip(&b).take_while(|(a, b)| a == b).count() - 1
}

/// The least charge to the winner after which the loser stands no worse. The charge counts in the
/// winner's levels below the common ancestor, and in the parent's usage where they part.
fn parity(loser: &DeviationVector, winner: &DeviationVector, common: usize) -> Option<CoreMillis> {
    let reached = |charge: u64| {
        let loser = charged(loser, common, charge, false);
        loser
            .compare(&charged(winner, common, charge, true))
            .is_ge()
    };
    if !reached(u64::MAX) {
        return None;
    }
    let (mut too_little, mut enough) = (0, u64::MAX);
    while enough - too_little > 1 {
        let middle = too_little + (enough - too_little) / 2;
        if reached(middle) {
            enough = middle
        } else {
            too_little = middle
        }
    }
    Some(CoreMillis(enough))
}

/// `vector` after `charge` core-ms were booked on the winner.
fn charged(vector: &DeviationVector, common: usize, charge: u64, wins: bool) -> DeviationVector {
    let added = u128::from(charge) * u128::from(ONE);
    let more = |usage: u128, counts: bool| {
        if counts {
            usage.saturating_add(added)
        } else {
            usage
        }
    };
    let levels: Vec<Level> = vector
        .levels()
        .iter()
        .enumerate()
        .map(|(index, level)| Level {
            usage: more(level.usage, wins || index < common),
            parent_usage: more(level.parent_usage, wins || index <= common),
            ..*level
        })
        .collect();
    DeviationVector::new(&levels)
}

#[cfg(test)]
mod tests;
