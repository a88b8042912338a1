//! Corrections: jobs that were reported in error are taken back, with the user and the reason.
//!
//! The charge of a job is added to the refunds of the cells that it was charged in. Refunds are a counter that only
//! grows, like the charge. The job's mark says until when, how much and to whom it was charged, so the refund is the
//! original charge, whatever rules and identities say now.
//!
//! Invariant: a charge is taken back at most once. The refunds, the mark and the audit entry are one durable change. A
//! refund is never more than what is left of its cell.
//! Deliberately not here: a job that is reported again (`again`), usage that moves to another account (`remap`).

use std::collections::BTreeSet;

use fairmesh_model::{Now, Span, UsageRecord, VoId, WallTime, cbor, mutated};

use crate::event::Correction;
use crate::identity::{Account, IdentityMap};
use crate::parts::{Own, Vos};
use crate::reach::Reach;
use crate::refund::{Refund, lacks_words, parts_of};
use crate::report::JobHandler;
use crate::reporting::Reporting;
use crate::store::{JobMark, Table, Write, job_key};
use crate::terms::no_charter;
use crate::tickets::Ticket;

impl JobHandler<'_> {
    /// Takes jobs back that were reported in error, and replies after that is durable.
    pub(crate) fn take_correction(&mut self, now: Now, ticket: Ticket, correction: &Correction) {
        let mut report = Reporting::default();
        let words = (&*correction.by, &*correction.why);
        let refused = self.cx.clock.refuses_all().or_else(|| lacks_words(words));
        for (index, (record, mark)) in correction.records.iter().enumerate() {
            let refund = match &refused {
                Some(why) => Err(why.clone()),
                None => self.take_back(now, (record, *mark), correction, &mut report),
            };
            match refund {
                Ok(charge) => {
                    self.cx.stats.jobs_corrected += 1;
                    self.jobs.marks_moved += 1;
                    report.reported.counted += 1;
                    report.reported.charge = report.reported.charge.saturating_add(charge);
                    report.reported.taken_back.push((index, charge));
                }
                Err(why) => {
                    self.refuse(index, why, &mut report);
                }
            }
        }
        self.finish_report(ticket, report);
    }

    fn take_back(
        &mut self,
        now: Now,
        (record, mark): (&UsageRecord, Option<JobMark>),
        correction: &Correction,
        report: &mut Reporting,
    ) -> Result<u64, String> {
        let key = job_key(&record.key);
        // The second word on one job in one event sees what the first one did.
        let mark = report.marks.get(&key).copied().or(mark);
        let mark = mark.ok_or_else(|| self.without_mark(record))?;
        may_be_taken_back(record, mark)?;
        self.vos.quota_gives_back(&record.key)?;
        let account = self.payer_of_mark(record, mark)?;
        let charge = self.refund(now, (record, mark), &account, report);
        if charge == 0 {
            let job = &record.key.job;
            return Err(format!("nothing of job `{job}` counts any more"));
        }
        let corrected = true;
        let mark = JobMark { corrected, ..mark };
        report.marks.insert(key.clone(), mark);
        let refund = Refund {
            job: record.key.clone(),
            vo: account.vo,
            path: account.path,
            charge,
            incarnation: self.own.incarnation(),
            at: now.wall,
            by: correction.by.clone(),
            why: correction.why.clone(),
            record: Some(Box::new(record.clone())),
            until: Some(mark.charged_until),
        };
        let row_key = refund_key(&key, self.jobs.refunds_of(&record.key).count());
        let row = cbor::to_vec(&refund);
        report
            .writes
            .push(Write::set(Table::Audit, row_key.clone(), row));
        if !mutated!(CorrectionUntold) {
            tell(self.vos, self.own, &refund);
        }
        if !mutated!(CorrectionKeepsCredit) {
            self.correct_quota(now, &refund.job, charge, report);
        }
        self.jobs.refunds.insert(row_key, refund);
        Ok(charge)
    }

    /// Puts what the job was charged into its cells. Returns how much that is.
    fn refund(
        &mut self,
        now: Now,
        (record, mark): (&UsageRecord, JobMark),
        account: &Account,
        report: &mut Reporting,
    ) -> u64 {
        let rules = self.terms().rules(account.vo, now.wall);
        let parts = parts_of((record, mark), &rules, &self.cx.config.charging);
        let parts = parts.into_iter().map(|(span, part)| (span, part.charge));
        self.usage()
            .refund_parts(account, parts.collect(), &rules, &mut report.writes)
    }

    /// The account that was charged for a job. If its origin maps elsewhere by now, the account is searched among
    /// those with usage while the job ran, by the digest in the mark: a refund must not reach an account that was
    /// never charged.
    fn payer_of_mark(&self, record: &UsageRecord, mark: JobMark) -> Result<Account, String> {
        let mapped = self.cx.config.identity.resolve(record);
        let mapped = mapped.unwrap_or_else(IdentityMap::nowhere);
        let is_payer = |account: &Account| account.digest() == mark.payer;
        let vos = self.vos.keys().copied().map(Some).chain([None]);
        let found = Some(mapped).filter(is_payer).or_else(|| {
            let (start, end) = (record.start, mark.charged_until);
            vos.flat_map(|vo| self.accounts_between(vo, start, end))
                .find(is_payer)
        });
        let account = found.ok_or_else(|| {
            let job = &record.key.job;
            format!("nobody can say any more which account job `{job}` was charged to")
        })?;
        match account.vo.filter(|vo| !self.vos.is_founded(*vo)) {
            Some(vo) => Err(no_charter(vo)),
            None => Ok(account),
        }
    }

    /// The message for a job without a mark: it was not counted, or its mark is lost.
    fn without_mark(&self, record: &UsageRecord) -> String {
        let job = &record.key.job;
        let lost = self
            .own
            .reach
            .keys()
            .filter_map(|vo| self.own.recovered(*vo));
        match lost.map(Reach::newest).max() {
            Some(until) if record.start < until => format!(
                "job `{job}`: this site's counters came back after its data folder was lost, and include jobs up to \
                 {}. The mark of this job is not here, so nobody can tell whether it was counted, and nothing was taken \
                 back: put back a backup of the data folder that was made after the job was reported, if there is one, \
                 and take it back then",
                until.utc_minute()
            ),
            _ => format!("job `{job}` was never counted here"),
        }
    }

    fn accounts_between(
        &self,
        vo: Option<VoId>,
        start: WallTime,
        end: WallTime,
    ) -> BTreeSet<Account> {
        let window = self.vos.window(&self.cx.config, vo);
        let ran_in = |span: &Span| span.start(window) <= end && span.end(window) > start;
        let spans: BTreeSet<Span> = self.own.spans(vo).filter(ran_in).collect();
        let sums = self.own.sums_in(vo, &spans, None).into_iter();
        let account = |((_, path), _)| Account { vo, path };
        sums.map(account).collect()
    }
}

/// Adds a refund to the audit part of the next head, for the VO's members.
pub(crate) fn tell(vos: &mut Vos, own: &mut Own, refund: &Refund) {
    if let Some(vo) = refund.vo {
        vos.change_audit(own, vo, |audit| audit.add(refund));
    }
}

/// The key of a refund of a job that was taken back `before` times already.
fn refund_key(job: &[u8], before: usize) -> Vec<u8> {
    let before = u32::try_from(before).unwrap_or(u32::MAX);
    let number = (before > 0).then(|| before.to_be_bytes());
    [job, number.as_ref().map_or(&[][..], |number| number)].concat()
}

fn may_be_taken_back(record: &UsageRecord, mark: JobMark) -> Result<(), String> {
    let job = &record.key.job;
    record.validate().map_err(|error| error.to_string())?;
    if mark.corrected && !mutated!(TakenBackTwice) {
        return Err(format!("job `{job}` was taken back already"));
    }
    if !mark.ended {
        return Err(format!(
            "job `{job}` has not ended: take it back when its last record has come"
        ));
    }
    if record.start >= mark.charged_until || record.end > mark.charged_until {
        return Err(format!(
            "the record of job `{job}` is not the one that was counted: it ran at another time"
        ));
    }
    if mark.charge == 0 {
        return Err(format!("job `{job}` was charged nothing"));
    }
    if mark.payer == 0 {
        return Err(format!(
            "job `{job}` was charged to more than one account, as the identity rules changed while it ran"
        ));
    }
    Ok(())
}
