//! Sites, the network between them, their disks and clocks, and time: one seed decides everything.
//!
//! Time is true time, in milliseconds since the world began; no site ever sees it. The world takes
//! one event at a time out of a queue, hands it to one node and carries out what that node's round
//! says, in order, as the real driver does.
//!
//! Invariant: a world is a function of its seed, its specification and the calls that are made on
//! it; every byte that reaches a site is in the trace hash.
//!
//! Deliberately not here: load, checks and reports. They are built on `step` and on the actions.

mod action;
mod apply;
mod calls;
mod counts;
mod documents;
mod effects;
mod faults;
mod flood;
mod gossip;
mod life;
mod policy;
mod queue;
mod round;
mod spec;
mod step;
mod tamper;

pub(crate) use action::line;
pub use action::{Action, Day, Jobs, Parts, Percent, Planned};
pub use counts::Counts;
pub(crate) use counts::words;
pub use life::StartError;
pub use spec::WorldSpec;
pub use step::StepInfo;
pub use tamper::{RestartPlan, Tamper};

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Millis, MonoTime, Now, SiteId, VoId};
use fairmesh_round::JOURNAL_BYTES_MAX;
use fairmesh_site::Site;

use crate::clock::SiteClock;
use crate::disk::Disk;
use crate::event_log::EventLog;
pub use crate::event_log::StepKind;
use crate::network::Network;
use crate::node::SimNode;
use crate::vo::{OwnerSpec, Vo};
use documents::Document;
use flood::Flood;
use queue::{Queue, Queued};

/// The whole Grid.
pub struct World {
    seed: Seed,
    tick: Millis,
    now_ms: u64,
    queue: Queue,
    nodes: Vec<SimNode>,
    /// Only looked up, never iterated.
    index_of: HashMap<SiteId, usize>,
    network: Network,
    log: EventLog,
    faults: Counts,
    tamper: Option<Box<dyn Tamper>>,
    vos: Vec<Vo>,
    owner: OwnerSpec,
    /// All documents that VOs have signed, in order.
    documents: Vec<Document>,
    /// Nodes from which nobody can count on getting a document again.
    liars: BTreeSet<usize>,
    dropped: Vec<(usize, usize)>,
    flood: Flood,
    numbers: u64,
    steps: u64,
    incarnations: Stream,
    crashes: Stream,
    flips: Stream,
    is_busy: bool,
    /// How long work takes.
    works: Stream,
    /// Whether something has to wait, and how long.
    rounds: Stream,
    /// The longest that a node is busy with one round.
    hold_ms: u64,
    /// Size at which journals are begun anew.
    journal_bytes_max: u64,
}

impl World {
    /// A world with all nodes started but those that come `late`, and nobody connected yet.
    pub fn new(seed: Seed, spec: WorldSpec) -> Self {
        let count = spec.configs.len();
        let node = |(index, config)| {
            let disk = Disk::new(spec.keeps_journal);
            SimNode::new(index, config, SiteClock::new(spec.start), disk)
        };
        let nodes: Vec<SimNode> = spec.configs.into_iter().enumerate().map(node).collect();
        let mut rounds = seed.stream("world rounds");
        let mut world = Self {
            seed,
            tick: spec.tick,
            now_ms: 0,
            queue: Queue::default(),
            index_of: nodes.iter().map(|node| (node.id, node.index)).collect(),
            network: Network::new(count, spec.network, seed),
            log: EventLog::new(spec.log_entries),
            faults: Counts::default(),
            tamper: None,
            vos: Vec::new(),
            owner: spec.owner,
            documents: Vec::new(),
            liars: BTreeSet::new(),
            dropped: Vec::new(),
            flood: Flood::new(seed),
            numbers: 0,
            steps: 0,
            incarnations: seed.stream("world incarnations"),
            crashes: seed.stream("world crashes"),
            flips: seed.stream("world bit flips"),
            hold_ms: if spec.is_busy {
                [0, 20, 400][rounds.index(3)]
            } else {
                0
            },
            journal_bytes_max: match spec.is_busy {
                true => [JOURNAL_BYTES_MAX, 1 << 16, 1 << 12][rounds.index(3)],
                false => JOURNAL_BYTES_MAX,
            },
            rounds,
            works: seed.stream("world works"),
            is_busy: spec.is_busy,
            nodes,
        };
        for index in (0..count).filter(|index| !spec.late.contains(index)) {
            world.start(index).expect("a new disk has room");
        }
        world
    }

    /// A world whose members hold their VOs' first documents from the start: every operator was
    /// given them. See [`World::new`] and [`World::publish`] for a Grid where they spread.
    pub fn founded(seed: Seed, spec: WorldSpec, vos: &[Vo]) -> Self {
        let mut world = Self::new(seed, spec);
        world.vos = vos.to_vec();
        world.give_first_documents();
        world
    }

    /// What the world was made from.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// True time.
    pub fn now(&self) -> MonoTime {
        MonoTime(self.now_ms)
    }

    /// What time a node believes it is.
    pub fn now_at(&self, node: usize) -> Now {
        self.nodes[node].now(self.now())
    }

    /// All nodes.
    pub fn nodes(&self) -> &[SimNode] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, node: usize) -> &SimNode {
        &self.nodes[node]
    }

    /// One node, to read and clear what it has said, or to look after its disk.
    pub fn node_mut(&mut self, node: usize) -> &mut SimNode {
        &mut self.nodes[node]
    }

    /// The site of a node, while it runs.
    pub fn site(&self, node: usize) -> Option<&Site> {
        self.nodes[node].site()
    }

    /// The number of the node with this identity.
    pub fn index_of(&self, site: SiteId) -> Option<usize> {
        self.index_of.get(&site).copied()
    }

    /// Whether all running nodes that mount a VO hold the same of it and compute the same for it. Digests of views compare
    /// within one window. Where windows differ, because clocks do, sites agree if they hold the same.
    pub fn agree(&self, vo: VoId) -> bool {
        let mounting = |node: &&SimNode| node.config.vos.values().any(|of| *of == vo);
        let sites = self.nodes.iter().filter(mounting);
        let sites = sites.filter_map(SimNode::site);
        let (mut views, mut held) = (BTreeMap::new(), BTreeSet::new());
        for site in sites {
            let Some(view) = site.view_digest(vo) else {
                return false;
            };
            if *views.entry(site.reference(vo)).or_insert(view) != view {
                return false;
            }
            held.extend(site.held_of(vo).map(|of| (of.documents, of.counters)));
        }
        views.len() == 1 || held.len() == 1
    }

    /// The VOs that it was founded with, and their newest documents.
    pub fn founded_vos(&self) -> &[Vo] {
        &self.vos
    }

    /// All VOs that any node mounts.
    pub fn vos(&self) -> BTreeSet<VoId> {
        let mounted = self.nodes.iter().flat_map(|node| node.config.vos.values());
        mounted.copied().collect()
    }

    /// Whether nothing is left to be told: all nodes agree on all VOs.
    pub fn is_quiet(&self) -> bool {
        self.vos().into_iter().all(|vo| self.agree(vo))
    }

    /// Who is connected to whom, as each node sees it.
    pub fn peers_of(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.network.sessions[node].keys().copied()
    }

    /// What happened last, and the hash of everything.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// The hash of everything that happened.
    pub fn trace_hash(&self) -> u128 {
        self.log.trace_hash()
    }

    /// What has happened that should not.
    pub fn faults(&self) -> &Counts {
        &self.faults
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Events that wait, but for those that are played back later.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Puts a layer between the world and its sites.
    pub fn set_tamper(&mut self, tamper: Option<Box<dyn Tamper>>) {
        self.tamper = tamper;
    }

    /// The shortest time between two ticks of one node.
    pub fn tick(&self) -> Millis {
        self.tick
    }

    /// Sets the shortest time between two ticks of one node: calm stretches need few.
    pub fn set_tick(&mut self, tick: Millis) {
        self.tick = tick;
    }

    /// Plans an action. What is planned for the past happens next.
    pub fn at(&mut self, time: MonoTime, action: Action) {
        let at = time.0.max(self.now_ms);
        self.queue.push(at, Queued::Action(Box::new(action)));
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}
