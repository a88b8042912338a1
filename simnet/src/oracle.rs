//! What the Grid must have counted and must answer, worked out without any of its code.
//!
//! For each (VO, site, account) there are two bounds. *Certain* is what was acknowledged and cannot
//! have been lost by a declared fault; *most* is all that any feed ever offered. Where no disk was
//! lost and every report was answered at once the two are equal, to the unit, and so is what the Grid
//! counts. What follows from usage, weights, shares, order and factors, is worked out from the
//! definitions of the papers ([`answers`]).
//!
//! Invariant: `certain` ≤ what the Grid counts ≤ `most`, and a record counts once in either however
//! often it was offered. It shares ids, documents and reports with `fairmesh-model` and uses no
//! other crate of this repository and no other module of this one; what it needs to know of a configuration are plain
//! data ([`owner`]). A test checks its imports.
//! Deliberately not here: when faults happen, and the comparison itself.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fairmesh_model::{
    AccountPath, Counters, JobKey, Millis, MonoTime, RunningJob, UsageRecord, VoId, WallTime,
};

pub mod answers;
pub mod caps;
pub mod clamp;
pub mod cost;
mod documents;
mod given;
mod ledger;
pub mod owner;
pub mod place;
mod published;
pub mod rights;
mod sums;
mod table;
pub mod tree;
pub mod weight;

pub use documents::{Documents, HeldVos};
use ledger::Ledger;
pub use ledger::Recovered;
pub use ledger::{Cells, Terms};
pub use published::{HeldCells, Published};

/// An account of a site's ledger: of a VO, or the site's own.
pub type AccountKey = (Option<VoId>, AccountPath);

/// Core-milliseconds by account of one VO or of a site itself.
pub type Amounts = BTreeMap<AccountPath, u64>;

/// Lists of running jobs that a site was told of: what they are expected to use, by account.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The last one that it has acknowledged.
    pub acknowledged: Amounts,
    /// All of them, and when.
    pub told: Vec<(MonoTime, Amounts)>,
    /// How often the node had started when it was told last: lists do not outlive a process.
    pub life: u32,
}

/// What jobs count for at their site's own levels while they run, by the last list that it acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Running {
    jobs: BTreeMap<JobKey, (AccountKey, u64)>,
    /// Jobs of which nobody can say whether the site knows that they have ended.
    unsure: BTreeSet<JobKey>,
    /// Whether a list may have been taken since.
    is_stale: bool,
    /// How often the node had started when it was told.
    pub life: u32,
}

impl Running {
    /// The sums by account; none where they may be others.
    pub fn sums(&self) -> Option<BTreeMap<AccountKey, u64>> {
        let mut sums = BTreeMap::new();
        for (account, charge) in self.jobs.values() {
            *sums.entry(account.clone()).or_default() += charge;
        }
        sums.retain(|_, charge| *charge > 0);
        (self.unsure.is_empty() && !self.is_stale).then_some(sums)
    }
}

/// What is known of one site's reports.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Charge that was acknowledged before the last loss, and known to have survived it.
    base: BTreeMap<Option<VoId>, Amounts>,
    ledger: Ledger,
    expected: BTreeMap<VoId, Expected>,
    running: Running,
    losses: u32,
    /// Whether a report came while clocks were wrong: it may count in other windows than its own.
    is_displaced: bool,
}

/// How far a history reaches back, and the length of its windows.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// How far.
    pub history: Millis,
    /// Windows.
    pub window: Millis,
}

/// The ledger of all sites.
#[derive(Debug, Default)]
pub struct Oracle {
    places: Vec<Place>,
    /// Histories that may end within a run: of usage before them nothing is certain.
    pub short: BTreeMap<Option<VoId>, Reach>,
    /// What right clocks show.
    pub now: WallTime,
    /// Under which incarnations anything was signed.
    pub published: Published,
    /// Charters and share policies that were signed.
    pub documents: Documents,
}

impl Oracle {
    /// Knows nothing of `sites` sites.
    pub fn new(sites: usize) -> Self {
        Self {
            places: vec![Place::default(); sites],
            ..Self::default()
        }
    }

    /// A feed hands in a report, which the site counts by these rules; `clocks_off` where any clock
    /// of the Grid is or was wrong.
    pub fn offered(
        &mut self,
        site: usize,
        record: &UsageRecord,
        terms: &Rc<Terms>,
        clocks_off: bool,
    ) {
        let place = &mut self.places[site];
        place.is_displaced |= clocks_off;
        if !record.running && place.running.jobs.contains_key(&record.key) {
            place.running.unsure.insert(record.key.clone());
        }
        place.ledger.offered(record, terms);
    }

    /// Until when counters of each VO, and of its own accounts, reach whose jobs' marks a site has lost.
    pub fn recovered(&mut self, site: usize, until: BTreeMap<Option<VoId>, Recovered>) {
        self.places[site].ledger.recovered = until;
    }

    /// The least and the most that a job is charged at a site that has lost nothing, without what is refunded.
    pub fn net_of(&self, site: usize, job: &JobKey) -> Option<(u64, u64)> {
        let place = &self.places[site];
        place.ledger.net_of(job).filter(|_| place.losses == 0)
    }

    /// Whether a site charged a job by these rules alone.
    pub fn is_charged_by(&self, site: usize, job: &JobKey, now: &Terms) -> bool {
        self.places[site].ledger.is_charged_by(job, now)
    }

    /// The site has said that all of that is counted durably.
    pub fn acknowledged(&mut self, site: usize, record: &UsageRecord) {
        let place = &mut self.places[site];
        if !record.running {
            place.running.jobs.remove(&record.key);
            place.running.unsure.remove(&record.key);
        }
        place.ledger.acknowledged(record);
    }

    /// Somebody takes a job back, while it would be charged by these rules.
    pub fn correcting(&mut self, site: usize, job: &JobKey, now: Option<&Terms>) {
        self.places[site].ledger.correcting(job, now);
    }

    /// The site has said that the job is taken back durably.
    pub fn corrected(&mut self, site: usize, job: &JobKey, now: Option<&Terms>) {
        self.places[site].ledger.corrected(job, now);
    }

    /// A feed lists what runs, and what each job is counted by, if it is: for every VO that asks, whether it
    /// asks for whole jobs, or nothing where the list says that there is nothing; `None` is the owner.
    pub fn listed(
        &mut self,
        site: usize,
        asking: &BTreeMap<Option<VoId>, Option<bool>>,
        jobs: &[(RunningJob, Option<Rc<Terms>>)],
        (now, life, is_acknowledged): (MonoTime, u32, bool),
    ) {
        let told = (life, is_acknowledged);
        self.run(
            site,
            asking.get(&None).copied().flatten().unwrap_or(false),
            jobs,
            told,
        );
        let vos = asking
            .iter()
            .filter_map(|(vo, whole)| Some(((*vo)?, *whole)));
        for (vo, whole) in vos {
            let mut amounts = Amounts::new();
            for (job, terms) in jobs {
                let terms = terms.as_ref().filter(|terms| terms.account.0 == Some(vo));
                let Some((whole, terms)) = whole.zip(terms) else {
                    continue;
                };
                let record = &job.record;
                let from = if whole { record.start } else { record.end };
                let charge = terms
                    .cost
                    .of_first(job.expected_end.0.saturating_sub(from.0));
                let charge = charge.charge;
                if charge > 0 {
                    *amounts.entry(terms.account.1.clone()).or_default() += charge;
                }
            }
            let expected = self.places[site].expected.entry(vo).or_default();
            if is_acknowledged {
                expected.acknowledged.clone_from(&amounts);
            }
            expected.told.push((now, amounts));
            expected.life = life;
        }
    }

    /// The same for the owner's levels: what jobs have used, where their VO counts them only when they end.
    fn run(
        &mut self,
        site: usize,
        whole: bool,
        jobs: &[(RunningJob, Option<Rc<Terms>>)],
        (life, is_acknowledged): (u32, bool),
    ) {
        let place = &mut self.places[site];
        let mut running = Running {
            is_stale: !is_acknowledged,
            life,
            ..Running::default()
        };
        for (job, terms) in jobs {
            let (Some(terms), record) = (terms, &job.record) else {
                continue;
            };
            let Some(known) = place.ledger.runs(record) else {
                continue;
            };
            let charge = match (whole, terms.counts_running) {
                (true, _) => {
                    let all = job.expected_end.0.saturating_sub(record.start.0);
                    terms.cost.of_first(all).charge
                }
                (false, true) => 0,
                (false, false) => known.used(record, terms),
            };
            if !known.is_sure {
                running.unsure.insert(record.key.clone());
            }
            let of = (terms.account.clone(), charge);
            running.jobs.insert(record.key.clone(), of);
        }
        place.running = running;
    }

    /// What a site was told of what runs, for its own levels.
    pub fn running(&self, site: usize) -> &Running {
        &self.places[site].running
    }

    /// What a site was told of its running jobs.
    pub fn expected(&self, site: usize, vo: VoId) -> Option<&Expected> {
        self.places[site].expected.get(&vo)
    }

    /// A site's store was lost, or replaced by an older one. What survives is what is stored of its
    /// streams anywhere; of its own accounts, `local`.
    pub fn lost(&mut self, site: usize, survived: &BTreeMap<VoId, Amounts>, local: &Amounts) {
        let place = &mut self.places[site];
        let before = merged(&place.base, &place.ledger.least.charge);
        let kept = before.into_iter().map(|(vo, amounts)| {
            let limit = match vo {
                None => Some(local),
                Some(vo) => survived.get(&vo),
            };
            (vo, at_most(amounts, limit))
        });
        place.base = kept.collect();
        place.ledger.least = ledger::Sums::default();
        place.losses += 1;
    }

    /// Another site's store was lost: what had survived of this one's losses may have been there.
    pub fn lost_elsewhere(&mut self, site: usize, survived: &BTreeMap<VoId, Amounts>) {
        let place = &mut self.places[site];
        for (vo, amounts) in &mut place.base {
            if let Some(vo) = vo {
                *amounts = at_most(std::mem::take(amounts), survived.get(vo));
            }
        }
    }

    /// How often a site's store was lost.
    pub fn losses(&self, site: usize) -> u32 {
        self.places[site].losses
    }

    /// The first window of which anything is certain to count still.
    pub fn first_window(&self, vo: Option<VoId>) -> u32 {
        self.short.get(&vo).map_or(0, |Reach { history, window }| {
            let first = self.now.before(*history).0 / window.0 + 1;
            u32::try_from(first).expect("within the epoch of windows")
        })
    }

    /// What must be counted of a site's reports, by account. In a history that ends, usage that survived a loss is not
    /// certain, because its windows are unknown.
    pub fn certain(&self, site: usize, vo: Option<VoId>) -> Amounts {
        let first = self.first_window(vo);
        if first > 0 {
            let cells = self.certain_cells(site, vo).into_iter().flatten();
            let charge = |windows: &BTreeMap<u32, Counters>| {
                windows.range(first..).map(|(_, of)| of.charge).sum()
            };
            return cells
                .map(|(path, windows)| (path.clone(), charge(windows)))
                .collect();
        }
        let place = &self.places[site];
        let mut sums = place.base.get(&vo).cloned().unwrap_or_default();
        for (path, amount) in place.ledger.least.charge.get(&vo).into_iter().flatten() {
            *sums.entry(path.clone()).or_default() += amount;
        }
        sums
    }

    /// The same, over all accounts.
    pub fn certain_total(&self, site: usize, vo: Option<VoId>) -> u64 {
        if self.short.contains_key(&vo) {
            return self.certain(site, vo).values().sum();
        }
        let place = &self.places[site];
        let of = |amounts: &BTreeMap<Option<VoId>, Amounts>| -> u64 {
            amounts.get(&vo).map_or(0, |amounts| amounts.values().sum())
        };
        of(&place.base) + of(&place.ledger.least.charge)
    }

    /// The least and the most that each account is charged for a site's reports, without what is refunded. Nothing
    /// where the site's store was lost.
    pub fn net(&self, site: usize) -> BTreeMap<AccountKey, (u64, u64)> {
        let place = &self.places[site];
        match place.losses {
            0 => place.ledger.net(),
            _ => BTreeMap::new(),
        }
    }

    /// The most that may be counted of a site's reports, by account.
    pub fn most(&self, site: usize, vo: Option<VoId>) -> Amounts {
        let most = self.places[site].ledger.most.charge.get(&vo);
        most.cloned().unwrap_or_default()
    }

    /// What must be counted of a site's reports since its last loss, window by window.
    pub fn certain_cells(&self, site: usize, vo: Option<VoId>) -> Option<&Cells> {
        self.places[site].ledger.least.cells.get(&vo)
    }

    /// The most that may be counted, window by window.
    pub fn most_cells(&self, site: usize, vo: Option<VoId>) -> Option<&Cells> {
        self.places[site].ledger.most.cells.get(&vo)
    }

    /// What was certainly taken back of each account of a site.
    pub fn taken_back(&self, site: usize) -> &BTreeMap<AccountKey, (u64, u64)> {
        &self.places[site].ledger.taken_back
    }

    /// The jobs that a site that has lost nothing has said are taken back.
    pub fn jobs_taken_back(&self, site: usize) -> impl Iterator<Item = &JobKey> {
        let place = &self.places[site];
        let jobs = place.ledger.jobs_taken_back();
        jobs.filter(|_| place.losses == 0)
    }

    /// Whether what a site counts may be in other windows than those in which it was used.
    pub fn is_displaced(&self, site: usize) -> bool {
        self.places[site].is_displaced
    }

    /// The same of all sites and accounts.
    pub fn bounds(&self, vo: VoId) -> BTreeMap<AccountPath, (u64, u64)> {
        let mut bounds: BTreeMap<AccountPath, (u64, u64)> = BTreeMap::new();
        for site in 0..self.places.len() {
            for (path, amount) in self.certain(site, Some(vo)) {
                bounds.entry(path).or_default().0 += amount;
            }
            for (path, amount) in self.most(site, Some(vo)) {
                bounds.entry(path).or_default().1 += amount;
            }
        }
        bounds
    }
}

fn merged(
    a: &BTreeMap<Option<VoId>, Amounts>,
    b: &BTreeMap<Option<VoId>, Amounts>,
) -> BTreeMap<Option<VoId>, Amounts> {
    let mut sums = a.clone();
    for (vo, amounts) in b {
        let sums = sums.entry(*vo).or_default();
        for (path, amount) in amounts {
            *sums.entry(path.clone()).or_default() += amount;
        }
    }
    sums
}

fn at_most(amounts: Amounts, limit: Option<&Amounts>) -> Amounts {
    let of = |path: &AccountPath| limit.and_then(|limit| limit.get(path)).copied();
    amounts
        .into_iter()
        .map(|(path, amount)| {
            let most = of(&path).unwrap_or(0);
            (path, amount.min(most))
        })
        .collect()
}

#[cfg(test)]
mod tests;
