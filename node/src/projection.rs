//! The words for projections on command lines and in files.
//!
//! Invariant: every word here means the same in a configuration and on a command line. Deliberately not
//! here: what they compute (`fairshare`).

use fairmesh_fairshare::Snapshot;
use fairmesh_fairshare::projection::{
    BitsProjection, FairTreeProjection, PaperProjection, PercentalProjection, Projection,
    RankProjection,
};

use fairmesh_model::ShareRule;

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
    /// Slurm's Fair Tree; a share of 0 is last, as in its program
    Fairtree,
}

impl ProjectionName {
    /// The word for the projection that keeps the exact order.
    pub const EXACT: &str = "rank";

    /// The name of the one that compares no level by itself.
    pub const OF_PRODUCTS: &str = "percental";

    /// How shares are read under it: FSGrid's number is computed as published, everything else by weights.
    pub const fn share_rule(self) -> ShareRule {
        match self {
            Self::Paper => ShareRule::AsPublished,
            Self::Bits | Self::Rank | Self::Percental | Self::Fairtree => ShareRule::Weights,
        }
    }

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
