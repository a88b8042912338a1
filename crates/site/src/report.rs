//! Reports of feeds: what they count, once, and what they are told.
//!
//! Invariant: a record's counters and its job's mark are one durable change, and the answer goes out
//! behind it.

use std::collections::BTreeMap;

use fairmesh_fairshare::OLD_DAYS;
use fairmesh_gossip::Shared;
use fairmesh_model::{
    AccountPath, CoreMillis, Counters, Now, Origin, RunningJob, Span, UsageMode, UsageRecord, VoId,
    WallTime, WindowLength, cbor, mutant, mutated,
};

use crate::charge::{Charge, Rules, charge, rate};
use crate::event::{Effect, Reply, Reported, Ticket};
use crate::identity::{Account, IdentityMap};
use crate::published::{Moved, moved};
use crate::site::{Site, Unmapped};
use crate::store::{JobMark, Table, Write, job_key, origin_key};
use crate::time::Standing;
use crate::vo::Vo;

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
        if let Some(why) = self.refuses_all() {
            (0..records.len()).for_each(|index| {
                self.refuse(index, why.clone(), &mut report);
            });
            return self.finish_report(ticket, report);
        }
        for (index, (record, mark)) in records.iter().enumerate() {
            let payer = self.payer_of(record, now.wall, &mut payers);
            if index + 1 == records.len() && mutated!(LastRecordDropped) {
                report.reported.counted += 1;
                continue;
            }
            let mark = mark.filter(|_| !mutated!(MarksUnread));
            self.take_record(index, record, mark, payer, &mut report);
        }
        self.count(&payers, &mut report);
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
        self.count(&payers, &mut report);
        for (vo, rows) in self.expected_of(&payers) {
            self.expect(vo, rows);
        }
        self.finish_report(ticket, report);
    }

    /// What is expected of running jobs, for every VO: nothing is news, too.
    fn expected_of(
        &self,
        payers: &Payers<'_>,
    ) -> BTreeMap<VoId, BTreeMap<AccountPath, CoreMillis>> {
        let vos = self.vos.keys();
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

    pub(crate) fn finish_report(&mut self, ticket: Ticket, mut report: Reporting) {
        report.writes.extend(
            report
                .marks
                .into_iter()
                .map(|(key, mark)| Write::set(Table::Jobs, key, mark.to_bytes())),
        );
        if !report.writes.is_empty() {
            self.effects.push(Effect::Persist(report.writes));
        }
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
            // By the rules that the owner has now, also while the tree that follows them is fed.
            let mapped = self.config.identity.resolve(&record.origin);
            let is_mapped = mapped.is_some();
            let account = mapped.unwrap_or_else(IdentityMap::nowhere);
            Payer {
                is_mapped,
                is_founded: account.vo.is_none_or(|vo| self.is_founded(vo)),
                rules: self.rules(account.vo, now),
                digest: account.digest(),
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
        let checked = self.check(record);
        let checked = checked.and_then(|()| self.check_capacity(payer.account.vo, record));
        if let Err(why) = checked {
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
            report.reported.counted += 1;
            return true;
        }
        let total = payer.add(&charge);
        let is_of_one = mark.is_none_or(|mark| mark.charge == 0 || mark.payer == payer.digest);
        let payer_of_all = if is_of_one { payer.digest } else { 0 };
        let mark = JobMark {
            payer: payer_of_all,
            ..charge.mark
        };
        report.marks.insert(key, mark);
        if !payer.is_mapped {
            self.note_unmapped(record, total, report);
        }
        self.stats.records_counted += 1;
        report.reported.counted += 1;
        report.reported.late += u64::from(charge.late);
        report.reported.charge = report.reported.charge.saturating_add(total.charge);
        true
    }

    pub(crate) fn refuse(&mut self, index: usize, why: String, report: &mut Reporting) -> bool {
        self.stats.records_refused += 1;
        report.reported.refused.push((index, why));
        false
    }

    /// Counts what a report adds: each cell once, however many jobs are in it.
    fn count(&mut self, payers: &Payers<'_>, report: &mut Reporting) {
        for payer in payers.values().filter(|payer| !payer.added.is_empty()) {
            for (span, counters) in &payer.added {
                let writes = self.count_in(&payer.account, *span, *counters, payer.rules.window);
                report.writes.extend(writes);
            }
        }
    }

    /// Adds to one cell, and lets the share tree follow. Returns the rows to keep.
    pub(crate) fn count_in(
        &mut self,
        account: &Account,
        span: Span,
        counters: Counters,
        window: WindowLength,
    ) -> Vec<Write> {
        let place = self.own.place(account.vo, span, window);
        let Some(vo) = account.vo else {
            return self.count_locally(account, place, counters, window);
        };
        let capacity = self.vos[&vo].capacity(self.id);
        let spans = self.own.changed_by(account.vo, span, window);
        let just_adds = spans.iter().eq([&place])
            && self
                .own
                .just_adds(account, place, counters, capacity, window);
        if just_adds {
            let (writes, place) = self.own.add(account, span, counters, window);
            self.shares
                .count_own(account, place, counters.charge, window);
            return writes;
        }
        // Beyond the capacity, or with what is taken back, what counts of others changes, too.
        let before = self.own.sums_in(vo, &spans, capacity, window);
        let writes = self.own.add(account, span, counters, window).0;
        let after = self.own.sums_in(vo, &spans, capacity, window);
        self.shares
            .move_own(account.vo, &moved(&before, &after), window);
        writes
    }

    /// The same for the site's own accounts, which no capacity bounds.
    fn count_locally(
        &mut self,
        account: &Account,
        place: Span,
        counters: Counters,
        window: WindowLength,
    ) -> Vec<Write> {
        if counters.refunds == 0 {
            let (writes, place) = self.own.add(account, place, counters, window);
            self.shares
                .count_own(account, place, counters.charge, window);
            return writes;
        }
        // An old day becomes whole now: what the account has in its windows is there before, and in the day
        // after.
        let spans = self.own.changed_by(None, place, window);
        let nets = spans
            .iter()
            .map(|span| self.own.counted_in(account, *span).net());
        let before = nets.fold(0, u64::saturating_add);
        let (writes, span) = self.own.add(account, place, counters, window);
        let moved = Moved {
            path: account.path.clone(),
            span,
            before,
            after: self.own.counted_in(account, span).net(),
        };
        self.shares.move_own(None, &[moved], window);
        writes
    }

    /// Why nothing may be acknowledged now: what this site's clock says of the time is known to be wrong.
    pub(crate) fn refuses_all(&self) -> Option<String> {
        (self.standing == Standing::BeforeOwnHead).then(|| {
            "this machine's clock stands before what this site has signed last: report again when it is set right"
                .to_owned()
        })
    }

    /// Whether the charter of a VO is here: without it nobody can say in which windows, and by which
    /// rule, its usage counts.
    pub(crate) fn is_founded(&self, vo: VoId) -> bool {
        self.vos.get(&vo).is_some_and(Vo::is_founded)
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

    /// Whether the site can have run it at all, by the capacity that the charter declares.
    pub(crate) fn check_capacity(
        &self,
        vo: Option<VoId>,
        record: &UsageRecord,
    ) -> Result<(), String> {
        let charter = vo.and_then(|vo| self.vos.get(&vo)?.charter());
        let Some(member) = charter.and_then(|charter| charter.member(self.id)) else {
            return Ok(());
        };
        let mem_mib = member.mem_gib.map(|gib| u64::from(gib) * 1_024);
        let held = [
            (
                "cores",
                u64::from(record.cores),
                Some(u64::from(member.cores)),
            ),
            ("GPUs", u64::from(record.gpus), member.gpus.map(u64::from)),
            ("MiB of memory", record.mem_mib, mem_mib),
        ];
        let beyond = held.iter().find_map(|(what, held, has)| {
            let has = has.filter(|has| held > has)?;
            Some((what, held, has))
        });
        let Some((what, held, has)) = beyond else {
            return Ok(());
        };
        Err(format!(
            "job `{}` held {held} {what}, and this site has {has} by the charter: is one of the two wrong?",
            record.key.job
        ))
    }

    /// The rules that usage of a VO (or of the site itself) is counted under.
    pub(crate) fn rules(&self, vo: Option<VoId>, now: WallTime) -> Rules {
        let held = vo.and_then(|vo| self.vos.get(&vo));
        let charter = held.and_then(Vo::charter);
        let local = &self.config.charging;
        let (charging, discounts) = charter
            .map_or((local.local_rule, local.local_discounts), |charter| {
                (charter.charging, charter.discounts)
            });
        let (window, mode) = charter
            .map_or((self.config.local_window, UsageMode::Active), |charter| {
                (charter.window, charter.usage_mode)
            });
        // What is late is lost, so by the clock for which less is: the members' may be wrong, or ours.
        let horizon = match (held, charter) {
            (Some(held), Some(_)) => held.horizon(now.min(self.members_clock.unwrap_or(now))),
            _ => self.local_horizon(now),
        };
        let today = window.day_of(window.window_at(now));
        Rules {
            charging,
            discounts,
            window,
            mode,
            horizon,
            whole_days_before: today.saturating_sub(OLD_DAYS - 1),
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

    /// Takes what running jobs of a VO are still expected to use: here at once, elsewhere with the next
    /// head. A VO whose charter does not ask is told nothing.
    fn expect(&mut self, vo: VoId, rows: BTreeMap<AccountPath, CoreMillis>) {
        let Some(held) = self.vos.get_mut(&vo) else {
            return;
        };
        let is_told = held.is_predictive() && held.replica.is_member(self.id);
        let rows = if is_told { rows } else { BTreeMap::new() };
        self.own.expect(vo, &rows);
        let capacity = held.capacity(self.id);
        let changes = held.published.expect(self.id, rows, capacity, true);
        self.shares.change_in_flight((vo, self.id), &changes, true);
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
    digest: u64,
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
    pub(crate) reported: Reported,
}
