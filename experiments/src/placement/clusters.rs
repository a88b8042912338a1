//! Four clusters that pass jobs to each other by partial utility, with the broker's own forwarding.
//!
//! A cluster knows its own resources as they are, and others as they last told: at a timer, when its load passes a
//! limit, and after some assignments. Jobs go to a resource that is known to be free; where none is, they queue at the
//! one that is worth most.
//!
//! Invariant: each job ends, or fails with a reason, once; cores never run two jobs.
//! Deliberately not here: lost messages (the forwarding's own tests have them).
//! Source: Vasques (draft), algorithms 1 and 2.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_broker::forward::{
    Answer, Effect, Event, Failure, Forwarder, Place, RoutedJob, Sending, TTL,
};
use fairmesh_broker::utility::Matching;
use fairmesh_model::{Factor, Millis, MonoTime};

use super::site::VO;
use super::wishes::Drawn;
use simnet::queue::Queue;

/// What is known of where jobs could go, and how long it takes to say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How classes are valued.
    pub matching: Matching,
    /// Whether jobs may go to other clusters.
    pub forwards: bool,
    /// Hops of a job.
    pub ttl: u8,
    /// Time between two tellings (T).
    pub timer: Millis,
    /// Load from which others are told at once, percent (l_max).
    pub load_max: u64,
    /// Assignments after which others are told at once (n_max).
    pub assigned_max: u64,
    /// Of a message.
    pub delay: Millis,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It ran: where, when it was assigned, and when it ended.
    Ran {
        /// Cluster.
        cluster: usize,
        /// Resource of it.
        resource: usize,
        /// Since the begin.
        assigned: Millis,
        /// Since the begin.
        ended: Millis,
    },
    /// It runs nowhere.
    Failed(Failure),
}

/// What became of all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fates {
    /// By job.
    pub jobs: Vec<Option<Fate>>,
    /// Jobs that were sent on, each time.
    pub forwards: u64,
    /// Tellings, to each other cluster.
    pub told: u64,
    /// Core-milliseconds that each resource ran jobs, by cluster and resource.
    pub busy: Vec<Vec<u64>>,
}

impl Rules {
    /// The specification's defaults.
    pub fn new(matching: Matching, forwards: bool) -> Self {
        Self {
            matching,
            forwards,
            ttl: TTL,
            timer: Millis::from_secs(30),
            load_max: 80,
            assigned_max: 5,
            delay: Millis(100),
        }
    }
}

enum Happening {
    Submit(usize),
    Deliver(usize, Sending),
    Taken(Answer),
    Declined(Answer, String),
    Told(usize, usize, Vec<u64>),
    Timer(usize),
    End(usize, usize, usize),
}

struct Cluster {
    forwarder: Forwarder,
    /// Jobs that run, by resource.
    running: Vec<u64>,
    queues: Vec<VecDeque<usize>>,
    /// Free cores of each cluster's resources, as they were last told.
    known: Vec<Vec<u64>>,
    assigned: u64,
    is_loaded: bool,
}

struct Run<'a> {
    drawn: &'a Drawn,
    rules: Rules,
    now: MonoTime,
    events: Queue<MonoTime, Happening>,
    clusters: Vec<Cluster>,
    fates: Fates,
    open: usize,
}

/// Runs all jobs to their ends.
pub fn run(drawn: &Drawn, rules: Rules) -> Fates {
    let mut run = Run::new(drawn, rules);
    while run.open > 0 {
        let Some((now, event)) = run.events.pop() else {
            break;
        };
        run.now = now;
        run.step(event);
    }
    run.fates
}

impl<'a> Run<'a> {
    fn new(drawn: &'a Drawn, rules: Rules) -> Self {
        let free: Vec<Vec<u64>> = drawn
            .clusters
            .iter()
            .map(|of| of.iter().map(|of| of.cpus).collect())
            .collect();
        let cluster = |index: usize| Cluster {
            forwarder: Forwarder::start(
                &name(index),
                BTreeSet::from([VO.to_owned()]),
                BTreeMap::new(),
            )
            .0,
            running: vec![0; drawn.clusters[index].len()],
            queues: vec![VecDeque::new(); drawn.clusters[index].len()],
            known: free.clone(),
            assigned: 0,
            is_loaded: false,
        };
        let mut run = Self {
            drawn,
            rules,
            now: MonoTime(0),
            events: Queue::default(),
            clusters: (0..drawn.clusters.len()).map(cluster).collect(),
            fates: Fates {
                jobs: vec![None; drawn.jobs.len()],
                busy: drawn.clusters.iter().map(|of| vec![0; of.len()]).collect(),
                ..Fates::default()
            },
            open: drawn.jobs.len(),
        };
        for (index, job) in drawn.jobs.iter().enumerate() {
            run.after(job.at, Happening::Submit(index));
        }
        for cluster in 0..drawn.clusters.len() {
            run.after(rules.timer, Happening::Timer(cluster));
        }
        run
    }

    fn after(&mut self, delay: Millis, event: Happening) {
        self.events.push(self.now.after(delay), event);
    }

    fn step(&mut self, event: Happening) {
        match event {
            Happening::Submit(job) => {
                let cluster = self.drawn.jobs[job].cluster;
                let places = self.places(cluster, job, false);
                let routed = RoutedJob {
                    job: job.to_string(),
                    vo: VO.to_owned(),
                    ttl: self.rules.ttl,
                    tried: Vec::new(),
                };
                self.handle(
                    cluster,
                    Event::FromUser {
                        job: routed,
                        places,
                    },
                );
            }
            Happening::Deliver(from, sending) => self.deliver(from, sending),
            Happening::Taken(answer) => {
                // An answer is told to whoever sent the job on, who alone still knows it as sent.
                (0..self.clusters.len())
                    .for_each(|to| self.handle(to, Event::Taken(answer.clone())));
            }
            Happening::Declined(answer, why) => {
                let job = answer.job.parse().expect("a number");
                for to in 0..self.clusters.len() {
                    let places = self.places(to, job, false);
                    self.handle(to, Event::Declined(answer.clone(), why.clone(), places));
                }
            }
            Happening::Told(to, from, free) => self.clusters[to].known[from] = free,
            Happening::Timer(cluster) => {
                self.tell(cluster);
                self.after(self.rules.timer, event);
            }
            Happening::End(cluster, resource, job) => self.end(cluster, resource, job),
        }
    }

    fn deliver(&mut self, from: usize, sending: Sending) {
        let to = index(&sending.to);
        let job = sending.job.job.parse().expect("a number");
        let wanted = index(&sending.class);
        let wanted_free = (self.free(to, wanted) > 0).then_some(sending.class);
        let places = self.places(to, job, false);
        self.handle(
            to,
            Event::FromSite {
                from: name(from),
                job: sending.job,
                wanted_free,
                places,
                refuse: None,
            },
        );
    }

    fn handle(&mut self, cluster: usize, event: Event) {
        let effects = self.clusters[cluster].forwarder.handle(self.now, event);
        self.carry_out(cluster, effects, false);
    }

    fn carry_out(&mut self, cluster: usize, effects: Vec<Effect>, is_outrun: bool) {
        for effect in effects {
            match effect {
                Effect::Keep(..) => {}
                Effect::Assign { job, class } => self.assign(cluster, job, &class, is_outrun),
                Effect::Send(sending) => {
                    self.fates.forwards += 1;
                    self.after(self.rules.delay, Happening::Deliver(cluster, sending));
                }
                Effect::Acknowledge { answer, .. } => {
                    self.after(self.rules.delay, Happening::Taken(answer))
                }
                Effect::Decline { answer, why, .. } => {
                    self.after(self.rules.delay, Happening::Declined(answer, why))
                }
                Effect::Fail(job, why) => {
                    self.handle(cluster, Event::Settled(job.job.clone()));
                    self.settle(job.job.parse().expect("a number"), Fate::Failed(why));
                }
            }
        }
    }

    /// Starts a job, or decides about it anew where its class is taken: once, and then it queues there.
    fn assign(&mut self, cluster: usize, key: String, class: &str, is_outrun: bool) {
        let job: usize = key.parse().expect("a number");
        let resource = index(class);
        let is_free = self.free(cluster, resource) > 0;
        if !is_free && !is_outrun {
            let places = self.places(cluster, job, true);
            let event = Event::ClassTaken(key, places);
            let effects = self.clusters[cluster].forwarder.handle(self.now, event);
            return self.carry_out(cluster, effects, true);
        }
        self.handle(cluster, Event::Settled(key));
        let (assigned, ended) = (Millis(self.now.0), Millis(0));
        self.fates.jobs[job] = Some(Fate::Ran {
            cluster,
            resource,
            assigned,
            ended,
        });
        match is_free {
            true => self.start(cluster, resource, job),
            false => self.clusters[cluster].queues[resource].push_back(job),
        }
        self.clusters[cluster].assigned += 1;
        self.triggers(cluster);
    }

    fn start(&mut self, cluster: usize, resource: usize, job: usize) {
        self.clusters[cluster].running[resource] += 1;
        let spec = self.drawn.clusters[cluster][resource].spec.millionths();
        let runs = self.drawn.jobs[job].wishes.work.0 * u64::from(Factor::UNITS) / u64::from(spec);
        self.fates.busy[cluster][resource] += runs;
        self.after(Millis(runs), Happening::End(cluster, resource, job));
    }

    fn end(&mut self, cluster: usize, resource: usize, job: usize) {
        self.clusters[cluster].running[resource] -= 1;
        if let Some(Fate::Ran {
            cluster,
            resource,
            assigned,
            ..
        }) = self.fates.jobs[job]
        {
            let ended = Millis(self.now.0);
            self.settle(
                job,
                Fate::Ran {
                    cluster,
                    resource,
                    assigned,
                    ended,
                },
            );
        }
        if let Some(next) = self.clusters[cluster].queues[resource].pop_front() {
            self.start(cluster, resource, next);
        }
        self.triggers(cluster);
    }

    fn settle(&mut self, job: usize, fate: Fate) {
        self.fates.jobs[job] = Some(fate);
        self.open -= 1;
    }

    /// Tells others where load has passed its limit, or after some assignments.
    fn triggers(&mut self, cluster: usize) {
        let is_loaded = self.load(cluster) > self.rules.load_max * 10_000;
        let of = &mut self.clusters[cluster];
        let passed = is_loaded && !of.is_loaded;
        of.is_loaded = is_loaded;
        if passed || of.assigned > self.rules.assigned_max {
            self.tell(cluster);
        }
    }

    fn tell(&mut self, cluster: usize) {
        self.clusters[cluster].assigned = 0;
        let free: Vec<u64> = (0..self.drawn.clusters[cluster].len())
            .map(|of| self.free(cluster, of))
            .collect();
        for other in (0..self.clusters.len()).filter(|other| *other != cluster) {
            self.fates.told += 1;
            self.after(
                self.rules.delay,
                Happening::Told(other, cluster, free.clone()),
            );
        }
    }

    /// Where a job could go as `cluster` knows it. With `free_only` only what is free; else that too, if there is any.
    fn places(&self, cluster: usize, job: usize, free_only: bool) -> Vec<Place> {
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for (other, classes) in self.drawn.clusters.iter().enumerate() {
            if other != cluster && !self.rules.forwards {
                continue;
            }
            let load = if other == cluster {
                self.load(other)
            } else {
                self.known_load(cluster, other)
            };
            for (resource, class) in classes.iter().enumerate() {
                let worth = self.drawn.jobs[job]
                    .wishes
                    .utility(class, self.rules.matching, false);
                let Some(worth) = worth else { continue };
                let utility = worth.millionths;
                let is_free = match other == cluster {
                    true => self.free(cluster, resource) > 0,
                    false => self.clusters[cluster].known[other][resource] > 0,
                };
                let place = Place {
                    site: name(other),
                    class: name(resource),
                    utility,
                    load,
                    // What is taken is offered where nothing is free.
                    waits: false,
                };
                if is_free {
                    free.push(place)
                } else {
                    taken.push(place)
                }
            }
        }
        if free.is_empty() && !free_only {
            taken
        } else {
            free
        }
    }

    fn free(&self, cluster: usize, resource: usize) -> u64 {
        self.drawn.clusters[cluster][resource].cpus - self.clusters[cluster].running[resource]
    }

    fn load(&self, cluster: usize) -> u64 {
        let running: u64 = self.clusters[cluster].running.iter().sum();
        let queued: usize = self.clusters[cluster]
            .queues
            .iter()
            .map(VecDeque::len)
            .sum();
        (running + queued as u64) * 1_000_000 / self.cores(cluster)
    }

    fn known_load(&self, cluster: usize, other: usize) -> u64 {
        let free: u64 = self.clusters[cluster].known[other].iter().sum();
        1_000_000 - free * 1_000_000 / self.cores(other)
    }

    fn cores(&self, cluster: usize) -> u64 {
        self.drawn.clusters[cluster]
            .iter()
            .map(|of| of.cpus)
            .sum::<u64>()
            .max(1)
    }
}

/// Clusters, and resources of each, are called by their numbers.
fn name(index: usize) -> String {
    index.to_string()
}

fn index(name: &str) -> usize {
    name.parse().expect("a number")
}
