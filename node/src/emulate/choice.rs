//! The words for distances and projections on command lines and in files.
//!
//! Invariant: every word here means the same in a charter's draft, in a configuration and on a
//! command line. Deliberately not here: what they compute (`fairshare`).

use std::fmt::Write;

use fairmesh_fairshare::Snapshot;
use fairmesh_fairshare::projection::{
    BitsProjection, FairTreeProjection, PaperProjection, PercentalProjection, Projection,
    RankProjection,
};
use fairmesh_model::{Distance, Share};

/// A projection, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProjectionName {
    /// FSGrid's base-200 number as published; does not always keep the order
    Paper,
    /// Fixed-point digits in 64 bits; says how far, and ties what is nearer than a digit
    Bits,
    /// The exact order as a number; what look-ups use unless the owner says otherwise
    #[default]
    Rank,
    /// Product of targets less product of actual shares; isolates nothing
    Percental,
    /// Slurm's Fair Tree as its manual documents it
    Fairtree,
}

impl ProjectionName {
    /// The word for the projection that keeps the exact order.
    pub const EXACT: &str = "rank";

    /// The projection, prepared for one state of a tree.
    pub fn prepare(self, snapshot: &Snapshot) -> Box<dyn Projection> {
        match self {
            Self::Paper => Box::new(PaperProjection),
            Self::Bits => Box::new(BitsProjection),
            Self::Rank => Box::new(RankProjection::prepare(snapshot)),
            Self::Percental => Box::new(PercentalProjection),
            Self::Fairtree => Box::new(FairTreeProjection::prepare(snapshot)),
        }
    }
}

/// Reads `absolute`, `relative` or `mix:K` with a decimal K from 0 to 1.
pub fn parse_distance(text: &str) -> Result<Distance, String> {
    match text {
        "absolute" => Ok(Distance::Absolute),
        "relative" => Ok(Distance::Relative),
        _ => text
            .strip_prefix("mix:")
            .and_then(parse_fraction)
            .map(|k| Distance::Mix { k })
            .ok_or_else(|| {
                "write absolute, relative, or mix:K with K from 0 to 1, such as mix:0.5".to_owned()
            }),
    }
}

/// The inverse of [`parse_distance`].
pub fn distance_text(distance: Distance) -> String {
    match distance {
        Distance::Absolute => "absolute".to_owned(),
        Distance::Relative => "relative".to_owned(),
        Distance::Mix { k } => {
            let units = format!("{:010}", k.units());
            let (whole, decimals) = units.split_at(1);
            let mut text = format!("mix:{whole}");
            let decimals = decimals.trim_end_matches('0');
            if !decimals.is_empty() {
                write!(text, ".{decimals}").expect("a string takes all text");
            }
            text
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
            assert_eq!(distance_text(parse_distance(text).expect(text)), text);
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
            assert!(parse_distance(text).is_err(), "{text}");
        }
    }
}
