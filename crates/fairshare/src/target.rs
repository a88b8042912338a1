//! What an entry should have of its parent: an exact ratio.
//!
//! Invariant: a target is a ratio of whole numbers, as written; nothing is rounded. Under the rule of weights a
//! target of zero is served last among its siblings. Under FSGrid's rule as published it is a target like any
//! other, and targets need not add up to the whole.
//! Deliberately not here: where the numbers come from (`tree::siblings`).
//! Source: FSGrid; for zero: Slurm's `fair_tree.c`, flux-accounting's tests, Kueue #13481.

use ethnum::U256;
use fairmesh_model::{Share, Weight};

/// A target share of the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    part: u64,
    whole: u64,
    is_last: bool,
    /// Whether it follows the rule of weights, under which some of the lowest digits are kept free (`digit`).
    by_weight: bool,
}

impl Target {
    /// No target, and no place either: that of a missing level.
    pub const NONE: Self = Self {
        part: 0,
        whole: 1,
        is_last: false,
        by_weight: false,
    };

    /// The same of an account without a line, in its own level.
    pub const UNLISTED: Self = Self {
        by_weight: true,
        ..Self::NONE
    };

    /// `weight` of all siblings' `total`, in the same units, both below 2^41. A weight of zero goes last.
    pub const fn of_siblings(weight: u64, total: u64) -> Self {
        Self {
            part: weight,
            whole: if total == 0 { 1 } else { total },
            is_last: weight == 0,
            by_weight: true,
        }
    }

    /// A percentage of the parent as published, whatever the siblings have.
    pub const fn published(percentage: Weight) -> Self {
        Self::of_units(percentage.units())
    }

    /// `units` × 10^-9 of the parent, as published.
    pub(crate) const fn of_units(units: u64) -> Self {
        Self {
            part: units,
            whole: Weight::HUNDRED.units(),
            is_last: false,
            by_weight: false,
        }
    }

    /// Whether it follows the rule of weights.
    pub(crate) const fn is_by_weight(self) -> bool {
        self.by_weight
    }

    /// Whether it is none at all: that of a missing level, or of an account without a line.
    pub(crate) const fn is_none(self) -> bool {
        self.part == 0 && self.whole == 1 && !self.is_last
    }

    /// Whether its siblings all go first.
    pub const fn is_last(self) -> bool {
        self.is_last
    }

    /// Numerator and denominator; the denominator is positive.
    pub const fn ratio(self) -> (u64, u64) {
        (self.part, self.whole)
    }

    /// As a percentage with seven decimals, for people and pictures: rounded to the nearest, and at most 100.
    pub fn rounded(self) -> Share {
        let twice = u128::from(self.part) * u128::from(Share::ONE) * 2 + u128::from(self.whole);
        let units = twice / (u128::from(self.whole) * 2);
        let units = u32::try_from(units).unwrap_or(Share::ONE);
        Share::from_units(units.min(Share::ONE)).unwrap_or(Share::WHOLE)
    }

    pub(crate) fn wide(self) -> (U256, U256) {
        (U256::from(self.part), U256::from(self.whole))
    }
}
