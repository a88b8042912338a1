//! What this site says of its own free CPUs: worked out from what its scheduler reports, and published with heads.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_broker::sla::{BURST, Bound, EPOCH, Had, SlaEntry};
use fairmesh_broker::{SiteView, Standing};
use fairmesh_model::{AccountPath, Millis, MonoTime, Now, Share, VoId, WallTime, mutated};

use super::part;
use super::sources::{SchedulerReport, add};
use crate::advert::part::Advert;
use crate::advert::sources::{Listed, Sources, Waits};
use crate::advert::{AdvertAnswer, AdvertRules, Occupancy, OwnAdvert, WAITING_MAX};
use crate::config::SiteConfig;
use crate::event::Reply;
use crate::kinds::ADVERT;
use crate::parts::{Cx, Own, Vos};
use crate::tickets::Ticket;

/// Works out adverts and puts them into heads.
pub(crate) struct AdvertHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) sources: &'a mut Sources,
}

impl<'a> AdvertHandler<'a> {
    pub(crate) fn new(
        cx: &'a mut Cx,
        own: &'a mut Own,
        vos: &'a mut Vos,
        sources: &'a mut Sources,
    ) -> Self {
        Self {
            cx,
            own,
            vos,
            sources,
        }
    }

    /// Takes what the scheduler reports of itself.
    pub(crate) fn take_occupancy(&mut self, now: Now, ticket: Ticket, occupancy: Occupancy) {
        let (mut waiting, mut credits) = (BTreeMap::new(), Waits::new());
        for (origin, cpus) in occupancy.waiting.iter().take(WAITING_MAX) {
            let account = self.cx.config.identity.resolve(origin);
            add(
                &mut credits,
                self.vos.credit_of(now, account.as_ref()),
                *cpus,
            );
            add(&mut waiting, account.and_then(|account| account.vo), *cpus);
        }
        let before = self.sources.report.take().unwrap_or_default();
        let staged_mib = occupancy.staged.as_ref().map(|staged| {
            let mut sums = BTreeMap::new();
            for (origin, mib) in staged.iter().take(WAITING_MAX) {
                let account = self.cx.config.identity.resolve(origin);
                add(&mut sums, account.and_then(|account| account.vo), *mib);
            }
            sums
        });
        if occupancy.free.is_some() {
            self.sources.given = 0;
        }
        let occupancy = Occupancy {
            waiting: Vec::new(),
            staged: None,
            ..occupancy
        };
        self.sources.report = Some(SchedulerReport {
            at: now.wall,
            occupancy,
            waiting,
            staged_mib: staged_mib.unwrap_or(before.staged_mib),
            credits,
        });
        self.follow_sources(now);
        reply(self.cx, ticket, AdvertAnswer::Noted);
    }

    /// A list of running jobs came.
    pub(crate) fn take_listed(&mut self, now: Now, listed: Listed) {
        self.sources.listed = Some(listed);
        self.sources.given = 0;
        self.follow_sources(now);
    }

    /// The running or waiting jobs have changed, or the rules of the advert.
    pub(crate) fn follow_sources(&mut self, now: Now) {
        let view = self.own_view(now);
        for vo in self.vos.ids() {
            self.work_out_advert(now, vo, view.as_ref());
        }
    }

    /// Brings what a VO would be told up to date.
    pub(crate) fn renew_advert(&mut self, now: Now, vo: VoId) -> &mut OwnAdvert {
        let view = self.own_view(now);
        self.work_out_advert(now, vo, view.as_ref())
    }

    /// Brings it up to date where the site stands as `view` has it.
    fn work_out_advert(&mut self, now: Now, vo: VoId, view: Option<&SiteView>) -> &mut OwnAdvert {
        let mut live = view.and_then(|view| self.advert_of(now, vo, view));
        let change = self.cx.config.advert.as_ref().map(|rules| rules.change);
        let advert = &mut self.vos.listed(vo).advert;
        if let Some(live) = &mut live {
            live.go_on_from(advert.over);
            advert.over = live.over();
        }
        advert.is_news = match (&advert.said, &live) {
            (Some(said), Some(live)) => is_news(said, live, change.unwrap_or_default()),
            (said, live) => said.is_some() != live.is_some(),
        };
        advert.live = live;
        advert
    }

    /// A head is about to be signed: it says how things stand.
    pub(crate) fn bring_advert(&mut self, now: Now, vo: VoId) {
        if self.cx.config.advert.is_none() && self.vos[&vo].advert.said.is_none() {
            return;
        }
        let advert = match mutated!(AdvertNotRenewed) {
            false => self.renew_advert(now, vo),
            true => &mut self.vos.listed(vo).advert,
        };
        if advert.is_news {
            advert.said_at = Some(now.mono);
        }
        (advert.said, advert.is_news) = (advert.live.clone(), false);
        let parts = part::parts(advert.said.as_ref());
        self.own.set_parts(vo, ADVERT, parts);
    }

    /// How things stand for a VO; `None` where nothing is to be said or known.
    fn advert_of(&self, now: Now, vo: VoId, view: &SiteView) -> Option<Advert> {
        let alias = self.cx.config.alias_of(vo)?;
        let free = view
            .idle()
            .saturating_sub(view.reserved_for_others(alias.as_str()));
        let classes = self.sources.free_classes(&self.cx.config);
        let mut classes = classes.unwrap_or_default();
        if classes.len() > fairmesh_broker::utility::CLASSES_MAX {
            classes.clear();
        }
        classes
            .values_mut()
            .for_each(|of| *of = (*of).min(view.total));
        let age = view.age.unwrap_or_default();
        Some(Advert {
            at: now.wall.before(age),
            total: view.total,
            free,
            waiting: view.waiting,
            wait: view.wait,
            standing: view.vos.get(alias.as_str()).map(|of| **of),
            classes: Arc::new(classes),
            takes: self.cx.config.takes_forwarded(vo),
        })
    }

    /// The site as its own broker sees it, with all its VOs by their aliases.
    pub(crate) fn own_view(&mut self, now: Now) -> Option<SiteView> {
        self.cx.config.advert.as_ref()?;
        let machines = self.sources.machines(self.cx, self.vos, now)?;
        let (total, free) = (machines.total, machines.free);
        let (listed, told) = self.sources.lately(&self.cx.config, now);
        let waits = told.map(|told| told.waiting.clone()).unwrap_or_default();
        let wait = told.and_then(|told| told.occupancy.wait);
        let held_of = |vo: VoId| match listed {
            Some(of) => of.held.get(&Some(vo)).copied().unwrap_or(0),
            // Not known: all of it may be this VO's.
            None => total - free,
        };
        let held: BTreeMap<VoId, u64> = self.vos.keys().map(|vo| (*vo, held_of(*vo))).collect();
        let mut view = SiteView {
            total,
            free: Some(free),
            waiting: machines.waiting,
            wait,
            age: Some(now.wall.since(machines.at)),
            ..SiteView::default()
        };
        for (vo, held) in held {
            let waiting = waits.get(&Some(vo)).copied().unwrap_or(0);
            let standing = self.standing_of(now.wall, vo, total, (held, waiting));
            let named = self.cx.config.alias_of(vo).zip(standing);
            view.vos
                .extend(named.map(|(alias, of)| (alias.into(), of.into())));
        }
        Some(view)
    }

    /// What a VO may have here, and has had.
    fn standing_of(
        &mut self,
        now: WallTime,
        vo: VoId,
        total: u64,
        (held, waiting): (u64, u64),
    ) -> Option<Standing> {
        let entry = self.promised(vo)?;
        let cpu = entry.cpu.unwrap_or_default();
        let length = |bound: Option<Bound>, usual| bound.map_or(usual, |bound| bound.interval);
        let epoch = length(cpu.share, EPOCH);
        let burst = length(cpu.burst, BURST);
        let window = self.vos.window(&self.cx.config, Some(vo));
        let mut used = |within: Millis| self.own.cpu_ms_since(vo, now.before(within), window);
        let whole = u128::from(total) * u128::from(epoch.0);
        let share = used(epoch) * u128::from(Share::ONE) / whole.max(1);
        let held = match entry.mean {
            true => used(burst).div_ceil(u128::from(burst.0.max(1))),
            false => held.into(),
        };
        let had = Had {
            epoch: u64::try_from(share).unwrap_or(u64::MAX),
            burst: u64::try_from(held).unwrap_or(u64::MAX),
            waiting,
        };
        let report = self.sources.report.as_ref();
        let staged = report.and_then(|report| report.staged_mib.get(&Some(vo)));
        let rules = self.cx.config.advert.as_ref();
        let whole = rules.and_then(|rules| rules.disk_mib);
        Some(Standing {
            disk: entry.disk_room(whole, staged.copied().unwrap_or(0)),
            ..entry.standing(total, had)
        })
    }

    /// The owner's promise to a VO. Without promises to any VO, nothing is limited.
    fn promised(&self, vo: VoId) -> Option<SlaEntry> {
        let rules = self.cx.config.advert.as_ref()?;
        let Some(sla) = &rules.sla else {
            return Some(SlaEntry::default());
        };
        let path = AccountPath::root()
            .child(&self.cx.config.alias_of(vo)?)
            .ok()?;
        sla.entries.get(&path).cloned()
    }
}

/// When a head of a VO is due because of what it would say of free CPUs.
pub(crate) fn advert_due_at(
    config: &SiteConfig,
    vos: &Vos,
    vo: VoId,
    first: MonoTime,
) -> Option<MonoTime> {
    let rules = config.advert.as_ref();
    let interval = rules.map_or(AdvertRules::default().interval, |rules| rules.interval);
    vos[&vo].advert.due(interval, first)
}

/// Answers a call about adverts.
pub(super) fn reply(cx: &mut Cx, ticket: Ticket, answer: AdvertAnswer) {
    cx.reply(ticket, Reply::Advert(Box::new(answer)));
}

/// Whether an advert says enough else than the one before to be worth a head.
fn is_news(said: &Advert, live: &Advert, change: Share) -> bool {
    let terms = |advert: &Advert| {
        advert.standing.map(|of| {
            let limits = (of.epoch_share, of.sign, of.burst_limit, of.extensible);
            let disk = (of.disk.share_mib, of.disk.left_mib() == Some(0));
            (limits, of.exceeds(), disk)
        })
    };
    let disk = |advert: &Advert| advert.standing.map(|of| of.disk).unwrap_or_default();
    let none = |amount: u64| amount == 0;
    let is_much = |before: u64, after: u64, whole: u64| {
        let least = u128::from(whole) * u128::from(change.units());
        u128::from(before.abs_diff(after)) >= least.div_ceil(u128::from(Share::ONE)).max(1)
    };
    said.total != live.total
        || terms(said) != terms(live)
        || said.takes != live.takes
        || none(said.free) != none(live.free)
        || none(said.waiting) != none(live.waiting)
        || is_much(said.free, live.free, live.total)
        || is_much(said.waiting, live.waiting, live.total)
        || disk(live)
            .share_mib
            .is_some_and(|share| is_much(disk(said).staged_mib, disk(live).staged_mib, share))
}
