//! What a new policy changes, account by account.
//!
//! Invariant: a gain is earlier work: all jobs run under both policies, so core-hours are compared
//! within the days in which jobs were submitted, and waits over all jobs.
//!
//! Deliberately not here: whether a change is wanted.

use std::collections::BTreeMap;

use fairmesh_cluster::Trace;
use fairmesh_model::AccountPath;
use fairmesh_policy::SitePolicy;
use serde::Serialize;

use super::policy::{targets, vo_path};
use super::replay::{AccountUse, Replayed};
use crate::figures::{Figure, Series, Texts};
use simnet::vo::DAY;

/// Gainers, and as many losers, that the figure shows.
const SHOWN: usize = 3;

/// One account under both policies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountChange {
    /// Its path in the policies.
    pub account: String,
    /// Jobs.
    pub jobs: u64,
    /// Its target share of the whole, old and new; `None` where no entry is its own.
    pub target_percent: (Option<f64>, Option<f64>),
    /// Share of all core-hours that it had, old and new.
    pub actual_percent: (f64, f64),
    /// Core-hours within the days of the load, old and new.
    pub core_hours: (f64, f64),
    /// Mean wait in hours, old and new.
    pub wait_hours: (f64, f64),
    /// The day, from 1, on which most changed, and by how many core-hours.
    pub most_on_day: (u64, f64),
    /// Core-hours gained by the end of each day.
    pub gained_by_day: Vec<f64>,
}

impl AccountChange {
    /// Core-hours gained; lost, where negative.
    pub fn gained(&self) -> f64 {
        self.core_hours.1 - self.core_hours.0
    }
}

/// All accounts, those that gain most first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Accounts.
    pub accounts: Vec<AccountChange>,
    /// Days in which jobs were submitted.
    pub days: u64,
    /// Mean wait of all jobs in hours, old and new.
    pub wait_hours: (f64, f64),
    /// Jobs that ran.
    pub jobs: u64,
    /// Jobs that were left out.
    pub skipped: u64,
    /// Cores by node.
    pub cores: Vec<u32>,
}

/// Compares two replays of one trace.
pub fn compare(
    trace: &Trace,
    (old_policy, old): (&SitePolicy, &Replayed),
    (new_policy, new): (&SitePolicy, &Replayed),
) -> Comparison {
    let first = trace.jobs.first().map_or(0, |job| job.submit.0);
    let last = trace.jobs.last().map_or(0, |job| job.submit.0);
    let days = (last - first) / DAY.0 + 1;
    let total = |of: &Replayed| {
        let hours = of.accounts.values().map(|account| account.core_hours(days));
        hours.sum::<f64>().max(f64::MIN_POSITIVE)
    };
    let totals = (total(old), total(new));
    let (old_targets, new_targets) = (targets(old_policy), targets(new_policy));
    let none = AccountUse::default();
    let mut accounts: Vec<AccountChange> = old
        .accounts
        .iter()
        .map(|(key, before)| {
            let path = vo_path(trace, key.vo).join(&key.path).expect("two levels");
            let after = new.accounts.get(key).unwrap_or(&none);
            let targets = (
                percent_of(&old_targets, &path),
                percent_of(&new_targets, &path),
            );
            change(&path, days, (before, after), targets, totals)
        })
        .collect();
    accounts.sort_by(|a, b| {
        let by_gain = b.gained().total_cmp(&a.gained());
        by_gain.then_with(|| a.account.cmp(&b.account))
    });
    let wait = |of: &Replayed| {
        let waited: u64 = of.accounts.values().map(|account| account.waited_ms).sum();
        let jobs: u64 = of.accounts.values().map(|account| account.jobs).sum();
        waited as f64 / jobs.max(1) as f64 / 3_600_000.0
    };
    Comparison {
        accounts,
        days,
        wait_hours: (wait(old), wait(new)),
        jobs: new.jobs,
        skipped: new.skipped.values().sum(),
        cores: new.cores.clone(),
    }
}

fn percent_of(targets: &BTreeMap<AccountPath, f64>, path: &AccountPath) -> Option<f64> {
    targets.get(path).map(|target| target * 100.0)
}

fn change(
    path: &AccountPath,
    days: u64,
    (before, after): (&AccountUse, &AccountUse),
    target_percent: (Option<f64>, Option<f64>),
    totals: (f64, f64),
) -> AccountChange {
    let on = |of: &AccountUse, day| of.by_day.get(&day).copied().unwrap_or(0) as f64 / 3_600_000.0;
    let mut gained = 0.0;
    let mut most_on_day = (1, 0.0);
    let mut gained_by_day = Vec::new();
    for day in 0..days {
        let change: f64 = on(after, day) - on(before, day);
        if change.abs() > f64::abs(most_on_day.1) {
            most_on_day = (day + 1, change);
        }
        gained += change;
        gained_by_day.push(gained);
    }
    let core_hours = (before.core_hours(days), after.core_hours(days));
    AccountChange {
        account: path.to_string(),
        jobs: after.jobs,
        target_percent,
        actual_percent: (
            core_hours.0 * 100.0 / totals.0,
            core_hours.1 * 100.0 / totals.1,
        ),
        core_hours,
        wait_hours: (before.wait_hours(), after.wait_hours()),
        most_on_day,
        gained_by_day,
    }
}

/// Core-hours gained by the end of each day, by those who gain and who lose most.
pub fn figure(of: &Comparison) -> Figure {
    let count = of.accounts.len();
    let ends = SHOWN.min(count.div_ceil(2));
    let shown = (0..ends).chain(count.saturating_sub(ends).max(ends)..count);
    let series = shown.enumerate().map(|(group, index)| {
        let account = &of.accounts[index];
        let day = |(day, gained): (usize, &f64)| ((day + 1) as f64, *gained);
        let points = account.gained_by_day.iter().enumerate().map(day);
        let points = std::iter::once((0.0, 0.0)).chain(points);
        Series::new(account.account.clone(), group, points)
    });
    let texts = Texts {
        name: "whatif",
        title: "Core-hours gained under the new policy",
        caption: "By the end of each day, for the accounts that gain most and those that lose \
                  most. All jobs run under both policies: what is gained is gained by running \
                  earlier.",
        x_label: "day",
        y_label: "core-hours, new minus old",
    };
    texts.lines(series)
}
