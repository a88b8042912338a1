//! What runs and waits at this site, by the scheduler's last list of running jobs and its last report.
//!
//! Invariant: a list or a report older than `timing.silence` does not count.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Now, UsageRecord, VoId, WallTime, mutated};

use super::Occupancy;
use crate::config::{Charging, SiteConfig};
use crate::cx::Cx;
use crate::vo::Vo;
use crate::vos::Vos;

/// Cores that waiting jobs ask for, by the account whose credit covers them; `None` of those held to no quota.
pub(crate) type Waits = BTreeMap<Option<(VoId, AccountPath)>, u64>;

/// What is known of what runs and waits here.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) listed: Option<Listed>,
    pub(crate) report: Option<SchedulerReport>,
    /// Cores that were given to jobs beyond their quota since either said how many are free.
    pub(crate) given: u64,
}

/// How the site's machines stand, by the last lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinesNow {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) waiting: u64,
    pub(crate) at: WallTime,
}

/// What the last list of running jobs comes to.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    at: WallTime,
    /// CPUs held, by VO; those of local groups without one.
    pub(crate) held: BTreeMap<Option<VoId>, u64>,
    /// CPUs held by class; `None` once a job runs on machines that are not known.
    classes: Option<BTreeMap<String, u64>>,
}

/// The scheduler's last report, summed by VO.
#[derive(Debug, Default)]
pub(crate) struct SchedulerReport {
    pub(crate) at: WallTime,
    pub(crate) occupancy: Occupancy,
    pub(crate) waiting: BTreeMap<Option<VoId>, u64>,
    pub(crate) staged_mib: BTreeMap<Option<VoId>, u64>,
    pub(crate) credits: Waits,
}

impl Sources {
    /// Cores that were given to jobs beyond their quota, of those that seem to be free.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// How the machines stand; `None` where nothing was heard of them lately.
    pub(crate) fn machines(&self, cx: &Cx, vos: &Vos, now: Now) -> Option<MachinesNow> {
        let rules = cx.config.advert.as_ref();
        let (listed, report) = self.lately(&cx.config, now);
        let said = report.map(|report| &report.occupancy);
        let total = said
            .and_then(|said| said.total)
            .or(rules.and_then(|rules| rules.total))
            .or_else(|| installed(cx, vos))
            .filter(|total| (1..=u64::from(u32::MAX)).contains(total))?;
        let sum = |of: &BTreeMap<Option<VoId>, u64>| {
            of.values().fold(0, |sum: u64, of| sum.saturating_add(*of))
        };
        let free = said.and_then(|said| said.free);
        let free = free
            .or(listed.map(|of| total.saturating_sub(sum(&of.held))))?
            .min(total);
        let at = report.filter(|report| report.occupancy.free.is_some());
        let at = at.map(|report| report.at).or(listed.map(|of| of.at))?;
        let waiting = report.map_or(0, |report| sum(&report.waiting));
        Some(MachinesNow {
            total,
            free,
            waiting,
            at,
        })
    }

    /// Who waits, by whose credit, as far as a scheduler has said lately.
    pub(crate) fn waits(
        &self,
        config: &SiteConfig,
        now: Now,
    ) -> impl Iterator<Item = (&Option<(VoId, AccountPath)>, &u64)> {
        let (_, report) = self.lately(config, now);
        report.into_iter().flat_map(|report| &report.credits)
    }

    /// The last list and the last report, each unless it is older than `timing.silence`.
    pub(crate) fn lately(
        &self,
        config: &SiteConfig,
        now: Now,
    ) -> (Option<&Listed>, Option<&SchedulerReport>) {
        let silence = config.timing.silence;
        let is_fresh = |at| now.wall.since(at) <= silence || mutated!(FreeNeverOld);
        let (listed, report) = (self.listed.as_ref(), self.report.as_ref());
        (
            listed.filter(|of| is_fresh(of.at)),
            report.filter(|of| is_fresh(of.at)),
        )
    }

    /// Free CPUs by class, where it is known which machines jobs run on.
    pub(crate) fn free_classes(&self, config: &SiteConfig) -> Option<BTreeMap<String, u64>> {
        let held = self.listed.as_ref()?.classes.as_ref()?;
        let classes = config.charging.prices.machines.iter();
        let free = |(name, class): (&String, &fairmesh_model::MachineClass)| {
            let all = u64::from(class.count) * u64::from(class.cpus);
            (
                name.clone(),
                all.saturating_sub(held.get(name).copied().unwrap_or(0)),
            )
        };
        Some(classes.map(free).collect())
    }

    /// A job beyond its quota was let run.
    pub(crate) fn give(&mut self, cores: u32) {
        self.given += u64::from(cores);
    }
}

impl Listed {
    pub(crate) fn new(at: WallTime) -> Self {
        Self {
            at,
            held: BTreeMap::new(),
            classes: Some(BTreeMap::new()),
        }
    }

    /// A job that runs.
    pub(crate) fn add(&mut self, vo: Option<VoId>, record: &UsageRecord, charging: &Charging) {
        add(&mut self.held, vo, record.cores.into());
        let place = &record.placement;
        let chunks = place.chunks.iter();
        let mut held: Vec<(Option<&str>, u64)> = chunks
            .map(|chunk| (chunk.machine.as_deref(), chunk.cores.into()))
            .collect();
        if held.is_empty() {
            held.push((place.machine.as_deref(), record.cores.into()));
        }
        for (machine, cores) in held {
            let class = charging.class_of(machine);
            let class = class.filter(|class| charging.prices.machines.contains_key(*class));
            match (class, &mut self.classes) {
                (Some(class), Some(classes)) => add(classes, class.to_owned(), cores),
                _ => self.classes = None,
            }
        }
    }
}

/// CPUs of the machines that the owner declares, or that a charter lists for this site.
fn installed(cx: &Cx, vos: &Vos) -> Option<u64> {
    let declared = cx.config.charging.prices.cpus();
    let charters = vos.values().filter_map(Vo::charter);
    let listed = charters.filter_map(|charter| charter.member(cx.id));
    let listed = listed.map(|member| u64::from(member.cores)).max();
    Some(declared).filter(|cpus| *cpus > 0).or(listed)
}

pub(super) fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, more: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(more);
}
