//! Windows of time in which usage is counted, and the spans that old windows are merged into.
//!
//! Invariant: windows are aligned to the Unix epoch and all of one VO's windows have one length,
//! which divides a day, so that a span of a day is always a whole number of windows.

use serde::{Deserialize, Serialize};

use crate::time::{Millis, WallTime};

/// Milliseconds of a day, as wall time counts them.
pub const DAY_MS: u64 = 86_400_000;

/// Length of a VO's windows: at least a second, and a divisor of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct WindowLength(u64);

/// A window length that does not divide a day, or is shorter than a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a window of {0} ms does not divide a day of 86400000 ms into windows of a second or more")]
pub struct WindowLengthError(u64);

impl WindowLength {
    /// One hour: what FSGrid's authors and most schedulers' calculation periods suggest.
    pub const HOUR: Self = Self(3_600_000);

    /// Checks a length in milliseconds.
    pub const fn from_millis(length: u64) -> Result<Self, WindowLengthError> {
        if length >= 1_000 && length <= DAY_MS && DAY_MS.is_multiple_of(length) {
            Ok(Self(length))
        } else {
            Err(WindowLengthError(length))
        }
    }

    /// The length of one window in milliseconds.
    pub const fn millis(self) -> Millis {
        Millis(self.0)
    }

    /// Windows in a day.
    pub const fn per_day(self) -> u64 {
        DAY_MS / self.0
    }

    /// The window that `at` falls in. Saturates in 2106 at one-second windows, thousands of years later at those of a
    /// charter.
    pub fn window_at(self, at: WallTime) -> Window {
        Window(u32::try_from(at.0 / self.0).unwrap_or(u32::MAX))
    }

    /// The first moment of `window`.
    pub fn start_of(self, window: Window) -> WallTime {
        WallTime(u64::from(window.0).saturating_mul(self.0))
    }

    /// The first moment after `window`.
    pub fn end_of(self, window: Window) -> WallTime {
        WallTime((u64::from(window.0) + 1).saturating_mul(self.0))
    }

    /// The day that `window` lies in.
    pub fn day_of(self, window: Window) -> u32 {
        u32::try_from(u64::from(window.0) / self.per_day()).expect("a day holds a window or more")
    }

    /// The window in the middle of `day`: where a whole day's usage is weighed from.
    pub fn middle_of_day(self, day: u32) -> Window {
        let middle =
            u64::from(day) * self.per_day() + crate::mutant!(MiddleIsStart, self.per_day() / 2, 0);
        Window(u32::try_from(middle).unwrap_or(u32::MAX))
    }
}

impl TryFrom<u64> for WindowLength {
    type Error = WindowLengthError;

    fn try_from(length: u64) -> Result<Self, WindowLengthError> {
        Self::from_millis(length)
    }
}

impl From<WindowLength> for u64 {
    fn from(length: WindowLength) -> Self {
        length.0
    }
}

/// Index of a window since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Window(pub u32);

impl Window {
    /// How many windows ago `earlier` was; zero if it lies ahead.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where a cell's amounts lie in time: one window, or one whole day once they are old.
///
/// The order is by kind and then by time; it is used for iteration only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Span {
    /// One window of the VO's length.
    #[serde(rename = "w")]
    Window(Window),
    /// All windows of one day since the Unix epoch.
    #[serde(rename = "d")]
    Day(u32),
}

impl Span {
    /// The day that the span lies in.
    pub fn day(self, length: WindowLength) -> u32 {
        match self {
            Self::Window(window) => length.day_of(window),
            Self::Day(day) => day,
        }
    }

    /// The first moment of the span.
    pub fn start(self, length: WindowLength) -> WallTime {
        match self {
            Self::Window(window) => length.start_of(window),
            Self::Day(day) => WallTime(u64::from(day).saturating_mul(DAY_MS)),
        }
    }

    /// The first moment after the span.
    pub fn end(self, length: WindowLength) -> WallTime {
        match self {
            Self::Window(window) => length.end_of(window),
            Self::Day(day) => WallTime((u64::from(day) + 1).saturating_mul(DAY_MS)),
        }
    }

    /// Its length in windows.
    pub fn windows(self, length: WindowLength) -> u64 {
        match self {
            Self::Window(_) => 1,
            Self::Day(_) => length.per_day(),
        }
    }

    /// The span as one number, for column blocks: windows are even, days are odd.
    pub fn code(self) -> u64 {
        match self {
            Self::Window(window) => u64::from(window.0) << 1,
            Self::Day(day) => (u64::from(day) << 1) | 1,
        }
    }

    /// The inverse of [`Span::code`]; `None` for a number that no span has.
    pub fn from_code(code: u64) -> Option<Self> {
        let index = u32::try_from(code >> 1).ok()?;
        Some(if code & 1 == 0 {
            Self::Window(Window(index))
        } else {
            Self::Day(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_aligned_and_cover_time_without_gaps() {
        let hour = WindowLength::HOUR;
        let window = hour.window_at(WallTime::from_unix_secs(7_199));
        assert_eq!(window, Window(1));
        assert_eq!(hour.end_of(window), WallTime::from_unix_secs(7_200));
        assert_eq!(hour.start_of(Window(2)), hour.end_of(Window(1)));
        assert_eq!(hour.day_of(Window(47)), 1);
        assert!(WindowLength::from_millis(7_000_000).is_err());
        assert!(WindowLength::from_millis(500).is_err());
    }

    #[test]
    fn span_codes_round_trip() {
        for span in [
            Span::Window(Window(0)),
            Span::Window(Window(u32::MAX)),
            Span::Day(20_000),
        ] {
            assert_eq!(Span::from_code(span.code()), Some(span));
        }
        assert_eq!(Span::from_code(u64::MAX), None);
    }
}
