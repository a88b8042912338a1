//! A day of the calendar, UTC.
//!
//! Invariant: a date is a day since 1970-01-01, as the day tables of usage count them, so "since that date" is
//! a comparison of two whole numbers. Deliberately not here: time zones; a Grid has one calendar.

use std::fmt;
use std::str::FromStr;

use jiff::civil;
use serde::{Deserialize, Serialize};

/// A day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Date(pub u32);

/// A text that is no date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a date from 1970-01-01 on, such as 2026-07-01")]
pub struct DateError;

const EPOCH: civil::Date = civil::date(1970, 1, 1);

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, DateError> {
        let is_plain = text.len() == 10 && text.is_ascii();
        let date: civil::Date = text.parse().map_err(|_| DateError)?;
        let days = (date - EPOCH).get_days();
        let days = u32::try_from(days).map_err(|_| DateError)?;
        is_plain.then_some(Self(days)).ok_or(DateError)
    }
}

impl fmt::Display for Date {
    /// As it is read; the count of days beyond the year 9999.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = jiff::Span::new().try_days(i64::from(self.0));
        match days.and_then(|days| EPOCH.checked_add(days)) {
            Ok(date) => write!(f, "{date}"),
            Err(_) => write!(f, "day {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_and_written_alike() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("2024-02-29", 19_782),
            ("2026-07-01", 20_635),
        ] {
            let date: Date = text.parse().expect(text);
            assert_eq!((date.0, date.to_string().as_str()), (days, text));
        }
        for text in [
            "",
            "2026-7-1",
            "2026-02-30",
            "1969-12-31",
            "yesterday",
            "2026-07-01T00",
        ] {
            assert_eq!(text.parse::<Date>(), Err(DateError), "{text}");
        }
        assert_eq!(Date(u32::MAX).to_string(), "day 4294967295");
    }
}
