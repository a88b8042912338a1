//! What people call selectors.

use std::fmt;
use std::str::FromStr;

use super::Selector;

/// Each name and what it stands for.
const NAMES: [(&str, Selector); 10] = [
    ("ra", Selector::Random),
    ("rr", Selector::RoundRobin),
    ("lru", Selector::LeastRecentlyUsed),
    ("lu", Selector::LeastUsed),
    ("lu-own", Selector::LeastUsedByUs),
    ("obs", Selector::Observant),
    ("s-ra", Selector::Naive),
    ("fair", Selector::Fair),
    ("eta", Selector::Eta),
    ("utility", Selector::Utility),
];

impl Selector {
    /// All of them, by name.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        NAMES.into_iter()
    }
}

impl FromStr for Selector {
    type Err = String;

    /// Capital letters are those of the paper, and mean the same.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, selector)| selector).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(|(name, _)| name).collect();
            format!("`{text}` is no selector: {}", names.join(", "))
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::all().find(|(_, selector)| selector == self);
        f.write_str(named.expect("each selector has a name").0)
    }
}
