//! What a site says of its free CPUs to its VOs, and what it knows of the others'.
//!
//! It comes from the list of running jobs, and from what the site's scheduler tells beside it: CPUs that are free
//! or waited for. Nothing is said where the owner does not want it, or where neither has come. What is said is
//! brought up to date with every head that is signed. It makes a head of its own only where it has changed much,
//! and once in an interval: jobs that start and end make no heads.
//!
//! Invariant: an advert is one of its moment (`at`), so its age is known whenever the head was signed; each VO is
//! told of what it holds itself, and of all others in one sum only.
//! Deliberately not here: which site is best (`fairmesh-broker`), and machines (`describe`).
//! Sources: GRUBER (Euro-Par 2005), section 2; Vasques, algorithm 1.

mod confirm;
mod part;

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_broker::sla::{BURST, Bound, EPOCH, Had, SlaEntry};
use fairmesh_broker::{Known, SiteView, Sla, Standing};
use fairmesh_model::{
    AccountPath, Millis, MonoTime, Now, Origin, Share, SiteId, UsageRecord, VoId, WallTime,
};

use crate::config::Charging;
use crate::event::{Effect, Reply, Ticket};
use crate::kinds::ADVERT;
use crate::quota::Waits;
use crate::site::Site;
use crate::vo::Vo;
pub(crate) use confirm::{Confirms, is_question};
pub use part::{Advert, read as read_advert};
pub(crate) use part::{check, newest};

/// Most accounts that a scheduler names with what they wait for, and with what they have staged: bounds memory.
pub const WAITING_MAX: usize = 10_000;

/// What an owner wants his VOs to know of free CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertRules {
    /// CPUs of all machines; those of the price list, or of the charter, where it is not said.
    pub total: Option<u64>,
    /// MiB of disk for VOs' files in all: what percentages of it are of.
    pub disk_mib: Option<u64>,
    /// What is promised to VOs, by `/alias`; without it nothing binds them.
    pub sla: Option<Sla>,
    /// Shortest time between two heads that are signed for an advert's sake.
    pub interval: Millis,
    /// Of all CPUs, how many more or fewer have to be free for that.
    pub change: Share,
}

impl Default for AdvertRules {
    fn default() -> Self {
        Self {
            total: None,
            disk_mib: None,
            sla: None,
            interval: Millis::from_secs(30),
            change: Share::from_percent(5).expect("a percentage"),
        }
    }
}

/// What a scheduler tells of itself, beside its list of running jobs. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// CPUs of all machines that are up.
    pub total: Option<u64>,
    /// CPUs that nobody holds.
    pub free: Option<u64>,
    /// How long a job would wait now.
    pub wait: Option<Millis>,
    /// CPUs that waiting jobs ask for, by whose they are.
    pub waiting: Vec<(Origin, u64)>,
    /// MiB of files that lie on the site's disk, by whose they are; `None`: as it was told before.
    pub staged: Option<Vec<(Origin, u64)>>,
}

/// A call about adverts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvertCall {
    /// The scheduler says how things stand; replaces what it said before.
    Tell(Occupancy),
    /// What these sites would say now: each is asked itself.
    Confirm {
        /// In which VO.
        vo: VoId,
        /// Which.
        sites: Vec<SiteId>,
    },
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvertAnswer {
    /// It is known.
    Told,
    /// What each site says, or why it does not.
    Confirmed(Vec<(SiteId, Result<Advert, String>)>),
}

/// What is known of what runs and waits here.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    listed: Option<Listed>,
    told: Option<Told>,
    /// Cores that were given to jobs beyond their quota since either said how many are free.
    given: u64,
}

/// How the site's machines stand, by the last lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinesNow {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) waiting: u64,
    at: WallTime,
}

/// What the last list of running jobs comes to.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    at: WallTime,
    /// CPUs held, by VO; those of local groups without one.
    held: BTreeMap<Option<VoId>, u64>,
    /// CPUs held by class; `None` once a job runs on machines that are not known.
    classes: Option<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Told {
    at: WallTime,
    occupancy: Occupancy,
    waiting: BTreeMap<Option<VoId>, u64>,
    staged_mib: BTreeMap<Option<VoId>, u64>,
    credits: Waits,
}

impl Sources {
    /// Who waits, by whose credit, as far as a scheduler has said lately.
    pub(crate) fn waits(
        &self,
        now: Now,
        silence: Millis,
    ) -> impl Iterator<Item = (&Option<(VoId, AccountPath)>, u64)> {
        let told = self.told.iter();
        let told = told.filter(move |told| now.wall.since(told.at) <= silence);
        let credits = told.flat_map(|told| &told.credits);
        credits.map(|(credit, cores)| (credit, *cores))
    }

    /// Cores that were given to jobs beyond their quota, of those that seem to be free.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// A job beyond its quota was let run.
    pub(crate) fn give(&mut self, cores: u32) {
        self.given += u64::from(cores);
    }
}

/// What a VO is told, and when it was told last.
#[derive(Debug, Default)]
pub(crate) struct OwnAdvert {
    /// As of the last event that changed it.
    live: Option<Advert>,
    /// For how long the VO had been over what it may have when it was last known, and when that was.
    over: Option<(WallTime, Millis)>,
    said: Option<Advert>,
    said_at: Option<MonoTime>,
    /// Whether `live` is worth a head.
    is_news: bool,
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

impl OwnAdvert {
    /// Goes on from what was published before this start.
    pub(crate) fn restore(&mut self, earlier: Option<Advert>) {
        self.over = earlier.and_then(|of| of.over());
    }

    /// How things stand.
    pub(crate) fn live(&self) -> Option<&Advert> {
        self.live.as_ref()
    }

    /// When a head is due for its sake, if one is; never before `first`.
    pub(crate) fn due(&self, interval: Millis, first: MonoTime) -> Option<MonoTime> {
        let next = self.said_at.map_or(MonoTime(0), |at| at.after(interval));
        self.is_news.then(|| next.max(first))
    }
}

/// What an owner says.
impl Site {
    pub(crate) fn take_advert(&mut self, now: Now, ticket: Ticket, call: AdvertCall) {
        match call {
            AdvertCall::Confirm { vo, sites } => self.ask_to_confirm(now, ticket, vo, sites),
            AdvertCall::Tell(occupancy) => {
                let (mut waiting, mut credits) = (BTreeMap::new(), Waits::new());
                for (origin, cpus) in occupancy.waiting.iter().take(WAITING_MAX) {
                    let account = self.config.identity.resolve(origin);
                    add(&mut credits, self.credit_of(account.as_ref()), *cpus);
                    add(&mut waiting, account.and_then(|account| account.vo), *cpus);
                }
                let before = self.sources.told.take().unwrap_or_default();
                let staged_mib = occupancy.staged.as_ref().map(|staged| {
                    let mut sums = BTreeMap::new();
                    for (origin, mib) in staged.iter().take(WAITING_MAX) {
                        let account = self.config.identity.resolve(origin);
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
                self.sources.told = Some(Told {
                    at: now.wall,
                    occupancy,
                    waiting,
                    staged_mib: staged_mib.unwrap_or(before.staged_mib),
                    credits,
                });
                self.follow_sources(now);
                self.reply_advert(ticket, AdvertAnswer::Told);
            }
        }
    }

    fn reply_advert(&mut self, ticket: Ticket, answer: AdvertAnswer) {
        let reply = Reply::Advert(Box::new(answer));
        self.effects.push(Effect::Reply { ticket, reply });
    }

    /// A list of running jobs came.
    pub(crate) fn take_listed(&mut self, now: Now, listed: Listed) {
        self.sources.listed = Some(listed);
        self.sources.given = 0;
        self.follow_sources(now);
    }

    /// What runs or waits has changed, or what is said of it.
    pub(crate) fn follow_sources(&mut self, now: Now) {
        let view = self.own_view(now);
        for vo in self.vo_ids() {
            self.work_out_advert(now, vo, view.as_ref());
        }
    }

    /// Brings what a VO would be told up to date, where the site stands as `view` has it.
    pub(crate) fn work_out_advert(&mut self, now: Now, vo: VoId, view: Option<&SiteView>) {
        let mut live = view.and_then(|view| self.advert_of(now, vo, view));
        let change = self.config.advert.as_ref().map(|rules| rules.change);
        let advert = &mut self.vos.get_mut(&vo).expect("it was listed").advert;
        if let Some(live) = &mut live {
            live.go_on_from(advert.over);
            advert.over = live.over();
        }
        advert.is_news = match (&advert.said, &live) {
            (Some(said), Some(live)) => is_news(said, live, change.unwrap_or_default()),
            (said, live) => said.is_some() != live.is_some(),
        };
        advert.live = live;
    }

    /// A head is about to be signed: it says how things stand.
    pub(crate) fn bring_advert(&mut self, now: Now, vo: VoId) {
        if self.config.advert.is_none() && self.vos[&vo].advert.said.is_none() {
            return;
        }
        let view = self.own_view(now);
        self.work_out_advert(now, vo, view.as_ref());
        let advert = &mut self.vos.get_mut(&vo).expect("it was listed").advert;
        if advert.is_news {
            advert.said_at = Some(now.mono);
        }
        (advert.said, advert.is_news) = (advert.live.clone(), false);
        self.own
            .set_parts(vo, ADVERT, part::parts(advert.said.as_ref()));
    }

    /// When a head of a VO is due because of what it would say of free CPUs.
    pub(crate) fn advert_due_at(&self, vo: VoId, first: MonoTime) -> Option<MonoTime> {
        let rules = self.config.advert.as_ref();
        let interval = rules.map_or(AdvertRules::default().interval, |rules| rules.interval);
        self.vos[&vo].advert.due(interval, first)
    }

    /// How things stand for a VO; `None` where nothing is to be said or known.
    fn advert_of(&self, now: Now, vo: VoId, view: &SiteView) -> Option<Advert> {
        let alias = self.alias_of(vo)?;
        let free = view
            .idle()
            .saturating_sub(view.reserved_for_others(alias.as_str()));
        let classes = self.free_classes();
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
            standing: view.vos.get(&alias).copied(),
            classes: Arc::new(classes),
            takes: self.takes_forwarded(vo),
        })
    }

    /// The site as its own broker sees it, with all its VOs by their aliases.
    pub(crate) fn own_view(&mut self, now: Now) -> Option<SiteView> {
        self.config.advert.as_ref()?;
        let machines = self.machines(now)?;
        let MachinesNow {
            total, free, at, ..
        } = machines;
        let listed = self.sources.listed.as_ref();
        let listed = listed.filter(|of| self.is_fresh(now, of.at));
        let told = self.sources.told.as_ref();
        let told = told.filter(|of| self.is_fresh(now, of.at));
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
            age: Some(now.wall.since(at)),
            ..SiteView::default()
        };
        for (vo, held) in held {
            let waiting = waits.get(&Some(vo)).copied().unwrap_or(0);
            let standing = self.standing_of(now.wall, vo, total, (held, waiting));
            let named = self.alias_of(vo).zip(standing);
            view.vos.extend(named);
        }
        Some(view)
    }

    /// How the machines stand; `None` where nothing was heard of them lately.
    pub(crate) fn machines(&self, now: Now) -> Option<MachinesNow> {
        let rules = self.config.advert.as_ref();
        let listed = self.sources.listed.as_ref();
        let listed = listed.filter(|of| self.is_fresh(now, of.at));
        let told = self.sources.told.as_ref();
        let told = told.filter(|of| self.is_fresh(now, of.at));
        let said = told.map(|told| &told.occupancy);
        let total = said
            .and_then(|said| said.total)
            .or(rules.and_then(|rules| rules.total))
            .or_else(|| self.installed())
            .filter(|total| (1..=u64::from(u32::MAX)).contains(total))?;
        let sum = |of: &BTreeMap<Option<VoId>, u64>| {
            of.values().fold(0, |sum: u64, of| sum.saturating_add(*of))
        };
        let free = said.and_then(|said| said.free);
        let free = free
            .or(listed.map(|of| total.saturating_sub(sum(&of.held))))?
            .min(total);
        let at = told.filter(|told| told.occupancy.free.is_some());
        let at = at.map(|told| told.at).or(listed.map(|of| of.at))?;
        let waiting = told.map_or(0, |told| sum(&told.waiting));
        Some(MachinesNow {
            total,
            free,
            waiting,
            at,
        })
    }

    fn is_fresh(&self, now: Now, at: WallTime) -> bool {
        now.wall.since(at) <= self.config.timing.silence
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
        let window = self.window(Some(vo));
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
        let told = self.sources.told.as_ref();
        let staged = told.and_then(|told| told.staged_mib.get(&Some(vo)));
        let rules = self.config.advert.as_ref();
        let whole = rules.and_then(|rules| rules.disk_mib);
        Some(Standing {
            disk: entry.disk_room(whole, staged.copied().unwrap_or(0)),
            ..entry.standing(total, had)
        })
    }

    /// What the owner promises a VO; nothing binds where he has promised nothing to anybody.
    fn promised(&self, vo: VoId) -> Option<SlaEntry> {
        let rules = self.config.advert.as_ref()?;
        let Some(sla) = &rules.sla else {
            return Some(SlaEntry::default());
        };
        let path = AccountPath::root().child(&self.alias_of(vo)?).ok()?;
        sla.entries.get(&path).cloned()
    }

    fn alias_of(&self, vo: VoId) -> Option<String> {
        let mut vos = self.config.vos.iter();
        let (alias, _) = vos.find(|(_, id)| **id == vo)?;
        Some(alias.clone())
    }

    /// CPUs of the machines that the owner declares, or that a charter lists for this site.
    fn installed(&self) -> Option<u64> {
        let declared = self.config.charging.prices.cpus();
        let charters = self.vos.values().filter_map(Vo::charter);
        let listed = charters.filter_map(|charter| charter.member(self.id));
        let listed = listed.map(|member| u64::from(member.cores)).max();
        Some(declared).filter(|cpus| *cpus > 0).or(listed)
    }

    /// Free CPUs by class, where it is known which machines jobs run on.
    fn free_classes(&self) -> Option<BTreeMap<String, u64>> {
        let held = self.sources.listed.as_ref()?.classes.as_ref()?;
        let classes = self.config.charging.prices.machines.iter();
        let free = |(name, class): (&String, &fairmesh_model::MachineClass)| {
            let all = u64::from(class.count) * u64::from(class.cpus);
            (
                name.clone(),
                all.saturating_sub(held.get(name).copied().unwrap_or(0)),
            )
        };
        Some(classes.map(free).collect())
    }
}

/// What is known of all members.
impl Site {
    /// The member sites of a VO, each with what it has said last of its free CPUs; of this site as it is now.
    pub fn adverts(&self, vo: VoId) -> impl Iterator<Item = (SiteId, Option<&Advert>)> {
        let held = self.vos.get(&vo).into_iter();
        held.flat_map(move |held| {
            let members = held
                .charter()
                .into_iter()
                .flat_map(|charter| &charter.sites);
            members.map(move |member| (member.site, self.advert_from(held, member.site)))
        })
    }

    fn advert_from<'a>(&self, held: &'a Vo, site: SiteId) -> Option<&'a Advert> {
        match site == self.id {
            true => held.advert.live.as_ref(),
            false => held.published.advert(site),
        }
    }

    /// What a broker of a VO's jobs here knows of each member; `None` of one that says nothing. The VO's name
    /// in views is its id.
    pub fn known_sites(&self, now: Now, vo: VoId) -> Vec<(SiteId, Option<Known>)> {
        let adverts = self.adverts(vo);
        let named = (vo, &*vo.to_string());
        let known = adverts.map(|(site, advert)| {
            let known = advert.map(|advert| self.known_by(now, named, site, advert));
            (site, known)
        });
        known.collect()
    }

    /// After which a site of which nothing is heard is silent.
    pub fn silence(&self) -> Millis {
        self.config.timing.silence
    }

    /// Whether the owner lets VOs know what is free.
    pub fn tells_what_is_free(&self) -> bool {
        self.config.advert.is_some()
    }

    /// What a broker makes of an advert of a site. The VO comes with its name, so that it is written out once for all sites.
    pub fn known_by(
        &self,
        now: Now,
        (vo, vo_name): (VoId, &str),
        site: SiteId,
        advert: &Advert,
    ) -> Known {
        let name = self
            .site_name(site)
            .map_or_else(|| site.to_string(), str::to_owned);
        let mut view = advert.view(&name, vo_name, now);
        let held = self.vos.get(&vo);
        view.machines = held.and_then(|held| held.published.machines(site).cloned());
        let slowest = view.machines.as_ref().and_then(|of| of.slowest());
        view.spec = slowest.unwrap_or_default();
        Known {
            known_at: advert.at,
            own: site == self.id,
            view,
            utility: None,
        }
    }
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

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, more: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(more);
}
