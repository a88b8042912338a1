//! Putting the parts of a campaign together.
//!
//! Invariant: what is put together was made by one program in one way, and covers its range once. The
//! order in which the files are named plays no part.

use std::path::PathBuf;

use super::{Results, Shard};

/// Why shards do not make a whole. Nothing was put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No file at all.
    #[error("there are no result files")]
    Nothing,
    /// Two files that were not made alike.
    #[error("{file} and {other} differ in their {what}: `{here}`, `{there}`")]
    Differs {
        /// One file.
        file: String,
        /// The other.
        other: String,
        /// In what.
        what: &'static str,
        /// What the first says.
        here: String,
        /// What the other says.
        there: String,
    },
    /// Something was run twice.
    #[error("{file} and {other} both have {what} {from}")]
    Overlap {
        /// One file.
        file: String,
        /// The other.
        other: String,
        /// `seed` or `part`.
        what: &'static str,
        /// The first that both have.
        from: u64,
    },
    /// Something was not run.
    #[error("{what} {from} to {last} are missing{behind}")]
    Gap {
        /// `seeds` or `parts`.
        what: &'static str,
        /// The first that is missing.
        from: u64,
        /// The last that is missing.
        last: u64,
        /// The file before it, if there is one.
        behind: String,
    },
}

/// Puts shards together. `whole` is the range that they must cover, where the caller knows it.
pub fn merge(
    mut shards: Vec<(PathBuf, Shard)>,
    whole: Option<(u64, u64)>,
) -> Result<Shard, Refused> {
    shards.sort_by_key(|(path, shard)| (shard.from, path.clone()));
    for pair in shards.windows(2) {
        alike(&pair[0], &pair[1])?;
    }
    let mut shards = shards.into_iter();
    let (mut before, mut sum) = shards.next().ok_or(Refused::Nothing)?;
    let whole = whole.or(sum.of.map(|of| (1, of + 1)));
    let (first, until) = whole.unwrap_or((sum.from, 0));
    missing(&sum, first, sum.from, String::new())?;
    for (path, shard) in shards {
        if shard.from < sum.until_excluded {
            return Err(Refused::Overlap {
                file: before.display().to_string(),
                other: path.display().to_string(),
                what: unit(&sum).0,
                from: shard.from,
            });
        }
        let behind = format!(" behind {}", before.display());
        missing(&sum, sum.until_excluded, shard.from, behind)?;
        add(&mut sum, shard);
        before = path;
    }
    let behind = format!(" behind {}", before.display());
    missing(&sum, sum.until_excluded, until, behind)?;
    Ok(sum)
}

/// What a shard's numbers count: one of them, several.
fn unit(shard: &Shard) -> (&'static str, &'static str) {
    if shard.of.is_some() {
        ("part", "parts")
    } else {
        ("seed", "seeds")
    }
}

fn missing(shard: &Shard, from: u64, until_excluded: u64, behind: String) -> Result<(), Refused> {
    if from >= until_excluded {
        return Ok(());
    }
    Err(Refused::Gap {
        what: unit(shard).1,
        from,
        last: until_excluded - 1,
        behind,
    })
}

fn alike((path, a): &(PathBuf, Shard), (other, b): &(PathBuf, Shard)) -> Result<(), Refused> {
    let of = |shard: &Shard| {
        [
            ("commit", shard.commit.clone()),
            ("program", shard.program.clone()),
            ("command", shard.results.kind().to_owned()),
            ("set-up", shard.setup.clone()),
            ("number of parts", format!("{:?}", shard.of)),
        ]
    };
    let mut pairs = of(a).into_iter().zip(of(b));
    match pairs.find(|(here, there)| here != there) {
        None => Ok(()),
        Some(((what, here), (_, there))) => Err(Refused::Differs {
            file: path.display().to_string(),
            other: other.display().to_string(),
            what,
            here,
            there,
        }),
    }
}

fn add(sum: &mut Shard, shard: Shard) {
    sum.until_excluded = shard.until_excluded;
    sum.wall_ms += shard.wall_ms;
    sum.cpu_ms += shard.cpu_ms;
    match (&mut sum.results, shard.results) {
        (Results::Check(sum), Results::Check(more)) => sum.join(more),
        (Results::Mutants(sum), Results::Mutants(more)) => sum.extend(more),
        (Results::Paper { runs: sum, .. }, Results::Paper { runs: more, .. }) => sum.extend(more),
        _ => unreachable!("shards of two commands are not alike"),
    }
}
