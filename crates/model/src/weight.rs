//! The weight of an entry among its siblings.
//!
//! A share tree gives each entry a weight, and an entry's target share is its weight divided by the sum of
//! its siblings' weights (its own included). People write percentages that add up to 100, whole numbers as in
//! Slurm, or anything else: only the ratios count.
//!
//! Invariant: a weight is the decimal number that was written, exactly: a whole number of 10^-7. Ratios of two
//! weights are ratios of whole numbers, so 10 of 30 is one third and not 33.3333333 %.
//! Deliberately not here: sums over siblings (`fairshare`), limits in percent ([`crate::Share`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Share;

/// Decimals that a weight keeps.
pub const WEIGHT_DECIMALS: usize = 7;

/// The largest weight, as people write it: Slurm's largest share, 2^31, fits. The units of one weight stay
/// below 2^57.
pub const WEIGHT_MAX: u64 = 10_000_000_000;

/// How the shares of a tree are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShareRule {
    /// Weights among siblings; a weight of zero goes last; accounts without a line belong to the others.
    #[default]
    Weights,
    /// FSGrid as published: fractions of the parent that need not add up, zero like any other, and accounts
    /// without a line at deviation 0.
    AsPublished,
}

/// What an entry weighs among its siblings, in units of 10^-7.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "u64", into = "u64")]
pub struct Weight(u64);

/// Why a weight was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// Not a decimal number.
    #[error("`{0}` is not a share: write digits with at most one decimal point")]
    NotDecimal(String),
    /// Negative, or too large.
    #[error("a share of {0} is outside 0..{WEIGHT_MAX}")]
    OutOfRange(String),
    /// More decimals than can be kept exactly.
    #[error("`{0}` has more than {WEIGHT_DECIMALS} decimals, which cannot be kept exactly")]
    TooPrecise(String),
}

impl Weight {
    /// Units in a weight of 1.
    pub const ONE: u64 = 10_000_000;
    /// The weight of an entry that its siblings go before.
    pub const ZERO: Self = Self(0);
    /// A weight of 100: the whole, where siblings add up to 100.
    pub const HUNDRED: Self = Self(100 * Self::ONE);

    /// A weight in units of 10^-7; `None` above [`WEIGHT_MAX`].
    pub const fn from_units(units: u64) -> Option<Self> {
        if units <= WEIGHT_MAX * Self::ONE {
            Some(Self(units))
        } else {
            None
        }
    }

    /// A weight without a fraction.
    pub const fn whole(number: u32) -> Self {
        // `From` is not const.
        Self(number as u64 * Self::ONE)
    }

    /// Reads a decimal number such as `12.5`, exactly.
    pub fn parse(text: &str) -> Result<Self, WeightError> {
        let not_decimal = || WeightError::NotDecimal(text.to_owned());
        let out_of_range = || WeightError::OutOfRange(text.to_owned());
        let trimmed = text.trim();
        let (negative, digits) = match trimmed.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
        };
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(decimals) || (whole.is_empty() && decimals.is_empty())
        {
            return Err(not_decimal());
        }
        let decimals = decimals.trim_end_matches('0');
        let whole = whole.trim_start_matches('0');
        if decimals.len() > WEIGHT_DECIMALS {
            return Err(WeightError::TooPrecise(text.to_owned()));
        }
        let padded = format!("0{whole}{decimals:0<WEIGHT_DECIMALS$}");
        let weight = padded.parse().ok().and_then(Self::from_units);
        let weight = weight.ok_or_else(out_of_range)?;
        if negative && weight != Self::ZERO {
            return Err(out_of_range());
        }
        Ok(weight)
    }

    /// The weight in units of 10^-7.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl From<Share> for Weight {
    /// A percentage as a weight: 12.5 % weighs 12.5.
    fn from(percentage: Share) -> Self {
        Self(u64::from(percentage.units()))
    }
}

impl fmt::Display for Weight {
    /// With as few decimals as are exact: `12.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::ONE, self.0 % Self::ONE);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:0WEIGHT_DECIMALS$}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl TryFrom<u64> for Weight {
    type Error = WeightError;

    fn try_from(units: u64) -> Result<Self, WeightError> {
        Self::from_units(units).ok_or_else(|| WeightError::OutOfRange(format!("{units}e-7")))
    }
}

impl From<Weight> for u64 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_are_read_exactly_or_refused() {
        for (text, units) in [
            ("30", 300_000_000),
            ("12.5", 125_000_000),
            ("0.0000001", 1),
            ("1000", 10_000_000_000),
            ("2147483647", 21_474_836_470_000_000),
            ("-0", 0),
            ("007", 70_000_000),
        ] {
            assert_eq!(Weight::parse(text).map(Weight::units), Ok(units), "{text}");
        }
        for text in ["10000000000.1", "-1", "99999999999999999999999"] {
            assert!(
                matches!(Weight::parse(text), Err(WeightError::OutOfRange(_))),
                "{text}"
            );
        }
        for text in ["", ".", "1e2", "nan", "1_0", "--1", "1.2.3"] {
            assert!(
                matches!(Weight::parse(text), Err(WeightError::NotDecimal(_))),
                "{text}"
            );
        }
        assert!(matches!(
            Weight::parse("33.33333333"),
            Err(WeightError::TooPrecise(_))
        ));
    }

    #[test]
    fn weights_print_as_they_were_written() {
        for text in ["0", "30", "12.5", "33.3333333", "100", "1000000"] {
            assert_eq!(Weight::parse(text).expect("valid").to_string(), text);
        }
    }
}
