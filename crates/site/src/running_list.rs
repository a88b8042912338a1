//! Lists of running jobs: their instalments are counted, and what is in flight is replaced.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, CoreMillis, HistoryRule, Now, RunningJob, UsageMode, VoId, mutant, mutated,
};

use crate::advert::own::AdvertHandler;
use crate::advert::sources::Listed;
use crate::charge::{Rules, charge, rate};
use crate::kinds::{RUNNING, running_parts};
use crate::report::JobHandler;
use crate::reporting::Reporting;
use crate::running::{Place, Run};
use crate::store::{JobMark, job_key};
use crate::terms::{Payer, Payers};
use crate::tickets::Ticket;

impl JobHandler<'_> {
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
            AdvertHandler::new(self.cx, self.own, self.vos, &mut self.jobs.sources)
                .take_listed(now, listed);
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
