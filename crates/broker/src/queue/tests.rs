//! The queue against pretended batch systems, with kills between any two effects.

use std::collections::BTreeSet;

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{AccountPath, Share};

use super::*;
use crate::disk::DiskRoom;
use crate::engine::Engine;
use crate::sla::{Sign, Sla, Standing};
use crate::view::SiteView;

fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a path")
}

fn job(key: &str, account: &str, cpus: u64) -> QueuedJob {
    QueuedJob {
        key: key.to_owned(),
        account: path(account),
        cpus,
        wall: Millis::from_secs(60),
        disk_mib: 0,
    }
}

/// A site of so many CPUs, all of which the VO may have.
fn site(name: &str, total: u64, held: u64) -> SiteView {
    let standing = Standing {
        epoch_share: Share::WHOLE,
        sign: Sign::AtMost,
        burst_used: held,
        burst_limit: total,
        ..Standing::default()
    };
    SiteView {
        name: name.to_owned(),
        total,
        vos: BTreeMap::from([("vo".into(), standing.into())]),
        age: Some(Millis(0)),
        ..SiteView::default()
    }
}

fn limits(cpus: &[(&str, u64)]) -> Limits {
    Limits {
        cpus: cpus
            .iter()
            .map(|(name, cpus)| (path(name), *cpus))
            .collect(),
        ..Limits::default()
    }
}

fn planned(manager: &mut Manager, now: u64, sites: &[SiteView]) -> Vec<Effect> {
    let planning = Planning {
        now: WallTime(now),
        vo: "vo",
        engine: Engine::Sound,
        silence: None,
        sites,
    };
    let mut stream = Seed(now).stream("queue");
    manager.plan(planning, &mut |bound| stream.below(bound))
}

/// What is submitted, in order: job, attempt and site.
fn submitted(effects: &[Effect]) -> Vec<String> {
    let name = |effect: &Effect| match effect {
        Effect::Submit { job, attempt, site } => {
            Some(format!("{} {site}", attempt_name(&job.key, *attempt)))
        }
        _ => None,
    };
    effects.iter().filter_map(name).collect()
}

fn queue(limits: Limits, jobs: &[QueuedJob]) -> Manager {
    let mut manager = Manager::new(limits, Selector::LeastUsed);
    for job in jobs {
        manager.add(job.clone()).expect("a good job");
    }
    manager
}

#[test]
pub(crate) fn groups_take_turns_within_the_limits_of_every_level() {
    let jobs: Vec<_> = (0..6)
        .map(|n| job(&format!("g{n}"), "/g", 1))
        .chain((0..3).map(|n| job(&format!("h{n}"), "/h/u", 2)))
        .collect();
    let mut manager = queue(limits(&[("/", 9), ("/g", 3), ("/h", 4)]), &jobs);
    let effects = planned(&mut manager, 1, &[site("s", 100, 0)]);
    // Who has less in flight comes next: g0 (1 of g), h0 (2 of h), g1, then h1 and g2.
    assert_eq!(
        submitted(&effects),
        ["g0.1 s", "h0.1 s", "g1.1 s", "g2.1 s", "h1.1 s"]
    );
    assert!(planned(&mut manager, 2, &[site("s", 100, 0)]).is_empty());
    manager.told(WallTime(3), "h0", 1, Status::Ended);
    assert_eq!(
        submitted(&planned(&mut manager, 4, &[site("s", 100, 0)])),
        ["h2.1 s"]
    );
    let mut bound = queue(limits(&[("/", 4), ("/g", 3), ("/h", 4)]), &jobs);
    let effects = planned(&mut bound, 1, &[site("s", 100, 0)]);
    assert_eq!(submitted(&effects), ["g0.1 s", "h0.1 s", "g1.1 s"]);
}

/// Files that are staged stay where they are: jobs wait, and what was kept is known behind a kill.
#[test]
pub(crate) fn disk_is_kept_for_a_job_from_its_placement_to_its_end() {
    let with_files = |key: &str| QueuedJob {
        disk_mib: 40,
        ..job(key, "/g", 1)
    };
    let room = |name: &str, share_mib, staged_mib| {
        let mut site = site(name, 100, 0);
        site.vos.get_mut("vo").expect("its own").disk = DiskRoom {
            share_mib: Some(share_mib),
            staged_mib,
            ..DiskRoom::default()
        };
        site
    };
    let sites = [room("s", 100, 20), room("t", 39, 0)];
    let jobs = ["a", "b", "c"].map(with_files);
    let mut manager = queue(limits(&[]), &jobs);
    let effects = planned(&mut manager, 1, &sites);
    assert_eq!(submitted(&effects), ["a.1 s", "b.1 s"]);
    let written = effects.into_iter().filter_map(|effect| match effect {
        Effect::Write(record) => Some(record),
        _ => None,
    });
    let added = jobs.into_iter().map(Record::Added);
    let records: Vec<Record> = added.chain(written).collect();
    let (mut restored, _) = Manager::restore(limits(&[]), Selector::LeastUsed, records);
    assert!(planned(&mut restored, 2, &sites).is_empty());
    let failed = Status::Failed("it broke".to_owned());
    restored.told(WallTime(3), "b", 1, failed);
    // Jobs go in the order in which they came, and one does not go back to where it failed.
    assert_eq!(submitted(&planned(&mut restored, 4, &sites)), ["c.1 s"]);
    restored.told(WallTime(5), "a", 1, Status::Ended);
    let later = 5 + SHUNNED.0;
    assert_eq!(submitted(&planned(&mut restored, later, &sites)), ["b.2 s"]);
}

/// Two queues, each of a group with a quarter, that see nothing of each other: a site's limit holds all the same.
#[test]
pub(crate) fn a_group_has_its_part_of_each_site_where_use_is_proportional() {
    let sla = Sla::parse("[sla]\n\"/g\" = { cpu = \"25%+\" }\n", "the VO").expect("a document");
    let bounded = Limits {
        by_site: Some(sla.clone()),
        ..Limits::of(&sla, 30)
    };
    let jobs: Vec<_> = (0..9).map(|n| job(&n.to_string(), "/g/u", 1)).collect();
    let sites = [site("a", 20, 0), site("b", 10, 0)];
    let sent = |limits: Limits| submitted(&planned(&mut queue(limits, &jobs), 1, &sites));
    // 7 of 30: 5 of 20, and 2 of 10; by load alone there would be more at `a` than 5 once `b` is small.
    let by_site = sent(bounded.clone());
    let at = |name: &str| by_site.iter().filter(|of| of.ends_with(name)).count();
    assert_eq!((at(" a"), at(" b")), (5, 2), "{by_site:?}");
    let only_a = |limits| submitted(&planned(&mut queue(limits, &jobs), 1, &sites[..1])).len();
    assert_eq!(only_a(bounded.clone()), 5);
    assert_eq!(only_a(Limits::of(&sla, 30)), 7);
    // What is there counts in the next round.
    let mut manager = queue(bounded, &jobs);
    assert_eq!(planned(&mut manager, 1, &sites[..1]).len(), 10);
    assert!(planned(&mut manager, 2, &sites[..1]).is_empty());
    manager.told(WallTime(3), "0", 1, Status::Ended);
    assert_eq!(submitted(&planned(&mut manager, 4, &sites[..1])).len(), 1);
}

#[test]
pub(crate) fn no_more_is_released_than_is_free() {
    let jobs: Vec<_> = (0..9).map(|n| job(&n.to_string(), "/g", 2)).collect();
    let mut manager = queue(Limits::default(), &jobs);
    let sites = [site("a", 10, 5), site("b", 4, 0)];
    let effects = planned(&mut manager, 1, &sites);
    assert_eq!(submitted(&effects).len(), 4);
    // The same view, by its age from before: what was sent since is not in it.
    let old = sites.map(|site| SiteView {
        age: Some(Millis(5)),
        ..site
    });
    assert!(planned(&mut manager, 4, &old).is_empty());
    let unknown = old.map(|site| SiteView { age: None, ..site });
    assert!(planned(&mut manager, 4_000, &unknown).is_empty());
}

/// A view that was made while a job travelled does not have it, however long ago it was sent.
#[test]
pub(crate) fn what_was_on_its_way_when_a_view_was_made_is_counted() {
    let jobs: Vec<_> = (0..3).map(|n| job(&n.to_string(), "/g", 2)).collect();
    let mut manager = queue(Limits::default(), &jobs);
    let empty = |age| SiteView {
        age: Some(Millis(age)),
        ..site("a", 4, 0)
    };
    assert_eq!(submitted(&planned(&mut manager, 1, &[empty(0)])).len(), 2);
    manager.told(WallTime(5), "0", 1, Status::Waiting(None));
    manager.told(WallTime(6), "1", 1, Status::Running);
    // Made at 3: between the sending and the arrival.
    assert!(planned(&mut manager, 9, &[empty(6)]).is_empty());
    // Made at 8: what it says is free is free, but for what this queue has there.
    let honest = SiteView {
        age: Some(Millis(1)),
        waiting: 2,
        ..site("a", 8, 2)
    };
    assert_eq!(submitted(&planned(&mut manager, 9, &[honest])), ["2.1 a"]);
}

/// A site that says that nothing runs or waits there, where jobs of the queue do both.
#[test]
pub(crate) fn a_site_that_jobs_contradict_gets_one_at_a_time() {
    let jobs: Vec<_> = (0..9).map(|n| job(&n.to_string(), "/g", 1)).collect();
    let mut manager = queue(Limits::default(), &jobs);
    let lies = |age| SiteView {
        age: Some(Millis(age)),
        ..site("a", 4, 0)
    };
    assert_eq!(submitted(&planned(&mut manager, 1, &[lies(0)])).len(), 4);
    manager.told(WallTime(2), "0", 1, Status::Running);
    for job in ["1", "2", "3"] {
        manager.told(WallTime(3), job, 1, Status::Waiting(None));
    }
    let found = planned(&mut manager, 9, &[lies(1)]);
    let expected = Record::Doubted {
        site: "a".to_owned(),
        at: WallTime(9),
        known: 4,
        said: 0,
    };
    assert_eq!(found, [Effect::Write(expected)]);
    for job in ["1", "2"] {
        manager.told(WallTime(10), job, 1, Status::Running);
    }
    assert!(
        planned(&mut manager, 11, &[lies(1)]).is_empty(),
        "one waits"
    );
    manager.told(WallTime(12), "3", 1, Status::Running);
    assert_eq!(submitted(&planned(&mut manager, 13, &[lies(0)])), ["4.1 a"]);
    // It is not believed again as soon as the proof has ended.
    for job in ["0", "1", "2", "3"] {
        manager.told(WallTime(14), job, 1, Status::Ended);
    }
    assert!(planned(&mut manager, 15, &[lies(0)]).is_empty());
    let later = 15 + DOUBTED.0;
    assert_eq!(
        submitted(&planned(&mut manager, later, &[lies(0)])).len(),
        3
    );
}

#[test]
pub(crate) fn a_site_that_failed_a_job_is_not_tried_for_it_for_a_while() {
    let mut manager = queue(Limits::default(), &[job("j", "/g", 1)]);
    let sites = [site("a", 10, 0), site("b", 10, 5)];
    let mut now = 1;
    let mut tried = Vec::new();
    for attempt in 1..=5 {
        let effects = planned(&mut manager, now, &sites);
        tried.extend(submitted(&effects));
        now += 1;
        manager.told(WallTime(now), "j", attempt, Status::Failed("no".to_owned()));
        assert!(attempt > 1 || planned(&mut manager.clone(), now, &sites[..1]).is_empty());
        now += if attempt % 2 == 0 { SHUNNED.0 } else { 0 };
    }
    assert_eq!(tried, ["j.1 a", "j.2 b", "j.3 a", "j.4 b", "j.5 a"]);
    let entry = manager.entries().next().expect("a job");
    assert_eq!(entry.phase, Phase::GivenUp("no".to_owned()));
    assert!(manager.is_done() && planned(&mut manager, now * 2, &sites).is_empty());
}

#[test]
pub(crate) fn what_is_late_is_in_flight_until_it_is_surely_nowhere() {
    let mut manager = queue(limits(&[("/", 1)]), &[job("i", "/g", 1), job("j", "/g", 1)]);
    // It says that a job waits there, as one does.
    let waits = SiteView {
        waiting: 1,
        ..site("a", 10, 0)
    };
    let sites = [waits];
    planned(&mut manager, 0, &sites);
    manager.told(
        WallTime(1),
        "i",
        1,
        Status::Waiting(Some("4711".to_owned())),
    );
    assert!(manager.tick(WallTime(START_WITHIN.0 - 1)).is_empty());
    let effects = manager.tick(WallTime(START_WITHIN.0));
    assert!(matches!(
        &effects[..],
        [
            Effect::Write(Record::Withdrawing { .. }),
            Effect::Withdraw { .. }
        ]
    ));
    let now = START_WITHIN.0 + 1;
    assert!(
        planned(&mut manager, now, &sites).is_empty(),
        "it may run yet"
    );
    assert!(
        manager
            .told(WallTime(now), "i", 1, Status::Running)
            .is_empty()
    );
    // It did run: then it has ended, and is not run again.
    let ended = manager.clone().told(WallTime(now), "i", 1, Status::Ended);
    assert!(matches!(&ended[..], [Effect::Write(Record::Ended { .. })]));
    manager.told(WallTime(now), "i", 1, Status::Nowhere);
    assert_eq!(
        submitted(&planned(&mut manager, now + SHUNNED.0, &sites)),
        ["i.2 a"]
    );
}

#[test]
fn jobs_are_taken_once_and_hopeless_ones_refused() {
    let mut manager = queue(limits(&[("/", 10), ("/g", 5)]), &[job("j", "/g", 1)]);
    assert_eq!(manager.add(job("j", "/g", 1)), Ok(Vec::new()));
    assert_eq!(
        manager.add(job("j", "/g", 2)),
        Err(AddError::OtherJob("j".to_owned()))
    );
    assert_eq!(manager.add(job("", "/g", 2)), Err(AddError::Nothing));
    assert_eq!(manager.add(job("k", "/g", 0)), Err(AddError::Nothing));
    let error = manager
        .add(job("k", "/g/u", 6))
        .expect_err("above the limit");
    assert_eq!(
        error.to_string(),
        "job `k` asks for 6 CPUs, and `/g` may never hold more than 5"
    );
}

#[test]
pub(crate) fn late_words_about_earlier_attempts_are_ignored() {
    let mut manager = queue(Limits::default(), &[job("j", "/g", 1)]);
    let sites = [site("a", 10, 0), site("b", 10, 5)];
    planned(&mut manager, 1, &sites);
    manager.told(WallTime(2), "j", 1, Status::Failed("no".to_owned()));
    planned(&mut manager, 3, &sites);
    assert!(manager.told(WallTime(4), "j", 1, Status::Ended).is_empty());
    assert_eq!(
        manager.entries().next().expect("a job").phase,
        Phase::Assigned
    );
}

/// Two batch systems that jobs are submitted to by name, and a manager that is killed.
struct World {
    stream: Stream,
    manager: Manager,
    journal: Vec<Record>,
    /// What each site's batch system has, by attempt name.
    batch: BTreeMap<&'static str, BTreeMap<String, Batched>>,
    now: u64,
    started: BTreeMap<String, u32>,
    kills: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batched {
    Waiting,
    Running,
    Ended,
    Failed,
}

const NAMES: [&str; 2] = ["a", "b"];
const CPUS: u64 = 4;

fn world_limits() -> Limits {
    limits(&[("/", 6), ("/g", 3), ("/h", 4)])
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            stream: Seed(seed).stream("queue"),
            manager: Manager::new(world_limits(), Selector::LeastUsed),
            journal: Vec::new(),
            batch: NAMES.map(|name| (name, BTreeMap::new())).into(),
            now: 1,
            started: BTreeMap::new(),
            kills: 0,
        }
    }

    fn chance(&mut self, of: u64) -> bool {
        self.stream.below(of) == 0
    }

    /// Carries effects out one by one; the manager may be killed between any two, and after each half of one.
    fn carry_out(&mut self, effects: Vec<Effect>, kills: bool) {
        let life = self.kills;
        for effect in effects {
            // What is left of a manager that was killed is carried out by nobody.
            if self.kills != life {
                return;
            }
            if kills && self.chance(12) {
                return self.kill();
            }
            match effect {
                Effect::Write(record) => self.journal.push(record),
                Effect::Submit { job, attempt, site } => {
                    let name = attempt_name(&job.key, attempt);
                    let (refused, killed) = (self.chance(9), kills && self.chance(6));
                    if !refused {
                        let batch = self.site(&site);
                        let before = batch.insert(name.clone(), Batched::Waiting);
                        assert_eq!(before, None, "{name} was submitted twice");
                    }
                    // The manager may not live to see what came of it.
                    if killed {
                        return self.kill();
                    }
                    let status = match refused {
                        true => Status::Failed("refused".to_owned()),
                        false => Status::Waiting(None),
                    };
                    self.tell(&job.key, attempt, status, kills);
                }
                Effect::Ask { job, attempt, site } => {
                    let status = self.status(&site, &attempt_name(&job, attempt));
                    self.tell(&job, attempt, status, kills);
                }
                Effect::Withdraw { job, attempt, site } => {
                    let name = attempt_name(&job, attempt);
                    let batch = self.site(&site);
                    if batch.get(&name) == Some(&Batched::Waiting) {
                        batch.remove(&name);
                    }
                    let status = self.status(&site, &name);
                    self.tell(&job, attempt, status, kills);
                }
            }
        }
    }

    fn tell(&mut self, job: &str, attempt: u32, status: Status, kills: bool) {
        let effects = self.manager.told(WallTime(self.now), job, attempt, status);
        self.carry_out(effects, kills);
    }

    fn site(&mut self, site: &str) -> &mut BTreeMap<String, Batched> {
        self.batch.get_mut(site).expect("a site")
    }

    fn status(&mut self, site: &str, name: &str) -> Status {
        match self.site(site).get(name) {
            None => Status::Nowhere,
            Some(Batched::Waiting) => Status::Waiting(None),
            Some(Batched::Running) => Status::Running,
            Some(Batched::Ended) => Status::Ended,
            Some(Batched::Failed) => Status::Failed("it failed".to_owned()),
        }
    }

    /// A manager that has nothing but what was written.
    fn kill(&mut self) {
        self.kills += 1;
        let (manager, effects) =
            Manager::restore(world_limits(), Selector::LeastUsed, self.journal.clone());
        self.manager = manager;
        self.carry_out(effects, false);
    }

    /// Batch systems go on by themselves.
    fn run_batch(&mut self) {
        for site in NAMES {
            let names: Vec<String> = self.batch[site].keys().cloned().collect();
            for name in names {
                let (drawn, state) = (self.stream.below(10), self.batch[site][&name]);
                let next = match (state, drawn) {
                    (Batched::Waiting, 0..4) => Batched::Running,
                    (Batched::Running, 0..3) => Batched::Ended,
                    (Batched::Running, 3) => Batched::Failed,
                    (state, _) => state,
                };
                if (state, next) == (Batched::Running, Batched::Ended) {
                    let job = name.rsplit_once('.').expect("a name").0.to_owned();
                    *self.started.entry(job).or_default() += 1;
                }
                self.site(site).insert(name, next);
            }
        }
    }

    fn views(&self) -> Vec<SiteView> {
        let held = |site: &&str| {
            let alive = |state: &&Batched| matches!(state, Batched::Waiting | Batched::Running);
            self.batch[*site].values().filter(alive).count() as u64
        };
        NAMES
            .iter()
            .map(|name| site(name, CPUS, held(name).min(CPUS)))
            .collect()
    }

    /// What is in flight by the manager's own word keeps every limit.
    fn check_limits(&self) {
        let mut held = limits::Held::default();
        for entry in self.manager.entries().filter(|entry| entry.is_in_flight()) {
            held.add(&entry.job.account, entry.job.cpus);
        }
        for (path, limit) in &world_limits().cpus {
            assert!(
                held.of(path) <= *limit,
                "{path}: {} of {limit}",
                held.of(path)
            );
        }
    }
}

/// Twelve jobs of two groups at two sites that refuse, fail and are slow: none is lost, and none ends twice,
/// wherever the manager is killed.
#[test]
pub(crate) fn a_kill_at_any_line_neither_loses_nor_doubles_a_job() {
    let mut kills = 0;
    for seed in 0..100 {
        let mut world = World::new(seed);
        let jobs: Vec<_> = (0..12)
            .map(|n| job(&format!("j{n}"), ["/g", "/h"][n % 2], 1))
            .collect();
        for step in 0..4_000 {
            // Whoever hands jobs in does so again until they are there.
            for job in &jobs {
                let effects = world.manager.add(job.clone()).expect("a good job");
                world.carry_out(effects, step < 60);
            }
            let views = world.views();
            let effects = planned(&mut world.manager, world.now, &views);
            world.carry_out(effects, step < 60);
            world.check_limits();
            world.run_batch();
            world.now += 400_000;
            let polled = [
                world.manager.asks(),
                world.manager.tick(WallTime(world.now)),
            ]
            .concat();
            world.carry_out(polled, step < 60);
            if world.manager.is_done() && step >= 60 {
                break;
            }
        }
        kills += world.kills;
        assert!(world.manager.is_done(), "seed {seed}: {:?}", world.manager);
        for entry in world.manager.entries() {
            let times = world.started.get(&entry.job.key).copied().unwrap_or(0);
            let expected = u32::from(entry.phase == Phase::Ended);
            assert_eq!(times, expected, "seed {seed}: {entry:?}");
        }
        let keys: BTreeSet<&str> = world
            .manager
            .entries()
            .map(|entry| entry.job.key.as_str())
            .collect();
        assert_eq!(keys.len(), jobs.len(), "seed {seed}");
    }
    assert!(kills > 500, "{kills} kills");
}

/// The records that were written make the same queue again.
#[test]
pub(crate) fn records_make_the_same_queue() {
    let mut world = World::new(7);
    for n in 0..12 {
        let effects = world
            .manager
            .add(job(&format!("j{n}"), "/g", 1))
            .expect("a good job");
        world.carry_out(effects, false);
    }
    for _ in 0..30 {
        let views = world.views();
        let effects = planned(&mut world.manager, world.now, &views);
        world.carry_out(effects, false);
        world.run_batch();
        world.now += 400_000;
        let polled = [
            world.manager.asks(),
            world.manager.tick(WallTime(world.now)),
        ]
        .concat();
        world.carry_out(polled, false);
        let (again, _) =
            Manager::restore(world_limits(), Selector::LeastUsed, world.journal.clone());
        assert_eq!(again, world.manager);
    }
}
