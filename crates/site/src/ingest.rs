//! Reports of feeds: what they count, once, and what they are told.

use std::collections::BTreeMap;

use fairmesh_gossip::Replica;
use fairmesh_model::{
    AccountPath, Charter, CoreMillis, Counters, InFlightSheet, Now, Origin, RunningJob, Span,
    UsageMode, UsageRecord, VoId, WallTime, cbor, mutant, mutated,
};

use fairmesh_usage::VoUsage;

use crate::charge::{Charge, Rules, charge, rate};
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
        let mut payers = Payers::new();
        for (index, (record, mark)) in records.iter().enumerate() {
            let payer = self.payer_of(record, now.wall, &mut payers);
            if index + 1 == records.len() && mutated!(LastRecordDropped) {
                continue;
            }
            let mark = mark.filter(|_| !mutated!(MarksUnread));
            self.take_record(index, record, mark, payer, &mut report);
        }
        self.count(now, &payers, &mut report);
        self.finish_report(ticket, report);
    }

    /// Counts the instalments of running jobs and replaces what is in flight.
    pub(crate) fn take_running(
        &mut self,
        now: Now,
        ticket: Ticket,
        mut jobs: Vec<(RunningJob, Option<JobMark>)>,
    ) {
        let mut report = Reporting::default();
        let mut payers = Payers::new();
        for (job, _) in &mut jobs {
            job.record.running = true;
        }
        for (index, (job, mark)) in jobs.iter().enumerate() {
            let record = &job.record;
            let payer = self.payer_of(record, now.wall, &mut payers);
            if !self.take_record(index, record, *mark, payer, &mut report) {
                continue;
            }
            // One that cannot be charged was refused above, unless it is known to have ended.
            let Ok(rate) = rate(record, &payer.rules, &self.config.charging) else {
                continue;
            };
            let seen_from = mutant!(ExpectedFromStart, record.end, record.start);
            let remaining = job.expected_end.since(seen_from);
            let charged = rate.counters(remaining).charge;
            payer.expected = payer.expected.plus(CoreMillis(charged));
        }
        self.count(now, &payers, &mut report);
        for (vo, rows) in self.expected_of(&payers) {
            self.publish_sheet(now, vo, rows.into_iter().collect(), &mut report);
        }
        self.finish_report(ticket, report);
    }

    /// What is expected of running jobs, for every VO: nothing is news, too.
    fn expected_of(
        &self,
        payers: &Payers<'_>,
    ) -> BTreeMap<VoId, BTreeMap<AccountPath, CoreMillis>> {
        let vos = self.replicas.keys();
        let mut expected: BTreeMap<VoId, BTreeMap<AccountPath, CoreMillis>> =
            vos.map(|vo| (*vo, BTreeMap::new())).collect();
        let some = payers.values().filter(|of| of.expected != CoreMillis(0));
        for payer in some {
            let Some(vo) = payer.account.vo else { continue };
            let rows = expected.entry(vo).or_default();
            let row = rows.entry(payer.account.path.clone()).or_default();
            *row = row.plus(payer.expected);
        }
        expected
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

    /// Who pays for a job: looked up once for all jobs of an origin.
    fn payer_of<'a, 'b>(
        &self,
        record: &'a UsageRecord,
        now: WallTime,
        payers: &'b mut Payers<'a>,
    ) -> &'b mut Payer {
        payers.entry(&record.origin).or_insert_with(|| {
            let mapped = self.shares.view.account(&record.origin);
            let is_mapped = mapped.is_some();
            let account = mapped.unwrap_or_else(IdentityMap::nowhere);
            Payer {
                is_mapped,
                is_founded: account.vo.is_none_or(|vo| self.is_founded(vo)),
                rules: self.rules(account.vo, now),
                account,
                added: BTreeMap::new(),
                expected: CoreMillis(0),
            }
        })
    }

    /// Adds what one record is charged to its payer's; false if it was refused.
    fn take_record(
        &mut self,
        index: usize,
        record: &UsageRecord,
        mark: Option<JobMark>,
        payer: &mut Payer,
        report: &mut Reporting,
    ) -> bool {
        if let Err(why) = self.check(record) {
            return self.refuse(index, why, report);
        }
        let key = job_key(&record.key);
        // Two reports of one job in one event: the second one sees what the first one did.
        let first = report.marks.get(&key).copied();
        let mark = first.filter(|_| !mutated!(TwiceInOneReport)).or(mark);
        let unfounded = payer.account.vo.filter(|_| !payer.is_founded);
        let charged = charge(record, mark, &payer.rules, &self.config.charging);
        let charge = match (charged, unfounded) {
            (Ok(None), _) => {
                self.stats.records_known += 1;
                report.reported.known += 1;
                return true;
            }
            (_, Some(vo)) => return self.refuse(index, no_charter(vo), report),
            (Err(why), None) => {
                let why = format!("job `{}`: {why}", record.key.job);
                return self.refuse(index, why, report);
            }
            (Ok(Some(charge)), None) => charge,
        };
        if !payer.is_mapped && mutated!(UnmappedDropped) {
            return true;
        }
        let total = payer.add(&charge);
        report.marks.insert(key, charge.mark);
        if !payer.is_mapped {
            self.note_unmapped(record, total, report);
        }
        self.stats.records_counted += 1;
        report.reported.counted += 1;
        report.reported.late += u64::from(charge.late);
        report.reported.charge = report.reported.charge.saturating_add(total.charge);
        true
    }

    fn refuse(&mut self, index: usize, why: String, report: &mut Reporting) -> bool {
        self.stats.records_refused += 1;
        report.reported.refused.push((index, why));
        false
    }

    /// Counts what a report adds: each cell once, however many jobs are in it.
    fn count(&mut self, now: Now, payers: &Payers<'_>, report: &mut Reporting) {
        for payer in payers.values().filter(|payer| !payer.added.is_empty()) {
            let account = &payer.account;
            let entry = self.shares.view.locate(account).entry;
            let untimed = account.vo.filter(|vo| !self.knows_time(now.mono, *vo));
            for (span, counters) in &payer.added {
                if let Some(vo) = untimed {
                    let row = self.ledger.add_untimed(vo, &account.path, *span, *counters);
                    report.writes.push(row);
                    self.shares.count_own(entry, *span, counters.charge);
                    continue;
                }
                let added = self
                    .ledger
                    .add(account, *span, *counters, payer.rules.window);
                if !mutated!(LedgerUnwritten) {
                    report.writes.extend(added.writes);
                }
                self.shares.count_own(entry, added.span, counters.charge);
                self.note_merged(now.wall, &added.merged);
            }
        }
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
        if record.end > latest && !mutated!(FutureJobsTaken) {
            let ahead = record.end.since(self.own_clock).0 / 1_000;
            return Err(format!(
                "job `{}` ends {ahead} s in the future: is this machine's clock right?",
                record.key.job
            ));
        }
        Ok(())
    }

    /// The rules that usage of a VO (or of the site itself) is counted under.
    pub(crate) fn rules(&self, vo: Option<VoId>, now: WallTime) -> Rules {
        let charter: Option<&Charter> = vo.and_then(|vo| self.replicas.get(&vo)?.charter());
        let local = &self.config.charging;
        let (charging, discounts) = charter
            .map_or((local.local_rule, local.local_discounts), |charter| {
                (charter.charging, charter.discounts)
            });
        let (window, mode) = charter
            .map_or((self.config.local_window, UsageMode::Active), |charter| {
                (charter.window, charter.usage_mode)
            });
        // What is forgotten is late; by our own clock only where nobody else can tell.
        let usage = vo.and_then(|vo| self.replicas.get(&vo)?.usage());
        let horizon = usage.map_or_else(|| self.local_horizon(now), VoUsage::horizon);
        let today = window.day_of(window.window_at(now));
        Rules {
            charging,
            discounts,
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
                let predicts = charter.usage_mode == UsageMode::Predictive;
                (predicts || mutated!(AlwaysPredictive)) && charter.member(self.id).is_some()
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

/// Who pays for the jobs of one origin, and what they add in one report.
struct Payer {
    account: Account,
    is_mapped: bool,
    /// Whether the charter of the VO that is charged is here, if one is.
    is_founded: bool,
    rules: Rules,
    added: BTreeMap<Span, Counters>,
    /// What those that run are still expected to use.
    expected: CoreMillis,
}

type Payers<'a> = BTreeMap<&'a Origin, Payer>;

impl Payer {
    /// Adds a charge and returns its sum.
    fn add(&mut self, charge: &Charge) -> Counters {
        let mut total = Counters::default();
        for (span, counters) in &charge.parts {
            let sum = self.added.entry(*span).or_default();
            *sum = sum.plus(*counters);
            total = total.plus(*counters);
        }
        total
    }
}

/// What is gathered while a report is read: one change of the store, and the answer behind it.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    pub(crate) writes: Vec<Write>,
    pub(crate) marks: BTreeMap<Vec<u8>, JobMark>,
    pub(crate) behind: Vec<Effect>,
    pub(crate) reported: Reported,
}
