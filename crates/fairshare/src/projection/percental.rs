//! Percental: the product of the target shares minus the product of the actual shares.
//!
//! Invariant: between −1 and 1, exactly 0 where every level is on target, each product cut at 36
//! decimals. An entry with a level over its limit is lower by 2, and one with a share of zero lower by 4, so
//! they come after all others. It divides the whole in proportion and isolates nothing: what one subtree uses
//! moves everybody else. Accounts without a line have the number of their `*`, less 10^-24 of the part that each used
//! of its usage: together they get the share of the `*`, and the least used of them goes first.
//! Deliberately not here: distances; this projection has its own.

use ethnum::U256;
use fairmesh_model::Share;

use super::{Context, DECIMALS_MAX, Priority, Projection, fraction};
use crate::deviation::{Class, DeviationVector, Level};

/// Target product minus actual product.
#[derive(Debug, Clone, Copy, Default)]
pub struct PercentalProjection;

impl Projection for PercentalProjection {
    fn name(&self) -> &'static str {
        "percental"
    }

    fn project(&self, vector: &DeviationVector, _context: &Context) -> Priority {
        let (mut target, mut actual) = (one(), one());
        let mut of_others = U256::ZERO;
        for level in vector.levels() {
            if level.target.is_none() {
                // The last level of an account without a line, which has no target of its own.
                of_others = UNLISTED * U256::from(level.usage) / level.parent_usage_or_one();
                continue;
            }
            let (part, whole) = level.target.wide();
            target = target * part / whole;
            actual = actual * U256::from(level.usage) / level.parent_usage_or_one();
        }
        let class = vector.levels().iter().map(Level::class).min();
        let behind = match class {
            Some(Class::Last) => one() * 4,
            Some(Class::Over) => one() * 2,
            Some(Class::Within) | None => U256::ZERO,
        };
        Priority {
            decimals: DECIMALS_MAX,
            units: target.as_i256() - (actual + of_others + behind).as_i256(),
        }
    }

    /// From 0 (all that is used, of nothing due) through a half (on target) to 1. The lowest thousand factors
    /// are those of shares of zero, and then of entries over their limits.
    fn factor(&self, priority: &Priority, _context: &Context) -> Share {
        let lifted = |by: u8| {
            let units = priority.units + (one() * U256::from(by)).as_i256();
            U256::try_from(units).unwrap_or(U256::ZERO)
        };
        let two = one() * U256::new(2);
        // Lifted by as much as their class is lowered, all classes run from 0 to 2.
        let part = |of: U256, of_factors: u32| {
            fraction(of * U256::from(of_factors), two * U256::from(Share::ONE))
        };
        if priority.units < -(one() * U256::new(3)).as_i256() {
            return part(lifted(5), LAST_FACTORS);
        }
        if priority.units < -one().as_i256() {
            let over = part(lifted(3), LAST_FACTORS).units() + LAST_FACTORS;
            return Share::from_units(over).unwrap_or(Share::ZERO);
        }
        let within = fraction(lifted(1), two);
        within.max(Share::from_units(LAST_FACTORS * 2).unwrap_or(Share::ZERO))
    }
}

/// Factors that shares of zero have, and as many that entries over their limits have.
const LAST_FACTORS: u32 = 500;

/// The usage of a whole `*` in the comparison of its accounts: 10^-24, too little to change any other comparison.
const UNLISTED: U256 = U256::new(10u128.pow(12));

fn one() -> U256 {
    U256::new(10u128.pow(u32::from(DECIMALS_MAX)))
}
