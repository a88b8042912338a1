//! Percental: the product of the target shares minus the product of the actual shares.
//!
//! Invariant: between −1 and 1, exactly 0 where every level is on target, each product cut at 36
//! decimals. An entry with a level over its limit is lower by 2, and so behind all others. It divides the whole in proportion and isolates nothing: what one subtree uses moves
//! everybody else. Deliberately not here: distances; this projection has its own.

use ethnum::U256;
use fairmesh_model::Share;

use super::{Context, DECIMALS_MAX, Priority, Projection, fraction};
use crate::deviation::{DeviationVector, Level};

/// Target product minus actual product.
#[derive(Debug, Clone, Copy, Default)]
pub struct PercentalProjection;

impl Projection for PercentalProjection {
    fn name(&self) -> &'static str {
        "percental"
    }

    fn project(&self, vector: &DeviationVector, _context: &Context) -> Priority {
        let (mut target, mut actual) = (one(), one());
        for level in vector.levels() {
            target = target * U256::from(level.target.units()) / U256::from(Share::ONE);
            actual = actual * U256::from(level.usage) / level.parent_usage_or_one();
        }
        let is_over = vector.levels().iter().any(Level::is_over);
        let behind = if is_over { one() * 2 } else { U256::ZERO };
        Priority {
            decimals: DECIMALS_MAX,
            units: target.as_i256() - actual.as_i256() - behind.as_i256(),
        }
    }

    /// From 0 (all that is used, of nothing due) through a half (on target) to 1.
    fn factor(&self, priority: &Priority, _context: &Context) -> Share {
        let lifted = priority.units + one().as_i256();
        fraction(
            U256::try_from(lifted).unwrap_or(U256::ZERO),
            one() * U256::new(2),
        )
    }
}

fn one() -> U256 {
    U256::new(10u128.pow(u32::from(DECIMALS_MAX)))
}
