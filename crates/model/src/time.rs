//! Time, as two numbers that a driver or a simulator hands in.
//!
//! Invariant: nothing in the pure crates reads a clock. `mono` never runs backwards and is good
//! for timers only; `wall` names windows and may jump, so nothing is ever *ordered* by it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A length of time in milliseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// `seconds` in milliseconds, saturating.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// This length `times` over, saturating.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// Milliseconds since the node (or the simulation) started. Never runs backwards.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoTime(pub u64);

impl MonoTime {
    /// This moment, `later` on; saturating.
    #[must_use]
    pub const fn after(self, later: Millis) -> Self {
        Self(self.0.saturating_add(later.0))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch, UTC, without leap seconds. May jump.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub u64);

impl WallTime {
    /// `seconds` since the Unix epoch, saturating.
    pub const fn from_unix_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// This moment, `later` on; saturating.
    #[must_use]
    pub const fn after(self, later: Millis) -> Self {
        Self(self.0.saturating_add(later.0))
    }

    /// This moment, `earlier` back; stops at the epoch.
    #[must_use]
    pub const fn before(self, earlier: Millis) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl WallTime {
    /// To the minute, in UTC, as people read it: `2026-11-28 21:15 UTC`.
    pub fn utc_minute(self) -> String {
        let minutes = self.0 / 60_000;
        let (hour, minute) = (minutes / 60 % 24, minutes % 60);
        format!("{} {hour:02}:{minute:02} UTC", self.utc_date())
    }

    /// The day, in UTC: `2026-11-28`. Years of 365.2425 days that begin in March, so that leap days end them (Hinnant,
    /// "chrono-Compatible Low-Level Date Algorithms").
    pub fn utc_date(self) -> String {
        let days = self.0 / 86_400_000 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let march_month = (5 * day + 2) / 153;
        let day = day - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = era * 400 + year + u64::from(month <= 2);
        format!("{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// What the driver knows of time when it hands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The monotonic clock, for timers.
    pub mono: MonoTime,
    /// For windows and validity periods.
    pub wall: WallTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00 UTC"),
            (1_795_900_500, "2026-11-28 21:15 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(WallTime::from_unix_secs(seconds).utc_minute(), expected);
        }
    }
}
