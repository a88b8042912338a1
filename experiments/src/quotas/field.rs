//! Clusters whose jobs ask for credit before they are queued.
//!
//! Jobs start in the order in which they were queued; with bands, all that are within their quota come before
//! all that are not. A job that is let run because machines stand idle starts at once.
//!
//! Invariant: what a project has run is counted to the millisecond, up to the end of the run and no further, so
//! nothing depends on what is still queued then.
//! Deliberately not here: fairshare ([`super::fairshare`]).

use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Backfill, Cluster, Finished, Job, JobId, Seed, Started};
use fairmesh_model::{CoreMillis, Factor, JobKey, Millis, Share, WallTime};
use fairmesh_quota::Verdict;
use fairmesh_quota::decision::{Machines, band};
use fairmesh_quota::price::Pricing;

use super::credit::{Ask, Credit, Spent};
use super::load::{Arrival, Arrivals, Load};
use super::market::Market;
use simnet::vo::{START, path};

/// The factor of everybody: what orders jobs here is when they came.
const FACTOR: Share = Share::WHOLE;

/// The clusters, and who uses them when.
#[derive(Debug, Clone)]
pub struct FieldSpec {
    /// How many sites.
    pub sites: usize,
    /// Cores of each.
    pub cores: u32,
    /// What projects submit.
    pub loads: Vec<Load>,
    /// How long the run is.
    pub duration: Millis,
    /// Whether jobs within their quota come first.
    pub has_bands: bool,
    /// Whether machines that would stand idle are open to jobs beyond the quota, and for how long a job at most.
    pub idle_max: Option<Millis>,
    /// When who is cut off from whom: the group of each site from then on.
    pub cuts: Vec<(Millis, Vec<usize>)>,
    /// A time, and sites, of which jobs that ask are counted apart.
    pub watched: Option<(Millis, Millis, Vec<usize>)>,
    /// What sites ask for their machines.
    pub pricing: Pricing,
}

impl FieldSpec {
    /// Sites of so many cores each, without bands, idle machines, cuts and prices.
    pub fn new(sites: usize, cores: u32, loads: Vec<Load>, duration: Millis) -> Self {
        Self {
            sites,
            cores,
            loads,
            duration,
            has_bands: false,
            idle_max: None,
            cuts: Vec::new(),
            watched: None,
            pricing: Pricing::Fixed,
        }
    }
}

/// What can be seen of a run while it goes on.
pub struct Seen<'a, C> {
    /// When, after the beginning.
    pub at: Millis,
    /// What was counted so far.
    pub measures: &'a FieldMeasures,
    /// Who keeps the accounts.
    pub credit: &'a C,
    /// What sites ask for their machines.
    pub prices: &'a [Factor],
}

/// Looks at a run, each time when so much has passed.
pub type Watch<'a, C> = (Millis, &'a mut dyn FnMut(&Seen<'_, C>));

/// Jobs that asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// All.
    pub all: u64,
    /// Granted at once.
    pub at_once: u64,
    /// Granted when somebody else had been heard.
    pub later: u64,
    /// Run beyond their quota.
    pub beyond: u64,
    /// Refused.
    pub refused: u64,
    /// Milliseconds from asking to the answer, of all.
    pub answered_ms: u64,
}

impl Asked {
    /// Mean time from asking to the answer, milliseconds.
    pub fn mean_answer_ms(&self) -> f64 {
        self.answered_ms as f64 / self.all.max(1) as f64
    }

    /// The part of those that asked which were granted.
    pub fn granted_part(&self) -> f64 {
        (self.at_once + self.later) as f64 / self.all.max(1) as f64
    }

    /// The part of those granted that waited for nobody.
    pub fn at_once_part(&self) -> f64 {
        self.at_once as f64 / (self.at_once + self.later).max(1) as f64
    }
}

/// What became of one project.
#[derive(Debug, Clone, Default)]
pub struct ProjectMeasures {
    /// Its jobs.
    pub asked: Asked,
    /// Core-milliseconds of all jobs that it submitted.
    pub demand: u64,
    /// Core-milliseconds that all jobs which were let run need from beginning to end.
    pub admitted: u64,
    /// Jobs refused although its grant would have covered them, beside all jobs that had been let run.
    pub refused_early: u64,
    /// Core-milliseconds that its jobs ran by the end.
    pub delivered: u64,
    /// Time that its jobs within the quota waited in queues, milliseconds, and how many they were.
    pub waited: (u64, u64),
    /// What its accounts say at the end.
    pub spent: Spent,
}

impl ProjectMeasures {
    /// What it ran beyond what it was granted.
    pub fn over_use(&self) -> u64 {
        let granted = u64::try_from(self.spent.granted).expect("core-milliseconds of years");
        self.delivered.saturating_sub(granted)
    }

    /// Counts a job of which was decided that takes so long.
    fn decided(&mut self, one: &Asked, run: Millis, granted: u128) {
        self.asked.add(one);
        if one.refused == 0 {
            self.admitted += run.0;
        } else if u128::from(self.admitted + run.0) <= granted {
            self.refused_early += 1;
        }
    }

    /// What was delivered of what it could have.
    pub fn served(&self) -> f64 {
        let granted = u64::try_from(self.spent.granted).expect("core-milliseconds of years");
        self.delivered as f64 / granted.min(self.demand).max(1) as f64
    }
}

/// What a run gave.
#[derive(Debug, Clone, Default)]
pub struct FieldMeasures {
    /// By project.
    pub projects: Vec<ProjectMeasures>,
    /// Of the sites and the time that were watched.
    pub watched: Asked,
    /// Core-milliseconds that there were.
    pub capacity: u64,
}

impl FieldMeasures {
    /// The cores that were in use, percent of all.
    pub fn utilisation(&self) -> f64 {
        let used: u64 = self.projects.iter().map(|of| of.delivered).sum();
        100.0 * (used as f64 / self.capacity.max(1) as f64)
    }

    /// What was run beyond grants, percent of all that was granted.
    pub fn over_use(&self) -> f64 {
        let over: u64 = self.projects.iter().map(ProjectMeasures::over_use).sum();
        let granted: u128 = self.projects.iter().map(|of| of.spent.granted).sum();
        100.0 * (over as f64 / granted.max(1) as f64)
    }

    /// Mean time in queues of jobs within the quota, seconds; of the projects that `counts` names.
    pub fn mean_wait_s(&self, counts: impl Fn(usize) -> bool) -> f64 {
        let of = self.projects.iter().enumerate();
        let of = of
            .filter(|(project, _)| counts(*project))
            .map(|(_, of)| of.waited);
        let (time, jobs) = of.fold((0, 0), |(time, jobs), of| (time + of.0, jobs + of.1));
        time as f64 / jobs.max(1) as f64 / 1_000.0
    }

    /// Jobs of all projects.
    pub fn asked(&self, count: impl Fn(&Asked) -> u64) -> u64 {
        self.projects.iter().map(|of| count(&of.asked)).sum()
    }
}

struct Known {
    arrival: Arrival,
    is_watched: bool,
    is_within: bool,
}

struct Field<'a, C> {
    spec: &'a FieldSpec,
    credit: &'a mut C,
    clusters: Vec<Cluster>,
    market: Market,
    /// Jobs of each site's queue that are within their quota.
    within_queued: Vec<u64>,
    /// Jobs that were submitted and have not ended, by number.
    known: BTreeMap<u64, Known>,
    accounts: [Vec<AccountKey>; 2],
    order: BTreeMap<AccountKey, u64>,
    /// What each project was granted, core-milliseconds.
    granted: Vec<u128>,
    measures: FieldMeasures,
    submitted: u64,
}

/// Runs it.
pub fn run<C: Credit>(spec: &FieldSpec, seed: Seed, credit: &mut C) -> FieldMeasures {
    run_watched(spec, seed, credit, (spec.duration, &mut |_| {}))
}

/// Runs it, and looks at it now and then, from the beginning on; the end is what comes back.
pub fn run_watched<C: Credit>(
    spec: &FieldSpec,
    seed: Seed,
    credit: &mut C,
    (every, see): Watch<'_, C>,
) -> FieldMeasures {
    let mut arrivals = Arrivals::new(seed, &spec.loads, spec.sites);
    let mut field = Field::new(spec, credit);
    let mut cuts = spec.cuts.iter().peekable();
    let end = START.after(spec.duration);
    let mut seen_at = START;
    loop {
        let cut = cuts.peek().map(|(at, _)| START.after(*at));
        let ends = field.clusters.iter().filter_map(Cluster::next_event).min();
        let market = field.market.next_at();
        let due = [
            arrivals.next_at(),
            cut,
            ends,
            field.credit.next_at(),
            market,
            Some(seen_at),
        ];
        let now = due.into_iter().flatten().min().unwrap_or(end).min(end);
        field.credit.advance(now);
        if now == end {
            return field.finish(end);
        }
        if let Some((_, groups)) = cuts.next_if(|(at, _)| START.after(*at) <= now) {
            field.credit.cut(now, groups);
        }
        field.end_jobs(now);
        field.market.look(now, &field.clusters);
        if arrivals.next_at().is_some_and(|at| at <= now) {
            let arrival = arrivals.next().expect("it is there");
            field.submit(now, arrival);
        }
        field.take_decisions(now);
        field.schedule(now);
        if seen_at <= now {
            see(&field.seen(now));
            seen_at = now.after(every);
        }
    }
}

impl<'a, C: Credit> Field<'a, C> {
    fn new(spec: &'a FieldSpec, credit: &'a mut C) -> Self {
        let projects = spec.loads.len();
        let account = |class: usize| -> Vec<AccountKey> {
            let of = |project: usize| AccountKey {
                vo: class,
                path: path(&format!("/P{}", project + 1)),
            };
            (0..projects).map(of).collect()
        };
        let accounts = [account(0), account(1)];
        let factor = |class: usize| match spec.has_bands {
            true => u64::from(band(FACTOR, class == 0).units()),
            false => u64::from(FACTOR.units()),
        };
        let both = accounts.iter().enumerate();
        let order =
            both.flat_map(|(class, of)| of.iter().map(move |key| (key.clone(), factor(class))));
        let granted = (0..projects).map(|of| credit.spent(START, of).granted);
        Self {
            granted: granted.collect(),
            order: order.collect(),
            clusters: vec![Cluster::new(spec.cores, Backfill::Off); spec.sites],
            market: Market::new(spec.sites, &spec.pricing),
            within_queued: vec![0; spec.sites],
            known: BTreeMap::new(),
            accounts,
            measures: FieldMeasures {
                projects: vec![ProjectMeasures::default(); projects],
                watched: Asked::default(),
                capacity: spec.sites as u64 * u64::from(spec.cores) * spec.duration.0,
            },
            submitted: 0,
            spec,
            credit,
        }
    }

    fn seen(&self, now: WallTime) -> Seen<'_, C> {
        Seen {
            at: now.since(START),
            measures: &self.measures,
            credit: self.credit,
            prices: self.market.prices(),
        }
    }

    fn submit(&mut self, now: WallTime, mut arrival: Arrival) {
        if self.spec.loads[arrival.project].follows_price {
            arrival.site = self.market.cheapest(arrival.site);
        }
        let number = self.submitted;
        self.submitted += 1;
        let at = now.since(START);
        let watched = self.spec.watched.as_ref();
        let is_watched = watched.is_some_and(|(from, until, sites)| {
            *from <= at && at < *until && sites.contains(&arrival.site)
        });
        self.measures.projects[arrival.project].demand += arrival.run.0;
        let ask = Ask {
            job: job_key(arrival.site, number),
            project: arrival.project,
            site: arrival.site,
            charge: CoreMillis(arrival.asked.0),
            price: self.market.prices()[arrival.site],
            is_idle: self.would_idle(&arrival),
        };
        let known = Known {
            arrival,
            is_watched,
            is_within: true,
        };
        self.known.insert(number, known);
        self.credit.ask(now, ask);
    }

    fn would_idle(&self, arrival: &Arrival) -> bool {
        let Some(run_max) = self.spec.idle_max else {
            return false;
        };
        let cluster = &self.clusters[arrival.site];
        let machines = Machines {
            is_wanted: self.within_queued[arrival.site] > 0,
            free: cluster.cores() - cluster.cores_used(),
            cores: cluster.cores(),
            reserve: Share::from_percent(5).expect("at most 100"),
            run_max,
        };
        machines.would_idle(1, arrival.asked)
    }

    fn take_decisions(&mut self, now: WallTime) {
        for decided in self.credit.decided() {
            let number: u64 = decided.job.job.parse().expect("jobs have numbers");
            let known = self.known.get_mut(&number).expect("it was submitted");
            let Arrival { project, site, .. } = known.arrival;
            known.is_within = decided.verdict.is_within();
            let (arrival, is_watched) = (known.arrival, known.is_watched);
            let is_refused = decided.verdict == Verdict::Refused;
            let one = Asked {
                all: 1,
                at_once: u64::from(decided.verdict == Verdict::Granted && !decided.has_waited),
                later: u64::from(decided.verdict == Verdict::Granted && decided.has_waited),
                beyond: u64::from(matches!(
                    decided.verdict,
                    Verdict::OverQuota | Verdict::Idle
                )),
                refused: u64::from(is_refused),
                answered_ms: now.since(arrival.at).0,
            };
            let granted = self.granted[project];
            self.measures.projects[project].decided(&one, arrival.run, granted);
            if is_watched {
                self.measures.watched.add(&one);
            }
            if is_refused {
                self.known.remove(&number);
                continue;
            }
            let class = usize::from(!decided.verdict.is_within());
            self.within_queued[site] += u64::from(class == 0);
            let job = Job {
                id: JobId(number),
                account: self.accounts[class][project].clone(),
                cores: 1,
                run: arrival.run,
                requested: arrival.asked,
            };
            let submitted = self.clusters[site].submit_at(now, job);
            submitted.expect("a job of one core and one number fits");
        }
    }

    fn schedule(&mut self, now: WallTime) {
        let weights = &fairmesh_cluster::JobPriority::FAIRSHARE_ONLY;
        for (site, cluster) in self.clusters.iter_mut().enumerate() {
            if cluster.queued() == 0 || cluster.cores_used() == cluster.cores() {
                continue;
            }
            for Started { job, .. } in cluster.schedule_by(now, &self.order, weights) {
                let known = &self.known[&job.id.0];
                if known.is_within {
                    self.within_queued[site] -= 1;
                    let waited = &mut self.measures.projects[known.arrival.project].waited;
                    waited.0 += now.since(known.arrival.at).0;
                    waited.1 += 1;
                }
            }
        }
    }

    fn end_jobs(&mut self, now: WallTime) {
        for site in 0..self.clusters.len() {
            for Finished { job, .. } in self.clusters[site].finish(now) {
                let known = self.known.remove(&job.id.0).expect("it was submitted");
                self.measures.projects[known.arrival.project].delivered += job.run.0;
                let key = job_key(site, job.id.0);
                self.credit.ended(now, site, &key, job.core_ms());
            }
        }
    }

    fn finish(mut self, end: WallTime) -> FieldMeasures {
        self.end_jobs(end);
        for started in self.clusters.iter().flat_map(Cluster::running) {
            let known = &self.known[&started.job.id.0];
            self.measures.projects[known.arrival.project].delivered += started.elapsed(end).0;
        }
        for (project, measures) in self.measures.projects.iter_mut().enumerate() {
            measures.spent = self.credit.spent(end, project);
        }
        self.measures
    }
}

impl Asked {
    fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.at_once += other.at_once;
        self.later += other.later;
        self.beyond += other.beyond;
        self.refused += other.refused;
        self.answered_ms += other.answered_ms;
    }
}

fn job_key(site: usize, number: u64) -> JobKey {
    JobKey {
        cluster: format!("site-{site}"),
        job: number.to_string(),
        instance: 0,
    }
}
