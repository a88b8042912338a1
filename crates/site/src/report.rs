//! Reports of feeds: records are counted once, and the feed gets the result.
//!
//! Invariant: a record's counters and its job's mark are one durable change, and the reply is sent after it.

use std::collections::BTreeMap;

use fairmesh_model::{CoreMillis, Counters, JobKey, Now, UsageRecord, VoId, cbor, mutant, mutated};

use crate::again::{AfterCorrection, JobTerms};
use crate::charge::Charge;
use crate::event::Reply;
use crate::instalments::settled;
use crate::jobs::Unmapped;
use crate::parts::{Cx, Jobs, Own, Quotas, Shares, Vos};
use crate::quota::rights::{RightsHandler, cost};
use crate::reporting::{Ended, KnownJob, Reporting};
use crate::store::{JobMark, Table, Write, job_key, origin_key};
use crate::terms::{Payer, Payers, Terms};
use crate::tickets::Ticket;
use crate::usage::{Added, UsageHandler};

/// Counts reported jobs, and takes them back.
pub(crate) struct JobHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) quotas: &'a mut Quotas,
}

impl JobHandler<'_> {
    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms::new(self.cx, self.vos, &self.shares.tree)
    }

    fn job_terms(&self) -> JobTerms<'_> {
        JobTerms::new(self.terms(), self.own, self.jobs)
    }

    pub(crate) fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    pub(crate) fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    /// Counts `records` and replies after they are durable. Each comes with its job's mark from the round.
    pub(crate) fn take_report(
        &mut self,
        now: Now,
        ticket: Ticket,
        records: &[(UsageRecord, Option<JobMark>)],
    ) {
        let mut report = Reporting::default();
        let mut payers = Payers::new();
        if let Some(why) = self.cx.clock.refuses_all() {
            // Refused "for now": the feed keeps its position and repeats the records when the clock is right.
            for index in 0..records.len() {
                self.refuse(index, why.clone(), &mut report);
                report.reported.for_now += 1;
            }
            return self.finish_report(ticket, report);
        }
        for (index, (record, mark)) in records.iter().enumerate() {
            let payer = self.terms().payer_of(record, now.wall, &mut payers);
            if index + 1 == records.len() && mutated!(LastRecordDropped) {
                report.reported.counted += 1;
                continue;
            }
            let mark = mark.filter(|_| !mutated!(MarksUnread));
            self.take_record(index, record, mark, payer, &mut report);
        }
        self.count(&payers, &mut report);
        self.commit_ended(now, &mut report);
        self.finish_report(ticket, report);
    }

    pub(crate) fn finish_report(&mut self, ticket: Ticket, mut report: Reporting) {
        let marks = report.marks.into_iter();
        let marks = marks.map(|(key, mark)| Write::set(Table::Jobs, key, mark.to_bytes()));
        report.writes.extend(marks);
        self.cx.persist(report.writes);
        self.cx.reply(ticket, Reply::Reported(report.reported));
    }

    /// Adds the charge of one record to its payer. Returns false if the record was refused.
    pub(crate) fn take_record(
        &mut self,
        index: usize,
        record: &UsageRecord,
        mark: Option<JobMark>,
        payer: &mut Payer,
        report: &mut Reporting,
    ) -> bool {
        let key = job_key(&record.key);
        // A job may be in the report twice. The mark that came with the second record is older than what the first
        // one did.
        let first = report.marks.get(&key).copied();
        let told = first.filter(|_| !mutated!(TwiceInOneReport)).or(mark);
        let vo = payer.account.vo;
        let (mark, is_again, is_known) = match self.job_terms().after_correction(record, told) {
            AfterCorrection::Counted(told) => {
                let mark = self.own.mark_behind_loss(vo, record, told);
                (mark, false, mark == told)
            }
            AfterCorrection::Again(mark) => (mark, true, false),
            AfterCorrection::TakenBack(at) => {
                self.cx.stats.records_known += 1;
                report.reported.known += 1;
                *report.reported.not_again.entry(at).or_default() += 1;
                return true;
            }
        };
        let charging = &self.cx.config.charging;
        // Capacity is checked only for new jobs: a repeated record must be accepted even if the charter declares less
        // now.
        let is_new = mark.is_none_or(|mark| !mark.ended);
        let has_room = || is_new.then(|| self.terms().check_capacity(vo, record));
        let charged = self
            .terms()
            .check(record)
            .and_then(|()| has_room().unwrap_or(Ok(())))
            .and_then(|()| {
                self.terms()
                    .charge_of(record, mark, (vo, &payer.rules), charging)
            });
        let charge = match charged {
            Err(why) => {
                report.reported.for_now += u64::from(self.terms().passes(vo, record));
                return self.refuse(index, why, report);
            }
            Ok(None) => {
                self.cx.stats.records_known += 1;
                report.reported.known += 1;
                let has_ended = |mark: Option<JobMark>| mark.is_some_and(|mark| mark.ended);
                report.reported.left_out += u64::from(has_ended(mark) && !has_ended(told));
                return true;
            }
            Ok(Some(charge)) => charge,
        };
        if !payer.is_mapped && mutated!(UnmappedDropped) {
            report.reported.counted += 1;
            return true;
        }
        let told = KnownJob {
            key,
            mark,
            is_known,
            is_again,
        };
        self.take_charge(record, told, charge, payer, report);
        true
    }

    /// Adds the charge of a record that is not known yet to its payer, and updates the job's mark.
    fn take_charge(
        &mut self,
        record: &UsageRecord,
        told: KnownJob,
        charge: Charge,
        payer: &mut Payer,
        report: &mut Reporting,
    ) {
        let KnownJob {
            key,
            mark,
            is_known,
            is_again,
        } = told;
        let known = mark.filter(|_| is_known);
        let by = (payer.digest, &payer.rules);
        let (charge, refunds) = settled(
            self.jobs.instalments.get(&key),
            record,
            known,
            charge,
            by,
            &self.cx.config.charging,
        );
        let total = payer.add(&charge);
        if !refunds.is_empty() {
            report
                .refunds
                .push((payer.account.clone(), payer.rules, refunds));
        }
        let noted = self.jobs.note_instalment(&key, record, (mark, is_known));
        report
            .writes
            .extend(noted.filter(|_| !mutated!(InstalmentsUnwritten)));
        if charge.mark.ended && !mutated!(EndedStillRuns) {
            let ended = self.jobs.running.end(&key);
            self.shares.change_running(&ended);
        }
        // A job that was charged to two accounts cannot be taken back from one, so its mark names no payer.
        let is_of_one = mark.is_none_or(|mark| mark.charge == 0 || mark.payer == payer.digest);
        let mut mark = charge.mark;
        mark.payer = if is_of_one { payer.digest } else { 0 };
        report.marks.insert(key, mark);
        self.jobs.marks_moved += u64::from(is_again);
        if mark.ended && self.vos.is_of_quotas(payer.account.vo, &record.key) {
            let ended = Ended::new(&payer.account, record, mark.charge);
            report.ended.push(Ended { is_again, ..ended });
        }
        if !payer.is_mapped {
            self.note_unmapped(record, total, report);
        }
        self.cx.stats.records_counted += 1;
        report.reported.counted += 1;
        report.reported.late += u64::from(charge.late);
        report.reported.charge = report.reported.charge.saturating_add(total.charge);
    }

    pub(crate) fn refuse(&mut self, index: usize, why: String, report: &mut Reporting) -> bool {
        self.cx.stats.records_refused += 1;
        report.reported.refused.push((index, why));
        false
    }

    /// Adds the sums of a report to the counters: each cell is written once, however many jobs it contains.
    pub(crate) fn count(&mut self, payers: &Payers<'_>, report: &mut Reporting) {
        let mut of_spans: BTreeMap<_, Added<'_>> = BTreeMap::new();
        // First all days that are counted as a whole: opening one moves its windows into it, which changes other
        // places.
        for payer in payers.values() {
            let vo = payer.account.vo;
            report.writes.extend(self.own.reaches(vo, payer.reach));
            for span in payer.added.keys() {
                self.usage().place(vo, *span);
            }
        }
        for payer in payers.values() {
            let vo = payer.account.vo;
            for (span, counters) in &payer.added {
                let place = self.usage().place(vo, *span);
                let of_span = of_spans.entry((vo, place)).or_default();
                let sum = of_span.entry(&payer.account).or_default();
                *sum = sum.plus(*counters);
            }
        }
        for ((vo, place), added) in &of_spans {
            report
                .writes
                .extend(self.usage().count_in(*vo, *place, added));
        }
        // After the additions: a refund is limited by what its cell contains, and the charge may be in the same report.
        for (account, rules, refunds) in std::mem::take(&mut report.refunds) {
            let credited = self
                .usage()
                .refund_parts(&account, refunds, &rules, &mut report.writes);
            report.reported.credited = report.reported.credited.saturating_add(credited);
        }
    }

    fn note_unmapped(&mut self, record: &UsageRecord, total: Counters, report: &mut Reporting) {
        self.cx.stats.records_unmapped += 1;
        report.reported.unmapped += 1;
        if !self.jobs.lists_unmapped(&record.origin) {
            return;
        }
        let seen = self.jobs.unmapped.entry(record.origin.clone()).or_default();
        *seen = Unmapped {
            records: seen.records + 1,
            charge: seen.charge.saturating_add(total.charge),
            last: seen.last.max(record.end),
        };
        let row = cbor::to_vec(&(&record.origin, seen.records, seen.charge, seen.last));
        report
            .writes
            .push(Write::set(Table::Unmapped, origin_key(&record.origin), row));
    }

    /// Charges the quotas of ended jobs in the same change of the store: a crash must not free a hold without its
    /// charge.
    pub(crate) fn commit_ended(&mut self, now: Now, report: &mut Reporting) {
        for ended in std::mem::take(&mut report.ended) {
            if ended.is_again {
                self.forget_charge(&ended.job, report);
            }
            let held = self.vos.quota_of_hold(&ended.job).map(|(vo, _)| vo);
            let vo = held.or(ended.account.vo);
            let is_off = |vo: &VoId| {
                self.cx
                    .config
                    .quotas
                    .get(vo)
                    .is_some_and(|owner| owner.is_off && !mutated!(OffIsCharged))
            };
            let is_charged = |vo: &VoId| held.is_some() || !is_off(vo);
            let is_charged = |vo: &VoId| is_charged(vo) && !mutated!(EndedUncommitted);
            let Some(vo) = vo.filter(is_charged) else {
                continue;
            };
            let charge = CoreMillis(ended.charge);
            if let (Some(next), Some(held)) = (&ended.next, self.vos.get_mut(&vo)) {
                let ledger = &mut held.quota.ledger;
                let cost = cost(ledger.mark(&ended.job), charge);
                ledger.hand_on(&ended.job, next, cost);
            }
            self.quotas
                .commit(self.vos, now, vo, &ended.job, charge, &ended.account.path);
            let writes = self.vos.quota_writes(self.own, vo);
            let writes = mutant!(CommitUnwritten, writes, Vec::new());
            report.writes.extend(writes);
        }
    }

    /// Forgets the quota charge of a job that was taken back, so that it can be charged again, possibly to another
    /// account.
    fn forget_charge(&mut self, job: &JobKey, report: &mut Reporting) {
        if let Some((vo, quota)) = self.vos.quota_of_hold(job)
            && quota.ledger.forget_charge(job)
        {
            report.writes.extend(self.vos.quota_writes(self.own, vo));
        }
    }

    /// Gives back the quota charge of a job that is taken back.
    pub(crate) fn correct_quota(
        &mut self,
        now: Now,
        job: &JobKey,
        charge: u64,
        report: &mut Reporting,
    ) {
        let Some((vo, quota)) = self.vos.quota_of_hold(job) else {
            return;
        };
        let ledger = &mut quota.ledger;
        let cost = cost(ledger.mark(job), CoreMillis(charge));
        ledger.correct(now.wall, job, cost);
        report.writes.extend(self.vos.quota_writes(self.own, vo));
    }
}
