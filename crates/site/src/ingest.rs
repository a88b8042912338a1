//! Reports of feeds: what they count, once, and what they are told.

use std::collections::BTreeMap;

use fairmesh_gossip::Replica;
use fairmesh_model::{
    AccountPath, ChargingRule, Charter, CoreMillis, Counters, InFlightSheet, Now, RunningJob,
    UsageMode, UsageRecord, VoId, WallTime, WindowLength, cbor,
};

use fairmesh_usage::VoUsage;

use crate::charge::{Charge, Rules, charge, held};
use crate::event::{Effect, Reply, Reported, Ticket};
use crate::identity::{Account, IdentityMap};
use crate::site::{Site, Unmapped};
use crate::store::{JobMark, Table, Write, job_key, origin_key};

/// Days that are kept by the window after they have ended: two whole days, and one more so that a
/// site whose clock is behind still finds them.
pub(crate) const WINDOW_DAYS: u32 = 4;

/// Most origins that map nowhere and are listed one by one: bounds what a confused feed can make
/// the site keep. More are counted, but not listed.
const UNMAPPED_MAX: usize = 10_000;

impl Site {
    /// Counts what `records` say and answers once it is durable.
    pub(crate) fn take_report(
        &mut self,
        now: Now,
        ticket: Ticket,
        records: &[(UsageRecord, Option<JobMark>)],
    ) {
        let mut report = Reporting::default();
        for (index, (record, mark)) in records.iter().enumerate() {
            self.take_record(now, index, record, *mark, &mut report);
        }
        self.finish_report(ticket, report);
    }

    /// Counts the instalments of running jobs and replaces what is in flight.
    pub(crate) fn take_running(
        &mut self,
        now: Now,
        ticket: Ticket,
        jobs: &[(RunningJob, Option<JobMark>)],
    ) {
        let mut report = Reporting::default();
        let mut expected: BTreeMap<VoId, BTreeMap<AccountPath, CoreMillis>> = self
            .replicas
            .keys()
            .map(|vo| (*vo, BTreeMap::new()))
            .collect();
        for (index, (job, mark)) in jobs.iter().enumerate() {
            let instalment = UsageRecord {
                running: true,
                ..job.record.clone()
            };
            if !self.take_record(now, index, &instalment, *mark, &mut report) {
                continue;
            }
            let account = self.account_of(&job.record);
            let Some(vo) = account.vo else { continue };
            let remaining = job.expected_end.since(instalment.end);
            let charging = self.rules(Some(vo), now.wall).charging;
            let row = expected
                .entry(vo)
                .or_default()
                .entry(account.path)
                .or_default();
            *row = row.plus(CoreMillis(held(&job.record, remaining, &charging).charge));
        }
        for (vo, rows) in expected {
            self.publish_sheet(
                now,
                vo,
                rows.into_iter()
                    .filter(|(_, amount)| *amount != CoreMillis(0))
                    .collect(),
                &mut report,
            );
        }
        self.finish_report(ticket, report);
    }

    fn finish_report(&mut self, ticket: Ticket, mut report: Reporting) {
        report.writes.extend(
            report
                .marks
                .into_iter()
                .map(|(key, mark)| Write::set(Table::Jobs, key, mark.to_bytes())),
        );
        if !report.writes.is_empty() {
            self.effects.push(Effect::Persist(report.writes));
        }
        self.effects.append(&mut report.behind);
        self.effects.push(Effect::Reply {
            ticket,
            reply: Reply::Reported(report.reported),
        });
    }

    /// Counts one record; false if it was refused.
    fn take_record(
        &mut self,
        now: Now,
        index: usize,
        record: &UsageRecord,
        mark: Option<JobMark>,
        report: &mut Reporting,
    ) -> bool {
        if let Err(why) = self.check(record) {
            self.stats.records_refused += 1;
            report.reported.refused.push((index, why));
            return false;
        }
        let mapped = self.shares.view.account(&record.origin);
        let is_mapped = mapped.is_some();
        let account = mapped.unwrap_or_else(IdentityMap::nowhere);
        let key = job_key(&record.key);
        // Two reports of one job in one event: the second one sees what the first one did.
        let mark = report.marks.get(&key).copied().or(mark);
        let rules = self.rules(account.vo, now.wall);
        let Some(charge) = charge(record, mark, &rules) else {
            self.stats.records_known += 1;
            report.reported.known += 1;
            return true;
        };
        if let Some(vo) = account.vo.filter(|vo| !self.is_founded(*vo)) {
            self.stats.records_refused += 1;
            report.reported.refused.push((index, no_charter(vo)));
            return false;
        }
        let total = self.count(now.wall, &account, &charge, rules.window, report);
        report.marks.insert(key, charge.mark);
        if !is_mapped {
            self.note_unmapped(record, total, report);
        }
        self.stats.records_counted += 1;
        report.reported.counted += 1;
        report.reported.late += u64::from(charge.late);
        report.reported.charge = report.reported.charge.saturating_add(total.charge);
        true
    }

    fn count(
        &mut self,
        now: WallTime,
        account: &Account,
        charge: &Charge,
        window: WindowLength,
        report: &mut Reporting,
    ) -> Counters {
        let entry = self.shares.view.locate(account).entry;
        let mut total = Counters::default();
        for (span, counters) in &charge.parts {
            let added = self.ledger.add(account, *span, *counters, window);
            report.writes.extend(added.writes);
            self.shares.count_own(entry, added.span, counters.charge);
            self.note_merged(now, &added.merged);
            total = total.plus(*counters);
        }
        total
    }

    /// Whether the charter of a VO is here: without it nobody can say in which windows, and by which
    /// rule, its usage counts.
    pub(crate) fn is_founded(&self, vo: VoId) -> bool {
        self.replicas.get(&vo).is_some_and(Replica::is_founded)
    }

    pub(crate) fn check(&self, record: &UsageRecord) -> Result<(), String> {
        record.validate().map_err(|error| error.to_string())?;
        // By our own clock, though it may be wrong: the batch system goes by the same one. Peers are
        // told when it is time.
        let latest = self.own_clock.after(self.config.timing.clock_tolerance);
        if record.end > latest {
            let ahead = record.end.since(self.own_clock).0 / 1_000;
            return Err(format!(
                "job `{}` ends {ahead} s in the future: is this machine's clock right?",
                record.key.job
            ));
        }
        Ok(())
    }

    /// The account of a job; the root of the site's tree for those that map nowhere.
    fn account_of(&self, record: &UsageRecord) -> Account {
        self.shares
            .view
            .account(&record.origin)
            .unwrap_or_else(IdentityMap::nowhere)
    }

    /// The rules that usage of a VO (or of the site itself) is counted under.
    pub(crate) fn rules(&self, vo: Option<VoId>, now: WallTime) -> Rules {
        let charter: Option<&Charter> = vo.and_then(|vo| self.replicas.get(&vo)?.charter());
        let (charging, window, mode) = match charter {
            Some(charter) => (charter.charging, charter.window, charter.usage_mode),
            None => (
                ChargingRule::default(),
                self.config.local_window,
                UsageMode::Active,
            ),
        };
        // What is forgotten is late; by our own clock only where nobody else can tell.
        let usage = vo.and_then(|vo| self.replicas.get(&vo)?.usage());
        let horizon = usage.map_or_else(|| self.local_horizon(now), VoUsage::horizon);
        let today = window.day_of(window.window_at(now));
        Rules {
            charging,
            window,
            mode,
            horizon,
            whole_days_before: today.saturating_sub(WINDOW_DAYS),
            latest: now.after(self.config.timing.clock_tolerance),
        }
    }

    fn note_unmapped(&mut self, record: &UsageRecord, total: Counters, report: &mut Reporting) {
        self.stats.records_unmapped += 1;
        report.reported.unmapped += 1;
        if self.unmapped.len() >= UNMAPPED_MAX && !self.unmapped.contains_key(&record.origin) {
            return;
        }
        let seen = self.unmapped.entry(record.origin.clone()).or_default();
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

    fn publish_sheet(
        &mut self,
        now: Now,
        vo: VoId,
        rows: Vec<(AccountPath, CoreMillis)>,
        report: &mut Reporting,
    ) {
        let predictive = self
            .replicas
            .get(&vo)
            .and_then(|replica| replica.charter())
            .is_some_and(|charter| {
                charter.usage_mode == UsageMode::Predictive && charter.member(self.id).is_some()
            });
        if !predictive {
            return;
        }
        let stream = self.streams.entry(vo).or_default();
        if rows.is_empty() && !stream.has_sheet {
            return;
        }
        stream.has_sheet = !rows.is_empty();
        stream.sheet_version += 1;
        let sheet = InFlightSheet {
            vo,
            site: self.id,
            incarnation: self.ledger.incarnation(),
            version: stream.sheet_version,
            at: now.wall,
            rows,
        };
        self.sign_sheet(sheet, report);
    }
}

pub(crate) fn no_charter(vo: VoId) -> String {
    format!(
        "the charter of VO {} has not come yet: report the job again when `status` shows it",
        vo.short()
    )
}

/// What is gathered while a report is read: one change of the store, and the answer behind it.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    pub(crate) writes: Vec<Write>,
    pub(crate) marks: BTreeMap<Vec<u8>, JobMark>,
    pub(crate) behind: Vec<Effect>,
    pub(crate) reported: Reported,
}
