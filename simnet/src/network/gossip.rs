//! What a node remembers of pushes, to spare its neighbours copies.
//!
//! A model of gossipsub 1.2 as libp2p-gossipsub 0.50 has it with the node's settings. A push is announced
//! to neighbours as unwanted before it is judged (IDONTWANT), and they no longer send it. Nobody is told
//! by name of what was pushed (IHAVE): anti-entropy brings what was lost.
//!
//! Invariant: nothing here is iterated whose order is not defined. Deliberately not here: meshes
//! (`push`), and sending (the world).

use std::collections::HashMap;

/// How long a neighbour does not want what it has announced.
const UNWANTED_MS: u64 = 3_000;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By neighbour and push, until when it does not want it. Only looked up.
    unwanted: HashMap<(usize, u128), u64>,
}

impl Memory {
    /// A neighbour has announced that it has these.
    pub(crate) fn announced(&mut self, peer: usize, hashes: &[u128], now_ms: u64) {
        let until = now_ms + UNWANTED_MS;
        let fresh = hashes.iter().map(|hash| ((peer, *hash), until));
        self.unwanted.retain(|_, until| *until >= now_ms);
        self.unwanted.extend(fresh);
    }

    /// Whether a peer has announced that it has it.
    pub(crate) fn is_unwanted(&self, peer: usize, hash: u128, now_ms: u64) -> bool {
        let until = self.unwanted.get(&(peer, hash));
        until.is_some_and(|until| *until >= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_announced_is_unwanted_for_a_while() {
        let mut memory = Memory::default();
        memory.announced(1, &[7], 10);
        assert!(memory.is_unwanted(1, 7, 3_010));
        assert!(!memory.is_unwanted(1, 7, 3_011) && !memory.is_unwanted(2, 7, 10));
    }
}
