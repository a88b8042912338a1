//! The part of a demonstration that places jobs: a queue on a submit host beside the first site sends the jobs of one
//! VO to all of them, by what that site's node knows and nothing else.
//!
//! Pretended clusters run them beside jobs of the other VO, keep what their owners promise, and tell their own nodes
//! what runs and waits. One site fails every job for a while, and another one is cut off, so that what is known of
//! it grows old. Whatever fails or does not start goes elsewhere.
//!
//! Invariant: a job goes only where the node knows of room; what is held by the VO and by each of its groups is
//! added up over all clusters after every step, and compared with their caps.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use fairmesh_broker::queue::{Effect, Limits, Manager, Phase, Planning, QueuedJob, Status};
use fairmesh_broker::{Engine, Request, Selector, SiteView, Sla, Verdict, judge};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{AccountPath, Millis, Origin, RunningJob, UsageRecord, WallTime};
use fairmesh_node::driver::Clock as _;
use fairmesh_site::{AdvertCall, AdvertRules, Occupancy};
use serde::Serialize;

use super::grid::{Grid, ended, origin};

/// What every owner promises: the VO whose jobs are placed never has more than 60 of 100 CPUs at once.
const OWNERS: &str = "[sla]\n\"/VO-A\" = { cpu = \"burst 60%\" }\n\"/VO-B\" = {}\n";

/// What the VO gives its groups, of its cap.
const GROUPS: &str = "[sla]\n\"/P-A1\" = { cpu = \"50%+\" }\n\"/P-A2\" = { cpu = \"30%+\" }\n\"/P-A3\" = { cpu = \"20%+\" }\n";

/// CPUs that the VO may hold over all sites.
const VO_CAP: u64 = 240;

/// CPUs that the VO may hold at one site.
const SITE_CAP: u64 = 60;

/// Time between two looks at everything.
const EVERY: Duration = Duration::from_millis(100);

/// Jobs that wait in the queue, as long as new ones come.
const QUEUED: u64 = 60;

/// Percent of the time at which things happen: a site fails, and works again; another one is cut off, and is back;
/// no more jobs come.
const FAILS: [u32; 2] = [25, 45];
const CUT: [u32; 2] = [50, 75];
const LAST_JOB: u32 = 90;

/// Which site fails, and which is cut off.
const FAILING: usize = 2;
const CUT_OFF: usize = 4;

/// What became of the jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct BrokerReport {
    /// Attempts that were sent to a site.
    pub(super) placed: u64,
    /// Jobs that ended well.
    pub(super) ended: u64,
    /// Attempts that failed, or did not start in time, and were followed by another one.
    pub(super) replanned: u64,
    /// Jobs that failed too often.
    pub(super) given_up: u64,
    /// How often a site began to be left out, by why.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Looks at which the VO, a group of it or a site held more than its cap: 0.
    pub(super) passed_caps: u64,
    /// The most that the VO held at once, and its cap.
    pub(super) held_max: u64,
    /// CPUs that it may hold.
    pub(super) cap: u64,
    /// Attempts by site.
    pub(super) by_site: BTreeMap<String, u64>,
}

impl BrokerReport {
    /// In a few sentences.
    pub(super) fn words(&self) -> String {
        let refused = match self.refused.is_empty() {
            true => "never".to_owned(),
            false => listed(&self.refused),
        };
        format!(
            "{} attempts placed by what one node knew ({}); {} jobs ended, {} attempts were planned anew, {} jobs given up.\n\
             Sites were left out: {}. The VO held {} CPUs at most, of {}; caps were passed {} times.",
            self.placed,
            listed(&self.by_site),
            self.ended,
            self.replanned,
            self.given_up,
            refused,
            self.held_max,
            self.cap,
            self.passed_caps
        )
    }
}

fn listed(counts: &BTreeMap<impl Display, u64>) -> String {
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// What owners let their VOs know.
pub(super) fn advert_rules() -> anyhow::Result<AdvertRules> {
    Ok(AdvertRules {
        sla: Some(Sla::parse(OWNERS, "the owners")?),
        interval: Millis(500),
        ..AdvertRules::default()
    })
}

/// A job at a cluster.
struct Job {
    key: String,
    attempt: u32,
    account: AccountPath,
    /// Whether it is one of those that are placed.
    placed: bool,
    cpus: u64,
    wall: Millis,
    start: WallTime,
    fails: bool,
}

/// A pretended cluster: who waits runs first come, first served.
#[derive(Default)]
struct Cluster {
    cores: u64,
    waiting: Vec<Job>,
    running: Vec<Job>,
    jobs: u64,
}

impl Cluster {
    fn held(&self, placed: bool) -> u64 {
        let jobs = self.running.iter().filter(|job| job.placed == placed);
        jobs.map(|job| job.cpus).sum()
    }

    fn free(&self) -> u64 {
        self.cores - self.held(true) - self.held(false)
    }

    /// Starts what has room, within the cap of the VO.
    fn start(&mut self, now: WallTime, fails: bool) -> Vec<(String, u32)> {
        let mut started = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        for job in waiting.by_ref() {
            if job.cpus > self.free() || self.held(true) + job.cpus > SITE_CAP {
                self.waiting.push(job);
                break;
            }
            started.push((job.key.clone(), job.attempt));
            self.running.push(Job {
                start: now,
                fails,
                ..job
            });
        }
        self.waiting.extend(waiting);
        started
    }
}

/// The queue, the clusters, and what has become of all.
pub(super) struct Broker {
    manager: Manager,
    clusters: Vec<Cluster>,
    stream: Stream,
    jobs: u64,
    last: Option<Instant>,
    /// Why each site was left out at the last look.
    left_out: BTreeMap<String, Option<&'static str>>,
    is_cut: bool,
    is_failing: bool,
    limits: Limits,
    report: BrokerReport,
}

impl Broker {
    /// An empty queue over the clusters of all nodes.
    pub(super) fn new(grid: &Grid, cores: &[u32], seed: u64) -> anyhow::Result<Self> {
        let sites = CUT_OFF + 1;
        anyhow::ensure!(
            grid.nodes.len() >= sites,
            "--broker needs {sites} sites or more"
        );
        Self::over(cores, seed)
    }

    fn over(cores: &[u32], seed: u64) -> anyhow::Result<Self> {
        let limits = Limits::of(&Sla::parse(GROUPS, "the groups")?, VO_CAP);
        let cluster = |cores: &u32| Cluster {
            cores: (*cores).into(),
            ..Cluster::default()
        };
        Ok(Self {
            manager: Manager::new(limits.clone(), Selector::default()),
            clusters: cores.iter().map(cluster).collect(),
            stream: Seed(seed).stream("broker"),
            jobs: 0,
            last: None,
            left_out: BTreeMap::new(),
            is_cut: false,
            is_failing: false,
            limits,
            report: BrokerReport {
                cap: VO_CAP,
                ..BrokerReport::default()
            },
        })
    }

    /// Jobs that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.report.ended
    }

    /// Lets the clusters and the queue do what is due; `percent` of the time have passed. Says what has happened.
    pub(super) async fn step(
        &mut self,
        grid: &Grid,
        percent: u32,
    ) -> anyhow::Result<Option<String>> {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return Ok(None);
        }
        self.last = Some(Instant::now());
        let during = |[from, to]: [u32; 2]| (from..to).contains(&percent);
        let mut news = self.cut(grid, during(CUT)).await?;
        let fails = during(FAILS);
        if std::mem::replace(&mut self.is_failing, fails) != fails {
            let name = &grid.nodes[FAILING].name;
            news = Some(match fails {
                true => format!("{name} fails every job from now on."),
                false => format!("{name} works again."),
            });
        }
        for index in 0..self.clusters.len() {
            self.run(grid, index, index == FAILING && fails).await?;
        }
        if percent < LAST_JOB {
            self.submit(grid)?;
        }
        self.plan(grid).await?;
        self.check();
        Ok(news)
    }

    async fn cut(&mut self, grid: &Grid, cut: bool) -> anyhow::Result<Option<String>> {
        if std::mem::replace(&mut self.is_cut, cut) == cut {
            return Ok(None);
        }
        let off = grid.nodes[CUT_OFF].id;
        for node in &grid.nodes {
            let others = grid.nodes.iter().map(|other| other.id);
            let blocked = others.filter(|id| cut && (*id == off) != (node.id == off));
            node.handle.block(blocked.collect::<Vec<_>>()).await?;
        }
        let name = &grid.nodes[CUT_OFF].name;
        Ok(Some(match cut {
            true => format!("{name} is cut off: what is known of it grows old."),
            false => format!("{name} is back."),
        }))
    }

    /// One step of a cluster: ends, starts, and what its feed says to its node.
    async fn run(&mut self, grid: &Grid, index: usize, fails: bool) -> anyhow::Result<()> {
        let (node, now) = (&grid.nodes[index], grid.clock.now().wall);
        let cluster = &mut self.clusters[index];
        let is_over = |job: &Job| job.fails || now >= job.start.after(job.wall);
        let (over, running): (Vec<Job>, Vec<Job>) = std::mem::take(&mut cluster.running)
            .into_iter()
            .partition(is_over);
        cluster.running = running;
        let record = |job: &Job, end| record(grid, index, job, end);
        let records = over
            .iter()
            .map(|job| record(job, now.min(job.start.after(job.wall))));
        let records: Vec<UsageRecord> = records.collect();
        // The other VO's jobs come and go.
        let wanted = 25 + self.stream.below(30);
        let cluster = &mut self.clusters[index];
        while cluster.held(false) < wanted && cluster.free() >= 8 {
            cluster.jobs += 1;
            let job = Job {
                key: format!("own-{}", cluster.jobs),
                attempt: 1,
                account: AccountPath::parse("/P-B2")?,
                placed: false,
                cpus: 8,
                wall: Millis(grid.clock.paced(1_000 + self.stream.below(3_000))),
                start: now,
                fails: false,
            };
            cluster.running.push(job);
        }
        let started = cluster.start(now, fails);
        let list = cluster.running.iter().map(|job| RunningJob {
            record: record(job, now),
            expected_end: job.start.after(job.wall),
        });
        let list: Vec<RunningJob> = list.collect();
        let waiting = cluster
            .waiting
            .iter()
            .map(|job| (origin_of(grid, job), job.cpus));
        let occupancy = Occupancy {
            waiting: waiting.collect(),
            ..Occupancy::default()
        };
        if !records.is_empty() {
            node.handle.report(records).await?;
        }
        node.handle.running(list).await?;
        node.handle.advert(AdvertCall::Report(occupancy)).await?;
        for (key, attempt) in started {
            self.told(grid, &key, attempt, Status::Running)?;
        }
        for job in over.into_iter().filter(|job| job.placed) {
            let status = match job.fails {
                true => Status::Failed("the site failed it".to_owned()),
                false => Status::Ended,
            };
            self.told(grid, &job.key, job.attempt, status)?;
        }
        Ok(())
    }

    fn told(&mut self, grid: &Grid, key: &str, attempt: u32, status: Status) -> anyhow::Result<()> {
        let effects = self
            .manager
            .told(grid.clock.now().wall, key, attempt, status);
        self.carry_out(grid, effects)
    }

    /// New jobs of all groups, as long as few wait.
    fn submit(&mut self, grid: &Grid) -> anyhow::Result<()> {
        let queued = self.jobs_that(|phase| matches!(phase, Phase::Queued));
        for _ in queued..QUEUED {
            self.jobs += 1;
            let group = 1 + self.stream.below(3);
            let job = QueuedJob {
                key: format!("job-{}", self.jobs),
                account: AccountPath::parse(&format!("/P-A{group}"))?,
                cpus: 1 + self.stream.below(8),
                wall: Millis(grid.clock.paced(800 + self.stream.below(1_700))),
                disk_mib: 0,
            };
            let effects = self.manager.add(job)?;
            self.carry_out(grid, effects)?;
        }
        Ok(())
    }

    /// Places what can be placed, by what the first node knows.
    async fn plan(&mut self, grid: &Grid) -> anyhow::Result<()> {
        let vo = grid.vos[0];
        let known = grid.nodes[0].handle.ask(move |site, now| {
            let known = site.known_sites(now, vo).into_iter();
            let views = known.filter_map(|(_, known)| Some(known?.view));
            (now.wall, site.silence(), views.collect::<Vec<SiteView>>())
        });
        let (now, silence, sites) = known.await?;
        let name = vo.to_string();
        self.look(&sites, &name, silence);
        let late = self.manager.tick(now);
        self.carry_out(grid, late)?;
        let planning = Planning {
            now,
            vo: &name,
            engine: Engine::default(),
            silence: Some(silence),
            sites: &sites,
        };
        let stream = &mut self.stream;
        let effects = self
            .manager
            .plan(planning, &mut |bound| stream.below(bound));
        self.carry_out(grid, effects)
    }

    /// Counts sites that begin to be left out.
    fn look(&mut self, sites: &[SiteView], vo: &str, silence: Millis) {
        for site in sites {
            let verdict = judge(
                Engine::default(),
                site,
                &Request::of_cpus(vo, 1),
                Some(silence),
            );
            let why = match verdict {
                Verdict::Now { .. } => None,
                Verdict::Wait { .. } => Some("full"),
                Verdict::No(refusal) => Some(refusal.code()),
            };
            let before = self.left_out.insert(site.name.clone(), why).flatten();
            if let Some(why) = why.filter(|why| before != Some(*why)) {
                *self.report.refused.entry(why).or_default() += 1;
            }
        }
    }

    fn carry_out(&mut self, grid: &Grid, effects: Vec<Effect>) -> anyhow::Result<()> {
        for effect in effects {
            match effect {
                // Nothing is killed here: what is written is what is remembered.
                Effect::Write(_) | Effect::Ask { .. } => {}
                Effect::Submit { job, attempt, site } => {
                    self.report.placed += 1;
                    self.report.replanned += u64::from(attempt > 1);
                    *self.report.by_site.entry(site.clone()).or_default() += 1;
                    let index = grid.nodes.iter().position(|node| node.name == site);
                    let index = index.ok_or_else(|| anyhow::anyhow!("no site is called {site}"))?;
                    let key = job.key.clone();
                    self.clusters[index].waiting.push(Job {
                        key: job.key,
                        attempt,
                        account: job.account,
                        placed: true,
                        cpus: job.cpus,
                        wall: job.wall,
                        start: WallTime(0),
                        fails: false,
                    });
                    self.told(grid, &key, attempt, Status::Waiting(None))?;
                }
                Effect::Withdraw { job, attempt, .. } => {
                    let is_it = |of: &Job| of.placed && of.key == job && of.attempt == attempt;
                    for cluster in &mut self.clusters {
                        cluster.waiting.retain(|of| !is_it(of));
                    }
                    let mut running = self.clusters.iter().flat_map(|cluster| &cluster.running);
                    let status = match running.any(is_it) {
                        true => Status::Running,
                        false => Status::Nowhere,
                    };
                    self.told(grid, &job, attempt, status)?;
                }
            }
        }
        Ok(())
    }

    /// What is really held, against all caps.
    fn check(&mut self) {
        let mut held: BTreeMap<AccountPath, u64> = BTreeMap::new();
        let running = self.clusters.iter().flat_map(|cluster| &cluster.running);
        for job in running.filter(|job| job.placed) {
            for path in job.account.ancestors() {
                *held.entry(path).or_default() += job.cpus;
            }
        }
        let all = held.get(&AccountPath::root()).copied().unwrap_or(0);
        self.report.held_max = self.report.held_max.max(all);
        let over = |(path, held): (&AccountPath, &u64)| {
            self.limits.cpus.get(path).is_some_and(|cap| held > cap)
        };
        let is_passed = held.iter().any(over)
            || self
                .clusters
                .iter()
                .any(|cluster| cluster.held(true) > SITE_CAP);
        self.report.passed_caps += u64::from(is_passed);
        self.report.ended = self.jobs_that(|phase| matches!(phase, Phase::Ended));
        self.report.given_up = self.jobs_that(|phase| matches!(phase, Phase::GivenUp(_)));
    }

    fn jobs_that(&self, is_meant: fn(&Phase) -> bool) -> u64 {
        let jobs = self.manager.entries();
        jobs.filter(|job| is_meant(&job.phase)).count() as u64
    }

    /// Ends what still runs.
    pub(super) async fn finish(&mut self, grid: &Grid) -> anyhow::Result<()> {
        self.cut(grid, false).await?;
        let now = grid.clock.now().wall;
        for (index, node) in grid.nodes.iter().enumerate() {
            let running = std::mem::take(&mut self.clusters[index].running);
            let records = running.iter().map(|job| {
                let end = now
                    .min(job.start.after(job.wall))
                    .max(job.start.after(Millis(1)));
                record(grid, index, job, end)
            });
            node.handle.report(records.collect()).await?;
            node.handle.running(Vec::new()).await?;
        }
        Ok(())
    }

    /// What became of all.
    pub(super) fn outcome(self) -> BrokerReport {
        self.report
    }
}

fn origin_of(grid: &Grid, job: &Job) -> Origin {
    let vo = if job.placed { &grid.vo_name } else { "VO-B" };
    origin(&job.account, vo)
}

fn record(grid: &Grid, index: usize, job: &Job, end: WallTime) -> UsageRecord {
    let (site, origin) = (&grid.nodes[index].name, origin_of(grid, job));
    let cores = u32::try_from(job.cpus).unwrap_or(u32::MAX);
    let ran = [job.start, end.max(job.start)];
    let mut record = ended(site, job.key.clone(), origin, cores, ran);
    record.key.instance = job.attempt.into();
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of the first group that runs.
    fn running(cpus: u64) -> Job {
        Job {
            key: "job".to_owned(),
            attempt: 1,
            account: AccountPath::parse("/P-A1").expect("a path"),
            placed: true,
            cpus,
            wall: Millis(1),
            start: WallTime(0),
            fails: false,
        }
    }

    #[test]
    fn a_cap_that_is_passed_is_seen() {
        // Held at three sites; looks at which a cap was passed. The group has half of 240 CPUs, and a site gives 60.
        for (held, passed) in [([60, 60, 0], 0), ([61, 0, 0], 1), ([60, 60, 1], 1)] {
            let mut broker = Broker::over(&[100; 3], 1).expect("valid");
            for (cluster, cpus) in broker.clusters.iter_mut().zip(held) {
                cluster.running.push(running(cpus));
            }
            broker.check();
            assert_eq!(broker.report.passed_caps, passed, "{held:?}");
            assert_eq!(broker.report.held_max, held.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_cluster_keeps_what_its_owner_promises() {
        let mut cluster = Cluster {
            cores: 100,
            ..Cluster::default()
        };
        cluster
            .waiting
            .extend([running(40), running(30), running(1)]);
        assert_eq!(
            cluster.start(WallTime(5), false).len(),
            1,
            "40 and 30 are above 60, and nobody jumps the queue"
        );
        assert_eq!(
            (cluster.held(true), cluster.waiting.len(), cluster.free()),
            (40, 2, 60)
        );
    }
}
