//! The default: fixed-point digits, the topmost level first, packed into 64 bits.
//!
//! Invariants: a digit has `floor(64 / depth)` bits, `depth` being the whole tree's; it is the exact
//! floor of the deviation, and exactly the middle for 0 and for a missing level. So the number keeps
//! the exact order wherever two vectors first differ by a digit or more (as long as the levels that
//! are compared share one distance). Where they first differ by less, 2^-20 in a tree of three levels,
//! that level ties and the ones below decide. O(depth), no allocation.
//! Deliberately not here: more than 64 bits; where so little matters, use `rank`.

use ethnum::U256;
use fairmesh_model::Share;

use super::{Context, Priority, Projection, fraction, units_of};
use crate::deviation::DeviationVector;
use crate::digit::{digit, middle};

/// Digits packed into 64 bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct BitsProjection;

impl Projection for BitsProjection {
    fn name(&self) -> &'static str {
        "bits"
    }

    fn project(&self, vector: &DeviationVector, context: &Context) -> Priority {
        Priority::whole(pack(vector, context.depth))
    }

    fn factor(&self, priority: &Priority, context: &Context) -> Share {
        fraction(units_of(priority), U256::from(largest(context.depth)))
    }
}

/// Bits of one digit in a tree of `depth` levels.
pub fn digit_bits(depth: usize) -> u32 {
    u32::try_from(64 / depth.clamp(1, 64)).expect("at most 64")
}

/// The priority of `vector` in a tree of `depth` levels.
pub fn pack(vector: &DeviationVector, depth: usize) -> u64 {
    let bits = digit_bits(depth);
    let mut packed = 0u64;
    for level in 0..depth.max(1) {
        let digit = vector
            .levels()
            .get(level)
            .map_or(middle(bits), |level| digit(level, bits));
        packed = packed.checked_shl(bits).unwrap_or(0) | digit;
    }
    packed
}

/// A packed priority as a fraction of the largest, rounded down.
pub(crate) fn factor_of(packed: u64, depth: usize) -> Share {
    Share::from_ratio(packed, largest(depth))
}

fn largest(depth: usize) -> u64 {
    let depth = u32::try_from(depth.clamp(1, 64)).expect("at most 64");
    u64::MAX >> (64 - depth * (64 / depth))
}
