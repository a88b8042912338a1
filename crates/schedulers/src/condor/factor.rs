//! Numbers as priority factors: the higher the number, the smaller the factor.
//!
//! A factor is a float of 32 bits on its way to the negotiator, which keeps six digits behind the point. From 16 on
//! each such float is another number there, and there are 1.04 × 10^9 of them up to the greatest: one for each number.
//! Their order is that of their bits, so a number is counted off from the bits of 16 and nothing is rounded. As the
//! bits are a logarithm, somebody who stands a hundredth of the range behind another has 2.3 times his factor, and with
//! it less than half of his slice of what several wait for.
//!
//! Invariant: of two numbers within the range the higher has the smaller factor, and each is read back as itself.
//! Deliberately not here: a submitter's real priority.

use crate::RANGE_DEFAULT;

/// That of the number 0, and of whoever has none: greater than every other one.
pub(super) const WORST: &str = "3e38";

/// The bits of 16.
const FIRST: i64 = 0x4180_0000;

/// Largest range for which there are floats enough.
pub const RANGE_MAX: u32 = RANGE_DEFAULT;

/// The bits by which a float is twice another.
const TWICE: u32 = 1 << 23;

/// Whether a value of the configuration is the wanted one, however it is written.
pub fn is_as_wanted(is: &str, wanted: &str) -> bool {
    let value = |text: &str| text.trim().parse::<f64>().ok().map(f64::to_bits);
    value(is).is_some() && value(is) == value(wanted)
}

/// The factor of a number, with all its digits.
pub(super) fn of(number: i64, range: i64) -> String {
    let bits = u32::try_from(FIRST + range - number.min(range));
    match bits {
        Ok(bits) if number > 0 => f64::from(f32::from_bits(bits)).to_string(),
        _ => WORST.to_owned(),
    }
}

/// The number of a factor; none of one that is no number.
pub(super) fn number(factor: &str, range: i64) -> Option<i64> {
    let bits = factor.parse::<f32>().ok()?.to_bits();
    Some((FIRST + range - i64::from(bits)).max(0))
}

/// Whether the first is half of the second, but for the last bit.
pub(super) fn is_half(effective: &str, factor: &str) -> bool {
    let bits = |text: &str| text.parse::<f32>().ok().map(f32::to_bits);
    let (Some(effective), Some(factor)) = (bits(effective), bits(factor)) else {
        return false;
    };
    effective.saturating_add(TWICE).abs_diff(factor) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: i64 = 1_000_000_000;

    #[test]
    fn each_number_is_read_back_as_itself_with_the_digits_that_the_negotiator_keeps() {
        let few = [
            0,
            1,
            2,
            499_999_999,
            500_000_000,
            RANGE - 2,
            RANGE - 1,
            RANGE,
        ];
        let many = (0..RANGE).step_by(999_983);
        for at in few.into_iter().chain(many) {
            let factor: f64 = of(at, RANGE).parse().expect("a number");
            assert_eq!(number(&format!("{factor:.6}"), RANGE), Some(at));
        }
        assert_eq!(of(RANGE, RANGE), "16");
        assert_eq!(of(RANGE + 7, RANGE), "16");
        assert_eq!(of(0, RANGE), WORST);
    }

    #[test]
    fn a_higher_number_has_a_smaller_factor() {
        let factor = |number| of(number, RANGE).parse::<f64>().expect("a number");
        for at in (0..RANGE).step_by(9_999_991) {
            assert!(factor(at) > factor(at + 1), "{at}");
        }
        assert!(factor(RANGE) >= 1.0, "the least that HTCondor takes");
        assert!(factor(1) < 3e38);
    }

    #[test]
    fn an_effective_priority_shows_whether_the_real_one_stands_still() {
        assert!(is_half("1.699999999839974E+38", "3.399999999679947E+38"));
        assert!(is_half("0.6172840000000001", "1.234568"));
        assert!(!is_half("500.0480000000001", "1000.0"));
        assert!(!is_half("undefined", "1000.0"));
    }
}
