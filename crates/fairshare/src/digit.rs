//! One level's deviation as a digit of a given number of bits.
//!
//! Invariant: `digit` is the exact floor of `(v + 1) × 2^(bits−1)`, cut at the largest digit, where
//! `v` is the deviation; so it never inverts two deviations, a missing level is exactly the middle
//! digit, and a quick path may only be taken where its error cannot change the result.
//! Relative distances reach below −1, without end; there `v` is `d/(1 − d)`, which runs from 0 to −1
//! and meets `d` at 0. A level over its limit has the lowest digit, whatever its deviation.
//! Deliberately not here: packing digits into a priority (`projection::bits`).

use fairmesh_model::{Distance, Share, mutant};

use crate::deviation::Level;
use crate::ratio;

/// How far the quick path's 64-bit fraction may be off, in units of 2^-64: two for the cut ratio,
/// one each for the two floors; doubled for good measure.
const QUICK_ERROR: i128 = 8;

/// The digit of `level`, of 1 to 64 bits.
pub(crate) fn digit(level: &Level, bits: u32) -> u64 {
    if level.is_over() {
        return 0;
    }
    if level.distance == Distance::Absolute
        && let Some(digit) = quick_digit(level, bits)
    {
        return digit;
    }
    exact_digit(level, bits)
}

/// The digit of a level that deviates by nothing.
pub(crate) const fn middle(bits: u32) -> u64 {
    1 << (bits - 1)
}

const fn largest(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

fn exact_digit(level: &Level, bits: u32) -> u64 {
    let deviation = level.deviation();
    let Some((magnitude, denominator)) = deviation.parts() else {
        return 0;
    };
    let (above, below) = match (deviation.is_negative(), level.distance) {
        (false, _) => (denominator + magnitude, denominator),
        (true, Distance::Absolute) => (denominator.saturating_sub(magnitude), denominator),
        (true, _) => (denominator, denominator + magnitude),
    };
    let digit = ratio::floor_shifted(above, below, bits - 1);
    u64::try_from(digit).unwrap_or(u64::MAX).min(largest(bits))
}

/// One 64-bit division instead of long ones; `None` where the result is too near a digit's edge.
fn quick_digit(level: &Level, bits: u32) -> Option<u64> {
    let target = fraction_of_two_to_64(level.target);
    let fraction = (1i128 << 64) + target - actual_64(level);
    let shift = 65 - bits;
    let (low, high) = (
        (fraction - QUICK_ERROR) >> shift,
        (fraction + QUICK_ERROR) >> shift,
    );
    (low == high && low >= 0)
        .then(|| u64::try_from(low).unwrap_or(u64::MAX).min(largest(bits)))
        .map(|digit| mutant!(DigitOneLess, digit, digit.saturating_sub(1)))
}

/// `share × 2^64`, rounded down.
fn fraction_of_two_to_64(share: Share) -> i128 {
    // 2^64 / 10^9 is 18,446,744,073.709551616.
    let units = u64::from(share.units());
    let whole = u128::from(units * 18_446_744_073);
    let rest = u128::from(units * 709_551_616 / 1_000_000_000);
    i128::try_from(whole + rest).expect("at most 2^64")
}

/// `usage / parent_usage × 2^64`, off by at most two units and a floor.
fn actual_64(level: &Level) -> i128 {
    if level.usage == 0 || level.parent_usage == 0 {
        return 0;
    }
    let leading = level.parent_usage.leading_zeros();
    let usage = level.usage.min(level.parent_usage);
    let cut = |amount: u128| {
        let cut = if leading >= 64 {
            amount << (leading - 64)
        } else {
            amount >> (64 - leading)
        };
        u64::try_from(cut).expect("cut to 64 bits")
    };
    i128::try_from((u128::from(cut(usage)) << 64) / u128::from(cut(level.parent_usage)))
        .expect("at most 2^64")
}

/// The digit as a fraction of the largest, for a key that sorts before the exact comparison.
pub(crate) fn sort_key(level: &Level) -> u64 {
    digit(level, 62)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethnum::U256;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_quick_path_is_exact(units in 0u32..=Share::ONE, bits in 1u32..=64, a in any::<u128>(), b in any::<u128>(), cut in 0u32..127) {
            let (a, b) = (a >> cut, b >> cut);
            let target = Share::from_units(units).expect("in range");
            let level = Level { target, usage: a.min(b), parent_usage: a.max(b), ..Level::MISSING };
            if let Some(quick) = quick_digit(&level, bits) {
                prop_assert_eq!(quick, exact_digit(&level, bits));
            }
        }

        #[test]
        fn on_target_is_the_middle_digit(units in 1u32..=Share::ONE, scale in 1u64.., bits in 1u32..=64) {
            let target = Share::from_units(units).expect("in range");
            for distance in [Distance::Absolute, Distance::Relative, Distance::Mix { k: target }] {
                let usage = u128::from(scale) * u128::from(units);
                let parent_usage = u128::from(scale) * u128::from(Share::ONE);
                prop_assert_eq!(digit(&Level { target, distance, usage, parent_usage, ..Level::MISSING }, bits), middle(bits));
            }
        }
    }

    #[test]
    fn the_ends_are_the_ends() {
        let whole = Level {
            target: Share::WHOLE,
            ..Level::MISSING
        };
        let none = Level {
            usage: 5,
            parent_usage: 5,
            ..Level::MISSING
        };
        for bits in [1, 4, 21, 64] {
            assert_eq!(digit(&whole, bits), largest(bits));
            assert_eq!(digit(&none, bits), 0);
            assert_eq!(digit(&Level::MISSING, bits), middle(bits));
        }
    }

    #[test]
    fn a_digit_fits_the_wide_arithmetic() {
        let level = Level {
            target: Share::WHOLE,
            distance: Distance::Mix {
                k: Share::from_units(1).expect("a share"),
            },
            usage: u128::MAX - 1,
            parent_usage: u128::MAX,
            ..Level::MISSING
        };
        let (_, denominator) = level.deviation().parts().expect("finite");
        assert!(denominator < (U256::ONE << 240));
        assert_eq!(digit(&level, 64), middle(64));
    }
}
