//! How fast credit is spent, and when it runs out.
//!
//! The rate of an account is a mean over the time observed, in which an hour of a week ago has 1/e of the weight of
//! the last hour. It is computed from the charges in the rows of all members, at the prices of the jobs.
//!
//! Invariant: whole numbers only. A slice that appears or disappears counts as neither spent nor given back.
//! Deliberately not here: durable state. A start observes from the beginning, and has no rate in its first hour.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, AllocationSlice, Millis, WallTime};

use crate::grants::SliceId;
use crate::ledger::Ledger;

/// Time between two observations: each costs a pass over all rows.
const STEP: Millis = Millis::from_secs(3_600);

/// The part of an hour's weight that is left an hour later, in millionths: e^(-1/168).
const KEPT: u128 = 994_065;

/// A longer pause between two observations starts the mean again.
const WEEK: Millis = Millis::from_secs(7 * 86_400);

/// Milliseconds in a day.
const DAY: u128 = 86_400_000;

/// The rates of all accounts of a VO.
#[derive(Debug, Clone, Default)]
pub struct Burns {
    looked: Option<WallTime>,
    accounts: BTreeMap<AccountPath, Burn>,
}

impl Burns {
    /// Observes what was spent, at most once an hour, in O(rows). Not while the rights are frozen: counters that come
    /// back then were not spent in the last hour.
    pub fn look(&mut self, now: WallTime, ledger: &Ledger) {
        let is_early = |at: WallTime| at <= now && now.since(at) < STEP;
        if self.looked.is_some_and(is_early) || ledger.is_frozen() {
            return;
        }
        let grants = ledger.grants();
        let passed = self.looked.map_or(Millis(0), |at| now.since(at));
        self.looked = Some(now);
        if passed > WEEK {
            self.accounts.clear();
        }
        let mut before = std::mem::take(&mut self.accounts);
        for path in grants.paths() {
            let spent = grants.slices_of(path).into_iter().map(|(id, _)| {
                let rows = ledger.rows(id);
                let spent =
                    rows.map(|(_, row)| u128::from(row.used()) + u128::from(row.overdraft()));
                (id, spent.sum())
            });
            let mut burn = before.remove(path);
            match &mut burn {
                Some(burn) => burn.observe(passed, spent.collect()),
                None => burn = Some(Burn::from(spent.collect::<BTreeMap<_, _>>())),
            }
            self.accounts.extend(burn.map(|burn| (path.clone(), burn)));
        }
    }

    /// Core-milliseconds that an account spends in a day; `None` before it was observed for an hour.
    pub fn per_day(&self, account: &AccountPath) -> Option<u64> {
        let burn = self.accounts.get(account).filter(|burn| burn.time > 0)?;
        u64::try_from(burn.amount * DAY / burn.time).ok()
    }
}

/// The weighted amount that one account has spent, and the weighted time.
#[derive(Debug, Clone, Default)]
struct Burn {
    spent: BTreeMap<SliceId, u128>,
    amount: u128,
    time: u128,
}

impl From<BTreeMap<SliceId, u128>> for Burn {
    fn from(spent: BTreeMap<SliceId, u128>) -> Self {
        Self {
            spent,
            ..Self::default()
        }
    }
}

impl Burn {
    fn observe(&mut self, passed: Millis, spent: BTreeMap<SliceId, u128>) {
        let known = |id: &SliceId| self.spent.contains_key(id) && spent.contains_key(id);
        let sum = |amounts: &BTreeMap<SliceId, u128>| -> u128 {
            let known = amounts.iter().filter(|(id, _)| known(id));
            known.map(|(_, amount)| amount).sum()
        };
        // The difference of the sums, not slice by slice: settling a debt moves it from one slice to another.
        let grown = sum(&spent).saturating_sub(sum(&self.spent));
        for _ in 0..passed.0 / STEP.0 {
            self.amount = self.amount * KEPT / 1_000_000;
            self.time = self.time * KEPT / 1_000_000;
        }
        self.amount += grown;
        self.time += u128::from(passed.0);
        self.spent = spent;
    }
}

/// When nothing is left to spend at a rate of `per_day` core-milliseconds. `slices` are the amounts left with their
/// slices. The slice that ends first is spent first, and what is left at its end perishes. `None` if credit lasts
/// until the last end.
pub fn runs_out(
    now: WallTime,
    per_day: u64,
    slices: impl IntoIterator<Item = (u128, AllocationSlice)>,
) -> Option<WallTime> {
    let all = slices.into_iter().filter(|(_, slice)| now < slice.end);
    let mut left: Vec<(u128, AllocationSlice)> = all.collect();
    left.sort_by_key(|(_, slice)| slice.end);
    let last_end = left.last().map_or(now, |(_, slice)| slice.end);
    let per_day = u128::from(per_day);
    if per_day == 0 {
        return None;
    }
    let mut at = now;
    loop {
        let next_start = left.iter().map(|(_, slice)| slice.start);
        let next_start = next_start.filter(|start| *start > at).min();
        let live = left
            .iter_mut()
            .find(|(amount, slice)| *amount > 0 && slice.start <= at && at < slice.end);
        let Some((amount, slice)) = live else {
            return (at < last_end || last_end == now).then_some(at);
        };
        let lasts = u64::try_from(*amount * DAY / per_day).unwrap_or(u64::MAX);
        let border = next_start.map_or(slice.end, |start| start.min(slice.end));
        let until = WallTime(at.0.saturating_add(lasts)).min(border);
        match until < border {
            true => *amount = 0,
            false => *amount -= (per_day * u128::from(until.since(at).0) / DAY).min(*amount),
        }
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::CoreMillis;

    use super::*;

    const D: u64 = 86_400_000;

    fn slice(from: u64, until: u64) -> AllocationSlice {
        AllocationSlice {
            amount: CoreMillis(0),
            start: WallTime(from * D),
            end: WallTime(until * D),
        }
    }

    #[test]
    fn credit_runs_out_where_no_live_slice_has_anything_left() {
        let day = |day: u64| Some(WallTime(day * D));
        for (slices, now, expected) in [
            // 100 a day.
            (vec![(1_000, slice(0, 30))], 5, day(15)),
            (vec![(1_000, slice(0, 10))], 0, None),
            // What is left at its end perishes.
            (vec![(1_000, slice(0, 5)), (300, slice(0, 30))], 0, day(8)),
            // The next slice comes too late, or just in time.
            (vec![(300, slice(0, 10)), (900, slice(10, 20))], 0, day(3)),
            (
                vec![(1_000, slice(0, 10)), (900, slice(10, 20))],
                0,
                day(19),
            ),
            // One that begins meanwhile and ends first is spent first.
            (vec![(1_000, slice(0, 9)), (300, slice(4, 6))], 0, None),
            (vec![(500, slice(0, 9)), (300, slice(4, 6))], 0, day(7)),
            (vec![(0, slice(0, 9))], 2, day(2)),
            (vec![(7, slice(0, 9))], 9, day(9)),
            (vec![(7, slice(3, 9))], 2, day(2)),
        ] {
            let found = runs_out(WallTime(now * D), 100, slices.clone());
            assert_eq!(found, expected, "{slices:?} at {now}");
        }
        assert_eq!(runs_out(WallTime(0), 0, [(1, slice(0, 9))]), None);
    }

    #[test]
    fn the_last_week_weighs_most_and_a_settled_debt_is_not_spent_again() {
        let id = |index| SliceId {
            allocation: fairmesh_model::AllocationId::from_bytes([1; 32]),
            index,
        };
        let mut burn = Burn::from(BTreeMap::from([(id(0), 500)]));
        let mut spent = 500_u128;
        let mut go_on = |burn: &mut Burn, hours: u64, each: u128| {
            for _ in 0..hours {
                spent += each;
                burn.observe(STEP, BTreeMap::from([(id(0), spent)]));
            }
            burn.amount * DAY / burn.time
        };
        assert_eq!(go_on(&mut burn, 1, 1_000_000), 24_000_000);
        // Weights are rounded down each hour.
        let steady = go_on(&mut burn, 300, 1_000_000);
        assert!((23_990_000..=24_000_000).contains(&steady), "{steady}");
        // A week of nothing: 1/e of it is left, and after another of the usual it is nearly as before.
        let idle = go_on(&mut burn, 168, 0);
        assert!((7_000_000..8_500_000).contains(&idle), "{idle}");
        let again = go_on(&mut burn, 168 * 3, 1_000_000);
        assert!((22_500_000..24_000_000).contains(&again), "{again}");
        let amount = burn.amount;
        let before = burn.spent[&id(0)];
        burn.spent.insert(id(1), 0);
        burn.observe(
            Millis(0),
            BTreeMap::from([(id(0), before - 70), (id(1), 70), (id(2), 9)]),
        );
        assert_eq!(burn.amount, amount);
    }
}
