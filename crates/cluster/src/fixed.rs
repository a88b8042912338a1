//! Numbers with 40 binary digits behind the point: logarithm, exponential and root without floats.
//!
//! Invariant: a result is made by integer operations alone, so it is the same on every machine,
//! whatever its mathematical library. `ln`, `exp` and `sqrt` are within 2^-32 of the true value
//! (`exp`: of the value times that), for results below 2^23.
//!
//! Deliberately not here: shares and charges, which have exact types of their own in
//! `fairmesh_model`. These numbers serve the statistical models of load only. Series: Abramowitz &
//! Stegun 4.1.27 (logarithm) and 4.2.1 (exponential).

use std::ops::{Add, Div, Mul, Sub};

use crate::random::Stream;

/// Binary digits behind the point: draws of 40 bits are finer than any load needs, and products of
/// numbers below 2^23 fit into 126 bits.
const DIGITS: u32 = 40;

const ONE: i128 = 1 << DIGITS;

/// A multiple of 2^-40. Arithmetic is for magnitudes below 2^23 and rounds down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fixed(i128);

impl Fixed {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(ONE);

    /// The natural logarithm of 2.
    pub(crate) const LN_2: Self = Self(762_123_384_786);

    pub(crate) const fn whole(number: i64) -> Self {
        Self((number as i128) << DIGITS)
    }

    /// `numerator / denominator`, which is not zero.
    pub(crate) const fn ratio(numerator: i64, denominator: i64) -> Self {
        Self(((numerator as i128) << DIGITS) / denominator as i128)
    }

    /// A draw above 0 and at most 1, each multiple of 2^-40 equally likely.
    pub(crate) fn unit(stream: &mut Stream) -> Self {
        Self(i128::from(stream.below(1 << DIGITS)) + 1)
    }

    /// The greatest whole number that is not greater.
    pub(crate) fn floor(self) -> i64 {
        i64::try_from(self.0 >> DIGITS).expect("magnitudes are below 2^23")
    }

    /// The nearest whole number; halves go up.
    pub(crate) fn round(self) -> i64 {
        Self(self.0 + ONE / 2).floor()
    }

    /// Natural logarithm.
    ///
    /// # Panics
    /// Where the number is not positive: there is no such logarithm.
    pub(crate) fn ln(self) -> Self {
        assert!(self.0 > 0, "a logarithm is of a positive number");
        let exponent = i64::from(self.0.ilog2()) - i64::from(DIGITS);
        // The mantissa lies in [1, 2), so that the ratio below is at most 1/3.
        let mantissa = Self(match exponent {
            0.. => self.0 >> exponent,
            _ => self.0 << -exponent,
        });
        let ratio = (mantissa - Self::ONE) / (mantissa + Self::ONE);
        let square = ratio * ratio;
        let (mut power, mut sum, mut odd) = (ratio, Self::ZERO, 1);
        while power > Self::ZERO {
            sum = sum + power / Self::whole(odd);
            power = power * square;
            odd += 2;
        }
        sum + sum + Self(Self::LN_2.0 * i128::from(exponent))
    }

    /// e to this power.
    ///
    /// # Panics
    /// Where the result would be 2^23 or more: callers bound what they draw.
    pub(crate) fn exp(self) -> Self {
        let halvings = (self / Self::LN_2).floor();
        assert!(halvings < 23, "an exponential is bounded by its caller");
        let rest = Self(self.0 - Self::LN_2.0 * i128::from(halvings));
        let (mut term, mut sum, mut number) = (Self::ONE, Self::ZERO, 1);
        while term > Self::ZERO {
            sum = sum + term;
            term = term * rest / Self::whole(number);
            number += 1;
        }
        match halvings {
            0.. => Self(sum.0 << halvings),
            _ => Self(sum.0 >> (-halvings).min(127)),
        }
    }

    /// Square root; of a number that is not negative.
    pub(crate) fn sqrt(self) -> Self {
        let number = u128::try_from(self.0).expect("a root is of no negative number");
        Self((number << DIGITS).isqrt().cast_signed())
    }

    /// 2 to this power.
    pub(crate) fn exp2(self) -> Self {
        (self * Self::LN_2).exp()
    }

    /// Logarithm to base 2 of a positive number.
    pub(crate) fn log2(self) -> Self {
        self.ln() / Self::LN_2
    }
}

impl Add for Fixed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Fixed {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul for Fixed {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self((self.0 * other.0) >> DIGITS)
    }
}

impl Div for Fixed {
    type Output = Self;

    #[expect(
        clippy::suspicious_arithmetic_impl,
        reason = "a quotient has to be scaled"
    )]
    fn div(self, other: Self) -> Self {
        Self((self.0 * ONE).div_euclid(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values are given in units of 2^-40, rounded from 30 decimal digits.
    fn assert_near(found: Fixed, expected: i128, what: &str) {
        let slack = 256 * (1 + expected.abs() / ONE);
        assert!(
            (found.0 - expected).abs() <= slack,
            "{what}: {} for {expected}",
            found.0
        );
    }

    #[test]
    fn functions_are_within_the_named_precision() {
        let logarithms = [
            (1, 1, 0),
            (2, 1, 762_123_384_786),
            (10, 1, 2_531_719_083_691),
            (3, 2, 445_813_601_022),
            (1, 1024, -7_621_233_847_858),
            (199, 100, 756_612_036_766),
            (400000, 1, 14_182_842_188_025),
            (1, 1048576, -15_242_467_695_716),
        ];
        let exponentials = [
            (0, 1, 1_099_511_627_776),
            (1, 1, 2_988_782_477_963),
            (-1, 1, 404_487_723_188),
            (1, 3, 1_534_492_089_251),
            (12, 1, 178_950_785_641_452_358),
            (13, 1, 486_438_668_797_629_773),
            (-15, 2, 608_122_696),
            (-20, 1, 2_266),
        ];
        let roots = [
            (0, 1, 0),
            (2, 1, 1_554_944_255_988),
            (1, 4, 549_755_813_888),
            (1000000, 1, 1_099_511_627_776_000),
            (1, 1048576, 1_073_741_824),
        ];
        for (numerator, denominator, expected) in logarithms {
            let found = Fixed::ratio(numerator, denominator).ln();
            assert_near(found, expected, &format!("ln {numerator}/{denominator}"));
        }
        for (numerator, denominator, expected) in exponentials {
            let found = Fixed::ratio(numerator, denominator).exp();
            assert_near(found, expected, &format!("exp {numerator}/{denominator}"));
        }
        for (numerator, denominator, expected) in roots {
            let found = Fixed::ratio(numerator, denominator).sqrt();
            assert_near(found, expected, &format!("sqrt {numerator}/{denominator}"));
        }
    }

    #[test]
    fn powers_of_two_come_back() {
        for exponent in 0..20 {
            let power = Fixed::whole(1 << exponent);
            assert_eq!(power.log2().round(), exponent);
            assert_eq!(Fixed::whole(exponent).exp2().round(), 1 << exponent);
        }
        assert_eq!(Fixed::whole(-200).exp(), Fixed::ZERO);
    }

    #[test]
    fn rounding_is_to_the_nearest_and_floors_go_down() {
        let rows = [(5, 2, 2, 3), (-5, 2, -3, -2), (7, 3, 2, 2), (-7, 3, -3, -2)];
        for (numerator, denominator, floor, round) in rows {
            let number = Fixed::ratio(numerator, denominator);
            assert_eq!((number.floor(), number.round()), (floor, round));
        }
    }
}
