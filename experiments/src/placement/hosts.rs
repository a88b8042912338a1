//! Submit hosts, each with a queue manager of its own, that send the jobs of one VO to the sites of a Grid.
//!
//! A host polls as `fairmesh queue run` does: it asks for what is in flight, takes back what is late, and plans.
//! Attempts travel to a site, wait until its batch system looks, run, and end or fail.
//!
//! Invariants: those of [`super`]; they are counted here, beside the manager and not by it.
//! Deliberately not here: kills (the queue manager's own tests have them), and data: 1.5 MB take no time that matters.

use std::collections::{BTreeMap, VecDeque};

use fairmesh_broker::queue::{Effect, Entry, Limits, Manager, Phase, Planning, QueuedJob, Status};
use fairmesh_broker::{Engine, Selector, SiteView, Sla};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{AccountPath, Factor, Millis, WallTime};

use super::measure::{Doubts, HostMeasures, RunMeasures};
use super::site::{self, Faults, Seen, Site, VO};
use simnet::queue::Queue;

/// CPUs that the VO may hold over all sites, and each of its groups.
pub const VO_CAP: u64 = 600;
/// A quarter of it.
pub const GROUP_CAP: u64 = 150;

/// Most submit hosts: one a group.
pub const HOSTS_MAX: usize = 4;

/// The document that gives each group its cap.
const GROUPS: &str = "[sla]\n\"/g0\" = { cpu = \"25%+\" }\n\"/g1\" = { cpu = \"25%+\" }\n\"/g2\" = { cpu = \"25%+\" }\n\"/g3\" = { cpu = \"25%+\" }\n";

/// When a run begins: above 0, so that views can be older.
const BEGIN: WallTime = WallTime(1_000_000_000);

/// Time between two polls of a host.
const POLL: Millis = Millis::from_secs(30);

/// Longest run. A queue that is not done by then is an error, which the run tells.
const LONGEST: Millis = Millis::from_secs(200 * 3_600);

const MINUTE: Millis = Millis::from_secs(60);

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// What jobs and attempts are drawn from.
    pub seed: u64,
    /// What the Grid is drawn from.
    pub grid: u64,
    /// How attempts fail.
    pub faults: Faults,
    /// How hosts choose.
    pub selector: Selector,
    /// Submit hosts, each with a group of its own.
    pub hosts: usize,
    /// Jobs of each.
    pub jobs: usize,
    /// Time between two views of a site.
    pub view: Millis,
    /// Whether sites themselves keep the VO's burst limit. Where they do not, starts beyond it are counted.
    pub sites_enforce: bool,
    /// Sites that lie.
    pub liars: usize,
    /// Whether a group has at each site only its part of what the VO may have there.
    pub by_site: bool,
}

impl Setup {
    /// A thousand jobs at once from one host, honest sites that keep their limits, and views of 5 minutes.
    pub fn new(seed: u64, faults: Faults, selector: Selector, hosts: usize) -> Self {
        Self {
            seed,
            grid: seed,
            faults,
            selector,
            hosts,
            jobs: 1_000,
            view: Millis::from_secs(300),
            sites_enforce: true,
            liars: 0,
            by_site: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Travelling,
    Waiting,
    Running,
    Ended,
    Failed,
    TakenBack,
}

/// One attempt of a job.
#[derive(Debug)]
struct Attempt {
    host: usize,
    job: String,
    number: u32,
    site: usize,
    at: At,
    arrived: WallTime,
    /// When the host heard that it runs.
    heard: Option<WallTime>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Poll(usize),
    Arrive(usize),
    Look(usize),
    End(usize, bool),
    View(usize),
    Wander,
}

struct Host {
    manager: Manager,
    stream: Stream,
    /// CPUs that sites have of it, by what was submitted and given back.
    held: u64,
    measures: HostMeasures,
}

struct Run {
    setup: Setup,
    now: WallTime,
    events: Queue<WallTime, Event>,
    sites: Vec<Site>,
    seen: Vec<Seen>,
    hosts: Vec<Host>,
    attempts: Vec<Attempt>,
    named: BTreeMap<(usize, String, u32), usize>,
    measures: RunMeasures,
    doubts: Doubts,
}

/// Runs it to its end.
///
/// # Panics
/// Where there are no hosts, or more than [`HOSTS_MAX`].
pub fn run(setup: Setup) -> RunMeasures {
    assert!((1..=HOSTS_MAX).contains(&setup.hosts), "one to four hosts");
    let mut run = Run::new(setup);
    while !run.hosts.iter().all(|host| host.manager.is_done()) {
        let Some((now, event)) = run.events.pop() else {
            break;
        };
        if now.since(BEGIN) > LONGEST {
            run.measures
                .broken("its queue is not done after 200 hours".to_owned());
            break;
        }
        run.now = now;
        run.step(event);
    }
    run.end()
}

impl Run {
    fn new(setup: Setup) -> Self {
        let grid = Seed(setup.grid);
        let drawn = site::draw(grid, setup.faults, setup.liars);
        let sites: Vec<Site> = drawn.into_iter().map(|of| Site::new(grid, of)).collect();
        let seen = sites
            .iter()
            .map(|site| Seen {
                view: site.view(),
                at: BEGIN,
            })
            .collect();
        let mut run = Self {
            now: BEGIN,
            events: Queue::default(),
            seen,
            hosts: (0..setup.hosts)
                .map(|index| Host::new(&setup, index))
                .collect(),
            attempts: Vec::new(),
            named: BTreeMap::new(),
            measures: RunMeasures::default(),
            doubts: Doubts::new(sites.iter().map(|site| site.drawn.lies).collect()),
            sites,
            setup,
        };
        let mut phases = Seed(setup.seed).stream("placement/phases");
        for site in 0..run.sites.len() {
            let cycle = run.sites[site].drawn.cycle;
            run.after(Millis(phases.below(cycle.0)), Event::Look(site));
            run.after(Millis(phases.below(setup.view.0)), Event::View(site));
        }
        for host in 0..setup.hosts {
            run.after(Millis(phases.below(POLL.0)), Event::Poll(host));
        }
        run.after(MINUTE, Event::Wander);
        run
    }

    fn after(&mut self, delay: Millis, event: Event) {
        self.events.push(self.now.after(delay), event);
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Poll(host) => {
                self.poll(host);
                self.after(POLL, event);
            }
            Event::Arrive(attempt) => self.arrive(attempt),
            Event::Look(site) => {
                self.look(site);
                self.after(self.sites[site].drawn.cycle, event);
            }
            Event::End(attempt, is_well) => self.ended(attempt, is_well),
            Event::View(site) => {
                self.seen[site] = Seen {
                    view: self.sites[site].view(),
                    at: self.now,
                };
                self.after(self.setup.view, event);
            }
            Event::Wander => {
                self.sites.iter_mut().for_each(Site::wander);
                self.after(MINUTE, event);
            }
        }
    }

    fn poll(&mut self, host: usize) {
        if host == 0 {
            self.sample();
        }
        let asks = self.hosts[host].manager.asks();
        self.carry_out(host, asks);
        self.doubt(host);
        let late = self.hosts[host].manager.tick(self.now);
        self.carry_out(host, late);
        let now = self.now;
        let sites: Vec<SiteView> = self
            .seen
            .iter()
            .map(|seen| SiteView {
                age: Some(now.since(seen.at)),
                ..seen.view.clone()
            })
            .collect();
        let planning = Planning {
            now,
            vo: VO,
            engine: Engine::Sound,
            silence: None,
            sites: &sites,
        };
        let Host {
            manager, stream, ..
        } = &mut self.hosts[host];
        let released = manager.plan(planning, &mut |bound| stream.below(bound));
        self.carry_out(host, released);
    }

    fn carry_out(&mut self, host: usize, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let (job, number, withdraw) = match effect {
                // Nothing is killed here.
                Effect::Write(_) => continue,
                Effect::Submit { job, attempt, site } => {
                    self.submit(host, job, attempt, &site);
                    continue;
                }
                Effect::Ask { job, attempt, .. } => (job, attempt, false),
                Effect::Withdraw { job, attempt, .. } => (job, attempt, true),
            };
            let attempt = self.named[&(host, job.clone(), number)];
            if withdraw {
                self.take_back(attempt);
            }
            let Some(status) = self.status(attempt) else {
                continue;
            };
            let manager = &mut self.hosts[host].manager;
            effects.extend(manager.told(self.now, &job, number, status));
        }
    }

    fn submit(&mut self, host: usize, job: QueuedJob, number: u32, site: &str) {
        let site = self
            .seen
            .iter()
            .position(|seen| seen.view.name == site)
            .expect("a site of the Grid");
        let attempt = self.attempts.len();
        self.named.insert((host, job.key.clone(), number), attempt);
        let mut stream = self.stream_of("travel", host, &job.key, number);
        let travels = Millis(stream.between(5_000, 30_000));
        self.attempts.push(Attempt {
            host,
            job: job.key,
            number,
            site,
            at: At::Travelling,
            arrived: self.now,
            heard: None,
        });
        self.hosts[host].held += 1;
        self.hosts[host]
            .measures
            .sent(number, self.sites[site].drawn.cpus, site);
        self.measures.sent_to_liars += u64::from(self.sites[site].drawn.lies);
        self.check();
        self.after(travels, Event::Arrive(attempt));
    }

    /// Each attempt has draws of its own, whoever sends it where.
    fn stream_of(&self, what: &str, host: usize, job: &str, number: u32) -> Stream {
        Seed(self.setup.seed).stream(&format!("placement/{what}/{host}/{job}/{number}"))
    }

    fn check(&mut self) {
        let all: u64 = self.hosts.iter().map(|host| host.held).sum();
        self.measures.vo_max = self.measures.vo_max.max(all);
        for (index, host) in self.hosts.iter().enumerate() {
            self.measures.group_max = self.measures.group_max.max(host.held);
            if host.held > GROUP_CAP {
                self.measures
                    .broken(format!("group {index} has {} CPUs at sites", host.held));
            }
        }
        if all > VO_CAP {
            self.measures
                .broken(format!("the VO has {all} CPUs at sites"));
        }
    }

    fn arrive(&mut self, attempt: usize) {
        let of = &mut self.attempts[attempt];
        if of.at == At::Travelling {
            (of.at, of.arrived) = (At::Waiting, self.now);
            self.sites[of.site].waiting.push_back(attempt);
        }
    }

    /// The batch system looks for jobs that can start.
    fn look(&mut self, site: usize) {
        while let Some(first) = self.sites[site].waiting.front().copied() {
            let is_within = self.sites[site].running < self.sites[site].drawn.limit;
            if self.sites[site].free() == 0 || (self.setup.sites_enforce && !is_within) {
                return;
            }
            self.measures.beyond += u64::from(!is_within);
            self.sites[site].waiting.pop_front();
            self.sites[site].running += 1;
            self.start(first);
        }
    }

    fn start(&mut self, attempt: usize) {
        let of = &self.attempts[attempt];
        let (host, site) = (of.host, of.site);
        let drawn = &self.sites[site].drawn;
        // As long on the reference machine whichever attempt it is; whether it fails is this attempt's.
        let mut work = self.stream_of("work", host, &of.job, 0);
        let work = u128::from(work.between(3_240_000, 3_960_000));
        let runs = work * u128::from(Factor::UNITS) / u128::from(drawn.spec.millionths());
        let runs = Millis(u64::try_from(runs).expect("hours"));
        let mut luck = self.stream_of("luck", host, &of.job, of.number);
        let fails = luck.below(1_000_000) < drawn.fails;
        let (after, is_well) = match (drawn.is_black_hole, fails) {
            (true, _) => (Millis(luck.between(1_000, 60_000)), false),
            (false, true) => (Millis(luck.between(1_000, 600_000)), false),
            (false, false) => (runs, true),
        };
        let waited = self.now.since(of.arrived);
        let measures = &mut self.hosts[host].measures;
        measures.started(waited);
        if is_well {
            measures.ran(runs);
        }
        self.attempts[attempt].at = At::Running;
        self.after(after, Event::End(attempt, is_well));
    }

    fn ended(&mut self, attempt: usize, is_well: bool) {
        let of = &mut self.attempts[attempt];
        of.at = if is_well { At::Ended } else { At::Failed };
        let (host, site) = (of.host, of.site);
        self.sites[site].running -= 1;
        self.hosts[host].held -= 1;
        self.hosts[host]
            .measures
            .ended(self.now.since(BEGIN), is_well);
    }

    fn take_back(&mut self, attempt: usize) {
        let of = &mut self.attempts[attempt];
        if matches!(of.at, At::Travelling | At::Waiting) {
            of.at = At::TakenBack;
            let (host, site) = (of.host, of.site);
            self.sites[site]
                .waiting
                .retain(|waiting| *waiting != attempt);
            self.hosts[host].held -= 1;
            self.hosts[host].measures.late += 1;
            self.doubts.late(site);
        }
    }

    /// What the batch system says; nothing while the submission is under way.
    fn status(&mut self, attempt: usize) -> Option<Status> {
        let of = &mut self.attempts[attempt];
        Some(match of.at {
            At::Travelling => return None,
            At::Waiting => Status::Waiting(None),
            At::Running => {
                of.heard.get_or_insert(self.now);
                Status::Running
            }
            At::Ended => Status::Ended,
            At::Failed => Status::Failed("it failed".to_owned()),
            At::TakenBack => Status::Nowhere,
        })
    }

    /// How unevenly sites are loaded, while jobs wait at the first host.
    fn sample(&mut self) {
        let mut entries = self.hosts[0].manager.entries();
        if entries.any(|entry| entry.phase == Phase::Queued) {
            self.measures.sample(self.sites.iter().map(Site::load));
        }
    }

    /// Holds what sites say against the jobs that this host knows to have run when it was said.
    fn doubt(&mut self, host: usize) {
        let mut running = vec![0; self.sites.len()];
        for entry in self.hosts[host]
            .manager
            .entries()
            .filter(|of| of.phase == Phase::Running)
        {
            let of = &self.attempts[self.named[&(host, entry.job.key.clone(), entry.attempt)]];
            if of.heard.is_some_and(|heard| heard <= self.seen[of.site].at) {
                running[of.site] += 1;
            }
        }
        let passed = self.now.since(BEGIN);
        for (site, known) in running.into_iter().enumerate() {
            self.doubts
                .compare(site, known, &self.seen[site].view, passed);
        }
    }

    fn end(mut self) -> RunMeasures {
        self.measures.doubts = self.doubts;
        for mut host in self.hosts {
            let given_up = |of: &&Entry| matches!(of.phase, Phase::GivenUp(_));
            host.measures.given_up = host.manager.entries().filter(given_up).count();
            host.measures.jobs = self.setup.jobs;
            self.measures.hosts.push(host.measures);
        }
        self.measures
    }
}

impl Host {
    fn new(setup: &Setup, index: usize) -> Self {
        let sla = Sla::parse(GROUPS, "the VO").expect("a good document");
        let limits = Limits {
            by_site: setup.by_site.then(|| sla.clone()),
            ..Limits::of(&sla, VO_CAP)
        };
        let mut manager = Manager::new(limits, setup.selector);
        for job in 0..setup.jobs {
            let job = QueuedJob {
                key: format!("{job:04}"),
                account: AccountPath::parse(&format!("/g{index}")).expect("a path"),
                cpus: 1,
                wall: Millis::from_secs(3_600),
                disk_mib: 0,
            };
            manager.add(job).expect("a good job");
        }
        Self {
            manager,
            stream: Seed(setup.seed).stream(&format!("placement/selector/{index}")),
            held: 0,
            measures: HostMeasures::default(),
        }
    }
}
