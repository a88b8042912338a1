//! A factor that a charge is multiplied by: the speed of a machine, the cost of a queue.
//!
//! Invariant: a factor is what somebody wrote, exactly: a decimal number of millionths from 0 to
//! [`Factor::MAX`]. It multiplies in integers; nothing here rounds.
//! Deliberately not here: what is multiplied (`fairmesh-fairshare`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A decimal number from 0 to 4294.967295, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(u32);

/// Why a factor was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactorError {
    /// Not a decimal number.
    #[error("`{0}` is not a factor: write digits with at most one decimal point")]
    NotDecimal(String),
    /// The number is above [`Factor::MAX`].
    #[error("a factor of {0} is above {max}", max = Factor::MAX)]
    OutOfRange(String),
    /// More decimals than can be kept exactly.
    #[error("`{0}` has more than {DECIMALS} decimals, which cannot be kept exactly")]
    TooPrecise(String),
}

/// Decimals that a [`Factor`] keeps.
const DECIMALS: usize = 6;

impl Factor {
    /// Factors are integers in millionths.
    pub const UNITS: u32 = 1_000_000;
    /// The factor that changes nothing.
    pub const ONE: Self = Self(Self::UNITS);
    /// The largest factor, about 4,294.
    pub const MAX: Self = Self(u32::MAX);

    /// A factor of so many millionths.
    pub const fn from_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// The factor in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Reads a decimal number such as `1.25`, exactly.
    ///
    /// # Errors
    /// That it is none, is too large, or has more decimals than are kept.
    pub fn parse(text: &str) -> Result<Self, FactorError> {
        let digits = text.trim();
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(decimals) || (whole.is_empty() && decimals.is_empty())
        {
            return Err(FactorError::NotDecimal(text.to_owned()));
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > DECIMALS {
            return Err(FactorError::TooPrecise(text.to_owned()));
        }
        let whole = whole.trim_start_matches('0');
        let millionths = format!("0{whole}{decimals:0<DECIMALS$}");
        let millionths = millionths.parse().ok();
        millionths
            .map(Self)
            .ok_or_else(|| FactorError::OutOfRange(text.to_owned()))
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Factor {
    /// With as few decimals as are exact: `1.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::UNITS, self.0 % Self::UNITS);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:0DECIMALS$}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_read_exactly_or_refused() {
        for (text, millionths) in [
            ("1", 1_000_000),
            ("1.25", 1_250_000),
            (".5", 500_000),
            ("0", 0),
            ("007.000001", 7_000_001),
            ("2.0000000000", 2_000_000),
            ("4294.967295", u32::MAX),
        ] {
            let factor = Factor::parse(text).expect(text);
            assert_eq!(factor.millionths(), millionths, "{text}");
            assert_eq!(Factor::parse(&factor.to_string()), Ok(factor));
        }
        for text in ["", ".", "-1", "1e3", "nan", "1.2.3", "½"] {
            let error = Factor::parse(text).expect_err(text);
            assert!(matches!(error, FactorError::NotDecimal(_)), "{text}");
        }
        for text in ["4294.967296", "99999999999999999999999999"] {
            let error = Factor::parse(text).expect_err(text);
            assert!(matches!(error, FactorError::OutOfRange(_)), "{text}");
        }
        let error = Factor::parse("0.3333333").expect_err("too precise");
        assert!(matches!(error, FactorError::TooPrecise(_)));
    }
}
