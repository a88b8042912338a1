//! Reports of feeds: what they count, once, and what they are told.
//!
//! Invariant: a record's counters and its job's mark are one durable change, and the answer goes out
//! behind it.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_fairshare::OLD_DAYS;
use fairmesh_gossip::Shared;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    CoreMillis, Counters, HistoryRule, MemberSite, Now, Origin, Span, UsageMode, UsageRecord, VoId,
    WallTime, WindowLength, cbor, mutant, mutated,
};

use crate::again::AfterCorrection;
use crate::charge::{Charge, Rules, charge};
use crate::config::Charging;
use crate::event::{Effect, Reply, Reported, Ticket};
use crate::identity::{Account, IdentityMap, Words};
use crate::jobs::Unmapped;
use crate::moved::moved;
use crate::own::{Bounds, Own};
use crate::published::net;
use crate::quota::Ended;
use crate::recovered::Reach;
use crate::site::Site;
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
            for index in 0..records.len() {
                self.refuse(index, why.clone(), &mut report);
                report.reported.for_now += 1;
            }
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
        self.commit_ended(now, &mut report);
        self.finish_report(ticket, report);
    }

    pub(crate) fn finish_report(&mut self, ticket: Ticket, mut report: Reporting) {
        let marks = report.marks.into_iter();
        let marks = marks.map(|(key, mark)| Write::set(Table::Jobs, key, mark.to_bytes()));
        report.writes.extend(marks);
        self.cx.persist(report.writes);
        self.cx.effects.push(Effect::Reply {
            ticket,
            reply: Reply::Reported(report.reported),
        });
    }

    /// Who pays for a job: looked up once for all jobs of the same words.
    pub(crate) fn payer_of<'a, 'b>(
        &self,
        record: &'a UsageRecord,
        now: WallTime,
        payers: &'b mut Payers<'a>,
    ) -> &'b mut Payer {
        payers.entry(Words::from(record)).or_insert_with(|| {
            // By the rules that the owner has now, also while the tree that follows them is fed.
            let mapped = self.cx.config.identity.resolve(record);
            let is_mapped = mapped.is_some();
            let account = mapped.unwrap_or_else(IdentityMap::nowhere);
            Payer {
                is_mapped,
                rules: self.rules(account.vo, now),
                digest: account.digest(),
                account,
                added: BTreeMap::new(),
                reach: Reach::default(),
                expected: CoreMillis(0),
            }
        })
    }

    /// Adds what one record is charged to its payer's; false if it was refused.
    pub(crate) fn take_record(
        &mut self,
        index: usize,
        record: &UsageRecord,
        mark: Option<JobMark>,
        payer: &mut Payer,
        report: &mut Reporting,
    ) -> bool {
        let key = job_key(&record.key);
        // Two reports of one job in one event: the second one sees what the first one did.
        let first = report.marks.get(&key).copied();
        let told = first.filter(|_| !mutated!(TwiceInOneReport)).or(mark);
        let vo = payer.account.vo;
        let (mark, is_again, is_known) = match self.after_correction(record, told) {
            AfterCorrection::Counted(told) => {
                let mark = self.mark_behind_loss(vo, record, told);
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
        // A job that counts already stays known if the charter gives this site less now.
        let is_new = mark.is_none_or(|mark| !mark.ended);
        let has_room = || is_new.then(|| self.check_capacity(vo, record));
        let charged = self
            .check(record)
            .and_then(|()| has_room().unwrap_or(Ok(())))
            .and_then(|()| self.charge_of(record, mark, (vo, &payer.rules), charging));
        let charge = match charged {
            Err(why) => {
                report.reported.for_now += u64::from(self.passes(vo, record));
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
        let told = Told {
            key,
            mark,
            is_known,
            is_again,
        };
        self.take_charge(record, told, charge, payer, report);
        true
    }

    /// Adds what a record that says something new is charged to its payer's, and moves the job's mark.
    fn take_charge(
        &mut self,
        record: &UsageRecord,
        told: Told,
        charge: Charge,
        payer: &mut Payer,
        report: &mut Reporting,
    ) {
        let Told {
            key,
            mark,
            is_known,
            is_again,
        } = told;
        let known = mark.filter(|_| is_known);
        let by = (payer.digest, &payer.rules);
        let (charge, refunds) = self.settled((&key, record), known, charge, by);
        let total = payer.add(&charge);
        if !refunds.is_empty() {
            report
                .refunds
                .push((payer.account.clone(), payer.rules, refunds));
        }
        let noted = self.note_instalment(&key, record, (mark, is_known));
        report
            .writes
            .extend(noted.filter(|_| !mutated!(InstalmentsUnwritten)));
        if charge.mark.ended && !mutated!(EndedStillRuns) {
            let ended = self.jobs.running.end(&key);
            self.shares.change_running(&ended);
        }
        let is_of_one = mark.is_none_or(|mark| mark.charge == 0 || mark.payer == payer.digest);
        let mut mark = charge.mark;
        mark.payer = if is_of_one { payer.digest } else { 0 };
        report.marks.insert(key, mark);
        self.jobs.marks_moved += u64::from(is_again);
        if mark.ended && self.is_of_quotas(payer.account.vo, &record.key) {
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

    /// Counts what a report adds: each cell once, however many jobs are in it.
    pub(crate) fn count(&mut self, payers: &Payers<'_>, report: &mut Reporting) {
        let mut of_spans: BTreeMap<_, Added<'_>> = BTreeMap::new();
        // Days that are to be counted as a whole first: what is in their windows goes there, too.
        for payer in payers.values() {
            let vo = payer.account.vo;
            report.writes.extend(self.reaches(vo, payer.reach));
            for span in payer.added.keys() {
                self.place(vo, *span);
            }
        }
        for payer in payers.values() {
            let vo = payer.account.vo;
            for (span, counters) in &payer.added {
                let place = self.place(vo, *span);
                let of_span = of_spans.entry((vo, place)).or_default();
                let sum = of_span.entry(&payer.account).or_default();
                *sum = sum.plus(*counters);
            }
        }
        for ((vo, place), added) in &of_spans {
            report.writes.extend(self.count_in(*vo, *place, added));
        }
        // Behind what is added: an instalment may have come in the same report.
        for (account, rules, refunds) in std::mem::take(&mut report.refunds) {
            let credited = self.refund_parts(&account, refunds, &rules, report);
            report.reported.credited = report.reported.credited.saturating_add(credited);
        }
    }

    /// Where usage of a span is counted. A day that is to be counted as a whole takes in first what is
    /// left of its windows.
    pub(crate) fn place(&mut self, vo: Option<VoId>, span: Span) -> Span {
        let window = self.window(vo);
        if matches!(span, Span::Day(_)) && !self.own.has(vo, span) {
            self.change_own(vo, |own| own.merge_days(vo, window, |day| day == span));
        }
        self.own.place(vo, span, window)
    }

    /// Adds to the cells of accounts in one span, and lets the share tree follow. Returns the rows to keep.
    pub(crate) fn count_in(
        &mut self,
        vo: Option<VoId>,
        place: Span,
        added: &Added<'_>,
    ) -> Vec<Write> {
        let (window, bounds) = (self.window(vo), self.bounds(vo));
        let mut writes = Vec::with_capacity(added.len());
        let mut others = Added::new();
        for (account, counters) in added {
            if self.own.just_adds(account, place, *counters, bounds) {
                writes.extend(self.own.add(account, place, *counters));
                self.shares
                    .count_own(account, place, counters.charge, window);
            } else {
                others.insert(account, *counters);
            }
        }
        if others.is_empty() {
            return writes;
        }
        // Beyond the capacity, or with what is taken back, what counts of others changes, too; not where
        // nothing bounds it. All of a span are summed once for all that is added to it.
        let sums = |own: &Own| match bounds {
            Some(_) => own.sums_in(vo, &BTreeSet::from([place]), bounds),
            None => {
                let cell = |account: &&Account| {
                    let key = (place, account.path.clone());
                    (key, own.counted_in(account, place))
                };
                others.keys().map(cell).collect()
            }
        };
        let before = sums(&self.own);
        for (account, counters) in &others {
            writes.extend(self.own.add(account, place, *counters));
        }
        let after = sums(&self.own);
        self.shares
            .move_own(vo, &moved(net(&before), net(&after)), window);
        writes
    }

    /// Length of the windows in which usage of a VO, or of the site's own accounts, is counted.
    pub(crate) fn window(&self, vo: Option<VoId>) -> WindowLength {
        vo.map_or(self.cx.config.local_window, |vo| self.vos[&vo].window())
    }

    /// What bounds own usage of a VO; nothing does that of the site's own accounts.
    pub(crate) fn bounds(&self, vo: Option<VoId>) -> Option<Bounds> {
        vo.map(|vo| self.vos[&vo].bounds())
    }

    /// Why nothing may be acknowledged now: what this site's clock says of the time is known to be wrong.
    pub(crate) fn refuses_all(&self) -> Option<String> {
        (self.cx.clock.standing == Standing::BeforeOwnHead).then(|| {
            "this machine's clock stands before what this site has signed last: report again when it is set right"
                .to_owned()
        })
    }

    /// Whether the charter of a VO is here: without it nobody can say in which windows, and by which
    /// rule, its usage counts.
    pub(crate) fn is_founded(&self, vo: VoId) -> bool {
        self.vos.get(&vo).is_some_and(Vo::is_founded)
    }

    /// What a record adds to what is charged already, by the rules of who pays; `None` where it says
    /// nothing new.
    pub(crate) fn charge_of(
        &self,
        record: &UsageRecord,
        mark: Option<JobMark>,
        (vo, rules): (Option<VoId>, &Rules),
        charging: &Charging,
    ) -> Result<Option<Charge>, String> {
        let unfounded = vo.filter(|vo| !self.is_founded(*vo));
        match (charge(record, mark, rules, charging), unfounded) {
            (Ok(None), _) => Ok(None),
            (_, Some(vo)) => Err(no_charter(vo)),
            (charged, None) => charged.map_err(|why| format!("job `{}`: {why}", record.key.job)),
        }
    }

    pub(crate) fn check(&self, record: &UsageRecord) -> Result<(), String> {
        record.validate().map_err(|error| error.to_string())?;
        // By our own clock, though it may be wrong: the batch system goes by the same one. Peers are
        // told when it is time.
        let latest = self
            .cx
            .clock
            .own
            .wall
            .after(self.cx.config.timing.clock_tolerance);
        if record.end > latest && !mutated!(FutureJobsTaken) {
            let ahead = record.end.since(self.cx.clock.own.wall).0 / 1_000;
            return Err(format!(
                "job `{}` ends {ahead} s in the future: is this machine's clock right?",
                record.key.job
            ));
        }
        Ok(())
    }

    /// Whether what a record is refused for passes: a charter is on its way, or two machines' clocks differ.
    pub(crate) fn passes(&self, vo: Option<VoId>, record: &UsageRecord) -> bool {
        let ahead = record.end.since(self.cx.clock.own.wall);
        let is_ahead = ahead > self.cx.config.timing.clock_tolerance;
        let is_unfounded = vo.is_some_and(|vo| !self.is_founded(vo));
        record.validate().is_ok() && (is_ahead && ahead.0 <= DAY_MS || !is_ahead && is_unfounded)
    }

    /// Whether the site can have run it at all, by the capacity that the charter declares.
    pub(crate) fn check_capacity(
        &self,
        vo: Option<VoId>,
        record: &UsageRecord,
    ) -> Result<(), String> {
        let charter = vo.and_then(|vo| self.vos.get(&vo)?.charter());
        let Some(member) = charter.and_then(|charter| charter.member(self.cx.id)) else {
            return Ok(());
        };
        check_member(member, record)
    }

    /// The rules that usage of a VO (or of the site itself) is counted under.
    pub(crate) fn rules(&self, vo: Option<VoId>, now: WallTime) -> Rules {
        let held = vo.and_then(|vo| self.vos.get(&vo));
        let founded = held.and_then(|held| Some((held, held.charter()?)));
        let local = &self.cx.config.charging;
        let (charging, discounts, history, window, mode, horizon) = match founded {
            Some((held, charter)) => (
                charter.charging,
                charter.discounts,
                charter.history,
                charter.window,
                charter.usage_mode,
                // What is late is lost, so by the clock for which less is: the members' may be wrong, or
                // ours.
                held.horizon(mutant!(
                    LateByOwnClock,
                    now.min(self.cx.clock.members.unwrap_or(now)),
                    now
                )),
            ),
            None => (
                local.local_rule,
                local.local_discounts,
                self.cx.config.local_history,
                self.cx.config.local_window,
                UsageMode::Active,
                self.local_horizon(now),
            ),
        };
        let today = window.day_of(window.window_at(now));
        Rules {
            charging,
            discounts,
            window,
            mode,
            whole_jobs: history == HistoryRule::RunningOnly,
            horizon,
            whole_days_before: mutant!(WholeDaysEarly, today.saturating_sub(OLD_DAYS - 1), today),
            latest: now.after(self.cx.config.timing.clock_tolerance),
        }
    }

    /// Whether an origin that maps nowhere is listed, or may be.
    pub(crate) fn lists_unmapped(&self, origin: &Origin) -> bool {
        self.jobs.unmapped.len() < UNMAPPED_MAX || self.jobs.unmapped.contains_key(origin)
    }

    fn note_unmapped(&mut self, record: &UsageRecord, total: Counters, report: &mut Reporting) {
        self.cx.stats.records_unmapped += 1;
        report.reported.unmapped += 1;
        if !self.lists_unmapped(&record.origin) {
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
}

/// Whether a member can have run a job, by the capacity that the charter declares for it.
pub(crate) fn check_member(member: &MemberSite, record: &UsageRecord) -> Result<(), String> {
    let mem_mib = member.mem_gib.map(|gib| u64::from(gib) * 1_024);
    let cpus = Some(u64::from(member.cores));
    let held = [
        ("CPUs", u64::from(record.cores), cpus),
        ("GPUs", u64::from(record.gpus), member.gpus.map(u64::from)),
        ("MiB of memory", record.mem_mib, mem_mib),
    ];
    for (what, held, has) in held {
        if let Some(has) = has.filter(|has| held > *has) {
            return Err(format!(
                "job `{}` held {held} {what}, and the charter gives this site {has}: is one of the two wrong?",
                record.key.job
            ));
        }
    }
    Ok(())
}

pub(crate) fn no_charter(vo: VoId) -> String {
    format!(
        "the charter of VO {} has not come yet: report the job again when `status` shows it",
        vo.short()
    )
}

/// Who pays for the jobs of the same words, and what they add in one report.
pub(crate) struct Payer {
    pub(crate) account: Account,
    digest: u64,
    is_mapped: bool,
    pub(crate) rules: Rules,
    added: BTreeMap<Span, Counters>,
    /// Until when that reaches.
    reach: Reach,
    /// What those that run count for in the VO.
    pub(crate) expected: CoreMillis,
}

pub(crate) type Payers<'a> = BTreeMap<Words<'a>, Payer>;

/// What is added to a span, by account.
pub(crate) type Added<'a> = BTreeMap<&'a Account, Counters>;

impl Payer {
    /// Adds a charge and returns its sum.
    fn add(&mut self, charge: &Charge) -> Counters {
        let mut total = Counters::default();
        self.reach = self.reach.join(Reach::of(charge.mark));
        for (span, counters) in &charge.parts {
            let sum = self.added.entry(*span).or_default();
            *sum = sum.plus(*counters);
            total = total.plus(*counters);
        }
        total
    }
}

/// What is known of the job of a record.
struct Told {
    key: Vec<u8>,
    mark: Option<JobMark>,
    /// Whether that is all that was charged of it: no mark was lost.
    is_known: bool,
    /// Whether it was taken back, and counts again.
    is_again: bool,
}

/// How much of a charge is refunded in which span.
pub(crate) type Refunds = Vec<(Span, u64)>;

/// What is gathered while a report is read: one change of the store, and the answer behind it.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    pub(crate) writes: Vec<Write>,
    pub(crate) marks: BTreeMap<Vec<u8>, JobMark>,
    pub(crate) reported: Reported,
    /// Jobs that have ended, where quotas are charged for them.
    pub(crate) ended: Vec<Ended>,
    /// What instalments charged beyond the final records of their jobs: of whom, by which rules, how much in which
    /// span.
    pub(crate) refunds: Vec<(Account, Rules, Refunds)>,
}
