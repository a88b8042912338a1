//! Amounts of usage: whose they are, what is in flight, and weighted sums with their changes.
//!
//! Deliberately not here: where they are kept (`cells`, `sums`).

use fairmesh_model::mutant;

use crate::history::ONE;

/// Weighted usage of an entry and all below it, in core-ms × 2^-32.
///
/// Wraps beyond 2^128, which 2^32 cells of the largest weighted charge (2^96) do not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Counted at this site, weighed by the site's history.
    pub local: u128,
    /// Counted at all sites, weighed by the VO's history.
    pub global: u128,
}

/// A change of [`Sums`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) local: i128,
    pub(crate) global: i128,
}

/// Whose usage it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Counted at this site: part of the local and the global sums.
    Own,
    /// Counted at another site: part of the global sums only.
    Remote,
}

/// What running jobs count for beyond what is booked; in core-ms, as present usage.
///
/// The two scopes are apart, because a VO may count what its jobs will use while a local level, which is
/// always *active*, counts what they have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// In the local sums.
    pub local: u64,
    /// In the global sums.
    pub global: u64,
}

impl InFlight {
    /// On an entry that is a VO's, or is none's.
    pub(crate) fn weighted(self, is_of_vo: bool) -> Change {
        let weigh = |amount: u64| i128::from(amount) * i128::from(ONE);
        Change {
            local: weigh(self.local),
            global: if is_of_vo { weigh(self.global) } else { 0 },
        }
    }
}

impl Sums {
    pub(crate) fn plus(self, change: Change) -> Self {
        Self {
            local: self.local.wrapping_add_signed(change.local),
            global: self.global.wrapping_add_signed(change.global),
        }
    }
}

/// The change that `own` and `remote` amounts make, under (local, global) weights.
pub(crate) fn weighted(own: u64, remote: u64, weights: (u64, u64)) -> Change {
    let times = |amount: u128, weight: u64| {
        i128::try_from(amount * u128::from(weight)).expect("a charge times a weight is below 2^98")
    };
    Change {
        local: times(
            u128::from(own) + u128::from(mutant!(OthersAreOwn, 0, remote)),
            weights.0,
        ),
        global: times(u128::from(own) + u128::from(remote), weights.1),
    }
}
