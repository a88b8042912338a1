//! What the lines of one share tree must keep to, whoever wrote it: a VO, a delegate, or a site's owner.
//!
//! Invariants that a checked tree keeps: the weights of siblings have a ratio of whole numbers below 2^41, so
//! exact arithmetic fits 256 bits; an entry `/cms/*` stands for the accounts below `/cms` that have no line,
//! and is a leaf; a former path (`was`) names no line, and at most one line claims it.
//! Deliberately not here: parents of entries, delegations, and line numbers.

use std::collections::BTreeMap;

use crate::path::AccountPath;
use crate::weight::Weight;

/// The weights of one level, divided by their greatest common divisor, add up to less than this. Mixed
/// distances multiply usage (2^128) with two weights and a factor (2^30), which has to stay below 2^240.
pub const LEVEL_TOTAL_MAX: u128 = 1 << 41;

/// Former paths of one entry: bounds what one line can make every look-up search.
pub const FORMER_PATHS_MAX: usize = 64;

/// One line of a share tree, as far as the rules read it.
#[derive(Debug, Clone, Copy)]
pub struct ShareLine<'a> {
    /// Its weight among its siblings.
    pub weight: Weight,
    /// Earlier paths of the entry: their usage counts for it.
    pub was: &'a [AccountPath],
    /// Whether another policy divides the entry.
    pub is_divided: bool,
    /// A key of the line that makes no sense for accounts without a line, if there is one.
    pub divides: Option<&'static str>,
}

/// What is wrong with a tree. Nothing changed; its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareProblem {
    /// Weights that cannot be divided exactly.
    #[error(
        "the shares below `{parent}` cannot be divided exactly: their sum has too many digits. Write smaller numbers or fewer decimals"
    )]
    TooFine {
        /// The entry above them.
        parent: AccountPath,
    },
    /// A line below `*`.
    #[error("`{others}` stands for all accounts without a line: nothing can stand below it")]
    BelowOthers {
        /// The entry above it.
        others: AccountPath,
    },
    /// `*` with a key that divides it.
    #[error("an entry `*` stands for all accounts without a line: remove `{key}`")]
    OthersDivided {
        /// The key of the line in the file.
        key: &'static str,
    },
    /// A former path that is a line of the tree.
    #[error("was = \"{was}\": that entry still exists. Remove its line, or this former path")]
    StillExists {
        /// The earlier path in the line.
        was: AccountPath,
    },
    /// Two lines that claim each other's former path.
    #[error(
        "was = \"{was}\": the former paths form a cycle. Keep the line of the present path only"
    )]
    Cycle {
        /// The earlier path in the line.
        was: AccountPath,
    },
    /// Two lines that claim one former path.
    #[error(
        "was = \"{was}\": `{other}` claims that path, too. Its history can move to one entry only"
    )]
    ClaimedTwice {
        /// The earlier path in the line.
        was: AccountPath,
        /// The entry that also claims the path.
        other: AccountPath,
    },
    /// A former path in somebody else's tree.
    #[error("was = \"{was}\": it lies below `{above}`, which another policy divides")]
    NotOurs {
        /// The earlier path in the line.
        was: AccountPath,
        /// The entry that is divided.
        above: AccountPath,
    },
    /// The root is no former path.
    #[error("was = \"/\": the root has no other place")]
    Root,
    /// Too many former paths.
    #[error("more than {FORMER_PATHS_MAX} former paths")]
    TooMany,
}

/// The first rule that an entry breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {problem}")]
pub struct ShareLineError {
    /// The entry at fault.
    pub path: AccountPath,
    /// The rule that the line breaks.
    pub problem: ShareProblem,
}

/// Checks all lines of one tree. O(n log n).
///
/// # Errors
/// The first rule that an entry breaks, entries ascending by path.
pub fn check_shares(lines: &BTreeMap<&AccountPath, ShareLine<'_>>) -> Result<(), ShareLineError> {
    let mut claimed: BTreeMap<&AccountPath, &AccountPath> = BTreeMap::new();
    for (path, line) in lines {
        check_others(lines, path, line).map_err(|problem| error(path, problem))?;
        if line.was.len() > FORMER_PATHS_MAX {
            return Err(error(path, ShareProblem::TooMany));
        }
        for was in line.was {
            check_former(lines, path, was).map_err(|problem| error(path, problem))?;
            if let Some(other) = claimed.insert(was, path) {
                let (was, other) = (was.clone(), other.clone());
                return Err(error(path, ShareProblem::ClaimedTwice { was, other }));
            }
        }
    }
    check_levels(lines)
}

fn error(path: &AccountPath, problem: ShareProblem) -> ShareLineError {
    let path = path.clone();
    ShareLineError { path, problem }
}

fn check_others(
    lines: &BTreeMap<&AccountPath, ShareLine<'_>>,
    path: &AccountPath,
    line: &ShareLine<'_>,
) -> Result<(), ShareProblem> {
    let above = path.parent();
    if let Some(others) = above.filter(AccountPath::is_others)
        && lines.contains_key(&others)
    {
        return Err(ShareProblem::BelowOthers { others });
    }
    match line.divides.filter(|_| path.is_others()) {
        Some(key) => Err(ShareProblem::OthersDivided { key }),
        None => Ok(()),
    }
}

fn check_former(
    lines: &BTreeMap<&AccountPath, ShareLine<'_>>,
    path: &AccountPath,
    was: &AccountPath,
) -> Result<(), ShareProblem> {
    if was.is_root() {
        return Err(ShareProblem::Root);
    }
    if let Some(line) = lines.get(was) {
        let was = was.clone();
        return Err(match was == *path || line.was.contains(path) {
            true => ShareProblem::Cycle { was },
            false => ShareProblem::StillExists { was },
        });
    }
    let mut above = was.ancestors();
    let divided = above.find(|above| lines.get(above).is_some_and(|line| line.is_divided));
    match divided {
        Some(above) => Err(ShareProblem::NotOurs {
            was: was.clone(),
            above,
        }),
        None => Ok(()),
    }
}

fn check_levels(lines: &BTreeMap<&AccountPath, ShareLine<'_>>) -> Result<(), ShareLineError> {
    let mut levels: BTreeMap<&str, (u128, u64, &AccountPath)> = BTreeMap::new();
    for (path, line) in lines {
        let Some(parent) = path.parent_str() else {
            continue;
        };
        let units = line.weight.units();
        let level = levels.entry(parent).or_insert((0, 0, path));
        *level = (level.0 + u128::from(units), gcd(level.1, units), level.2);
    }
    let too_fine = levels
        .iter()
        .find(|(_, (total, divisor, _))| total / u128::from(*divisor).max(1) >= LEVEL_TOTAL_MAX);
    match too_fine {
        Some((_, (_, _, first))) => {
            let parent = first.parent().expect("a line has one");
            Err(error(first, ShareProblem::TooFine { parent }))
        }
        None => Ok(()),
    }
}

/// The greatest common divisor; 0 of two zeros.
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AccountPath {
        AccountPath::parse(text).expect("a path")
    }

    /// Path, share, former paths, and whether another policy divides the entry.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], bool);

    fn checked(rows: &[Row<'_>]) -> Result<(), String> {
        let rows: Vec<_> = rows
            .iter()
            .map(|(at, weight, was, is_divided)| {
                let was: Vec<_> = was.iter().map(|was| path(was)).collect();
                let weight = Weight::parse(weight).expect("a weight");
                (path(at), weight, was, *is_divided)
            })
            .collect();
        let line =
            |(at, weight, was, is_divided): &'_ (AccountPath, Weight, Vec<AccountPath>, bool)| {
                (at.clone(), *weight, was.clone(), *is_divided)
            };
        let owned: Vec<_> = rows.iter().map(line).collect();
        let lines = owned.iter().map(|(at, weight, was, is_divided)| {
            let line = ShareLine {
                weight: *weight,
                was,
                is_divided: *is_divided,
                divides: is_divided.then_some("delegate"),
            };
            (at, line)
        });
        check_shares(&lines.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_rule_names_the_entry_that_breaks_it() {
        let rows: [(&[Row<'_>], &str); 10] = [
            (
                &[("/*", "1", &[], false), ("/*/a", "1", &[], false)],
                "`/*/a`: `/*` stands for all",
            ),
            (
                &[("/a/*", "1", &[], true)],
                "`/a/*`: an entry `*` stands for all accounts without a line: remove `delegate`",
            ),
            (
                &[("/a", "1", &["/b"], false), ("/b", "1", &[], false)],
                "`/a`: was = \"/b\": that entry still exists",
            ),
            (
                &[("/a", "1", &["/b"], false), ("/b", "1", &["/a"], false)],
                "`/a`: was = \"/b\": the former paths form a cycle",
            ),
            (
                &[("/a", "1", &["/a"], false)],
                "`/a`: was = \"/a\": the former paths form a cycle",
            ),
            (
                &[("/a", "1", &["/o"], false), ("/b", "1", &["/o"], false)],
                "`/b`: was = \"/o\": `/a` claims that path",
            ),
            (
                &[("/a", "1", &["/o", "/o"], false)],
                "`/a`: was = \"/o\": `/a` claims that path",
            ),
            (
                &[("/a", "1", &["/d/x"], false), ("/d", "1", &[], true)],
                "`/a`: was = \"/d/x\": it lies below `/d`",
            ),
            (&[("/a", "1", &["/"], false)], "`/a`: was = \"/\": the root"),
            (
                &[
                    ("/a", "1000000000.0000001", &[], false),
                    ("/b", "1", &[], false),
                ],
                "`/a`: the shares below `/` cannot be divided exactly",
            ),
        ];
        for (tree, message) in rows {
            let error = checked(tree).expect_err(message);
            assert!(error.starts_with(message), "{error} instead of {message}");
        }
    }

    #[test]
    fn what_people_write_passes() {
        let rows: [&[Row<'_>]; 4] = [
            &[("/a", "2147483647", &[], false), ("/b", "1", &[], false)],
            &[
                ("/a", "33.3333333", &["/b", "/c/d"], false),
                ("/d", "66.6666667", &["/b/x"], false),
            ],
            &[("/a", "0", &[], false), ("/b", "0", &[], false)],
            &[
                ("/a", "1", &[], true),
                ("/a-b", "1", &["/a-c"], false),
                ("/*", "10", &["/x"], false),
            ],
        ];
        for tree in rows {
            assert_eq!(checked(tree), Ok(()));
        }
    }
}
