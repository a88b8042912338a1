//! What is measured of one run: shares of the policy's entries, and how far they are off.
//!
//! Definitions. An entry's *share* at a moment is the core time that jobs at and below it have held
//! since the beginning, those that still run included, in percent of its parent's; a VO's is of the
//! Grid's. Its *error* is the share less the target, in percentage points. An entry has *settled* to
//! ±x at the first sample from which on its error stays within x. Times are in hours.
//!
//! Invariant: numbers are computed from integers in one order, so one run gives the same bits each
//! time. Deliberately not here: means over seeds ([`super::outcome`]).

use fairmesh_cluster::{AccountKey, paper};
use serde::{Deserialize, Serialize};

use crate::grid::{Sample, UsageSeries};
use simnet::vo::{DAY, HOUR};

/// An entry of the policy, a VO or something below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its name, such as `U-B11`.
    pub name: String,
    /// Levels below the VO: 0 for the VO itself.
    pub level: usize,
    /// Target share of the parent, in percent.
    pub target: f64,
    account: AccountKey,
}

/// What is measured of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunMeasures {
    /// By entry of the policy.
    pub entries: Vec<EntryMeasures>,
    /// The largest error among the entries, without its sign: the mean of it over all samples after
    /// day one, percentage points.
    pub mean_largest: f64,
}

/// How far one entry was off in one run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EntryMeasures {
    /// Hours until it settled to ±1 percentage point; `None` where it never did.
    pub settled_1_h: Option<f64>,
    /// Hours until it settled to ±2 percentage points.
    pub settled_2_h: Option<f64>,
    /// Root of the mean of the squared errors after day one, percentage points.
    pub rms: f64,
    /// The largest error after day one, without its sign.
    pub largest: f64,
    /// The error at the end, with its sign.
    pub at_end: f64,
    /// Its share of what its parent used on the last day, in percent.
    pub last_day: f64,
}

/// The policy's entries, parents before children.
pub fn entries() -> Vec<Entry> {
    let entry = |entry: &paper::PolicyEntry| {
        let account = entry.account();
        Entry {
            name: account
                .path
                .name()
                .unwrap_or(paper::VOS[entry.vo])
                .to_owned(),
            level: account.path.names().count(),
            target: f64::from(entry.percent),
            account,
        }
    };
    paper::POLICY.iter().map(entry).collect()
}

impl Entry {
    /// Whether it is the VO of this name or below it.
    pub fn is_of(&self, vo: &str) -> bool {
        paper::VOS[self.account.vo] == vo
    }

    /// Whether it is right below the entry of this name; a VO is below nothing.
    pub fn is_child_of(&self, parent: Option<&str>) -> bool {
        let above = self.account.path.parent();
        let vo = paper::VOS[self.account.vo];
        above.as_ref().map(|above| above.name().unwrap_or(vo)) == parent
    }

    /// The same number for siblings, from 0 for the VOs.
    pub fn group(&self) -> usize {
        match self.level {
            0 => 0,
            level => level + self.account.vo,
        }
    }

    /// Its usage and its parent's between two samples, core-milliseconds.
    fn usage(&self, leaves: &[AccountKey], from: &Sample, to: &Sample) -> (u64, u64) {
        let parent = self.account.path.parent();
        let (mut own, mut all) = (0, 0);
        for (leaf, (before, after)) in leaves.iter().zip(from.used.iter().zip(&to.used)) {
            let used = after - before;
            let is_below = leaf.vo == self.account.vo && leaf.path.starts_with(&self.account.path);
            let is_sibling = parent
                .as_ref()
                .is_none_or(|parent| leaf.vo == self.account.vo && leaf.path.starts_with(parent));
            own += if is_below { used } else { 0 };
            all += if is_sibling { used } else { 0 };
        }
        (own, all)
    }

    /// Its share between two samples, in percent; NaN where its parent used nothing.
    pub fn share(&self, leaves: &[AccountKey], from: &Sample, to: &Sample) -> f64 {
        let (own, all) = self.usage(leaves, from, to);
        own as f64 * 100.0 / all as f64
    }
}

/// Measures a run.
pub fn measure(series: &UsageSeries) -> RunMeasures {
    let (leaves, samples) = (&series.leaves, &series.samples);
    let first = samples.first().expect("a run has samples");
    let entries = entries();
    let errors: Vec<Vec<f64>> = entries
        .iter()
        .map(|entry| {
            let error = |sample| entry.share(leaves, first, sample) - entry.target;
            samples.iter().map(error).collect()
        })
        .collect();
    let late = settled_from(series)..samples.len();
    let count = late.len() as f64;
    let largest_at = |at: usize| errors.iter().map(|of| of[at].abs()).fold(0.0, f64::max);
    let measured = entries.iter().zip(&errors);
    RunMeasures {
        entries: measured
            .map(|(entry, errors)| measure_entry(series, entry, errors))
            .collect(),
        mean_largest: late.map(largest_at).sum::<f64>() / count,
    }
}

/// The first sample after day one; runs of less than two days are measured in their second half.
fn settled_from(series: &UsageSeries) -> usize {
    let last = series.samples.last().expect("a run has samples");
    let settle_ms = DAY.0.min(last.at.0 / 2);
    let settled = series
        .samples
        .iter()
        .position(|sample| sample.at.0 >= settle_ms);
    settled.unwrap_or(0)
}

fn measure_entry(series: &UsageSeries, entry: &Entry, errors: &[f64]) -> EntryMeasures {
    let (leaves, samples) = (&series.leaves, &series.samples);
    let first = samples.first().expect("a run has samples");
    let last = samples.last().expect("a run has samples");
    let settle_ms = DAY.0.min(last.at.0 / 2);
    let hours = |sample: &Sample| sample.at.0 as f64 / HOUR.0 as f64;
    let errors = samples.iter().map(hours).zip(errors.iter().copied());
    let errors: Vec<(f64, f64)> = errors.collect();
    let late = &errors[settled_from(series)..];
    let squares: f64 = late.iter().map(|(_, error)| error * error).sum();
    let day_before = samples
        .iter()
        .rfind(|sample| sample.at.0 + settle_ms <= last.at.0);
    EntryMeasures {
        settled_1_h: settled_at(&errors, 1.0),
        settled_2_h: settled_at(&errors, 2.0),
        rms: (squares / late.len() as f64).sqrt(),
        largest: late
            .iter()
            .map(|(_, error)| error.abs())
            .fold(0.0, f64::max),
        at_end: errors.last().expect("one for each sample").1,
        last_day: entry.share(leaves, day_before.unwrap_or(first), last),
    }
}

/// The first time from which on all errors stay within `points`.
fn settled_at(errors: &[(f64, f64)], points: f64) -> Option<f64> {
    let within = errors
        .iter()
        .rev()
        .take_while(|(_, error)| error.abs() <= points);
    within.last().map(|(hours, _)| *hours)
}

/// The largest of the entries' errors at the end, without sign.
pub fn largest_at_end(measures: &[EntryMeasures]) -> f64 {
    measures
        .iter()
        .map(|of| of.at_end.abs())
        .fold(0.0, f64::max)
}

/// Root of the mean square over entries of their RMS errors.
pub fn rms_of_all<'a>(measures: impl Iterator<Item = &'a EntryMeasures>) -> f64 {
    let (sum, count) = measures.fold((0.0, 0_u32), |(sum, count), of| {
        (sum + of.rms * of.rms, count + 1)
    });
    (sum / f64::from(count.max(1))).sqrt()
}
