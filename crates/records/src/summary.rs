//! Exact totals of jobs, whole or by groups: what ran, how long it waited, and what it held.
//!
//! By day a job's usage is divided over UTC days by its overlap with each; the job itself counts on
//! the day on which it ended, its start and its wait on the day on which it started, and its
//! submission on its own day if it also started on that day. Source: Open XDMoD's jobs realm, whose
//! published totals and series come out to the last printed digit.
//!
//! Invariant: the groups add up to the whole, to the millisecond, whatever they are grouped by; a
//! running job, and one that ended without having run, adds nothing.
//! Deliberately not here: what a job is charged ([`crate::ChargeRule`] and the site).

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use fairmesh_model::{Millis, WallTime, record::RUN_MAX};
use foldhash::quality::FixedState;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::BatchRecord;
use crate::state::JobState;

/// Most groups kept apart: a year of days times 2,700 accounts. What comes later goes into one group
/// of empty names, so that sums stay whole; without a bound a long file could fill the memory.
pub const GROUPS_MAX: usize = 1_000_000;

const DAY_MS: u64 = 86_400_000;

/// What jobs can be grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// By day in UTC.
    Day,
    /// By local user.
    User,
    /// The batch account or project.
    Account,
    /// By local group.
    Group,
    /// By virtual organisation.
    Vo,
    /// The state in which the job ended.
    State,
    /// By queue or partition.
    Queue,
    /// By cluster.
    Cluster,
}

const NAMES: [(Dimension, &str); 8] = [
    (Dimension::Day, "day"),
    (Dimension::User, "user"),
    (Dimension::Account, "account"),
    (Dimension::Group, "group"),
    (Dimension::Vo, "vo"),
    (Dimension::State, "state"),
    (Dimension::Queue, "queue"),
    (Dimension::Cluster, "cluster"),
];

impl Dimension {
    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(dimension, _)| *dimension == self);
        named.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Jobs cannot be grouped by this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("jobs are grouped by {}", NAMES.map(|(_, name)| name).join(", "))]
pub struct UnknownDimension;

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(name: &str) -> Result<Self, UnknownDimension> {
        let named = NAMES.iter().find(|(_, known)| *known == name);
        named
            .map(|(dimension, _)| *dimension)
            .ok_or(UnknownDimension)
    }
}

/// What is known of a job, as far as totals need it.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The local user.
    pub user: Option<&'a str>,
    /// The batch account or project.
    pub account: Option<&'a str>,
    /// The local group.
    pub group: Option<&'a str>,
    /// The virtual organisation.
    pub vo: Option<&'a str>,
    /// Queue or partition.
    pub queue: Option<&'a str>,
    /// The cluster.
    pub cluster: &'a str,
    /// In which state it was left.
    pub state: JobState,
    /// When it was submitted.
    pub submit: Option<WallTime>,
    /// When it started; `None` if it never ran.
    pub start: Option<WallTime>,
    /// When it ended; `None` while it runs.
    pub end: Option<WallTime>,
    /// How long it held its resources.
    pub held: Option<Millis>,
    /// CPUs held.
    pub cpus: u32,
    /// Nodes held.
    pub nodes: u32,
    /// GPUs held.
    pub gpus: u32,
    /// Energy used, joules.
    pub energy_j: u64,
}

impl<'a> Job<'a> {
    /// The job of a record; `vo` where the caller knows better than the record's first FQAN.
    pub fn of(record: &'a BatchRecord, vo: Option<&'a str>) -> Self {
        let by_fqan = || record.fqans.first()?.strip_prefix('/')?.split('/').next();
        Self {
            user: record.origin.user.as_deref(),
            account: record.origin.account.as_deref(),
            group: record.origin.group.as_deref(),
            vo: vo.or_else(by_fqan),
            queue: record.queue.as_deref(),
            cluster: &record.key.cluster,
            state: record.state,
            submit: record.submit,
            start: record.start,
            end: record.end,
            held: record.held().or(record.wall),
            cpus: record.cpus.unwrap_or(0),
            nodes: record.nodes.unwrap_or(0),
            gpus: record.gpus.unwrap_or(0),
            energy_j: record.energy_j.unwrap_or(0),
        }
    }

    /// Whether it was stopped before it started: a batch system writes times even for jobs that were
    /// cancelled in the queue.
    pub fn never_ran(&self) -> bool {
        let stopped = matches!(
            self.state,
            JobState::Cancelled | JobState::Deadline | JobState::Revoked
        );
        stopped && (self.start.is_none() || self.held == Some(Millis(0)))
    }

    /// When it started and for how long it held something; `None` if it still runs, or never ran.
    fn ran(&self) -> Option<(WallTime, Millis)> {
        let (start, held) = (self.start?, self.held?);
        let is_over = self.state.has_ended() && held <= RUN_MAX;
        (is_over && !self.never_ran()).then_some((start, held))
    }

    /// Adds the name of the group that it belongs to; nothing where that is not known.
    fn push_name(&self, dimension: Dimension, day: u64, name: &mut String) {
        let known = match dimension {
            Dimension::Day => return name.push_str(&date(day)),
            Dimension::User => self.user,
            Dimension::Account => self.account,
            Dimension::Group => self.group,
            Dimension::Vo => self.vo,
            Dimension::State => Some(self.state.name()),
            Dimension::Queue => self.queue,
            Dimension::Cluster => Some(self.cluster),
        };
        name.push_str(known.unwrap_or_default());
    }
}

/// Sums over jobs: numbers of jobs, and milliseconds times what was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Jobs that ran and have ended.
    pub jobs: u64,
    /// Of them, those that started in the period.
    pub started: u64,
    /// Of them, those that were submitted on the UTC day on which they started.
    pub submitted: u64,
    /// Wall-clock time, ms.
    pub wall_ms: u128,
    /// CPUs held times wall-clock time, ms.
    pub cpu_ms: u128,
    /// Nodes held times wall-clock time, ms.
    pub node_ms: u128,
    /// GPUs held times wall-clock time, ms.
    pub gpu_ms: u128,
    /// Energy used, joules; of a job that is divided evenly over its time.
    pub energy_j: u128,
    /// From submission to start, ms.
    pub wait_ms: u128,
}

impl Totals {
    /// The sum of both, field by field.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            jobs: self.jobs.saturating_add(other.jobs),
            started: self.started.saturating_add(other.started),
            submitted: self.submitted.saturating_add(other.submitted),
            wall_ms: self.wall_ms.saturating_add(other.wall_ms),
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            node_ms: self.node_ms.saturating_add(other.node_ms),
            gpu_ms: self.gpu_ms.saturating_add(other.gpu_ms),
            energy_j: self.energy_j.saturating_add(other.energy_j),
            wait_ms: self.wait_ms.saturating_add(other.wait_ms),
        }
    }
}

/// Milliseconds in hours with four decimals, rounded half up.
pub fn hours(ms: u128) -> String {
    const HOUR_MS: u128 = 3_600_000;
    let (whole, rest) = (ms / HOUR_MS, ms % HOUR_MS);
    let parts = (rest * 10_000 + HOUR_MS / 2) / HOUR_MS;
    // 0.99995 and more is the next hour.
    format!("{}.{:04}", whole + parts / 10_000, parts % 10_000)
}

/// Joules in kWh with four decimals, rounded half up.
pub fn kwh(joules: u128) -> String {
    // A joule is to a kWh what a millisecond is to an hour.
    hours(joules)
}

/// A UTC day, counted from 1970-01-01, as `2016-12-30`.
pub fn date(day: u64) -> String {
    let second = i64::try_from(day.saturating_mul(86_400)).unwrap_or(i64::MAX);
    Timestamp::from_second(second).map_or_else(
        |_| format!("day {day}"),
        |moment| moment.strftime("%Y-%m-%d").to_string(),
    )
}

/// Totals that grow job by job.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    by: Vec<Dimension>,
    by_day: bool,
    /// Of a job, only what lies at or after the first and before the second counts.
    period: Option<(WallTime, WallTime)>,
    whole: Totals,
    names: Vec<String>,
    /// Looked up for each job, so by hash; they are shown in their order.
    groups: HashMap<Vec<String>, Totals, FixedState>,
}

impl Summary {
    /// Sums by these dimensions, in this order; by none, there is only the whole.
    pub fn by(dimensions: &[Dimension]) -> Self {
        Self {
            by: dimensions.to_vec(),
            by_day: dimensions.contains(&Dimension::Day),
            ..Self::default()
        }
    }

    /// Counts only what lies in the period from `since` to before `until`.
    #[must_use]
    pub fn within(mut self, since: WallTime, until: WallTime) -> Self {
        self.period = Some((since, until));
        self
    }

    /// Adds a job. Says whether it ran; what did not is left out.
    pub fn add(&mut self, job: &Job<'_>) -> bool {
        let Some((start, held)) = job.ran() else {
            return false;
        };
        let end = job.end.unwrap_or(start.after(held));
        let day = |moment: WallTime| moment.0 / DAY_MS;
        let waited = job.submit.map_or(Millis(0), |submit| start.since(submit));
        let mut parts = Vec::new();
        self.at(&mut parts, end, |totals| totals.jobs = 1);
        self.at(&mut parts, start, |totals| {
            totals.started = 1;
            totals.wait_ms = u128::from(waited.0);
        });
        if let Some(submit) = job.submit.filter(|submit| day(*submit) == day(start)) {
            self.at(&mut parts, submit, |totals| totals.submitted = 1);
        }
        self.hold(&mut parts, job, start, start.after(held));
        for (day, totals) in parts {
            self.put(job, day, totals);
        }
        true
    }

    /// The sum of all groups.
    pub fn whole(&self) -> Totals {
        self.whole
    }

    /// The dimensions of the summary's rows, in order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.by
    }

    /// Each group's names, one for each dimension, and its sums, in the order of the names. A name that is not known
    /// is empty.
    pub fn groups(&self) -> impl Iterator<Item = (&[String], &Totals)> {
        let groups = self.groups.iter();
        let mut groups: Vec<_> = groups
            .map(|(names, totals)| (names.as_slice(), totals))
            .collect();
        groups.sort_unstable_by_key(|(names, _)| *names);
        groups.into_iter()
    }

    /// Divides what the job held.
    fn hold(&self, parts: &mut Vec<(u64, Totals)>, job: &Job<'_>, start: WallTime, end: WallTime) {
        let (since, until) = self.period.unwrap_or((WallTime(0), WallTime(u64::MAX)));
        let held = u128::from(end.since(start).0.max(1));
        let used = |at: WallTime| u128::from(job.energy_j) * u128::from(at.since(start).0) / held;
        let (mut at, end) = (start.max(since), end.min(until));
        while at < end {
            let midnight = WallTime((at.0 / DAY_MS + 1).saturating_mul(DAY_MS));
            let next = if self.by_day { end.min(midnight) } else { end };
            let length = u128::from(next.since(at).0);
            self.at(parts, at, |totals| {
                totals.wall_ms = length;
                totals.cpu_ms = length * u128::from(job.cpus);
                totals.node_ms = length * u128::from(job.nodes);
                totals.gpu_ms = length * u128::from(job.gpus);
                totals.energy_j = used(next) - used(at);
            });
            at = next;
        }
    }

    /// Sets what happened from a moment on, if that lies in the period, on its day.
    fn at(&self, parts: &mut Vec<(u64, Totals)>, moment: WallTime, set: impl FnOnce(&mut Totals)) {
        let inside = self
            .period
            .is_none_or(|(since, until)| since <= moment && moment < until);
        if inside {
            let day = if self.by_day { moment.0 / DAY_MS } else { 0 };
            // Days come in their order, so the one that is wanted is among the last.
            let known = parts.iter().rposition(|(known, _)| *known == day);
            let index = known.unwrap_or_else(|| {
                parts.push((day, Totals::default()));
                parts.len() - 1
            });
            set(&mut parts[index].1);
        }
    }

    fn put(&mut self, job: &Job<'_>, day: u64, totals: Totals) {
        self.whole = self.whole.plus(totals);
        if self.by.is_empty() {
            return;
        }
        // The names of the job before are written over: most jobs belong to a group that is known.
        let names = &mut self.names;
        names.resize(self.by.len(), String::new());
        for (name, of) in names.iter_mut().zip(&self.by) {
            name.clear();
            job.push_name(*of, day, name);
        }
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(names.as_slice()) {
            names.iter_mut().for_each(String::clear);
        }
        match self.groups.get_mut(names.as_slice()) {
            Some(group) => *group = group.plus(totals),
            None => {
                self.groups.insert(names.clone(), totals);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn job(start: u64, end: u64) -> Job<'static> {
        Job {
            user: Some("ann"),
            account: None,
            group: None,
            vo: None,
            queue: None,
            cluster: "c",
            state: JobState::Completed,
            submit: Some(WallTime(start - HOUR)),
            start: Some(WallTime(start)),
            end: Some(WallTime(end)),
            held: Some(Millis(end - start)),
            cpus: 2,
            nodes: 1,
            gpus: 0,
            energy_j: 7,
        }
    }

    #[test]
    fn hours_are_rounded_half_up_and_exact() {
        for (ms, text) in [
            (0, "0.0000"),
            (179, "0.0000"),
            (180, "0.0001"),
            (3_599_819, "0.9999"),
            (3_599_820, "1.0000"),
            (u128::from(u64::MAX), "5124095576030.4310"),
        ] {
            assert_eq!(hours(ms), text, "{ms}");
        }
        assert!(hours(u128::MAX).ends_with(|c: char| c.is_ascii_digit()));
    }

    #[test]
    fn a_job_over_midnight_is_divided_and_counted_once() {
        let mut sums = Summary::by(&[Dimension::Day, Dimension::User]);
        assert!(sums.add(&job(DAY_MS - HOUR, DAY_MS + 2 * HOUR)));
        let groups: Vec<_> = sums.groups().collect();
        let (first, second) = (groups[0], groups[1]);
        assert_eq!(first.0, ["1970-01-01", "ann"]);
        let counts = |totals: &Totals| (totals.jobs, totals.started, totals.submitted);
        assert_eq!(counts(first.1), (0, 1, 1));
        assert_eq!(counts(second.1), (1, 0, 0));
        assert_eq!(first.1.cpu_ms, u128::from(2 * HOUR));
        assert_eq!(second.1.cpu_ms, u128::from(4 * HOUR));
        assert_eq!((first.1.energy_j, second.1.energy_j), (2, 5));
        assert_eq!(first.1.wait_ms, u128::from(HOUR));
        assert_eq!(first.1.plus(*second.1), sums.whole());
    }

    #[test]
    fn what_did_not_run_is_left_out_and_what_ended_at_once_is_not() {
        let mut sums = Summary::default();
        let mut cancelled = job(DAY_MS, DAY_MS);
        cancelled.state = JobState::Cancelled;
        assert!(!sums.add(&cancelled));
        cancelled.state = JobState::Failed;
        assert!(sums.add(&cancelled));
        cancelled.state = JobState::Running;
        assert!(!sums.add(&cancelled));
        assert_eq!(sums.whole().jobs, 1);
    }

    #[test]
    fn a_period_cuts_usage_and_takes_events_within() {
        let mut sums = Summary::default().within(WallTime(DAY_MS), WallTime(DAY_MS + HOUR));
        assert!(sums.add(&job(DAY_MS - HOUR, DAY_MS + 2 * HOUR)));
        let whole = sums.whole();
        assert_eq!((whole.jobs, whole.started), (0, 0));
        assert_eq!(whole.wall_ms, u128::from(HOUR));
    }

    #[test]
    fn dimensions_have_names() {
        for (dimension, name) in NAMES {
            assert_eq!(name.parse(), Ok(dimension));
            assert_eq!(dimension.to_string(), name);
        }
        assert_eq!("colour".parse::<Dimension>(), Err(UnknownDimension));
    }
}
