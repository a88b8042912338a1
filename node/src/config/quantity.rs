//! Lengths of time, percentages, factors, sizes, moments and modes as people write them in files.
//!
//! Invariant: a percentage is read from its digits, never through a float; a length of time is a
//! whole number of milliseconds, above zero. Deliberately not here: the files.

use std::fmt::Display;

use fairmesh_model::{Factor, Millis, Share, WallTime, WindowLength};
use jiff::{SpanRelativeTo, Timestamp};
use toml::Spanned;

use super::text::{FileError, Source};

/// Bytes of `2027-11-21`.
const DATE_BYTES: usize = 10;

/// A length of time in quotes.
pub type RawDuration = Spanned<String>;

/// A percentage, as a number without quotes.
pub type RawPercent = Spanned<toml::Value>;

/// A decimal number, without quotes.
pub type RawFactor = Spanned<toml::Value>;

/// A date or a date with time and zone, with or without quotes.
pub type RawMoment = Spanned<toml::Value>;

/// Reads `10s`, `1h 30m`, `500ms`, `7d` (days of 24 hours).
pub fn parse_duration(text: &str) -> Option<Millis> {
    let span: jiff::Span = text.trim().parse().ok()?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let millis = u64::try_from(length.as_millis()).ok()?;
    (millis > 0 && length.subsec_nanos() % 1_000_000 == 0).then_some(Millis(millis))
}

/// Reads `512GiB`, `2 TiB`, `700M` (units are powers of 1,024, as memory is), in MiB, above zero.
pub fn parse_mebibytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let shift = match unit.trim() {
        "M" | "MiB" => 0,
        "G" | "GiB" => 10,
        "T" | "TiB" => 20,
        "P" | "PiB" => 30,
        _ => return None,
    };
    let mebibytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (mebibytes > 0).then_some(mebibytes)
}

/// Reads `2027-11-21` (the start of that day, UTC) or `2027-11-21T12:00:00Z`.
pub fn parse_moment(text: &str) -> Option<WallTime> {
    let text = text.trim();
    let moment = text.parse::<Timestamp>().ok().or_else(|| {
        // A time without a zone would be read as its day.
        let day: jiff::civil::Date = text.parse().ok().filter(|_| text.len() == DATE_BYTES)?;
        Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    })?;
    u64::try_from(moment.as_millisecond()).ok().map(WallTime)
}

impl Source<'_> {
    /// A length of time.
    pub fn duration(&self, key: &str, raw: &RawDuration) -> Result<Millis, FileError> {
        parse_duration(raw.get_ref()).ok_or_else(|| {
            let problem = format!("`{}` is not a length of time", raw.get_ref());
            let help = "write a number and a unit: \"500ms\", \"10s\", \"5m\", \"1h 30m\", \"7d\"";
            self.wrong(key, raw, problem).with_help(help)
        })
    }

    /// The length of windows.
    pub fn window(&self, key: &str, raw: &RawDuration) -> Result<WindowLength, FileError> {
        let length = self.duration(key, raw)?;
        WindowLength::from_millis(length.0).map_err(|error| {
            let help = "take 1h, or another part of a day such as 30m or 6h";
            self.wrong(key, raw, error.to_string()).with_help(help)
        })
    }

    /// A length of time in whole windows.
    pub fn in_windows(
        &self,
        key: &str,
        raw: &RawDuration,
        window: WindowLength,
    ) -> Result<u32, FileError> {
        let (length, one) = (self.duration(key, raw)?, window.millis().0);
        let windows = u32::try_from(length.0 / one)
            .ok()
            .filter(|_| length.0.is_multiple_of(one));
        windows.ok_or_else(|| {
            let problem = format!("`{}` is not a whole number of windows", raw.get_ref());
            let help = format!("a window is {}", fairmesh_api::words::age(window.millis()));
            self.wrong(key, raw, problem).with_help(help)
        })
    }

    /// Reads a percentage of 0 to 100; the error names the place of `key`.
    pub fn percent(&self, key: &str, raw: &RawPercent) -> Result<Share, FileError> {
        let help = "write a percentage without quotes, such as 12.5";
        self.number(key, raw, help, Share::parse_percent)
    }

    /// Reads a factor; the error names the place of `key`.
    pub fn factor(&self, key: &str, raw: &RawFactor) -> Result<Factor, FileError> {
        let help = "write a number without quotes, such as 1.25";
        self.number(key, raw, help, Factor::parse)
    }

    /// What `parse` makes of the digits of a number.
    fn number<T, E: Display>(
        &self,
        key: &str,
        raw: &Spanned<toml::Value>,
        help: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FileError> {
        let value = match raw.get_ref() {
            toml::Value::Integer(_) | toml::Value::Float(_) => {
                let digits = self.text.get(raw.span()).unwrap_or_default();
                parse(digits).map_err(|error| error.to_string())
            }
            _ => Err("not a number".to_owned()),
        };
        value.map_err(|problem| self.wrong(key, raw, problem).with_help(help))
    }

    /// A size, in MiB.
    pub fn mebibytes(&self, key: &str, raw: &Spanned<String>) -> Result<u64, FileError> {
        parse_mebibytes(raw.get_ref()).ok_or_else(|| {
            let problem = format!("`{}` is not a size", raw.get_ref());
            let help = "write a whole number and a unit: \"900MiB\", \"512GiB\", \"2TiB\"";
            self.wrong(key, raw, problem).with_help(help)
        })
    }

    /// Reads a date or a time in UTC; the error names the place of `key`.
    pub fn moment(&self, key: &str, raw: &RawMoment) -> Result<WallTime, FileError> {
        let text = match raw.get_ref() {
            toml::Value::Datetime(moment) => moment.to_string(),
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        parse_moment(&text).ok_or_else(|| {
            let help = "write a date, 2027-11-21, or a moment with its zone, 2027-11-21T12:00:00Z";
            let problem = format!("`{text}` is not a moment since 1970");
            self.wrong(key, raw, problem).with_help(help)
        })
    }

    /// Anything that reads itself from a string.
    pub fn parsed<T>(&self, key: &str, raw: &Spanned<String>, help: &str) -> Result<T, FileError>
    where
        T: std::str::FromStr,
        T::Err: Display,
    {
        raw.get_ref()
            .parse()
            .map_err(|error: T::Err| self.wrong(key, raw, error.to_string()).with_help(help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_friendly_and_exact() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("2 weeks", 1_209_600_000),
        ] {
            assert_eq!(parse_duration(text), Some(Millis(millis)), "{text}");
        }
        for text in ["", "10", "0s", "-1h", "10x", "1 month", "1us", "s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        for (text, mebibytes) in [("512GiB", 512 << 10), ("2 TiB", 2 << 20), ("700M", 700)] {
            assert_eq!(parse_mebibytes(text), Some(mebibytes), "{text}");
        }
        for text in ["", "512", "0GiB", "1.5GiB", "-1G", "512GB", "99999999999P"] {
            assert_eq!(parse_mebibytes(text), None, "{text}");
        }
    }

    #[test]
    fn dates_are_midnights_in_utc() {
        let day = WallTime::from_unix_secs(86_400);
        assert_eq!(parse_moment("1970-01-02"), Some(day));
        assert_eq!(parse_moment("1970-01-02T00:00:00Z"), Some(day));
        assert_eq!(parse_moment("1970-01-02T01:00:00+01:00"), Some(day));
        assert_eq!(
            parse_moment("1970-01-02T00:00:00.25Z"),
            Some(day.after(Millis(250)))
        );
        for text in [
            "",
            "1969-12-31",
            "2027-13-01",
            "tomorrow",
            "2027-11-21T12:00:00",
        ] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }
}
