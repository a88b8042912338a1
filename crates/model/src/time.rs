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

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// What the driver knows of time when it hands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For timers.
    pub mono: MonoTime,
    /// For windows and validity periods.
    pub wall: WallTime,
}
