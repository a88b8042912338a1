//! Usage that the record log does not cover: what the site's counters have of an account on a day, and no job of the
//! log.
//!
//! The log may have been off, pruned or lost, and running jobs that are only listed are not in it. Such usage cannot
//! move, as nobody knows whose it was.
//!
//! Invariant: a core-millisecond for each job of a day is no difference: rules that come to the same may divide a job
//! otherwise between days.

use std::collections::BTreeMap;

use fairmesh_model::WallTime;
use fairmesh_model::window::DAY_MS;

use crate::identity::Account;

/// Usage of an account that no job of the log explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// The account with usage that no record covers.
    pub account: Account,
    /// The beginning of the first day that has any.
    pub first_day: WallTime,
    /// The beginning of the last one.
    pub last_day: WallTime,
    /// Core-milliseconds that no record covers.
    pub charge: u64,
}

/// Usage of accounts by day.
#[derive(Debug, Default)]
pub(super) struct Cover(BTreeMap<(Account, u32), Day>);

#[derive(Debug, Default)]
struct Day {
    counted: u64,
    logged: u64,
    parts: u64,
}

impl Cover {
    /// The counters have so much of a day.
    pub(super) fn add_counted(&mut self, account: &Account, day: u32, charge: u64) {
        let of_day = self.0.entry((account.clone(), day)).or_default();
        of_day.counted = of_day.counted.saturating_add(charge);
    }

    /// A job of the log was charged so much on a day.
    pub(super) fn add_logged(&mut self, account: &Account, day: u32, charge: u64) {
        let of_day = self.0.entry((account.clone(), day)).or_default();
        of_day.logged = of_day.logged.saturating_add(charge);
        of_day.parts += 1;
    }

    /// What the counters have and the log has not, by account.
    pub(super) fn uncovered(&self) -> Vec<Uncovered> {
        let mut all: Vec<Uncovered> = Vec::new();
        for ((account, day), of_day) in &self.0 {
            let charge = of_day.counted.saturating_sub(of_day.logged);
            if charge <= of_day.parts {
                continue;
            }
            let at = WallTime(u64::from(*day) * DAY_MS);
            match all.last_mut().filter(|last| last.account == *account) {
                Some(last) => {
                    last.last_day = at;
                    last.charge = last.charge.saturating_add(charge);
                }
                None => all.push(Uncovered {
                    account: account.clone(),
                    first_day: at,
                    last_day: at,
                    charge,
                }),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::AccountPath;

    use super::*;

    #[test]
    fn what_no_job_explains_is_listed_by_account_with_its_days() {
        let account = |path| Account {
            vo: None,
            path: AccountPath::parse(path).expect("a path"),
        };
        let mut cover = Cover::default();
        for (path, day, counted) in [("/a", 1, 10), ("/a", 2, 7), ("/a", 5, 4), ("/b", 1, 3)] {
            cover.add_counted(&account(path), day, counted);
        }
        // Two jobs may be divided otherwise by two units, and more jobs than counters are no usage.
        for (path, day, logged) in [("/a", 1, 4), ("/a", 1, 4), ("/b", 1, 9), ("/c", 1, 9)] {
            cover.add_logged(&account(path), day, logged);
        }
        let day = |day: u64| WallTime(day * DAY_MS);
        let of_a = Uncovered {
            account: account("/a"),
            first_day: day(2),
            last_day: day(5),
            charge: 11,
        };
        assert_eq!(cover.uncovered(), [of_a]);
    }
}
