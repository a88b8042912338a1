//! One number made of a deviation vector: five ways, and a trait for a site's own.
//!
//! Invariant: a greater [`Priority`] is served first; priorities compare only within one projection
//! of one tree. Only `rank` keeps the exact order always; `bits` keeps it down to the precision of a
//! digit; `paper` can invert it (its digits run over 201 values in base 200, and unrounded ones reach
//! into the level above); `percental` and `fairtree` are orders of their own.
//! Deliberately not here: which one a site uses. Source: FSGrid; Slurm's Fair Tree.

use std::fmt;

use ethnum::{I256, U256};
use fairmesh_model::{Importance, Share};

use crate::deviation::DeviationVector;
use crate::tree::{EntryId, Snapshot};

pub mod bits;
pub mod fairtree;
pub mod paper;
pub mod percental;
pub mod rank;

pub use bits::BitsProjection;
pub use fairtree::FairTreeProjection;
pub use paper::{PaperProjection, PaperRoundedProjection};
pub use percental::PercentalProjection;
pub use rank::RankProjection;

/// Decimals that no projection exceeds.
const DECIMALS_MAX: u8 = 36;

/// What a projection may know beside the vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Whose vector it is.
    pub entry: EntryId,
    /// Levels below the root of the tree's deepest entry.
    pub depth: usize,
}

/// A way to make a priority of a vector.
pub trait Projection: Send + Sync {
    /// Its name in configuration and answers.
    fn name(&self) -> &'static str;

    /// The priority of an entry: the greater is served first.
    fn project(&self, vector: &DeviationVector, context: &Context) -> Priority;

    /// A priority of this projection as a fraction of the highest possible one, for schedulers.
    fn factor(&self, priority: &Priority, context: &Context) -> Share;

    /// The priority of an entry of `snapshot`.
    fn priority_of(&self, snapshot: &Snapshot, entry: EntryId) -> Priority {
        let context = Context::of(snapshot, entry);
        self.project(&snapshot.vector(entry), &context)
    }

    /// Whether its order is that of the vectors, to the last digit.
    fn is_exact(&self) -> bool {
        false
    }
}

impl Context {
    /// That of an entry of `snapshot`.
    pub fn of(snapshot: &Snapshot, entry: EntryId) -> Self {
        Self {
            entry,
            depth: snapshot.depth(),
        }
    }
}

/// A decimal number with a sign, at most 36 decimals, that prints exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    decimals: u8,
    units: I256,
}

/// A priority with a job's own importance as its last digit.
///
/// The importance orders jobs of one priority, that is of one entry (and of entries in an exact tie,
/// which have to be ordered somehow), and nothing else: it is compared behind the priority, and never added
/// to it, so no projection's cut or rounding lets it reach a digit above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobPriority {
    priority: Priority,
    importance: Importance,
}

impl Priority {
    /// A priority without a fraction.
    pub fn whole(value: u64) -> Self {
        Self {
            decimals: 0,
            units: I256::from(value),
        }
    }

    /// `units` × 10^-`decimals`; `None` beyond 36 decimals. Priorities of one projection must have
    /// the same number of decimals.
    pub fn from_units(units: I256, decimals: u8) -> Option<Self> {
        (decimals <= DECIMALS_MAX).then_some(Self { decimals, units })
    }

    /// The digits, without the decimal point.
    pub const fn units(&self) -> I256 {
        self.units
    }

    /// How many of the digits are decimals.
    pub const fn decimals(&self) -> u8 {
        self.decimals
    }

    /// This priority with a job's importance as its last digit.
    pub const fn with_importance(self, importance: Importance) -> JobPriority {
        JobPriority {
            priority: self,
            importance,
        }
    }
}

impl fmt::Display for Priority {
    /// A decimal number without trailing zeros behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.units < I256::ZERO { "-" } else { "" };
        let decimals = usize::from(self.decimals);
        let digits = format!(
            "{:0>width$}",
            self.units.unsigned_abs().to_string(),
            width = decimals + 1
        );
        let (whole, rest) = digits.split_at(digits.len() - decimals);
        match rest.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            rest => write!(f, "{sign}{whole}.{rest}"),
        }
    }
}

impl fmt::Display for JobPriority {
    /// The priority and the importance, as in `5020083+100`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.priority, self.importance.get())
    }
}

/// `part / whole` as a share, rounded down; `part` is at most `whole`, and neither exceeds 2^225.
fn fraction(part: U256, whole: U256) -> Share {
    let units = part.min(whole) * U256::from(Share::ONE) / whole.max(U256::ONE);
    u32::try_from(units)
        .ok()
        .and_then(Share::from_units)
        .unwrap_or(Share::WHOLE)
}

/// The non-negative units of a priority, or 0.
fn units_of(priority: &Priority) -> U256 {
    U256::try_from(priority.units).unwrap_or(U256::ZERO)
}

#[cfg(test)]
mod tests;
