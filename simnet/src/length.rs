//! Lengths of time as people write them: `90s`, `2h`, `14d`, `1d 12h`, `-250ms`.
//!
//! Invariant: what is written is exact, in milliseconds; [`length`] writes what [`Length`] reads.
//! Deliberately not here: fractions, and moments of the calendar.

use std::str::FromStr;

use fairmesh_model::Millis;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units of time in the order in which they are tried, longest first.
const UNITS: [(&str, i64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A length of time, possibly backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Length(pub i64);

impl From<Millis> for Length {
    fn from(time: Millis) -> Self {
        Self(i64::try_from(time.0).unwrap_or(i64::MAX))
    }
}

impl Length {
    /// The length as one that time can last; `None` if it is below zero.
    pub fn millis(self) -> Option<Millis> {
        u64::try_from(self.0).ok().map(Millis)
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no length of time: write 90s, 2h, 14d, 1d 12h or -250ms");
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let mut total = 0_i64;
        for word in rest.split_whitespace() {
            let digits = word.chars().take_while(char::is_ascii_digit).count();
            let number: i64 = word[..digits].parse().map_err(|_| wrong())?;
            let unit = UNITS.iter().find(|(name, _)| *name == &word[digits..]);
            let (_, unit) = unit.ok_or_else(wrong)?;
            let part = number.checked_mul(*unit).ok_or_else(wrong)?;
            total = total.checked_add(part).ok_or_else(wrong)?;
        }
        if rest.split_whitespace().next().is_none() {
            return Err(wrong());
        }
        Ok(Self(sign * total))
    }
}

impl TryFrom<String> for Length {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Length> for String {
    fn from(Length(ms): Length) -> Self {
        let sign = if ms < 0 { "-" } else { "" };
        format!("{sign}{}", length(Millis(ms.unsigned_abs())))
    }
}

/// For `#[serde(with = "crate::length")]`: times that are not below zero, given or not.
pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Millis>,
{
    let length = Length::deserialize(deserializer)?;
    let millis = length.millis().ok_or("it is below zero");
    millis.map(T::from).map_err(D::Error::custom)
}

pub(crate) fn serialize<S, T>(time: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    T: Copy + Into<Option<Millis>>,
{
    (*time).into().map(length).serialize(serializer)
}

/// A length in words: its units from the longest to the shortest that are not zero.
pub fn length(time: Millis) -> String {
    let mut left = i64::try_from(time.0).unwrap_or(i64::MAX);
    let mut words = Vec::new();
    for (name, unit) in UNITS {
        if left >= unit {
            words.push(format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    if words.is_empty() {
        words.push("0s".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (text, ms) in [
            ("90s", 90_000),
            ("1d 12h", 129_600_000),
            ("-250ms", -250),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Length(ms)));
        }
        assert_eq!(length(Millis(129_600_007)), "1d 12h 7ms");
        assert_eq!(length(Millis(0)), "0s");
        for text in ["", "5", "h", "3 h", "1w", "9999999999999999999s", "1.5h"] {
            let error = text.parse::<Length>().expect_err(text);
            assert!(error.contains("is no length"), "{error}");
        }
        assert_eq!(String::from(Length(-90_000)), "-1m 30s");
    }
}
