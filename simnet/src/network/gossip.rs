//! What a node remembers of pushes, to spare its neighbours copies and to tell others of them.
//!
//! A model of gossipsub 1.2 as libp2p-gossipsub 0.50 has it. A long push is announced to neighbours as
//! unwanted before it is judged (IDONTWANT), and they no longer send it. At three heartbeats after a
//! push was accepted its name goes to some members who are no neighbours (IHAVE); who has not seen it
//! asks one of them for it (IWANT), up to five heartbeats after.
//!
//! Invariant: nothing here is iterated whose order is not defined. Deliberately not here: meshes
//! (`push`), and sending (the world).

use std::collections::{HashMap, VecDeque};

use super::Payload;

/// Heartbeats at which a push is told of.
const TOLD: u8 = 3;

/// Heartbeats after which it is no longer given out.
const KEPT: u8 = 5;

/// How long a neighbour does not want what it has announced, and how long one member is waited for.
const WANT_MS: u64 = 3_000;

/// Members that are told at a heartbeat: at least so many, or a quarter of those there are.
pub(crate) fn told(members: usize) -> usize {
    (members / 4).max(6)
}

/// A push that was accepted.
#[derive(Debug)]
struct Kept {
    topic: usize,
    payload: Payload,
    heartbeats: u8,
}

/// One node's memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    kept: VecDeque<Kept>,
    /// By neighbour and push, until when it does not want it. Only looked up.
    unwanted: HashMap<(usize, u128), u64>,
    /// By push, until when somebody is waited for who was asked for it. Only looked up.
    asked: HashMap<u128, u64>,
}

impl Memory {
    /// A push was accepted, or is the node's own. True where no heartbeat was needed before.
    pub(crate) fn keep(&mut self, topic: usize, payload: &Payload) -> bool {
        let was_idle = self.kept.is_empty();
        self.kept.push_back(Kept {
            topic,
            payload: payload.clone(),
            heartbeats: 0,
        });
        was_idle
    }

    /// A neighbour has announced that it has these.
    pub(crate) fn announced(&mut self, peer: usize, hashes: &[u128], now_ms: u64) {
        let until = now_ms + WANT_MS;
        let fresh = hashes.iter().map(|hash| ((peer, *hash), until));
        self.unwanted.retain(|_, until| *until >= now_ms);
        self.unwanted.extend(fresh);
    }

    /// Whether a peer has announced that it has it.
    pub(crate) fn is_unwanted(&self, peer: usize, hash: u128, now_ms: u64) -> bool {
        let until = self.unwanted.get(&(peer, hash));
        until.is_some_and(|until| *until >= now_ms)
    }

    /// Whether a push that nobody has sent yet is to be asked for now.
    pub(crate) fn asks(&mut self, hash: u128, now_ms: u64) -> bool {
        self.asked.retain(|_, until| *until >= now_ms);
        let until = now_ms + WANT_MS;
        self.asked.insert(hash, until).is_none()
    }

    /// A push that can still be given out, and its topic.
    pub(crate) fn given(&self, hash: u128) -> Option<(usize, Payload)> {
        let of = |kept: &&Kept| kept.payload.hash == hash;
        let found = self.kept.iter().find(of);
        found.map(|kept| (kept.topic, kept.payload.clone()))
    }

    /// A heartbeat: what is to be told of, by topic, in the order in which it came.
    pub(crate) fn heartbeat(&mut self) -> Vec<(usize, Vec<u128>)> {
        let mut told: Vec<(usize, Vec<u128>)> = Vec::new();
        for kept in &mut self.kept {
            kept.heartbeats += 1;
            if kept.heartbeats > TOLD {
                continue;
            }
            match told.iter_mut().find(|(topic, _)| *topic == kept.topic) {
                Some((_, hashes)) => hashes.push(kept.payload.hash),
                None => told.push((kept.topic, vec![kept.payload.hash])),
            }
        }
        self.kept.retain(|kept| kept.heartbeats < KEPT);
        told
    }

    /// Whether there will be anything to do at the next heartbeat.
    pub(crate) fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_told_of_three_times_and_given_out_until_the_fifth_heartbeat() {
        let mut memory = Memory::default();
        let payload = Payload::new(b"push");
        assert!(memory.keep(2, &payload));
        for heartbeat in 1..=5 {
            let told = memory.heartbeat();
            assert_eq!(told.is_empty(), heartbeat > 3, "heartbeat {heartbeat}");
            assert_eq!(memory.given(payload.hash).is_some(), heartbeat < 5);
        }
        assert!(memory.is_idle());
    }

    #[test]
    fn what_was_announced_and_asked_for_is_waited_for_a_while() {
        let mut memory = Memory::default();
        memory.announced(1, &[7], 10);
        assert!(memory.is_unwanted(1, 7, 3_010));
        assert!(!memory.is_unwanted(1, 7, 3_011) && !memory.is_unwanted(2, 7, 10));
        assert!(memory.asks(7, 10) && !memory.asks(7, 3_000) && memory.asks(7, 9_000));
    }
}
