//! What a bank would have done with the same jobs: one server that keeps the account, and is away for a while.
//!
//! Sites that cannot reach it either refuse every job, or run every job and tell it later: the two ways that
//! Gardfjäll's thesis names (Umeå University, section 3.6.1). Both are kept side by side.
//!
//! Invariant: as long as the bank is there, neither way passes what a slice grants.
//! Deliberately not here: how long a bank takes to answer; this one answers at once, and forgets nothing.

use fairmesh_model::{AllocationSlice, WallTime};
use serde::Serialize;

/// What it comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct BankReport {
    /// Jobs that asked while it was away: each was refused, where sites refuse then.
    pub(super) refused_while_away: u64,
    /// Core-milliseconds by which more was spent than granted, where sites run jobs then and tell it later.
    pub(super) overspent: u64,
}

/// Both ways.
pub(super) struct Bank {
    slices: Vec<AllocationSlice>,
    refusing: Account,
    running: Account,
    is_away: bool,
    refused_while_away: u64,
}

/// Of each slice what is used and held.
struct Account {
    spent: Vec<(u64, u64)>,
    jobs: Vec<Job>,
}

/// A job that runs, or has run and is not told of yet.
#[derive(Clone, Copy)]
struct Job {
    slice: usize,
    held: u64,
    charge: u64,
    ends: WallTime,
}

impl Bank {
    pub(super) fn new(slices: Vec<AllocationSlice>) -> Self {
        let account = || Account {
            spent: vec![(0, 0); slices.len()],
            jobs: Vec::new(),
        };
        Self {
            refusing: account(),
            running: account(),
            slices,
            is_away: false,
            refused_while_away: 0,
        }
    }

    /// Whether nobody reaches it. When it is there it hears of what has ended.
    pub(super) fn step(&mut self, now: WallTime, is_away: bool) {
        self.is_away = is_away;
        if !is_away {
            self.refusing.settle(now);
            self.running.settle(now);
        }
    }

    /// A job asks for so much at `now`, and would cost so much when it ends.
    pub(super) fn ask(&mut self, now: WallTime, held: u64, charge: u64, ends: WallTime) {
        let live = |slice: &AllocationSlice| slice.start <= now && now < slice.end;
        let Some(slice) = self.slices.iter().position(live) else {
            return;
        };
        let job = Job {
            slice,
            held,
            charge,
            ends,
        };
        match self.is_away {
            true => {
                self.refused_while_away += 1;
                self.running.jobs.push(Job { held: 0, ..job });
            }
            false => {
                let granted = self.slices[slice].amount.0;
                self.refusing.take(job, granted);
                self.running.take(job, granted);
            }
        }
    }

    /// It is there again, and all has ended.
    pub(super) fn outcome(&mut self) -> BankReport {
        self.refusing.settle(WallTime(u64::MAX));
        self.running.settle(WallTime(u64::MAX));
        let over = |((used, _), slice): (&(u64, u64), &AllocationSlice)| {
            used.saturating_sub(slice.amount.0)
        };
        BankReport {
            refused_while_away: self.refused_while_away,
            overspent: self.running.spent.iter().zip(&self.slices).map(over).sum(),
        }
    }
}

impl Account {
    fn take(&mut self, job: Job, granted: u64) {
        let (used, held) = &mut self.spent[job.slice];
        if *used + *held + job.held <= granted {
            *held += job.held;
            self.jobs.push(job);
        }
    }

    fn settle(&mut self, now: WallTime) {
        self.jobs.retain(|job| {
            let runs = job.ends > now;
            if !runs {
                let (used, held) = &mut self.spent[job.slice];
                *held -= job.held;
                *used += job.charge;
            }
            runs
        });
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::CoreMillis;

    use super::*;

    #[test]
    fn a_bank_that_is_away_refuses_or_is_passed() {
        let slice = AllocationSlice {
            amount: CoreMillis(100),
            start: WallTime(0),
            end: WallTime(1_000),
        };
        let mut bank = Bank::new(vec![slice]);
        for at in 0..20 {
            let now = WallTime(at * 10);
            bank.step(now, (5..15).contains(&at));
            bank.ask(now, 10, 8, now.after(fairmesh_model::Millis(20)));
        }
        bank.step(WallTime(990), false);
        let refused = bank.refusing.spent[0];
        assert!(refused.0 <= 100 && refused.1 == 0, "{refused:?}");
        // Five jobs before, ten meanwhile, and what is left afterwards for nobody.
        let report = bank.outcome();
        assert_eq!(
            (report.refused_while_away, report.overspent),
            (10, 15 * 8 - 100)
        );
        let mut there = Bank::new(vec![slice]);
        (0..50).for_each(|_| there.ask(WallTime(1), 10, 8, WallTime(2)));
        assert_eq!(there.outcome(), BankReport::default());
    }
}
