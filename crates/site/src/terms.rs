//! Who pays for a job, by which rules, and whether a record can be right. Read-only.

use std::collections::BTreeMap;

use fairmesh_fairshare::OLD_DAYS;
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    CoreMillis, Counters, HistoryRule, MemberSite, Span, UsageMode, UsageRecord, VoId, WallTime,
    mutant, mutated,
};

use crate::charge::{Charge, Rules, charge};
use crate::config::Charging;
use crate::identity::{Account, IdentityMap, Words};
use crate::parts::{Cx, Vos};
use crate::reach::Reach;
use crate::shares::tree::Tree;
use crate::store::JobMark;

/// Who pays for the jobs of the same words, and what they add in one report.
pub(crate) struct Payer {
    pub(crate) account: Account,
    pub(crate) digest: u64,
    pub(crate) is_mapped: bool,
    pub(crate) rules: Rules,
    pub(crate) added: BTreeMap<Span, Counters>,
    /// Until when that reaches.
    pub(crate) reach: Reach,
    /// What those that run count for in the VO.
    pub(crate) expected: CoreMillis,
}

pub(crate) type Payers<'a> = BTreeMap<Words<'a>, Payer>;

impl Payer {
    /// Adds a charge and returns its sum.
    pub(crate) fn add(&mut self, charge: &Charge) -> Counters {
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

/// What the rules of charging follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) cx: &'a Cx,
    pub(crate) vos: &'a Vos,
    pub(crate) tree: &'a Tree,
}

impl<'a> Terms<'a> {
    pub(crate) fn new(cx: &'a Cx, vos: &'a Vos, tree: &'a Tree) -> Self {
        Self { cx, vos, tree }
    }

    /// Who pays for a job: looked up once for all jobs of the same words.
    pub(crate) fn payer_of<'r, 'b>(
        &self,
        record: &'r UsageRecord,
        now: WallTime,
        payers: &'b mut Payers<'r>,
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

    /// What a record adds to what is charged already, by the rules of who pays; `None` where it says
    /// nothing new.
    pub(crate) fn charge_of(
        &self,
        record: &UsageRecord,
        mark: Option<JobMark>,
        (vo, rules): (Option<VoId>, &Rules),
        charging: &Charging,
    ) -> Result<Option<Charge>, String> {
        let unfounded = vo.filter(|vo| !self.vos.is_founded(*vo));
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
        let is_unfounded = vo.is_some_and(|vo| !self.vos.is_founded(vo));
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
                self.tree.local_horizon(&self.cx.config, now),
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
