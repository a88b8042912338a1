//! Corrections: jobs that were reported in error are taken back, by whom and why.
//!
//! What a job was charged goes into the cells that it was charged in, as refunds: a counter beside the
//! charge that only grows, too. What is known of the job is its mark (until when, how much, whom), so a
//! refund is what was charged then, whatever rules and identities say now.
//!
//! Invariant: what a job was charged is taken back at most once; its refunds, its mark and who did it are
//! one durable change; and no refund is more than what is left of its cell.
//! Deliberately not here: a job that is reported again (`again`), usage that moves to another account (`remap`).

use std::collections::BTreeSet;

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, Counters, Incarnation, JobKey, Millis, Now, SiteId, Span, UsageRecord, VoId,
    WallTime, cbor, mutated,
};
use serde::{Deserialize, Serialize};

use crate::audit::{AuditEntry, told};
use crate::charge::{Rules, charge, spread};
use crate::config::Charging;
use crate::event::{Correction, Ticket};
use crate::identity::{Account, IdentityMap};
use crate::reach::Reach;
use crate::report::Reporting;
use crate::site::Site;
use crate::store::{JobMark, Table, Write, job_key};
use crate::terms::no_charter;

/// How long it is told who took a job back: as long as the record log tells of jobs, so that a year can
/// be compared with the one before.
const AUDIT_KEPT: Millis = Millis(400 * DAY_MS);

/// Longest word on who takes back, and on why: bounds what an entry takes.
const BY_BYTES_MAX: usize = 128;
const WHY_BYTES_MAX: usize = 512;

/// Largest row of a correction: a record of the most properties and chunks, with the longest names, has 200 KB.
pub(crate) const REFUND_BYTES_MAX: usize = 512 << 10;

/// A job that was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// The job.
    #[serde(rename = "j")]
    pub job: JobKey,
    /// The VO that was charged; `None` for the site's own accounts.
    #[serde(rename = "v")]
    pub vo: Option<VoId>,
    /// The account that was charged.
    #[serde(rename = "p")]
    pub path: AccountPath,
    /// What was taken back, core-milliseconds.
    #[serde(rename = "c")]
    pub charge: u64,
    /// The incarnation of this site that did it.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// When, by this site's clock.
    #[serde(rename = "a")]
    pub at: WallTime,
    /// Who did it.
    #[serde(rename = "b")]
    pub by: String,
    /// Why.
    #[serde(rename = "w")]
    pub why: String,
    /// The record that was taken back, which counts no more; `None` in corrections of earlier releases.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Box<UsageRecord>>,
    /// Until when the job was charged then: an instalment may have gone further than its last record.
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
}

impl Site {
    /// Takes jobs back that were reported in error, and answers once it is durable.
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
        let row_key = refund_key(&key, self.refunds_of(&record.key).count());
        let row = cbor::to_vec(&refund);
        report
            .writes
            .push(Write::set(Table::Audit, row_key.clone(), row));
        if !mutated!(CorrectionUntold) {
            self.tell(&refund);
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

    /// Who was charged for a job. Where its origin maps elsewhere by now, the account is looked for among
    /// those of the spans that the job ran in.
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

    /// Why a job without a mark cannot be taken back: it was not counted, or its mark is lost.
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

    /// Tells the VO's members of it, with the next head.
    pub(crate) fn tell(&mut self, refund: &Refund) {
        if let Some(vo) = refund.vo {
            self.vos
                .change_audit(&mut self.own, vo, |audit| audit.add(refund));
        }
    }

    /// What other members of a VO have taken back, by their newest heads.
    pub fn audit_of_members(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Vec<AuditEntry>)> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(|held| {
            let sites: BTreeSet<SiteId> =
                held.replica.heads().map(|head| head.body().site).collect();
            let others = sites.into_iter().filter(|site| *site != self.cx.id);
            others.map(|site| (site, told(&held.replica, site)))
        })
    }

    /// What was taken back here, by when.
    pub fn refunds(&self) -> impl Iterator<Item = &Refund> {
        self.jobs.refunds.values()
    }

    /// Entries that are told no more go. Who took back what still counts is told as long as that counts.
    pub(crate) fn forget_refunds(&mut self, now: WallTime, horizon: WallTime) {
        let before = now.before(AUDIT_KEPT).min(horizon);
        let mut rows = Vec::new();
        let mut keep = |key: &Vec<u8>, at: WallTime| {
            let is_kept = at >= before;
            if !is_kept {
                rows.push(Write::delete(Table::Audit, key.clone()));
            }
            is_kept
        };
        self.jobs.refunds.retain(|key, refund| keep(key, refund.at));
        self.jobs
            .relocations
            .retain(|key, moved| keep(key, moved.at));
        self.cx.persist(rows);
    }
}

/// In which spans how much of a job was charged. As the rules in force say it, if they come to what
/// was charged; spread evenly over its time if they have changed since.
pub(crate) fn parts_of(
    (record, mark): (&UsageRecord, JobMark),
    rules: &Rules,
    charging: &Charging,
) -> Vec<(Span, Counters)> {
    // What was too old to count when it was reported is in the mark, too; and where the clock went back
    // since, nothing of it was ahead then.
    let whole = Rules {
        horizon: WallTime(0),
        latest: WallTime(u64::MAX),
        ..*rules
    };
    let charged = charge(&as_charged(record, mark), None, &whole, charging);
    let charged = charged.ok().flatten();
    match charged.filter(|charged| charged.mark.charge == mark.charge) {
        Some(charged) => charged.parts,
        None => {
            let charge = Counters {
                charge: mark.charge,
                ..Counters::default()
            };
            spread((record.start, mark.charged_until), charge, &whole)
        }
    }
}

/// The record of a job that ran until its mark says.
pub(crate) fn as_charged(record: &UsageRecord, mark: JobMark) -> UsageRecord {
    UsageRecord {
        running: false,
        end: mark.charged_until,
        ..record.clone()
    }
}

/// The key of what was taken back of a job, for so many times before.
fn refund_key(job: &[u8], before: usize) -> Vec<u8> {
    let before = u32::try_from(before).unwrap_or(u32::MAX);
    let number = (before > 0).then(|| before.to_be_bytes());
    [job, number.as_ref().map_or(&[][..], |number| number)].concat()
}

/// Why a correction is none, whatever the jobs.
pub(crate) fn lacks_words((by, why): (&str, &str)) -> Option<String> {
    let bad = |text: &str, most: usize| text.trim().is_empty() || text.len() > most;
    if bad(by, BY_BYTES_MAX) {
        return Some(format!(
            "say who takes the job back, in at most {BY_BYTES_MAX} bytes"
        ));
    }
    bad(why, WHY_BYTES_MAX)
        .then(|| format!("say why the job is taken back, in at most {WHY_BYTES_MAX} bytes"))
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
