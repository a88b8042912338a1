//! The packet network between sites: sessions, links and pushes.
//!
//! A session joins two sites that are up, that allow each other, that reach each other both ways and
//! that the plan wants connected. Each end learns of a session's beginning and end a while later, by
//! itself. Messages travel within sessions only, except for those that an adversary plays back.
//!
//! Invariant: all chance comes from named streams of one seed; nothing here knows what a message
//! says. Deliberately not here: the queue of what arrives when (the world), and the sites.

mod gossip;
mod link;
mod plan;
mod push;
mod rules;
mod wire;

pub(crate) use gossip::Memory;
pub use link::LinkSpec;
pub(crate) use link::Links;
pub(crate) use push::{Meshes, Seen, Sessions};
pub(crate) use rules::Rules;
pub(crate) use wire::{HASH, length as wire_length};

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_cluster::{Seed, Stream};

use crate::event_log::hash_bytes;
use plan::Plan;

/// Longest push that gossipsub takes in the node; what is longer travels by anti-entropy alone.
pub(crate) const PUSH_BYTES_MAX: usize = 64 << 10;

/// Sites up to which everybody is connected to everybody by default.
const FULL_MESH_MAX: usize = 16;

/// How the network as a whole behaves. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSpec {
    /// What a link does unless it was given another description.
    pub link: LinkSpec,
    /// Connections that a site holds, about; `None` for all up to 16 sites, and 16 beyond.
    pub degree: Option<usize>,
    /// Neighbours that a site wants to push to; it takes on more below half of it, and leaves some
    /// where it has two more.
    pub mesh_degree: usize,
    /// Until a new session is up.
    pub connect_ms: u64,
    /// Until a cut is noticed: some failed pings.
    pub detect_ms: u64,
    /// Until the end of a process is noticed: its machine resets the connection.
    pub reset_ms: u64,
    /// After which the network gives a request up.
    pub request_timeout_ms: u64,
    /// How long a site remembers what was pushed to it.
    pub duplicate_cache_ms: u64,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            link: LinkSpec::CALM,
            degree: None,
            mesh_degree: 3,
            connect_ms: 300,
            detect_ms: 15_000,
            reset_ms: 100,
            request_timeout_ms: 30_000,
            duplicate_cache_ms: 60_000,
        }
    }
}

/// Bytes on their way, shared by all copies, and their hash.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) hash: u128,
}

impl Payload {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            hash: hash_bytes(bytes),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Of a topic, by its number.
    Push {
        topic: usize,
    },
    /// A request by its number in the asker's life.
    Ask {
        id: u64,
        life: u32,
    },
    Answer {
        id: u64,
        life: u32,
    },
    /// The sender has some pushes, whose names are the payload, and they need not be sent (IDONTWANT).
    DontWant,
}

/// Whether neighbours are told that a push of such a length has come.
pub(crate) fn is_announced(payload: usize) -> bool {
    wire::push_message(payload) > wire::ANNOUNCED_ABOVE
}

/// One message under way.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The session in which it was sent.
    pub(crate) session: u64,
    pub(crate) content: Content,
    pub(crate) payload: Payload,
    /// Played back by an adversary: how many stores had been lost when it was heard first.
    pub(crate) replay_after: Option<u64>,
}

/// An end of a session that will have to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) node: usize,
    pub(crate) peer: usize,
    pub(crate) in_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) spec: NetworkSpec,
    pub(crate) rules: Rules,
    pub(crate) links: Links,
    pub(crate) meshes: Meshes,
    /// What each node remembers of pushes.
    pub(crate) memories: Vec<Memory>,
    /// Chooses whom a push goes to where neighbours are few.
    pub(crate) gossip: Stream,
    /// What each node believes.
    pub(crate) sessions: Sessions,
    /// Whom each node allows, as bits.
    allowed: Vec<Vec<u64>>,
    /// Pairs that can and should be connected, with the session's number.
    pairs: BTreeMap<(usize, usize), u64>,
    plan: Plan,
    random: Stream,
    sessions_begun: u64,
    is_stale: bool,
    /// Ends that have to look again whatever the next plan says.
    broken: Vec<Change>,
}

impl Network {
    pub(crate) fn new(nodes: usize, spec: NetworkSpec, seed: Seed) -> Self {
        let degree = spec.degree.unwrap_or(FULL_MESH_MAX);
        Self {
            spec,
            rules: Rules::new(nodes),
            links: Links::new(spec.link, seed.stream("network links")),
            meshes: Meshes::new(nodes, spec.mesh_degree, seed.stream("network mesh")),
            memories: (0..nodes).map(|_| Memory::default()).collect(),
            gossip: seed.stream("network gossip"),
            sessions: vec![BTreeMap::new(); nodes],
            allowed: vec![vec![0; nodes.div_ceil(64)]; nodes],
            pairs: BTreeMap::new(),
            plan: Plan::new(nodes, degree, &mut seed.stream("network plan")),
            random: seed.stream("network sessions"),
            sessions_begun: 0,
            is_stale: true,
            broken: Vec::new(),
        }
    }

    /// Something changed that sessions depend on.
    pub(crate) fn touch(&mut self) {
        self.is_stale = true;
    }

    pub(crate) fn allow(&mut self, node: usize, sites: impl Iterator<Item = usize>) {
        let mut bits = vec![0; self.allowed[node].len()];
        for site in sites {
            bits[site / 64] |= 1 << (site % 64);
        }
        if bits != self.allowed[node] {
            self.allowed[node] = bits;
            self.touch();
        }
    }

    pub(crate) fn allows(&self, node: usize, other: usize) -> bool {
        self.allowed[node][other / 64] >> (other % 64) & 1 == 1
    }

    /// A process has ended: it knows of nothing any more.
    pub(crate) fn leave(&mut self, node: usize) {
        self.sessions[node].clear();
        self.allowed[node].fill(0);
        self.meshes.leave(node);
        self.memories[node] = Memory::default();
        self.touch();
        let Self {
            pairs,
            broken,
            spec,
            ..
        } = self;
        pairs.retain(|(a, b), _| {
            let peer = if *a == node { b } else { a };
            let is_broken = *a == node || *b == node;
            if is_broken {
                let (node, peer, in_ms) = (*peer, node, spec.reset_ms);
                broken.push(Change { node, peer, in_ms });
            }
            !is_broken
        });
    }

    /// The session that a pair should have.
    pub(crate) fn wanted(&self, node: usize, peer: usize) -> Option<u64> {
        self.pairs.get(&(node.min(peer), node.max(peer))).copied()
    }

    /// Who should be connected now; says which ends will notice a difference, and when.
    pub(crate) fn settle(&mut self, is_up: impl Fn(usize) -> bool) -> Vec<Change> {
        if !std::mem::take(&mut self.is_stale) {
            return Vec::new();
        }
        let wanted = self.plan.pairs(|a, b| {
            let allow_each_other = self.allows(a, b) && self.allows(b, a);
            allow_each_other && is_up(a) && is_up(b) && self.rules.both_ways(a, b)
        });
        let mut changes = std::mem::take(&mut self.broken);
        let before = std::mem::take(&mut self.pairs);
        for (a, b) in before.keys().filter(|pair| !wanted.contains(*pair)) {
            // Whoever ends a session on purpose says so; a cut says nothing.
            let in_ms = match self.rules.both_ways(*a, *b) {
                true => self.spec.reset_ms,
                false => self.spec.detect_ms,
            };
            for (node, peer) in [(*a, *b), (*b, *a)] {
                let in_ms = in_ms + self.random.below(in_ms / 4 + 1);
                changes.push(Change { node, peer, in_ms });
            }
        }
        for (a, b) in wanted {
            let session = match before.get(&(a, b)) {
                Some(session) => *session,
                None => {
                    let in_ms = self.spec.connect_ms + self.random.below(self.spec.connect_ms + 1);
                    changes.extend([(a, b), (b, a)].map(|(node, peer)| Change {
                        node,
                        peer,
                        in_ms,
                    }));
                    self.surviving(a, b).unwrap_or_else(|| {
                        self.sessions_begun += 1;
                        self.sessions_begun
                    })
                }
            };
            self.pairs.insert((a, b), session);
        }
        changes
    }

    /// The session that neither end has given up: the cut was short.
    fn surviving(&self, a: usize, b: usize) -> Option<u64> {
        let session = self.sessions[a].get(&b)?;
        (self.sessions[b].get(&a) == Some(session)).then_some(*session)
    }
}
