//! Eager push between nodes: to neighbours at once. Who is missed learns of it by anti-entropy.
//!
//! Invariant: no site sees any of it but the pushes themselves, each once. Control messages are no
//! steps, and are lost as pushes are.
//!
//! Deliberately not here: who is a neighbour, and what a node remembers (`network`).

use super::World;
use super::effects::flow_of;
use crate::network::{Content, HASH, Parcel, Payload, is_announced};

impl World {
    /// Sends a push of the node's own to all neighbours, and to other members where they are few.
    pub(super) fn push_own(&mut self, node: usize, topic: usize, payload: &Payload) {
        let mut receivers = self.neighbours_but(node, node, topic);
        let network = &mut self.network;
        let mut others = network.meshes.others(node, topic, &network.sessions);
        while receivers.len() < network.spec.mesh_degree && !others.is_empty() {
            receivers.push(others.swap_remove(network.gossip.index(others.len())));
        }
        if !receivers.is_empty() {
            self.pass_on_to(receivers, node, topic, payload);
        }
    }

    /// Sends a push to all neighbours but the one that it came from.
    pub(super) fn pass_on(&mut self, node: usize, from: usize, topic: usize, payload: &Payload) {
        let receivers = self.neighbours_but(node, from, topic);
        self.pass_on_to(receivers, node, topic, payload);
    }

    fn pass_on_to(&mut self, receivers: Vec<usize>, node: usize, topic: usize, payload: &Payload) {
        for to in receivers {
            let memory = &self.network.memories[node];
            if !memory.is_unwanted(to, payload.hash, self.now_ms) {
                self.send(node, to, Content::Push { topic }, payload);
            }
        }
    }

    /// A push has come for the first time, and is long: neighbours need not send it.
    pub(super) fn announce(&mut self, node: usize, from: usize, topic: usize, payload: &Payload) {
        if is_announced(payload.bytes.len()) {
            let ids = ids(&[payload.hash]);
            for to in self.neighbours_but(node, from, topic) {
                self.send(node, to, Content::DontWant, &ids);
            }
        }
    }

    fn neighbours_but(&mut self, node: usize, from: usize, topic: usize) -> Vec<usize> {
        let network = &mut self.network;
        let neighbours = network.meshes.neighbours(node, topic, &network.sessions);
        let others = neighbours.iter().copied();
        others.filter(|to| *to != from).collect()
    }

    /// A neighbour has announced pushes.
    pub(super) fn take_control(&mut self, parcel: &Parcel) {
        let (from, to, bytes) = (parcel.from, parcel.to, &parcel.payload.bytes);
        let flow = flow_of(&mut self.nodes[to].traffic, parcel.content);
        flow.take(parcel.content, bytes.len());
        let hashes: Vec<u128> = bytes
            .chunks_exact(HASH)
            .map(|id| u128::from_be_bytes(id.try_into().expect("of that length")))
            .collect();
        self.network.memories[to].announced(from, &hashes, self.now_ms);
    }
}

/// Names of pushes, one behind the other.
fn ids(hashes: &[u128]) -> Payload {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
    Payload::new(&bytes)
}
