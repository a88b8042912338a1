//! One level's deviation as a digit of a given number of bits.
//!
//! Invariant: `digit` is the exact floor of `(v + 1) × 2^(bits−1)`, cut at the largest digit, where
//! `v` is the deviation; so it never inverts two deviations, a missing level is exactly the middle
//! digit, and a quick path may only be taken where its error cannot change the result.
//! Relative distances reach below −1, without end; there `v` is `d/(1 − d)`, which runs from 0 to −1
//! and meets `d` at 0.
//! Under the rule of weights some of the lowest digits are kept free: one for levels over their limits, and the ones below
//! it for shares of zero, the less used the higher. A level that would have one of them gets the lowest that is not kept
//! free. So levels of different parents compare, and a digit depends on nothing but its level.
//! Deliberately not here: packing digits into a priority (`projection::bits`).

use fairmesh_model::{Distance, mutant};

use crate::deviation::{Class, Level};
use crate::ratio;

/// How far the quick path's 64-bit fraction may be off, in units of 2^-64: two for the cut ratio,
/// one each for the two floors; doubled for good measure.
const QUICK_ERROR: i128 = 8;

/// The digit of `level`, of 1 to 64 bits.
pub(crate) fn digit(level: &Level, bits: u32) -> u64 {
    let reserved = match level.target.is_by_weight() {
        true => reserved(bits),
        false => 0,
    };
    match level.class() {
        Class::Last => {
            // From the middle (nothing used) down to 0, in the room below the digit of `Over`.
            let (unused, room) = (exact_digit(level, bits), reserved.saturating_sub(2));
            let scaled = u128::from(unused) * u128::from(room) / u128::from(middle(bits));
            u64::try_from(scaled).unwrap_or(room).min(room)
        }
        Class::Over => reserved.saturating_sub(1),
        Class::Within => within(level, bits).max(reserved),
    }
}

fn within(level: &Level, bits: u32) -> u64 {
    if level.distance == Distance::Absolute
        && let Some(digit) = quick_digit(level, bits)
    {
        return digit;
    }
    exact_digit(level, bits)
}

/// How many of the lowest digits are kept free: a third of the bits' worth, and at most all below the middle.
/// In a tree of three levels 128 of two million.
pub(crate) const fn reserved(bits: u32) -> u64 {
    match bits {
        0 | 1 => 0,
        2 => 1,
        _ => 1 << (bits / 3),
    }
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
    let is_absolute = level.distance == Distance::Absolute || deviation.class() == Class::Last;
    let (above, below) = match (deviation.is_negative(), is_absolute) {
        (false, _) => (denominator + magnitude, denominator),
        (true, true) => (denominator.saturating_sub(magnitude), denominator),
        (true, false) => (denominator, denominator + magnitude),
    };
    let digit = ratio::floor_shifted(above, below, bits - 1);
    u64::try_from(digit).unwrap_or(u64::MAX).min(largest(bits))
}

/// One 64-bit division instead of long ones; `None` where the result is too near a digit's edge.
fn quick_digit(level: &Level, bits: u32) -> Option<u64> {
    let (part, whole) = level.target.ratio();
    let target = fraction_of_two_to_64(part, whole)?;
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

/// `part / whole × 2^64`, rounded down; `None` beyond the whole.
fn fraction_of_two_to_64(part: u64, whole: u64) -> Option<i128> {
    if part > whole {
        return None;
    }
    i128::try_from((u128::from(part) << 64) / u128::from(whole)).ok()
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

/// A key that sorts before the exact comparison: it never inverts two levels of one class and one measure.
pub(crate) fn sort_key(level: &Level) -> (Class, u64) {
    (level.class(), within(level, 62))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethnum::U256;
    use fairmesh_model::Share;
    use proptest::prelude::*;

    use crate::target::Target;

    proptest! {
        #[test]
        fn the_quick_path_is_exact(units in 0u64..=1 << 40, of in 1u64..1 << 41, bits in 1u32..=64, a in any::<u128>(), b in any::<u128>(), cut in 0u32..127) {
            let (a, b) = (a >> cut, b >> cut);
            let target = Target::of_siblings(units.min(of), of);
            let level = Level { target, usage: a.min(b), parent_usage: a.max(b), ..Level::MISSING };
            if let Some(quick) = quick_digit(&level, bits) {
                prop_assert_eq!(quick, exact_digit(&level, bits));
            }
        }

        #[test]
        fn on_target_is_the_middle_digit(units in 1u32..=Share::ONE, scale in 1u64.., bits in 1u32..=64) {
            let k = Share::from_units(units).expect("in range");
            let target = Target::of_siblings(u64::from(units), u64::from(Share::ONE));
            for distance in [Distance::Absolute, Distance::Relative, Distance::Mix { k }] {
                let usage = u128::from(scale) * u128::from(units);
                let parent_usage = u128::from(scale) * u128::from(Share::ONE);
                prop_assert_eq!(digit(&Level { target, distance, usage, parent_usage, ..Level::MISSING }, bits), middle(bits));
            }
        }
    }

    #[test]
    fn the_ends_are_the_ends() {
        let whole = Level {
            target: Target::of_siblings(1, 1),
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
    fn shares_of_zero_have_the_lowest_digits_in_the_order_of_their_use() {
        let zero = |usage| Level {
            target: Target::of_siblings(0, 1),
            usage,
            parent_usage: 1_000,
            ..Level::MISSING
        };
        let over = Level {
            target: Target::of_siblings(1, 2),
            at_most: Share::from_percent(60).expect("a percentage"),
            ..zero(999)
        };
        let within = Level {
            at_most: Share::WHOLE,
            ..over
        };
        for bits in 12..=62 {
            let digits = [zero(999), zero(400), zero(0), over, within];
            let digits = digits.map(|level| digit(&level, bits));
            assert!(digits.is_sorted(), "{bits}: {digits:?}");
            assert!(digits[0] < digits[2] && digits[2] < digits[3] && digits[3] < digits[4]);
        }
    }

    #[test]
    fn a_digit_fits_the_wide_arithmetic() {
        let level = Level {
            target: Target::of_siblings(1, 1),
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
