//! What the feeds of one site have told, and what of it must be and may be counted.
//!
//! A report may have been taken although nobody answered, and be told again under other rules: other
//! prices, or another account. So there are two numbers of each cell. The *least* is what was
//! acknowledged under any of the rules that may have been applied; the *most* is what any of them
//! would have counted. Where every report was answered at once they are equal, to the unit.
//!
//! A job that is taken back counts as refunds what it had been charged, in the same cells: exactly, where
//! it was charged by one set of rules that is still in force; else at most all of it in each.
//!
//! Behind a lost store a site takes what its [`Recovered`] says to be in the counters that came back: of a job that
//! it is told of then the least is what comes after that, and the most is all of it.
//!
//! Invariant: each moment of a job is charged once, under the rules of one report, unless its final record contradicts
//! its instalments (`settled`); a job ends once, and is taken back once.
//! Deliberately not here: what a lost disk takes away (`super`).

use std::collections::BTreeMap;
use std::rc::Rc;

use fairmesh_model::{AccountPath, Counters, JobKey, UsageRecord, VoId, WindowLength};

use super::cost::Cost;
use super::{AccountKey, Amounts};

mod settled;

/// Counters of accounts by window.
pub type Cells = BTreeMap<AccountPath, BTreeMap<u32, Counters>>;

/// What counters may differ by where two rules share a window: each part is rounded for itself.
const ROUNDED: u64 = 3;

/// By which rules a report is counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Terms {
    /// Who pays.
    pub account: AccountKey,
    /// How much.
    pub cost: Cost,
    /// In which windows.
    pub window: WindowLength,
    /// Whether jobs that run count.
    pub counts_running: bool,
}

/// A report that may have been taken.
#[derive(Debug, Clone)]
struct Open {
    record: Rc<UsageRecord>,
    terms: Rc<Terms>,
}

/// What is known of a job that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Until when it is charged.
    until: Option<u64>,
    /// Whether nothing was told that may have been taken or not.
    pub is_sure: bool,
}

impl Known {
    /// What it has used beyond what is charged.
    pub(super) fn used(self, record: &UsageRecord, terms: &Terms) -> u64 {
        let parts = parts(self.until, record, terms).into_values();
        parts.map(|counters| counters.charge).sum()
    }
}

/// Until when counters reach whose jobs' marks are lost, Unix milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recovered {
    /// Of jobs that have ended.
    pub ended: u64,
    /// Of jobs that run.
    pub running: u64,
}

#[derive(Debug, Clone, Default)]
struct Job {
    /// Until when it is acknowledged to be charged, Unix milliseconds.
    until: Option<u64>,
    ended: bool,
    /// Until when counters came back of a lost store, when it was last told.
    recovered: Recovered,
    /// Told, and not known to be taken or not.
    open: Vec<Open>,
    /// The most that what is open may have added, as it was put into the sums.
    pending: BTreeMap<AccountKey, BTreeMap<u32, Counters>>,
    /// What is acknowledged to be charged: the least and the most, and by which rules, if by one set.
    charged: (Windows, Windows),
    rules: Option<Rc<Terms>>,
    /// What may be taken back of it, as it was put into the sums.
    refunds: Windows,
    taken_back: bool,
    /// Instalments that were taken, but for those that another one repeats.
    instalments: Vec<Rc<UsageRecord>>,
    /// Who pays how much in all, if a final record that contradicts instalments may have decided it, and if it is
    /// certain.
    net: Option<Option<(AccountKey, u64)>>,
}

/// Sums by VO, as cells and over all windows.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    /// By account and window.
    pub cells: BTreeMap<Option<VoId>, Cells>,
    /// Charge by account.
    pub charge: BTreeMap<Option<VoId>, Amounts>,
}

/// The ledger of one site's feeds.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// What must be counted of what was told since the last loss.
    pub least: Sums,
    /// What may be counted of all that was ever told.
    pub most: Sums,
    /// Until when counters of a VO, or of own accounts, reach whose jobs' marks are lost.
    pub recovered: BTreeMap<Option<VoId>, Recovered>,
    /// What was certainly taken back of each account, and of how many jobs.
    pub taken_back: BTreeMap<AccountKey, (u64, u64)>,
    jobs: BTreeMap<JobKey, Job>,
}

impl Sums {
    fn of(&mut self, (vo, path): &AccountKey) -> (&mut BTreeMap<u32, Counters>, &mut u64) {
        let cells = self.cells.entry(*vo).or_default();
        let charge = self.charge.entry(*vo).or_default();
        (
            cells.entry(path.clone()).or_default(),
            charge.entry(path.clone()).or_default(),
        )
    }

    fn add(&mut self, account: &AccountKey, windows: &BTreeMap<u32, Counters>) {
        let (cells, charge) = self.of(account);
        for (window, counters) in windows {
            let cell = cells.entry(*window).or_default();
            *cell = cell.plus(*counters);
            *charge += counters.charge;
        }
    }

    fn take(&mut self, account: &AccountKey, windows: &BTreeMap<u32, Counters>) {
        let (cells, charge) = self.of(account);
        for (window, counters) in windows {
            let cell = cells.entry(*window).or_default();
            *cell = cell.minus(*counters);
            *charge -= counters.charge;
        }
    }
}

impl Ledger {
    /// A report is handed to the site.
    pub(super) fn offered(&mut self, record: &UsageRecord, terms: &Rc<Terms>) {
        let job = self.jobs.entry(record.key.clone()).or_default();
        if job.ended || (record.running && !terms.counts_running) {
            return;
        }
        let recovered = self.recovered.get(&terms.account.0);
        job.recovered = recovered.copied().unwrap_or_default();
        // A feed hands in a report that is refused again and again: it is open once.
        job.open
            .retain(|open| *open.record != *record || open.terms != *terms);
        job.open.push(Open {
            record: Rc::new(record.clone()),
            terms: Rc::clone(terms),
        });
        Self::count_pending(&mut self.most, job);
    }

    /// The site has said that the report is counted durably.
    pub(super) fn acknowledged(&mut self, record: &UsageRecord) {
        let Some(job) = self.jobs.get_mut(&record.key) else {
            return;
        };
        let Some(last) = job
            .open
            .iter()
            .rfind(|open| *open.record == *record)
            .cloned()
        else {
            return;
        };
        let settled = job.settled(record);
        let (least, most) = match &settled {
            Some(settled) => (settled.least.clone(), settled.most.clone()),
            None => bounds(job, &last.record),
        };
        for (account, windows) in &least {
            self.least.add(account, windows);
        }
        for (account, windows) in std::mem::take(&mut job.pending) {
            self.most.take(&account, &windows);
        }
        for (account, windows) in &most {
            self.most.add(account, windows);
        }
        add_to(&mut job.charged.0, &least);
        add_to(&mut job.charged.1, &most);
        let is_first = job.until.is_none();
        let same = is_first || job.rules.as_ref() == Some(&last.terms);
        let is_by_one = same && least == most && settled.is_none();
        job.rules = is_by_one.then(|| Rc::clone(&last.terms));
        job.net = settled.map(|settled| settled.net);
        if record.running {
            job.note_instalment(&last.record);
        }
        job.until = Some(record.end.0.max(job.until.unwrap_or(0)));
        job.ended = !record.running;
        let (until, ended) = (record.end.0, job.ended);
        job.open.retain(|open| {
            let says_more = open.record.end.0 > until || !open.record.running;
            !ended && says_more
        });
        Self::count_pending(&mut self.most, job);
    }

    /// Somebody takes a job back, while it would be charged by the rules `now`.
    pub(super) fn correcting(&mut self, key: &JobKey, now: Option<&Terms>) {
        let Some(job) = self.jobs.get_mut(key).filter(|job| !job.taken_back) else {
            return;
        };
        // Whoever asks does not know whether an open report was taken.
        let mut charged = job.charged.1.clone();
        add_to(&mut charged, &job.pending);
        let all = |windows: &BTreeMap<u32, Counters>| windows.values().map(|of| of.charge).sum();
        let is_exact = job.is_exact(now);
        let mut refunds = Windows::new();
        for (account, windows) in &charged {
            let total: u64 = all(windows);
            let most = |charge: u64| if is_exact { charge } else { total + ROUNDED };
            let of = windows
                .iter()
                .map(|(window, of)| (*window, refund(most(of.charge))));
            refunds.insert(account.clone(), of.collect());
        }
        for (account, windows) in std::mem::replace(&mut job.refunds, refunds) {
            self.most.take(&account, &windows);
        }
        for (account, windows) in &job.refunds {
            self.most.add(account, windows);
        }
    }

    /// The site has said that the job is taken back durably.
    pub(super) fn corrected(&mut self, key: &JobKey, now: Option<&Terms>) {
        let Some(job) = self.jobs.get_mut(key).filter(|job| !job.taken_back) else {
            return;
        };
        job.taken_back = true;
        if job.is_exact(now) {
            for (account, windows) in &job.charged.0 {
                let of = windows
                    .iter()
                    .map(|(window, of)| (*window, refund(of.charge)));
                self.least.add(account, &of.collect());
                let charge: u64 = windows.values().map(|of| of.charge).sum();
                let sum = self.taken_back.entry(account.clone()).or_default();
                *sum = (sum.0 + charge, sum.1 + u64::from(charge > 0));
            }
        }
    }

    /// The jobs that the site has said are taken back.
    pub(super) fn jobs_taken_back(&self) -> impl Iterator<Item = &JobKey> {
        let jobs = self.jobs.iter().filter(|(_, job)| job.taken_back);
        jobs.map(|(key, _)| key)
    }

    /// The least and the most that each account is charged in all, without what is refunded.
    pub(super) fn net(&self) -> BTreeMap<AccountKey, (u64, u64)> {
        let mut sums: BTreeMap<AccountKey, (u64, u64)> = BTreeMap::new();
        for (account, (least, most)) in self.jobs.values().flat_map(Job::net) {
            let sum = sums.entry(account).or_default();
            *sum = (sum.0 + least, sum.1 + most);
        }
        sums
    }

    /// The least and the most that a job is charged in all, without what is refunded; nothing of one that is not known.
    pub(super) fn net_of(&self, key: &JobKey) -> Option<(u64, u64)> {
        let accounts = self.jobs.get(key)?.net().into_values();
        Some(accounts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1)))
    }

    /// Whether a job was charged by these rules alone.
    pub(super) fn is_charged_by(&self, key: &JobKey, now: &Terms) -> bool {
        let job = self.jobs.get(key).filter(|job| job.open.is_empty());
        let rules = job.and_then(|job| job.rules.as_deref());
        rules == Some(now)
    }

    /// What is known of a job that is said to run; nothing where it has ended.
    pub(super) fn runs(&self, record: &UsageRecord) -> Option<Known> {
        let job = self.jobs.get(&record.key);
        if job.is_some_and(|job| job.ended) {
            return None;
        }
        Some(Known {
            until: job.and_then(|job| job.until),
            is_sure: job.is_none_or(|job| job.open.is_empty()),
        })
    }

    /// Puts the most that a job's open reports may have added into the sums.
    fn count_pending(sums: &mut Sums, job: &mut Job) {
        for (account, windows) in std::mem::take(&mut job.pending) {
            sums.take(&account, &windows);
        }
        let mut most = Windows::new();
        for open in &job.open {
            let settled = job.settled(&open.record).map(|settled| settled.most);
            let of_one = settled.unwrap_or_else(|| bounds(job, &open.record).1);
            join_to(&mut most, &of_one);
        }
        for (account, windows) in &most {
            sums.add(account, windows);
        }
        job.pending = most;
    }
}

type Windows = BTreeMap<AccountKey, BTreeMap<u32, Counters>>;

impl Job {
    /// Whether all of it was charged by one set of rules, by which it would cost the same now.
    fn is_exact(&self, now: Option<&Terms>) -> bool {
        let same =
            |then: &Rc<Terms>, now: &Terms| (&then.cost, then.window) == (&now.cost, now.window);
        let rules = self.rules.as_ref().zip(now);
        self.open.is_empty() && rules.is_some_and(|(then, now)| same(then, now))
    }
}

fn refund(refunds: u64) -> Counters {
    Counters {
        refunds,
        ..Counters::default()
    }
}

fn add_to(sums: &mut Windows, more: &Windows) {
    for (account, windows) in more {
        let of = sums.entry(account.clone()).or_default();
        for (window, counters) in windows {
            let cell = of.entry(*window).or_default();
            *cell = cell.plus(*counters);
        }
    }
}

fn join_to(largest: &mut Windows, others: &Windows) {
    for (account, windows) in others {
        let of = largest.entry(account.clone()).or_default();
        for (window, counters) in windows {
            let cell = of.entry(*window).or_default();
            *cell = cell.join(*counters);
        }
    }
}

/// The least and the most that a job may have been charged for, from what is acknowledged to the end
/// of `record`, by all rules under which any of it may have been taken.
fn bounds(job: &Job, record: &UsageRecord) -> (Windows, Windows) {
    let mut rules: Vec<&Rc<Terms>> = Vec::new();
    for open in &job.open {
        if !rules.contains(&&open.terms) {
            rules.push(&open.terms);
        }
    }
    let is_mixed = rules.len() > 1;
    let (mut least, mut most) = (Windows::new(), Windows::new());
    for terms in &rules {
        let windows = most.entry(terms.account.clone()).or_default();
        for (window, counters) in parts(job.until, record, terms) {
            let slack = if is_mixed && counters.charge > 0 {
                ROUNDED
            } else {
                0
            };
            let cell: &mut Counters = windows.entry(window).or_default();
            let counters = Counters {
                charge: counters.charge.saturating_add(slack),
                ..counters
            };
            *cell = cell.join(counters);
        }
    }
    let first = rules.first().map(|terms| &terms.account);
    let is_left_out = record.end.0 <= job.recovered.ended;
    if let Some(account) = first.filter(|first| rules.iter().all(|terms| terms.account == **first))
        && !is_left_out
    {
        let recovered = job.recovered.running.min(record.end.0);
        let until = Some(job.until.unwrap_or(0).max(recovered));
        let all: Vec<_> = rules
            .iter()
            .map(|terms| parts(until, record, terms))
            .collect();
        let windows = least.entry(account.clone()).or_default();
        for window in all[0].keys() {
            let of =
                |parts: &BTreeMap<u32, Counters>| parts.get(window).copied().unwrap_or_default();
            let cell = all
                .iter()
                .map(of)
                .reduce(least_of)
                .expect("there are rules");
            let slack = if is_mixed { ROUNDED } else { 0 };
            let cell = Counters {
                charge: cell.charge.saturating_sub(slack),
                ..cell
            };
            windows.insert(*window, cell);
        }
    }
    (least, most)
}

fn least_of(a: Counters, b: Counters) -> Counters {
    let (a, b) = (a.to_columns(), b.to_columns());
    Counters::from_columns(std::array::from_fn(|column| a[column].min(b[column])))
}

/// What a report adds to a job that is charged until then, window by window.
fn parts(until: Option<u64>, record: &UsageRecord, terms: &Terms) -> BTreeMap<u32, Counters> {
    let (start, length) = (record.start.0, terms.window.millis().0);
    let window_at = |at: u64| u32::try_from(at / length).expect("within the epoch of windows");
    let from = until.unwrap_or(start).max(start);
    let end = record.end.0.max(from);
    let mut parts: BTreeMap<u32, Counters> = BTreeMap::new();
    let mut at = from;
    while at < end {
        let next = ((at / length + 1) * length).min(end);
        let used = terms
            .cost
            .of_first(next - start)
            .minus(terms.cost.of_first(at - start));
        parts.insert(window_at(at), used);
        at = next;
    }
    if !record.running {
        let last = window_at(end.saturating_sub(1).max(start));
        parts.entry(last).or_default().jobs += 1;
    }
    parts
}
