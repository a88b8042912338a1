//! Fixed-point digits, the topmost level first, packed into 64 bits.
//!
//! Invariants: a digit has `floor(64 / depth)` bits, `depth` being the whole tree's; it is the exact
//! floor of the deviation, and exactly the middle for 0 and for a missing level. So the number keeps
//! the exact order wherever two vectors first differ by a digit or more (as long as the levels that
//! are compared share one distance). Where they first differ by less, 2^-20 in a tree of three levels,
//! that level ties and the ones below decide. O(depth), no allocation.
//! Deliberately not here: more than 64 bits; where so little matters, use `rank`.

use fairmesh_model::{Share, mutant};

use super::{Context, Priority, Projection, units_of};
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
        let packed = u64::try_from(units_of(priority)).unwrap_or(u64::MAX);
        factor_of(packed, context.depth)
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
        let level = mutant!(LowestLevelFirst, level, depth.max(1) - 1 - level);
        let digit = vector
            .levels()
            .get(level)
            .map_or(middle(bits), |level| digit(level, bits));
        packed = packed.checked_shl(bits).unwrap_or(0) | digit;
    }
    packed
}

/// A packed priority as a factor for schedulers: the same digits, each cut to its share of the
/// [`FACTOR_BITS`] that a factor can tell apart, so that every level keeps a say. (Scaling the
/// 64 bits down would leave the lower levels none.)
pub(crate) fn factor_of(packed: u64, depth: usize) -> Share {
    let depth = depth.clamp(1, 64);
    let (wide, narrow) = (digit_bits(depth), factor_digit_bits(depth));
    let digits = (0..u32::try_from(depth).expect("at most 64")).rev();
    let cut = digits.fold(0, |cut: u64, level| {
        let digit = (packed >> (level * wide)) & (u64::MAX >> (64 - wide));
        (cut << narrow) | (digit >> (wide - narrow))
    });
    Share::from_ratio(
        mutant!(FactorOneMore, cut, cut + 1),
        u64::MAX >> (64 - narrow * u32::try_from(depth).expect("at most 64")),
    )
}

/// Bits that a factor from 0 to 10^9 can tell apart.
const FACTOR_BITS: usize = 29;

fn factor_digit_bits(depth: usize) -> u32 {
    u32::try_from(FACTOR_BITS / depth.min(FACTOR_BITS)).expect("at most 29")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_keeps_a_say_for_the_lowest_level() {
        let bits = digit_bits(3);
        let packed = |a: u64, b: u64, c: u64| (a << (2 * bits)) | (b << bits) | c;
        let half = 1 << (bits - 1);
        let better = factor_of(packed(half, half, half + half / 2), 3);
        let worse = factor_of(packed(half, half, half), 3);
        assert!(better > worse);
        assert_eq!(
            factor_of(packed(2 * half - 1, 2 * half - 1, 2 * half - 1), 3),
            Share::WHOLE
        );
        assert_eq!(factor_of(0, 3), Share::ZERO);
    }
}
