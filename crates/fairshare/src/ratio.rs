//! Exact arithmetic on fractions of 256-bit integers.
//!
//! Invariant: nothing here rounds except where a function's name says `floor`, and nothing
//! overflows for denominators below 2^240. Comparing multiplies crosswise where the products fit
//! and otherwise runs Euclid's algorithm on both fractions, which needs no wider integers.
//! Deliberately not here: what the fractions mean.

use std::cmp::Ordering;

use ethnum::U256;

/// Compares `a.0/a.1` with `b.0/b.1`. Both denominators are positive.
pub(crate) fn compare(a: (U256, U256), b: (U256, U256)) -> Ordering {
    if a.1 == b.1 {
        return a.0.cmp(&b.0);
    }
    let fits = |x: U256, y: U256| x.leading_zeros() + y.leading_zeros() >= 256;
    if fits(a.0, b.1) && fits(b.0, a.1) {
        return (a.0 * b.1).cmp(&(b.0 * a.1));
    }
    compare_by_euclid(a, b)
}

fn compare_by_euclid(mut a: (U256, U256), mut b: (U256, U256)) -> Ordering {
    loop {
        let (whole_a, rest_a) = a.0.div_rem(a.1);
        let (whole_b, rest_b) = b.0.div_rem(b.1);
        let order = whole_a.cmp(&whole_b);
        if order.is_ne() {
            return order;
        }
        if rest_a == U256::ZERO || rest_b == U256::ZERO {
            return rest_a.cmp(&rest_b);
        }
        // The fractional parts order as their reciprocals do, the other way round.
        (a, b) = ((b.1, rest_b), (a.1, rest_a));
    }
}

/// `floor(numerator / denominator × 2^bits)`. The quotient is below 2 and `bits` at most 64.
pub(crate) fn floor_shifted(numerator: U256, denominator: U256, mut bits: u32) -> U256 {
    let (mut quotient, mut rest) = numerator.div_rem(denominator);
    while bits > 0 {
        let step = bits.min(denominator.leading_zeros());
        let (digits, next) = (rest << step).div_rem(denominator);
        quotient = (quotient << step) + digits;
        rest = next;
        bits -= step;
    }
    quotient
}

/// `floor(numerator / denominator × base^digits)`, by long division.
pub(crate) fn floor_scaled(numerator: U256, denominator: U256, scale: &[u32]) -> U256 {
    let (mut quotient, mut rest) = numerator.div_rem(denominator);
    for base in scale {
        let base = U256::from(*base);
        let (digit, next) = (rest * base).div_rem(denominator);
        quotient = quotient * base + digit;
        rest = next;
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn euclid_agrees_with_cross_multiplication(a in any::<(u64, u64)>(), b in any::<(u64, u64)>(), k in 1u64..99) {
            let wide = |(numerator, denominator): (u64, u64)| (U256::from(numerator), U256::from(denominator.max(1)));
            let (a, b) = (wide(a), wide(b));
            prop_assert_eq!(compare_by_euclid(a, b), compare(a, b));
            let scaled = (a.0 * U256::from(k), a.1 * U256::from(k));
            prop_assert_eq!(compare_by_euclid(scaled, a), Ordering::Equal);
        }
    }

    #[test]
    fn fractions_that_fit_no_product_are_compared_exactly() {
        let big = U256::MAX >> 8;
        let (a, b) = (
            (big - U256::ONE, big),
            (big - U256::new(2), big - U256::ONE),
        );
        assert_eq!(compare(a, b), Ordering::Greater);
        assert_eq!(compare(b, a), Ordering::Less);
        assert_eq!(floor_shifted(a.0, a.1, 64), (U256::ONE << 64) - U256::ONE);
        assert_eq!(
            floor_scaled(U256::new(2), U256::new(3), &[10, 10, 10]),
            U256::new(666)
        );
    }
}
