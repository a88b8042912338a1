//! Whether the granted rights fit what the machines can run.
//!
//! The imbalance at `t` for a horizon `T` is the amount still to be spent by `T` ÷ the core-time that the sites can
//! provide until then at the target utilisation. Above 1 some projects cannot use what they were granted. Source:
//! Gardfjäll's thesis (Umeå University), sections 3.4.3 and 3.6.1: credit in circulation must not outgrow the
//! capacity that is left.

use fairmesh_model::{AllocationSlice, Factor, Millis, Share, WallTime};

/// The capacity of all sites together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of cores of all sites.
    pub cores: u64,
    /// The target utilisation: the part of the cores that jobs can keep busy.
    pub utilisation: Share,
}

impl Capacity {
    /// Core-milliseconds in a length of time.
    pub fn core_ms(&self, length: Millis) -> u128 {
        let all = u128::from(self.cores) * u128::from(length.0);
        // Saturating: a caller may pass any length.
        all.saturating_mul(u128::from(self.utilisation.units())) / u128::from(Share::ONE)
    }
}

/// The imbalance at `at` for the horizon `until`, in millionths, rounded up. `unspent` are the spendable amounts of
/// slices that have begun and the whole amounts of those that have not, each with its slice. Slices that end after
/// the horizon do not count, because they can be spent later. Without capacity the result is `u64::MAX`.
pub fn imbalance(
    unspent: impl IntoIterator<Item = (u64, AllocationSlice)>,
    capacity: Capacity,
    at: WallTime,
    until: WallTime,
) -> u64 {
    let due = unspent
        .into_iter()
        .filter(|(_, slice)| at < slice.end && slice.end <= until);
    let due: u128 = due.map(|(amount, _)| u128::from(amount)).sum();
    match (due, capacity.core_ms(until.since(at))) {
        (0, _) => 0,
        (_, 0) => u64::MAX,
        (due, can) => {
            let millionths = due.saturating_mul(u128::from(Factor::UNITS)).div_ceil(can);
            u64::try_from(millionths).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::CoreMillis;

    use super::*;
    use crate::slices::{Period, windows};

    /// Ten cores for 1,200 ms at 90 %: 10,800 core-ms.
    #[test]
    fn slices_take_back_what_can_no_longer_be_run() {
        let capacity = Capacity {
            cores: 10,
            utilisation: Share::from_percent(90).expect("at most 100"),
        };
        let granted = |slices| {
            let period = Period {
                from: WallTime(0),
                until: WallTime(1_200),
                slices,
                grace: Millis(0),
            };
            windows(CoreMillis(10_800), period)
        };
        // Nobody spends anything until 1,000.
        let at = |slices, at| {
            let unspent = granted(slices)
                .into_iter()
                .map(|slice| (slice.amount.0, slice));
            imbalance(unspent, capacity, WallTime(at), WallTime(1_200))
        };
        assert_eq!((at(1, 0), at(12, 0)), (1_000_000, 1_000_000));
        assert_eq!((at(1, 1_000), at(12, 1_000)), (6_000_000, 1_000_000));
        assert_eq!(at(1, 1_200), 0);
        let nothing = Capacity {
            cores: 0,
            ..capacity
        };
        let unspent = granted(1).into_iter().map(|slice| (1, slice));
        assert_eq!(
            imbalance(unspent, nothing, WallTime(0), WallTime(1_200)),
            u64::MAX
        );
    }
}
