//! The contents of an allocation: an amount cut into slices, and a split among sites.
//!
//! Invariant: the parts of an amount differ by at most one unit (from each other, or from their exact weighted share)
//! and sum up to the amount.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fairmesh_model::{AllocationSlice, Charter, CoreMillis, Millis, SiteId, WallTime, mutant};

/// The period of a grant, its number of slices, and their grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The beginning of the first slice.
    pub from: WallTime,
    /// The end of the last slice without its grace, excluded.
    pub until: WallTime,
    /// Number of slices; 0 counts as 1.
    pub slices: u32,
    /// Time after its end in which a slice can still be spent.
    pub grace: Millis,
}

/// Slices for "use it or lose it": slice k can be spent in the k-th part of the period.
pub fn windows(amount: CoreMillis, period: Period) -> Vec<AllocationSlice> {
    cut(amount, period, |k| border(period, k - 1))
}

/// Slices that may be spent early: slice k can be spent from the beginning of the period to the end of the k-th part.
pub fn expiring(amount: CoreMillis, period: Period) -> Vec<AllocationSlice> {
    cut(amount, period, |_| period.from)
}

/// Weights for a split by capacity: the number of cores of each member.
pub fn by_capacity(charter: &Charter) -> BTreeMap<SiteId, u64> {
    let members = charter.sites.iter();
    members
        .map(|member| (member.site, u64::from(member.cores)))
        .collect()
}

/// A division of an amount by weights: whole units first, then one more unit for each of the largest remainders; of
/// equal remainders the lowest site id wins. The whole amount is divided if any weight is above 0. Its size does not
/// depend on the number of sites, so one can be kept for each slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    amount: u64,
    sum: u128,
    /// The last site, in the order of remainders, that gets one more unit.
    last: Option<(Reverse<u128>, SiteId)>,
}

impl Division {
    /// Divides `amount`, in O(sites).
    pub(crate) fn new(amount: u64, weights: &BTreeMap<SiteId, u64>) -> Self {
        let sum = weights.values().map(|weight| u128::from(*weight)).sum();
        let mut division = Self {
            amount,
            sum,
            last: None,
        };
        let mut left = amount;
        let mut remainders = Vec::with_capacity(weights.len());
        for (site, weight) in weights.iter().filter(|_| sum > 0) {
            let (whole, remainder) = division.whole(*weight);
            left -= whole;
            remainders.push((Reverse(remainder), *site));
        }
        let count = usize::try_from(mutant!(RemaindersTwice, left, 2 * left)).unwrap_or(usize::MAX);
        if let Some(last) = count.min(remainders.len()).checked_sub(1) {
            division.last = Some(*remainders.select_nth_unstable(last).1);
        }
        division
    }

    /// The units of a site with `weight`, which must be its weight in the division.
    pub(crate) fn part(&self, site: SiteId, weight: u64) -> u64 {
        if self.sum == 0 {
            return 0;
        }
        let (whole, remainder) = self.whole(weight);
        let has_more = self
            .last
            .is_some_and(|last| (Reverse(remainder), site) <= last);
        whole + u64::from(has_more)
    }

    fn whole(&self, weight: u64) -> (u64, u128) {
        let product = u128::from(self.amount) * u128::from(weight);
        let whole = u64::try_from(product / self.sum).expect("a part of the amount");
        (whole, product % self.sum)
    }
}

/// Divides an amount by weights; empty if all weights are 0.
pub fn divide(amount: u64, weights: &BTreeMap<SiteId, u64>) -> BTreeMap<SiteId, u64> {
    let division = Division::new(amount, weights);
    let part = |(site, weight): (&SiteId, &u64)| (*site, division.part(*site, *weight));
    let weights = weights.iter().filter(|_| division.sum > 0);
    weights.map(part).collect()
}

fn cut(
    amount: CoreMillis,
    period: Period,
    start: impl Fn(u64) -> WallTime,
) -> Vec<AllocationSlice> {
    let n = u64::from(period.slices.max(1));
    let up_to = |k: u64| u128::from(amount.0) * u128::from(k) / u128::from(n);
    let slice = |k: u64| AllocationSlice {
        amount: CoreMillis(u64::try_from(up_to(k) - up_to(k - 1)).expect("a part of the amount")),
        start: start(k),
        end: border(period, k).after(period.grace),
    };
    (1..=n).map(slice).collect()
}

/// The end of the k-th part of the period.
fn border(period: Period, k: u64) -> WallTime {
    let length = u128::from(period.until.since(period.from).0);
    let part = length * u128::from(k) / u128::from(period.slices.max(1));
    period
        .from
        .after(Millis(u64::try_from(part).expect("a part of the period")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u8) -> SiteId {
        SiteId::from_bytes([number; 32])
    }

    #[test]
    fn slices_sum_up_and_lie_as_their_kind_says() {
        let period = Period {
            from: WallTime(100),
            until: WallTime(400),
            slices: 3,
            grace: Millis(10),
        };
        let shape = |slices: Vec<AllocationSlice>| {
            let shape = |slice: &AllocationSlice| (slice.amount.0, slice.start.0, slice.end.0);
            slices.iter().map(shape).collect::<Vec<_>>()
        };
        assert_eq!(
            shape(windows(CoreMillis(1_000), period)),
            [(333, 100, 210), (333, 200, 310), (334, 300, 410)]
        );
        assert_eq!(
            shape(expiring(CoreMillis(1_000), period)),
            [(333, 100, 210), (333, 100, 310), (334, 100, 410)]
        );
    }

    #[test]
    fn a_split_gives_all_away_by_largest_remainders() {
        let weights = |parts: &[u64]| (1..).map(site).zip(parts.iter().copied()).collect();
        for (amount, split, expected) in [
            (100, vec![1, 1, 1], vec![34, 33, 33]),
            (10, vec![6, 3, 1], vec![6, 3, 1]),
            (7, vec![5, 3, 0], vec![4, 3, 0]),
            (u64::MAX, vec![1, 0], vec![u64::MAX, 0]),
        ] {
            let parts = divide(amount, &weights(&split));
            assert_eq!(parts.into_values().collect::<Vec<_>>(), expected);
        }
    }
}
