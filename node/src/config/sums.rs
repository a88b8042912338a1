//! Levels of a share tree that do not add up to 100, and what their shares mean.
//!
//! Shares are weights among siblings. Earlier versions read them as percent of the parent, and dealt out what was
//! not promised (or promised twice) equally. So a tree that does not add up to 100 means something else now.
//!
//! Invariant: a level that adds up to 100 is never listed: it means the same as ever.
//! Deliberately not here: who is told.

use std::collections::BTreeMap;
use std::fmt;

use fairmesh_model::{AccountPath, Weight};

/// Entries of one level that a note shows, and levels that it names.
const SHOWN_MAX: usize = 4;

/// A level that does not add up to 100, each entry with its share.
type Level<'a> = (&'a str, Vec<(&'a AccountPath, Weight)>);

/// The levels of one tree that do not add up to 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSums {
    levels: usize,
    /// The first one, in words.
    example: String,
}

impl OtherSums {
    /// Those of a tree; `None` where all levels add up to 100. O(n log n).
    pub fn of<'a>(entries: impl Iterator<Item = (&'a AccountPath, Weight)>) -> Option<Self> {
        let mut levels: BTreeMap<&str, Vec<(&AccountPath, Weight)>> = BTreeMap::new();
        for (path, share) in entries {
            if let Some(parent) = path.parent_str() {
                levels.entry(parent).or_default().push((path, share));
            }
        }
        let sum = |level: &[(&AccountPath, Weight)]| -> u128 {
            let units = level.iter().map(|(_, share)| u128::from(share.units()));
            units.sum()
        };
        // An entry alone, and a level of zeros, mean the same whatever they add up to.
        let differs = |(_, level): &Level<'_>| {
            let sum = sum(level);
            level.len() > 1 && sum > 0 && sum != u128::from(Weight::HUNDRED.units())
        };
        let mut others = levels.into_iter().filter(differs);
        let (parent, first) = others.next()?;
        Some(Self {
            example: example(parent, &first, sum(&first)),
            levels: others.count() + 1,
        })
    }
}

fn example(parent: &str, level: &[(&AccountPath, Weight)], sum: u128) -> String {
    let before = as_percent(level, sum);
    let entries = level.iter().zip(before).take(SHOWN_MAX);
    let entries = entries.map(|((path, share), before)| {
        let now = u128::from(share.units()) * 10_000 / sum;
        let name = path.name().unwrap_or("/");
        format!(
            "{name} = {share} is {} % (was {} %)",
            decimal(now),
            decimal(before)
        )
    });
    let entries = entries.collect::<Vec<_>>().join(", ");
    let more = level.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 {
        format!(", and {more} more")
    } else {
        String::new()
    };
    format!("below {parent}: {entries}{more}")
}

/// What each entry had with everybody busy while shares were percent of the parent, in hundredths of a percent:
/// its share, and an equal part of what is left; of what is too much, an equal part is taken from those that have it.
fn as_percent(level: &[(&AccountPath, Weight)], sum: u128) -> Vec<u128> {
    let hundred = u128::from(Weight::HUNDRED.units());
    let units = |share: &Weight| u128::from(share.units());
    let count = level.len() as u128;
    if sum <= hundred {
        let equal = (hundred - sum) / count;
        let had = level.iter().map(|(_, share)| units(share) + equal);
        return had.map(|had| had * 10_000 / hundred).collect();
    }
    // The smallest shares have nothing left first.
    let mut sorted: Vec<u128> = level.iter().map(|(_, share)| units(share)).collect();
    sorted.sort_unstable();
    let (mut rest, mut taken) = (sum, 0);
    for (index, least) in sorted.iter().enumerate() {
        let with = count - index as u128;
        taken = (rest - hundred.min(rest)).div_ceil(with);
        if taken <= *least {
            break;
        }
        rest -= least;
    }
    let had = level
        .iter()
        .map(|(_, share)| units(share).saturating_sub(taken));
    had.map(|had| had * 10_000 / hundred).collect()
}

/// Hundredths with two decimals.
fn decimal(hundredths: u128) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

impl fmt::Display for OtherSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { levels, example } = self;
        let levels = match levels {
            1 => "1 level does".to_owned(),
            levels => format!("{levels} levels do"),
        };
        write!(
            f,
            "{levels} not add up to 100. Shares are weights among siblings; earlier versions read percent: {example}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(rows: &[(&str, u32)]) -> Option<String> {
        let path = |text: &&str| AccountPath::parse(text).expect("a path");
        let rows: Vec<_> = rows.iter().map(|(at, share)| (path(at), *share)).collect();
        let entries = rows
            .iter()
            .map(|(path, share)| (path, Weight::whole(*share)));
        OtherSums::of(entries).map(|sums| sums.to_string())
    }

    #[test]
    fn shares_that_mean_something_else_now_are_shown_with_both() {
        let note = |rows: &[(&str, u32)]| note(rows).expect("a note");
        let under = note(&[("/a", 30), ("/b", 10)]);
        assert!(
            under.contains(
                "below /: a = 30 is 75.00 % (was 60.00 %), b = 10 is 25.00 % (was 40.00 %)"
            ),
            "{under}"
        );
        let over = note(&[("/a", 60), ("/b", 60), ("/c", 30), ("/a/x", 1), ("/a/y", 1)]);
        assert!(over.starts_with("2 levels do not"), "{over}");
        assert!(over.contains("a = 60 is 40.00 % (was 43.33 %)"), "{over}");
        assert!(over.contains("c = 30 is 20.00 % (was 13.33 %)"), "{over}");
        let much = note(&[("/a", 100), ("/b", 100), ("/c", 10)]);
        assert!(
            much.contains("b = 100 is 47.61 % (was 50.00 %), c = 10 is 4.76 % (was 0.00 %)"),
            "{much}"
        );
    }

    #[test]
    fn a_tree_that_adds_up_is_not_mentioned() {
        assert_eq!(
            note(&[
                ("/a", 60),
                ("/b", 40),
                ("/a/x", 7),
                ("/b/y", 0),
                ("/b/z", 0)
            ]),
            None
        );
        assert_eq!(note(&[]), None);
    }
}
