//! Eager push between nodes: to neighbours at once, and by name to others at heartbeats.
//!
//! Invariant: no site sees any of it but the pushes themselves, each once. Control messages are no
//! steps, and are lost as pushes are.
//!
//! Deliberately not here: who is a neighbour, and what a node remembers (`network`).

use super::effects::flow_of;
use super::{Queued, World};
use crate::network::{Content, Control, HASH, Parcel, Payload, is_announced, told};

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
        if self.network.memories[node].keep(topic, payload) {
            self.plan_heartbeat(node);
        }
    }

    /// A push has come for the first time, and is long: neighbours need not send it.
    pub(super) fn announce(&mut self, node: usize, from: usize, topic: usize, payload: &Payload) {
        if is_announced(payload.bytes.len()) {
            let ids = ids(&[payload.hash]);
            for to in self.neighbours_but(node, from, topic) {
                self.send(node, to, Content::Control(Control::DontWant), &ids);
            }
        }
    }

    fn neighbours_but(&mut self, node: usize, from: usize, topic: usize) -> Vec<usize> {
        let network = &mut self.network;
        let neighbours = network.meshes.neighbours(node, topic, &network.sessions);
        let others = neighbours.iter().copied();
        others.filter(|to| *to != from).collect()
    }

    /// Nodes' heartbeats are spread over the interval.
    fn plan_heartbeat(&mut self, node: usize) {
        let every = self.network.spec.gossip_heartbeat_ms;
        let since = (self.now_ms + node as u64 * 617) % every;
        let life = self.nodes[node].life();
        let at = self.now_ms + every - since;
        self.queue.push(at, Queued::Heartbeat { node, life });
    }

    /// Tells some members who are no neighbours what was accepted lately.
    pub(super) fn heartbeat(&mut self, node: usize, life: u32) {
        if !self.nodes[node].is_up() || self.nodes[node].life() != life {
            return;
        }
        for (topic, hashes) in self.network.memories[node].heartbeat() {
            let ids = ids(&hashes);
            let network = &mut self.network;
            let mut others = network.meshes.others(node, topic, &network.sessions);
            for _ in 0..told(others.len()).min(others.len()) {
                let to = others.swap_remove(self.network.gossip.index(others.len()));
                self.send(node, to, Content::Control(Control::Have { topic }), &ids);
            }
        }
        if !self.network.memories[node].is_idle() {
            self.plan_heartbeat(node);
        }
    }

    /// A control message has arrived.
    pub(super) fn take_control(&mut self, parcel: &Parcel, control: Control) {
        let (from, to, bytes) = (parcel.from, parcel.to, &parcel.payload.bytes);
        let flow = flow_of(&mut self.nodes[to].traffic, parcel.content);
        flow.take(parcel.content, bytes.len());
        let hashes: Vec<u128> = bytes
            .chunks_exact(HASH)
            .map(|id| u128::from_be_bytes(id.try_into().expect("of that length")))
            .collect();
        let now_ms = self.now_ms;
        match control {
            Control::DontWant => {
                self.network.memories[to].announced(from, &hashes, now_ms);
            }
            Control::Have { topic } => {
                if !self.network.meshes.is_subscribed(to, topic) {
                    return;
                }
                let (seen, memory) = (&self.nodes[to].seen, &mut self.network.memories[to]);
                let unseen = hashes.into_iter().filter(|hash| !seen.contains(*hash));
                let wanted: Vec<u128> = unseen.filter(|hash| memory.asks(*hash, now_ms)).collect();
                if !wanted.is_empty() {
                    self.send(to, from, Content::Control(Control::Want), &ids(&wanted));
                }
            }
            Control::Want => {
                for hash in hashes {
                    let memory = &self.network.memories[to];
                    let kept = memory.given(hash);
                    let kept = kept.filter(|_| !memory.is_unwanted(from, hash, now_ms));
                    if let Some((topic, payload)) = kept {
                        self.send(to, from, Content::Push { topic }, &payload);
                    }
                }
            }
        }
    }
}

/// Names of pushes, one behind the other.
fn ids(hashes: &[u128]) -> Payload {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
    Payload::new(&bytes)
}
