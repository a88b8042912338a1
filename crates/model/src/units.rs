//! Amounts and shares, as checked integers.
//!
//! Invariant: no arithmetic here can overflow, underflow or lose a digit silently, and none of it
//! is floating point. A share is a *decimal* fixed-point number, because people write decimal
//! percentages: in binary fixed point 30 % of the usage would differ from a target of 30 by a
//! rounding error, and two entries that are exactly on target would not tie.

use std::fmt;
use std::iter::Sum;

use serde::{Deserialize, Serialize};

/// Core-milliseconds: the unit of charge. One core busy for one second is 1,000.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CoreMillis(pub u64);

impl CoreMillis {
    /// The sum, saturating: 2^64 core-ms are 584 million core-years.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for CoreMillis {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Self::plus)
    }
}

/// What one cell counts. Only `charge` makes priorities; the rest is what a VO may want to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Normalised usage, core-milliseconds.
    pub charge: u64,
    /// Cores held, core-milliseconds.
    pub cpu_ms: u64,
    /// GPUs held, GPU-milliseconds.
    pub gpu_ms: u64,
    /// Memory held, MiB-seconds.
    pub mem_mib_s: u64,
    /// Jobs that ended.
    pub jobs: u64,
    /// Charge that was taken back by corrections, core-milliseconds: a counter of its own, because
    /// counters only grow. What counts is [`Counters::net`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refunds: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Number of columns of [`Counters`].
pub const COLUMNS: usize = 6;

impl Counters {
    /// The charge that counts: what was charged and not taken back, never below 0.
    pub const fn net(&self) -> u64 {
        self.charge.saturating_sub(self.refunds)
    }

    /// What is left when what was taken back is gone: the net charge, and of what was held the same
    /// part, rounded down. The jobs have run all the same.
    #[must_use]
    pub fn left(self) -> Self {
        if self.refunds == 0 {
            return self;
        }
        let (net, charge) = (u128::from(self.net()), u128::from(self.charge.max(1)));
        let up = crate::mutant!(LeftRoundedUp, 0, charge - 1);
        let part =
            |held: u64| u64::try_from((u128::from(held) * net + up) / charge).unwrap_or(held);
        Self {
            charge: self.net(),
            cpu_ms: crate::mutant!(RefundsKeepCpu, part(self.cpu_ms), self.cpu_ms),
            gpu_ms: part(self.gpu_ms),
            mem_mib_s: part(self.mem_mib_s),
            jobs: self.jobs,
            refunds: 0,
        }
    }

    /// The columns, in the order of the wire format.
    pub const fn to_columns(self) -> [u64; COLUMNS] {
        [
            self.charge,
            self.cpu_ms,
            self.gpu_ms,
            self.mem_mib_s,
            self.jobs,
            self.refunds,
        ]
    }

    /// The inverse of [`Counters::to_columns`].
    pub const fn from_columns(columns: [u64; COLUMNS]) -> Self {
        let [charge, cpu_ms, gpu_ms, mem_mib_s, jobs, refunds] = columns;
        Self {
            charge,
            cpu_ms,
            gpu_ms,
            mem_mib_s,
            jobs,
            refunds,
        }
    }

    /// Column by column, the sum (saturating).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Column by column, the difference or zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    /// Column by column, the larger: the join of the grow-only counters.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let other = crate::mutant!(
            OnlyChargeJoined,
            other,
            Self {
                charge: other.charge,
                ..self
            }
        );
        self.zip(other, u64::max)
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let (mine, theirs) = (self.to_columns(), other.to_columns());
        Self::from_columns(std::array::from_fn(|column| {
            combine(mine[column], theirs[column])
        }))
    }
}

/// A target share: a fraction of the parent from 0 to 1, in units of 10^-9 (that is, a percentage
/// with seven decimals).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "u32", into = "u32")]
pub struct Share(u32);

/// Why a share was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Not a decimal number.
    #[error("`{0}` is not a percentage: write digits with at most one decimal point")]
    NotDecimal(String),
    /// Below 0 or above 100 percent.
    #[error("a share of {0} % is outside 0..100")]
    OutOfRange(String),
    /// More decimals than can be kept exactly.
    #[error("`{0}` has more than {PERCENT_DECIMALS} decimals, which cannot be kept exactly")]
    TooPrecise(String),
}

/// Decimals of a percentage that a [`Share`] keeps.
pub const PERCENT_DECIMALS: usize = 7;

impl Share {
    /// Units in the whole.
    pub const ONE: u32 = 1_000_000_000;
    /// The whole of the parent.
    pub const WHOLE: Self = Self(Self::ONE);
    /// The share of nothing.
    pub const ZERO: Self = Self(0);

    /// A share in units of 10^-9 of the parent; `None` above the whole.
    pub const fn from_units(units: u32) -> Option<Self> {
        if units <= Self::ONE {
            Some(Self(units))
        } else {
            None
        }
    }

    /// Whole percents; `None` above 100.
    pub const fn from_percent(percent: u32) -> Option<Self> {
        if percent <= 100 {
            Some(Self(percent * (Self::ONE / 100)))
        } else {
            None
        }
    }

    /// `part` of `whole`, rounded down; the whole where `whole` is zero or less than `part`.
    pub fn from_ratio(part: u64, whole: u64) -> Self {
        let whole = u128::from(whole.max(1));
        let units = u128::from(part) * u128::from(Self::ONE) / whole;
        Self(u32::try_from(units).unwrap_or(Self::ONE).min(Self::ONE))
    }

    /// Reads a decimal percentage such as `12.5`, exactly.
    pub fn parse_percent(text: &str) -> Result<Self, ShareError> {
        let not_decimal = || ShareError::NotDecimal(text.to_owned());
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
        if whole.len() > 3 {
            return Err(ShareError::OutOfRange(text.to_owned()));
        }
        if decimals.len() > PERCENT_DECIMALS {
            return Err(ShareError::TooPrecise(text.to_owned()));
        }
        let padded = format!("0{whole}{decimals:0<width$}", width = PERCENT_DECIMALS);
        let units: u64 = padded.parse().map_err(|_| not_decimal())?;
        match u32::try_from(units).ok().and_then(Self::from_units) {
            Some(share) if !negative || share == Self::ZERO => Ok(share),
            _ => Err(ShareError::OutOfRange(text.to_owned())),
        }
    }

    /// Units of 10^-9 of the parent.
    pub const fn units(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    /// The percentage with as few decimals as are exact: `12.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000_000, self.0 % 10_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:07}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl TryFrom<u32> for Share {
    type Error = ShareError;

    fn try_from(units: u32) -> Result<Self, ShareError> {
        Self::from_units(units).ok_or_else(|| ShareError::OutOfRange(format!("{units}e-7")))
    }
}

impl From<Share> for u32 {
    fn from(share: Share) -> Self {
        share.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_exactly_or_refused() {
        for (text, units) in [
            ("30", 300_000_000),
            ("12.5", 125_000_000),
            ("0.0000001", 1),
            ("100.000", 1_000_000_000),
            ("-0", 0),
            ("007", 70_000_000),
        ] {
            assert_eq!(
                Share::parse_percent(text).map(Share::units),
                Ok(units),
                "{text}"
            );
        }
        for text in ["100.0000001", "120", "-1", "99999999999999999999"] {
            assert!(
                matches!(Share::parse_percent(text), Err(ShareError::OutOfRange(_))),
                "{text}"
            );
        }
        for text in ["", ".", "1e2", "nan", "1_0", "--1", "1.2.3"] {
            assert!(
                matches!(Share::parse_percent(text), Err(ShareError::NotDecimal(_))),
                "{text}"
            );
        }
        assert!(matches!(
            Share::parse_percent("33.33333333"),
            Err(ShareError::TooPrecise(_))
        ));
    }

    #[test]
    fn shares_print_as_they_were_written() {
        for text in ["0", "30", "12.5", "33.3333333", "100"] {
            assert_eq!(Share::parse_percent(text).expect("valid").to_string(), text);
        }
    }
}
