//! How far each level of an entry is from its target share, as exact fractions.
//!
//! Invariants: a [`Deviation`] is exact; comparing two of them, from whatever parents, is a total
//! order; a missing level counts as 0, and so does the actual share where the parent has no usage.
//! The order of two entries is the lexicographic order of their vectors. At each level, entries that have more
//! than they may have at most come after all that do not, and entries with a share of zero after those, the
//! less used first. Both are places in the order and no bars: such a job runs where nobody else waits.
//! Deliberately not here: one number made of a vector (`projection`).
//! Source: FSGrid (the absolute distance); Rodrigo, Östberg and Elmroth, "Priority Operators for
//! Fairshare Scheduling", JSSPP 2014 (the relative one).

use std::cmp::Ordering;
use std::fmt;

use ethnum::U256;
use fairmesh_model::path::PATH_DEPTH_MAX;
use fairmesh_model::{Distance, Share, mutant, mutated};
use serde::{Serialize, Serializer};

use crate::ratio;
use crate::target::Target;

/// Levels of the longest vector: those of the deepest path, and one for an account among the others there.
pub const VECTOR_LEVELS_MAX: usize = PATH_DEPTH_MAX + 1;

/// One level of an entry's way down from the root: what it should have of its parent, and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The target, a fraction of the parent.
    pub target: Target,
    /// The most that it may have of the parent before it is behind all others at this level; the whole is
    /// no limit.
    pub at_most: Share,
    /// How the distance from the target is measured.
    pub distance: Distance,
    /// Weighted usage of the entry, in core-ms × 2^-32, in the scope of this level.
    pub usage: u128,
    /// Weighted usage of its parent, in the same unit and scope.
    pub parent_usage: u128,
}

/// Which entries of a level go first, whatever their distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A share of zero, under the rule of weights: after all siblings.
    Last,
    /// More than it may have at most: after all that have not.
    Over,
    /// Neither last nor over its limit: the distance decides.
    Within,
}

/// A class, and an exact signed fraction or minus infinity.
///
/// Minus infinity stands for use of a zero target under a relative distance, as published: it lies below every
/// number, and two of them are equal, however much was used.
#[derive(Debug, Clone, Copy)]
pub struct Deviation {
    class: Class,
    negative: bool,
    magnitude: U256,
    /// Zero stands for infinity.
    denominator: U256,
}

/// The levels of one entry from the root down, at most [`VECTOR_LEVELS_MAX`].
#[derive(Clone)]
pub struct DeviationVector {
    levels: [Level; VECTOR_LEVELS_MAX],
    depth: usize,
}

impl Level {
    /// A level that nobody has: it deviates by 0.
    pub const MISSING: Self = Self {
        target: Target::NONE,
        at_most: Share::WHOLE,
        distance: Distance::Absolute,
        usage: 0,
        parent_usage: 0,
    };

    /// The deviation: `target − usage/parent_usage`, measured as `distance` says. That of a share of zero is
    /// `−usage/parent_usage` under every distance.
    pub fn deviation(&self) -> Deviation {
        let class = self.class();
        let distance = match class {
            Class::Last => mutant!(ZeroByDistance, self.absolute(), self.distance_from_target()),
            Class::Over | Class::Within => self.distance_from_target(),
        };
        Deviation { class, ..distance }
    }

    /// Which entries of the level it goes before or after, whatever their distances.
    pub fn class(&self) -> Class {
        if self.target.is_last() && !mutated!(ZeroLikeAny) {
            Class::Last
        } else if self.is_over() {
            Class::Over
        } else {
            Class::Within
        }
    }

    /// Whether it has more of its parent than it may have at most.
    pub fn is_over(&self) -> bool {
        if self.at_most == Share::WHOLE || mutated!(LimitIgnored) {
            return false;
        }
        let most = U256::from(self.at_most.units()) * U256::from(self.parent_usage);
        U256::from(self.usage) * U256::from(Share::ONE) > most
    }

    fn distance_from_target(&self) -> Deviation {
        match self.distance {
            Distance::Absolute => self.absolute(),
            Distance::Mix { k } if k == Share::WHOLE => self.absolute(),
            Distance::Relative if mutated!(RelativeIsAbsolute) => self.absolute(),
            Distance::Relative => self.mixed(Share::ZERO),
            Distance::Mix { k } => self.mixed(k),
        }
    }

    /// The parent's usage, or 1 where there is none (the entry then has none either).
    pub(crate) fn parent_usage_or_one(&self) -> U256 {
        U256::from(self.parent_usage.max(1))
    }

    /// `target × parent − usage`, times the target's denominator: the sign and the magnitude.
    fn excess(&self) -> (bool, U256) {
        let (part, whole) = self.target.wide();
        let due = part * self.parent_usage_or_one();
        let used = U256::from(self.usage) * whole;
        if used > due {
            (true, used - due)
        } else {
            (false, due - used)
        }
    }

    fn absolute(&self) -> Deviation {
        let (negative, magnitude) = self.excess();
        let (_, whole) = self.target.wide();
        Deviation {
            class: Class::Within,
            negative,
            magnitude,
            denominator: self.parent_usage_or_one() * whole,
        }
    }

    /// `k × d + (1 − k) × d/target` with `d` the absolute deviation and `k` below 1.
    fn mixed(&self, k: Share) -> Deviation {
        let (part, whole) = self.target.wide();
        if part == U256::ZERO {
            return if self.usage == 0 {
                Deviation::ZERO
            } else {
                Deviation::MINUS_INFINITY
            };
        }
        let (negative, excess) = self.excess();
        if k == Share::ZERO {
            return Deviation {
                class: Class::Within,
                negative,
                magnitude: excess,
                denominator: part * self.parent_usage_or_one(),
            };
        }
        let (one, k) = (U256::from(Share::ONE), U256::from(k.units()));
        let magnitude = excess * (k * part + (one - k) * whole);
        Deviation {
            class: Class::Within,
            negative,
            magnitude,
            denominator: one * whole * part * self.parent_usage_or_one(),
        }
    }
}

impl Deviation {
    /// No deviation: the entry is on target.
    pub const ZERO: Self = Self {
        class: Class::Within,
        negative: false,
        magnitude: U256::ZERO,
        denominator: U256::ONE,
    };

    /// Use of what must not be used at all, measured relatively.
    pub const MINUS_INFINITY: Self = Self {
        class: Class::Within,
        negative: true,
        magnitude: U256::ONE,
        denominator: U256::ZERO,
    };

    /// Whether the entry has more than its target.
    pub fn is_negative(&self) -> bool {
        self.negative && self.magnitude != U256::ZERO
    }

    /// Which entries of the level it goes before or after, whatever their distances.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// The absolute value as numerator and denominator; `None` for minus infinity.
    pub(crate) fn parts(&self) -> Option<(U256, U256)> {
        (self.denominator != U256::ZERO).then_some((self.magnitude, self.denominator))
    }
}

impl Ord for Deviation {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.class != other.class {
            return self.class.cmp(&other.class);
        }
        let (Some(mine), Some(theirs)) = (self.parts(), other.parts()) else {
            return self.parts().is_some().cmp(&other.parts().is_some());
        };
        match (self.is_negative(), other.is_negative()) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => ratio::compare(mine, theirs),
            (true, true) => ratio::compare(theirs, mine),
        }
    }
}

impl PartialOrd for Deviation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Deviation {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Deviation {}

impl fmt::Display for Deviation {
    /// A percentage with seven decimals, cut towards zero: `+12.5000000`, or `-inf`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((magnitude, denominator)) = self.parts() else {
            return f.write_str("-inf");
        };
        let units = ratio::floor_scaled(magnitude, denominator, &[1_000, 1_000_000]);
        let sign = if self.is_negative() { '-' } else { '+' };
        let (whole, decimals) = units.div_rem(U256::new(10_000_000));
        write!(f, "{sign}{whole}.{:07}", decimals.as_u128())
    }
}

impl Serialize for Deviation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl DeviationVector {
    /// The vector of the root, and of everything that has no level: all levels missing.
    pub const EMPTY: Self = Self {
        levels: [Level::MISSING; VECTOR_LEVELS_MAX],
        depth: 0,
    };

    /// The vector of `levels`, from the root down; levels beyond [`VECTOR_LEVELS_MAX`] are left out.
    pub fn new(levels: &[Level]) -> Self {
        let mut vector = Self::EMPTY;
        vector.depth = levels.len().min(VECTOR_LEVELS_MAX);
        vector.levels[..vector.depth].copy_from_slice(&levels[..vector.depth]);
        vector
    }

    /// The levels that there are, from the root down.
    pub fn levels(&self) -> &[Level] {
        &self.levels[..self.depth]
    }

    /// The deviation at `level` (0 is below the root); 0 where the level is missing.
    pub fn deviation(&self, level: usize) -> Deviation {
        self.levels()
            .get(level)
            .map_or(Deviation::ZERO, Level::deviation)
    }

    /// The exact lexicographic order: the greater is served first.
    pub fn compare(&self, other: &Self) -> Ordering {
        (0..self.depth.max(other.depth))
            .filter(|level| self.levels.get(*level) != other.levels.get(*level))
            .map(|level| self.deviation(level).cmp(&other.deviation(level)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Adds a level; beyond [`VECTOR_LEVELS_MAX`] it is left out.
    pub(crate) fn push(&mut self, level: Level) {
        if let Some(next) = self.levels.get_mut(self.depth) {
            *next = level;
            self.depth += 1;
        }
    }

    pub(crate) fn level_mut(&mut self, level: usize) -> &mut Level {
        &mut self.levels[level]
    }

    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }
}

impl fmt::Debug for DeviationVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(
                self.levels()
                    .iter()
                    .map(|level| level.deviation().to_string()),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests;
