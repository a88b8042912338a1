//! A final record that contradicts what instalments of its job reported.
//!
//! The final record alone decides what the job costs, so the net charge of its account is exact. Which part of it the
//! instalments charged already follows where they were all charged by one set of terms: in each window the larger of
//! both is charged, and the instalments' excess is refunded, but for what is rounded. Where they were not, nobody
//! outside the site can say it window by window.
//!
//! Invariant: where another account may have been charged, or a mark may have been lost, nothing is certain.
//! Source: `docs/counting.md`, "The final record wins".

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fairmesh_model::{Counters, UsageRecord};

use super::{Job, Terms, Windows, add_to, bounds, join_to, parts};
use crate::oracle::AccountKey;

/// What a job costs by its final record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settled {
    /// What the final record adds, at least and at most.
    pub(super) least: Windows,
    pub(super) most: Windows,
    /// Who pays how much in all, if that is certain.
    pub(super) net: Option<(AccountKey, u64)>,
}

impl Job {
    /// What a record does where a final record contradicts an instalment, if both may have been taken.
    pub(super) fn settled(&self, record: &UsageRecord) -> Option<Settled> {
        if record.running {
            // It adds nothing if the final record was taken before it, and nobody answered.
            let mut finals = self.open.iter().map(|open| &open.record);
            return finals
                .any(|of| self.is_contradicted_by(of))
                .then(|| Settled {
                    least: Windows::new(),
                    most: bounds(self, record).1,
                    net: None,
                });
        }
        let mut open = Windows::new();
        for instalment in self.open.iter().filter(|open| open.record.running) {
            join_to(&mut open, &bounds(self, &instalment.record).1);
        }
        let mut charged = self.charged.1.clone();
        add_to(&mut charged, &open);
        let finals = self.open.iter().filter(|open| !open.record.running);
        let mut rules: Vec<&Rc<Terms>> = finals.map(|open| &open.terms).collect();
        rules.dedup();
        let may_settle = |terms: &&Rc<Terms>| charged.contains_key(&terms.account);
        if !self.is_contradicted_by(record) || !rules.iter().any(may_settle) {
            return None;
        }
        let is_known = self.recovered.ended.max(self.recovered.running) == 0;
        let is_of_one = rules.len() == 1 && charged.len() == 1 && is_known;
        let is_sure = is_of_one && open.is_empty() && self.charged.0 == self.charged.1;
        let mut settled = Settled {
            least: Windows::new(),
            most: open,
            net: None,
        };
        let mut more = Windows::new();
        for terms in rules {
            let before = charged.get(&terms.account).cloned().unwrap_or_default();
            let whole = parts(None, record, terms);
            let is_even = is_sure && self.rules.is_some();
            let (least, most) = differences(&before, &whole, terms, is_even);
            // A mark that is lost later leaves out what was charged until then.
            let rest = parts(self.until, record, terms);
            for windows in [most, rest] {
                join_to(
                    &mut more,
                    &Windows::from([(terms.account.clone(), windows)]),
                );
            }
            if is_sure {
                settled.least.insert(terms.account.clone(), least);
            }
            // Whichever of them were taken first, the final record decides.
            if is_of_one {
                let net = whole.values().map(|of| of.charge).sum();
                settled.net = Some((terms.account.clone(), net));
            }
        }
        add_to(&mut settled.most, &more);
        Some(settled)
    }

    /// Whether a final record reports something else than an instalment that was, or may have been, taken.
    fn is_contradicted_by(&self, record: &UsageRecord) -> bool {
        let open = self.open.iter().map(|open| &open.record);
        let mut instalments = open.chain(&self.instalments).filter(|of| of.running);
        !record.running && instalments.any(|of| !is_alike(of, record) || of.end > record.end)
    }

    /// Remembers an instalment that was taken: of those that are alike, the last.
    pub(super) fn note_instalment(&mut self, record: &Rc<UsageRecord>) {
        if let Some(last) = self.instalments.last_mut()
            && is_alike(last, record)
        {
            if record.end > last.end {
                *last = Rc::clone(record);
            }
        } else {
            self.instalments.push(Rc::clone(record));
        }
    }

    /// The least and the most that accounts are charged for the job in all, without what is refunded.
    pub(super) fn net(&self) -> BTreeMap<AccountKey, (u64, u64)> {
        let sum = |windows: &BTreeMap<u32, Counters>| windows.values().map(|of| of.charge).sum();
        let (least, most) = &self.charged;
        let accounts: BTreeSet<&AccountKey> = most.keys().chain(self.pending.keys()).collect();
        let bounds = |account: &AccountKey| -> (u64, u64) {
            let of = |windows: &Windows| windows.get(account).map_or(0, sum);
            let all = (of(least), of(most) + of(&self.pending));
            let (least, most) = match &self.net {
                None => all,
                Some(None) => (0, all.1),
                Some(Some((payer, charge))) if payer == account => (*charge, *charge),
                Some(Some(_)) => (0, 0),
            };
            // A correction refunds all that is left of a job.
            let is_exact = self.open.is_empty() && least == most;
            match (self.refunds.is_empty(), self.taken_back && is_exact) {
                (true, _) => (least, most),
                (false, true) => (0, 0),
                (false, false) => (0, most),
            }
        };
        let of_account = |account: &AccountKey| (account.clone(), bounds(account));
        accounts.into_iter().map(of_account).collect()
    }
}

/// What a final record adds to the cells of instalments, at least and at most, window by window.
fn differences(
    before: &BTreeMap<u32, Counters>,
    whole: &BTreeMap<u32, Counters>,
    terms: &Terms,
    is_even: bool,
) -> (BTreeMap<u32, Counters>, BTreeMap<u32, Counters>) {
    // Each thing that is charged on its own is rounded on its own, and their sum is spread once more.
    let rounded = 2 + terms.cost.rates.len() as u64;
    let all: u64 = before.values().map(|of| of.charge).sum();
    let is_certain = is_even && !offset_each_other(before, whole);
    let (mut least, mut most) = (BTreeMap::new(), BTreeMap::new());
    for window in before.keys().chain(whole.keys()) {
        let of = |windows: &BTreeMap<u32, Counters>| windows.get(window).copied();
        let (before, whole) = (
            of(before).unwrap_or_default(),
            of(whole).unwrap_or_default(),
        );
        let mut more = whole.minus(before);
        let mut at_least = Counters::default();
        if is_even {
            more.refunds = before.charge.saturating_sub(whole.charge);
            let rounded_off = more.to_columns().map(|of| of.saturating_sub(rounded));
            at_least =
                Counters::from_columns(rounded_off.map(|of| if is_certain { of } else { 0 }));
        } else {
            more = Counters {
                refunds: all,
                ..whole
            };
        }
        let jobs = whole.jobs;
        let at_most = Counters::from_columns(more.to_columns().map(|of| of + rounded));
        least.insert(*window, Counters { jobs, ..at_least });
        most.insert(*window, Counters { jobs, ..at_most });
    }
    (least, most)
}

/// Whether a final record adds in one window what it takes off in another. If the site counts both as one old day, it
/// adds only the difference.
fn offset_each_other(before: &BTreeMap<u32, Counters>, whole: &BTreeMap<u32, Counters>) -> bool {
    let in_window =
        |of: &BTreeMap<u32, Counters>, window| of.get(window).copied().unwrap_or_default();
    let (mut more, mut less) = (Counters::default(), Counters::default());
    for window in before.keys().chain(whole.keys()) {
        let (before, whole) = (in_window(before, window), in_window(whole, window));
        (more, less) = (
            more.join(whole.minus(before)),
            less.join(before.minus(whole)),
        );
    }
    let mut both = more.to_columns().into_iter().zip(less.to_columns());
    both.any(|(more, less)| more > 0 && less > 0)
}

/// Whether two records of a job report the same but for its end.
fn is_alike(a: &UsageRecord, b: &UsageRecord) -> bool {
    let held = |of: &UsageRecord| (of.start, of.cores, of.gpus, of.mem_mib);
    held(a) == held(b) && a.placement == b.placement
}
