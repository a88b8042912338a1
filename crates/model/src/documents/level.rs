//! How the entries of a level are compared: by whose usage, and how far they are from their targets.
//!
//! Invariant: one word means the same in a document, in a tree file and on a command line.
//! Deliberately not here: what a distance comes to (`fairshare`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::Share;

/// Whose usage makes the actual shares of the entries of a level.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// What was used at the site that answers, weighed by the site's own history.
    #[default]
    Local,
    /// What the members of the entries' VO used together, weighed by the VO's history.
    Global,
}

/// How far an entry is from its target share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// `target − actual`, as in FSGrid: active siblings of an idle entry gain equally.
    #[default]
    Absolute,
    /// `(target − actual) / target`: they gain in proportion to their targets (Rodrigo, Östberg and
    /// Elmroth, "Priority Operators for Fairshare Scheduling", JSSPP 2014, pages 70–89).
    Relative,
    /// `k × absolute + (1 − k) × relative`.
    Mix {
        /// Weight of the absolute distance.
        k: Share,
    },
}

/// A text that names no distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write absolute, relative, or mix:K with K from 0 to 1, such as mix:0.5")]
pub struct DistanceError;

impl Scope {
    /// The word for it in files and documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Distance {
    type Err = DistanceError;

    /// Reads `absolute`, `relative` or `mix:K` with a decimal K from 0 to 1.
    fn from_str(text: &str) -> Result<Self, DistanceError> {
        match text {
            "absolute" => Ok(Self::Absolute),
            "relative" => Ok(Self::Relative),
            _ => {
                let k = text.strip_prefix("mix:").and_then(parse_fraction);
                k.map(|k| Self::Mix { k }).ok_or(DistanceError)
            }
        }
    }
}

impl fmt::Display for Distance {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = match self {
            Self::Absolute => return f.write_str("absolute"),
            Self::Relative => return f.write_str("relative"),
            Self::Mix { k } => format!("{:010}", k.units()),
        };
        let (whole, decimals) = k.split_at(1);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "mix:{whole}"),
            decimals => write!(f, "mix:{whole}.{decimals}"),
        }
    }
}

/// A decimal fraction from 0 to 1 of at most nine decimals, exactly.
fn parse_fraction(text: &str) -> Option<Share> {
    const DECIMALS: usize = 9;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let good = matches!(whole, "0" | "1") && digits(decimals) && decimals.len() <= DECIMALS;
    let units = good.then(|| format!("{whole}{decimals:0<DECIMALS$}"))?;
    units.parse().ok().and_then(Share::from_units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_read_and_written_alike() {
        for text in [
            "absolute",
            "relative",
            "mix:0",
            "mix:0.5",
            "mix:0.000000001",
            "mix:1",
        ] {
            let distance: Distance = text.parse().expect(text);
            assert_eq!(distance.to_string(), text);
        }
        for text in [
            "",
            "abs",
            "mix",
            "mix:",
            "mix:2",
            "mix:1.1",
            "mix:-0.5",
            "mix:0.5e1",
            "mix:50%",
        ] {
            assert_eq!(text.parse::<Distance>(), Err(DistanceError), "{text}");
        }
    }
}
