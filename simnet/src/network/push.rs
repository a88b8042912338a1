//! Eager push: who passes a fresh document on to whom.
//!
//! A model of gossipsub: for each topic every member keeps about D of its connected fellow members
//! as neighbours, both ways, chosen by chance and mended when members come and go. What a member
//! has judged good it passes on to its neighbours; what it has seen lately it does not look at.
//!
//! Invariant: neighbours are connected, subscribed, and each named a member by the other. Deliberately
//! not here: gossip about what was pushed (`gossip`), and scores, which the node does not use.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fairmesh_cluster::Stream;
use fairmesh_model::VoId;

/// What each node sees itself connected to: peers, and the number of the session.
pub(crate) type Sessions = Vec<BTreeMap<usize, u64>>;

/// How often neighbours are looked at again before a push.
const HEARTBEATS: usize = 8;

#[derive(Debug)]
pub(crate) struct Meshes {
    degree: usize,
    nodes: usize,
    random: Stream,
    topics: Vec<Topic>,
}

#[derive(Debug)]
struct Topic {
    vo: VoId,
    /// For each node that has subscribed, whom it takes for members.
    members: Vec<Option<BTreeSet<usize>>>,
    neighbours: Vec<BTreeSet<usize>>,
    /// Nodes whose neighbours have to be looked at again.
    stale: BTreeSet<usize>,
}

impl Meshes {
    pub(crate) fn new(nodes: usize, degree: usize, random: Stream) -> Self {
        Self {
            degree: degree.max(1),
            nodes,
            random,
            topics: Vec::new(),
        }
    }

    /// The number of a VO's topic.
    pub(crate) fn topic(&mut self, vo: VoId) -> usize {
        if let Some(known) = self.topics.iter().position(|topic| topic.vo == vo) {
            return known;
        }
        self.topics.push(Topic {
            vo,
            members: vec![None; self.nodes],
            neighbours: vec![BTreeSet::new(); self.nodes],
            stale: BTreeSet::new(),
        });
        self.topics.len() - 1
    }

    pub(crate) fn vo(&self, topic: usize) -> VoId {
        self.topics[topic].vo
    }

    pub(crate) fn is_subscribed(&self, node: usize, topic: usize) -> bool {
        self.topics[topic].members[node].is_some()
    }

    pub(crate) fn subscribe(&mut self, node: usize, vo: VoId, members: BTreeSet<usize>) {
        let topic = self.topic(vo);
        let topic = &mut self.topics[topic];
        let gone: Vec<usize> = topic.neighbours[node]
            .iter()
            .copied()
            .filter(|other| !members.contains(other))
            .collect();
        gone.into_iter().for_each(|other| topic.part(node, other));
        topic.members[node] = Some(members);
        topic.stale.insert(node);
    }

    /// Two nodes have become connected, as far as `node` knows: each takes the other for a neighbour
    /// if it has too few.
    pub(crate) fn connected(&mut self, node: usize, peer: usize, sessions: &Sessions) {
        let degree = self.degree;
        for topic in &mut self.topics {
            let is_low = |of: usize| topic.neighbours[of].len() * 2 < degree;
            let wanted = topic.fits(node, peer, degree, sessions);
            if wanted && (is_low(node) || is_low(peer)) {
                topic.join(node, peer, degree);
            }
            topic.stale.insert(node);
        }
    }

    /// Connected members who are no neighbours.
    pub(crate) fn others(&self, node: usize, topic: usize, sessions: &Sessions) -> Vec<usize> {
        let topic = &self.topics[topic];
        let peers = sessions[node].keys().copied();
        peers
            .filter(|other| !topic.neighbours[node].contains(other))
            .filter(|other| topic.names(node, *other) && topic.names(*other, node))
            .collect()
    }

    pub(crate) fn disconnected(&mut self, node: usize, peer: usize) {
        for topic in &mut self.topics {
            topic.part(node, peer);
            topic.stale.insert(node);
        }
    }

    pub(crate) fn unsubscribe(&mut self, node: usize, vo: VoId) {
        let topic = self.topic(vo);
        self.topics[topic].leave(node);
    }

    /// A process has ended, and with it all that it had subscribed to.
    pub(crate) fn leave(&mut self, node: usize) {
        for topic in &mut self.topics {
            topic.leave(node);
        }
    }

    /// Whom `node` passes pushes of a topic on to.
    pub(crate) fn neighbours(
        &mut self,
        node: usize,
        topic: usize,
        sessions: &Sessions,
    ) -> &BTreeSet<usize> {
        let topic = &mut self.topics[topic];
        // As often as heartbeats would until the next push: who is left by one with too many may come
        // back to it, and be left again, so not for ever.
        for _ in 0..HEARTBEATS {
            for stale in std::mem::take(&mut topic.stale) {
                topic.mend(stale, self.degree, sessions, &mut self.random);
            }
        }
        &topic.neighbours[node]
    }
}

impl Topic {
    fn leave(&mut self, node: usize) {
        self.members[node] = None;
        for other in std::mem::take(&mut self.neighbours[node]) {
            self.neighbours[other].remove(&node);
            self.stale.insert(other);
        }
    }

    fn part(&mut self, a: usize, b: usize) {
        if self.neighbours[a].remove(&b) {
            self.neighbours[b].remove(&a);
            self.stale.insert(b);
        }
    }

    fn names(&self, node: usize, other: usize) -> bool {
        let members = self.members[node].as_ref();
        members.is_some_and(|members| members.contains(&other))
    }

    /// Takes neighbours on where there are too few, and leaves some where there are too many.
    fn mend(&mut self, node: usize, degree: usize, sessions: &Sessions, random: &mut Stream) {
        if self.neighbours[node].len() > high(degree) {
            let mut left: Vec<usize> = self.neighbours[node].iter().copied().collect();
            while left.len() > degree {
                let other = left.swap_remove(random.index(left.len()));
                self.part(node, other);
            }
        }
        let is_low = self.neighbours[node].len() * 2 < degree;
        let mut outbound = self.neighbours[node].iter();
        let wanted = match (is_low, outbound.any(|other| has_dialled(node, *other))) {
            (true, _) => degree,
            (false, false) => self.neighbours[node].len() + 1,
            (false, true) => return,
        };
        let mut fresh: Vec<usize> = sessions[node]
            .keys()
            .copied()
            .filter(|other| is_low || has_dialled(node, *other))
            .filter(|other| self.fits(node, *other, degree, sessions))
            .collect();
        while self.neighbours[node].len() < wanted && !fresh.is_empty() {
            let other = fresh.swap_remove(random.index(fresh.len()));
            self.join(node, other, degree);
        }
    }

    /// Whether they can become neighbours: who has many refuses.
    fn fits(&self, node: usize, other: usize, degree: usize, sessions: &Sessions) -> bool {
        !self.neighbours[node].contains(&other)
            && self.names(node, other)
            && self.names(other, node)
            && sessions[node].contains_key(&other)
            && sessions[other].contains_key(&node)
            && self.neighbours[other].len() < high(degree)
    }

    fn join(&mut self, a: usize, b: usize, degree: usize) {
        self.neighbours[a].insert(b);
        self.neighbours[b].insert(a);
        for end in [a, b] {
            if self.neighbours[end].len() > high(degree) {
                self.stale.insert(end);
            }
        }
    }
}

/// Neighbours above which some are left.
fn high(degree: usize) -> usize {
    degree + 1
}

/// Which end of a connection has dialled: either, as it happens. Everybody wants one neighbour whom
/// it has dialled itself.
fn has_dialled(node: usize, other: usize) -> bool {
    (node < other) == (node + other).is_multiple_of(2)
}

/// What a node has seen lately, by hash: for one to two spans.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Only looked up, never iterated; as is `before`.
    lately: HashSet<u128>,
    before: HashSet<u128>,
    turned_at_ms: u64,
}

impl Seen {
    /// Takes a hash in; false if it was there.
    pub(crate) fn insert(&mut self, hash: u128, now_ms: u64, span_ms: u64) -> bool {
        let passed = now_ms - self.turned_at_ms;
        if passed >= span_ms {
            self.before = std::mem::take(&mut self.lately);
            if passed >= span_ms * 2 {
                self.before.clear();
            }
            self.turned_at_ms = now_ms;
        }
        !self.before.contains(&hash) && self.lately.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_cluster::Seed;

    #[test]
    fn neighbours_are_mutual_and_not_too_many() {
        let nodes = 60;
        let mut meshes = Meshes::new(nodes, 6, Seed(1).stream("mesh"));
        let vo = VoId::from_bytes([1; 32]);
        let everybody: BTreeSet<usize> = (0..nodes).collect();
        let sessions: Sessions = (0..nodes)
            .map(|node| {
                (0..nodes)
                    .filter(|at| *at != node)
                    .map(|at| (at, 1))
                    .collect()
            })
            .collect();
        for node in 0..nodes {
            meshes.subscribe(node, vo, everybody.clone());
        }
        for node in 0..nodes {
            let mine = meshes.neighbours(node, 0, &sessions).clone();
            assert!((3..12).contains(&mine.len()), "{}", mine.len());
            for other in mine {
                assert!(meshes.neighbours(other, 0, &sessions).contains(&node));
            }
        }
        meshes.leave(3);
        for node in 0..nodes {
            assert!(!meshes.neighbours(node, 0, &sessions).contains(&3));
        }
    }

    #[test]
    fn what_was_seen_is_forgotten_after_a_while() {
        let mut seen = Seen::default();
        assert!(seen.insert(7, 0, 100));
        assert!(!seen.insert(7, 90, 100));
        assert!(!seen.insert(7, 150, 100));
        assert!(seen.insert(7, 400, 100));
    }
}
