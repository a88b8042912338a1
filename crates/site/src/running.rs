//! What runs here, as the owner's levels of the tree count it: by the last list, and less what has ended.
//!
//! An owner's levels are always current and *active*: they count what jobs have used, also of a VO that
//! counts jobs only when they end; and whole jobs that run, where the owner's history is of those alone.
//! The first is kept here by span, as it would be counted, and the second as one amount. Neither leaves
//! the site, and neither is stored: a start knows nothing of what runs until its feed lists it.
//!
//! Invariant: what a job has used is here or in the counters, and never in both.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005); the thesis of Gardfjäll for what counts only while it
//! runs.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, CoreMillis, HistoryRule, Now, RunningJob, Span, UsageMode, VoId, WindowLength,
    mutant, mutated,
};

use crate::advert::sources::Listed;
use crate::charge::{Rules, charge, rate};
use crate::event::Ticket;
use crate::identity::Account;
use crate::kinds::{RUNNING, running_parts};
use crate::moved::{Moved, moved};
use crate::report::Reporting;
use crate::site::Site;
use crate::store::{JobMark, job_key};
use crate::terms::{Payer, Payers};

/// Whose usage, and when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) account: Account,
    /// Length of the windows that its usage is counted in.
    pub(crate) window: WindowLength,
    /// Where it lies; whole jobs lie nowhere.
    pub(crate) span: Option<Span>,
}

/// What a job that runs has used, where no counter has it; all of it, where that is what counts.
type Run = Vec<(Place, u64)>;

/// All that run, by job key.
#[derive(Debug, Default)]
pub(crate) struct Running {
    jobs: BTreeMap<Vec<u8>, Run>,
    sums: BTreeMap<Place, u64>,
}

impl Running {
    /// A list came: it replaces the one before.
    pub(crate) fn replace(&mut self, jobs: BTreeMap<Vec<u8>, Run>) -> Vec<Moved<Place>> {
        let mut sums: BTreeMap<Place, u64> = BTreeMap::new();
        for (place, charge) in jobs.values().flatten() {
            let sum = sums.entry(place.clone()).or_default();
            *sum = sum.saturating_add(*charge);
        }
        self.jobs = jobs;
        let before = std::mem::replace(&mut self.sums, sums);
        moved(
            before,
            self.rows().map(|(place, charge)| (place.clone(), charge)),
        )
    }

    /// A job has ended: the counters have it.
    pub(crate) fn end(&mut self, job: &[u8]) -> Vec<Moved<Place>> {
        let mut changes = Vec::new();
        for (place, charge) in self.jobs.remove(job).unwrap_or_default() {
            let before = self.sums.remove(&place).unwrap_or(0);
            let after = before.saturating_sub(charge);
            if after > 0 {
                self.sums.insert(place.clone(), after);
            }
            changes.push(Moved {
                key: place,
                before,
                after,
            });
        }
        changes
    }

    /// All of it, for a tree that has nothing.
    pub(crate) fn all(&self) -> Vec<Moved<Place>> {
        moved(
            [],
            self.rows().map(|(place, charge)| (place.clone(), charge)),
        )
    }

    /// What counts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Place, u64)> {
        self.sums.iter().map(|(place, charge)| (place, *charge))
    }
}

impl Site {
    /// Counts the instalments of running jobs and replaces what is in flight.
    pub(crate) fn take_running(
        &mut self,
        now: Now,
        ticket: Ticket,
        mut jobs: Vec<(RunningJob, Option<JobMark>)>,
    ) {
        let mut report = Reporting::default();
        let mut payers = Payers::new();
        let mut running = BTreeMap::new();
        let is_told = self.cx.config.advert.is_some();
        let mut listed = Listed::new(now.wall);
        for (job, _) in &mut jobs {
            job.record.running = true;
        }
        for (index, (job, mark)) in jobs.iter().enumerate() {
            let payer = self.terms().payer_of(&job.record, now.wall, &mut payers);
            // What cannot be charged holds CPUs all the same.
            if is_told && !mark.is_some_and(|mark| mark.ended) {
                listed.add(payer.account.vo, &job.record, &self.cx.config.charging);
            }
            if !self.take_record(index, &job.record, *mark, payer, &mut report) {
                continue;
            }
            payer.expected = payer.expected.plus(self.expected_of(job, &payer.rules));
            let vo = payer.account.vo;
            let mark = self.own.mark_behind_loss(vo, &job.record, *mark);
            let mut run = self.run_of(job, mark, payer);
            run.retain(|(_, charge)| *charge > 0);
            if !run.is_empty() {
                running.insert(job_key(&job.record.key), run);
            }
        }
        self.count(&payers, &mut report);
        let moved = self.jobs.running.replace(running);
        self.shares.change_running(&moved);
        // For every VO: that nothing is expected is news, too.
        for vo in self.vos.ids() {
            let mut expected: BTreeMap<AccountPath, CoreMillis> = BTreeMap::new();
            let of_vo = payers.values().filter(|of| of.account.vo == Some(vo));
            for payer in of_vo.filter(|of| of.expected != CoreMillis(0)) {
                let of_account = expected.entry(payer.account.path.clone()).or_default();
                *of_account = of_account.plus(payer.expected);
            }
            self.expect(vo, expected);
        }
        jobs.iter()
            .filter(|_| !mutated!(HoldsUnrenewed))
            .for_each(|(job, _)| self.rights().renew_hold(now, &job.record.key));
        if is_told {
            self.adverts_handler().take_listed(now, listed);
        }
        self.finish_report(ticket, report);
    }

    /// What a job counts for as long as it runs: what it will still use, and all of it where nothing else
    /// counts.
    fn expected_of(&self, job: &RunningJob, rules: &Rules) -> CoreMillis {
        let record = &job.record;
        let seen_from = if rules.whole_jobs && !mutated!(WholeJobsRemain) {
            record.start
        } else {
            mutant!(ExpectedFromStart, record.end, record.start)
        };
        // One that cannot be charged was refused, unless it is known to have ended.
        let rate = rate(record, rules, &self.cx.config.charging);
        let remaining = job.expected_end.since(seen_from);
        rate.map_or(CoreMillis(0), |rate| {
            CoreMillis(rate.counters(remaining).charge)
        })
    }

    /// What a job counts for at the owner's levels, and in no counter.
    fn run_of(&self, job: &RunningJob, mark: Option<JobMark>, payer: &Payer) -> Run {
        let rules = &payer.rules;
        let place = |span| Place {
            account: payer.account.clone(),
            window: rules.window,
            span,
        };
        // Of a VO whose charter has not come nobody can say what a job costs. It was refused, unless its mark says all.
        let is_unknown = payer.account.vo.is_some_and(|vo| !self.vos.is_founded(vo));
        if is_unknown || mark.is_some_and(|mark| mark.ended) {
            return Run::new();
        }
        if self.cx.config.local_history == HistoryRule::RunningOnly {
            // Where running jobs do not count in the VO, one that cannot be charged was not refused.
            if rate(&job.record, rules, &self.cx.config.charging).is_err() {
                return Run::new();
            }
            let whole_jobs = true;
            let whole = self.expected_of(
                job,
                &Rules {
                    whole_jobs,
                    ..*rules
                },
            );
            return vec![(place(None), whole.0)];
        }
        if rules.mode != UsageMode::Historical || mutated!(LocalByMode) {
            return Run::new();
        }
        let mode = UsageMode::Active;
        let active = Rules { mode, ..*rules };
        let used = charge(&job.record, mark, &active, &self.cx.config.charging);
        let used = used.ok().flatten().map_or(Vec::new(), |used| used.parts);
        let parts = used.into_iter();
        parts
            .map(|(span, counters)| (place(Some(span)), counters.charge))
            .collect()
    }

    /// Takes what running jobs of a VO count for in it: here at once, elsewhere with the next head. A VO
    /// whose charter does not ask is told nothing.
    fn expect(&mut self, vo: VoId, rows: BTreeMap<AccountPath, CoreMillis>) {
        let Some(held) = self.vos.get_mut(&vo) else {
            return;
        };
        let is_told = held.counts_running() && held.replica.is_member(self.cx.id);
        let rows = if is_told { rows } else { BTreeMap::new() };
        self.own.set_parts(vo, RUNNING, running_parts(&rows));
        let capacity = held.capacity(self.cx.id);
        let changes = held.published.expect(self.cx.id, rows, capacity, true);
        self.shares.change_in_flight((vo, self.cx.id), &changes);
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::Window;

    use super::*;

    fn run(path: &str, parts: &[(u32, u64)]) -> Run {
        let part = |(window, charge): &(u32, u64)| {
            let place = Place {
                account: Account {
                    vo: None,
                    path: AccountPath::parse(path).expect("a path"),
                },
                window: WindowLength::HOUR,
                span: Some(Span::Window(Window(*window))),
            };
            (place, *charge)
        };
        parts.iter().map(part).collect()
    }

    fn list(jobs: Vec<Run>) -> BTreeMap<Vec<u8>, Run> {
        (0u8..).map(|name| vec![name]).zip(jobs).collect()
    }

    fn changes(moved: &[Moved<Place>]) -> Vec<(&str, u64, u64)> {
        let path = |moved: &'_ Moved<Place>| (moved.before, moved.after);
        let all = moved
            .iter()
            .map(|of| (of.key.account.path.as_str(), path(of)));
        all.map(|(path, (before, after))| (path, before, after))
            .collect()
    }

    #[test]
    fn a_list_replaces_the_one_before_and_a_job_that_ends_goes_alone() {
        let mut running = Running::default();
        let first = list(vec![run("/u", &[(1, 5)]), run("/u", &[(1, 2), (2, 4)])]);
        let moved = running.replace(first);
        assert_eq!(changes(&moved), [("/u", 0, 7), ("/u", 0, 4)]);
        assert_eq!(changes(&running.end(&[0])), [("/u", 7, 2)]);
        assert_eq!(running.end(&[0]), [], "once");
        let next = list(vec![run("/v", &[(2, 1)]), run("/u", &[(1, 2), (2, 4)])]);
        assert_eq!(changes(&running.replace(next)), [("/v", 0, 1)]);
        let moved = running.replace(BTreeMap::new());
        assert_eq!(changes(&moved), [("/u", 2, 0), ("/u", 4, 0), ("/v", 1, 0)]);
        assert_eq!(running.rows().count(), 0);
    }
}
