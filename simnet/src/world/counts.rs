//! How often what has happened.
//!
//! Invariant: what is counted has happened, by the word of its action or by one of those for what
//! links and disks do by themselves; a fault that found nothing to break is not counted. A swarm of
//! runs can thus show that it has tried everything.

use std::collections::BTreeMap;

use strum::VariantNames;

use super::Action;

/// What links and disks do that nobody has planned for that moment.
const UNPLANNED: [&str; 9] = [
    "loss",
    "duplication",
    "reordering",
    "replay",
    "clogged",
    "lost_write",
    "kept_write",
    "store_set_aside",
    "disk_full",
];

/// All words that can be counted.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    UNPLANNED.iter().chain(Action::VARIANTS).copied()
}

/// How often each has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// # Panics
    /// Where the word is none: whoever counts has misspelled it.
    pub(crate) fn count(&mut self, word: &'static str) {
        match self.0.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                assert!(words().any(|known| known == word), "`{word}` is no word");
                self.0.insert(word, 1);
            }
        }
    }

    /// How often the thing of this word has happened.
    pub fn of(&self, word: &str) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    /// How often anything has.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// What has happened, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(word, count)| (*word, *count))
    }
}
