//! Which seeds: a number of them, or a range.
//!
//! Invariant: a range is not empty. Deliberately not here: what a seed means to a command.

use std::ops::Range;
use std::str::FromStr;

/// `25`, `1..26` or `1..=25`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeds {
    /// So many, from where the command begins.
    Count(u64),
    /// From the first to the one before the last.
    Range(Range<u64>),
}

impl Seeds {
    /// The range, where a number begins at `first`.
    pub fn from(&self, first: u64) -> Range<u64> {
        match self {
            Self::Count(count) => first..first.saturating_add(*count),
            Self::Range(range) => range.clone(),
        }
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim()
                .parse::<u64>()
                .map_err(|error| error.to_string())
        };
        let Some((first, last)) = text.split_once("..") else {
            return number(text).map(Self::Count);
        };
        let (first, until) = match last.strip_prefix('=') {
            Some(last) => (number(first)?, number(last)?.saturating_add(1)),
            None => (number(first)?, number(last)?),
        };
        if first < until {
            Ok(Self::Range(first..until))
        } else {
            Err("the range is empty".to_owned())
        }
    }
}
