//! A site that has gone mad: at every tick it also sends nonsense.
//!
//! Invariant: the site itself is honest; what it sends beside its own messages is drawn from one
//! stream, and so is which of its own pushes goes out a second time with one byte changed.
//! Deliberately not here: lies that are well signed (the swarm).

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{SiteId, VoId};
use fairmesh_site::Effect;

/// Longest piece of nonsense, in bytes.
const NONSENSE_BYTES_MAX: u64 = 2_048;

/// Numbers of nonsensical requests begin here, far above those that a site takes.
const REQUESTS_FROM: u64 = 1 << 63;

/// Adds nonsense to what the flooding node sends.
#[derive(Debug)]
pub(super) struct Flood {
    /// Who floods, and with how many messages at a tick.
    pub(super) open: Option<(usize, usize)>,
    random: Stream,
    requests: u64,
}

impl Flood {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            open: None,
            random: seed.stream("world nonsense"),
            requests: 0,
        }
    }

    /// What else goes out with the effects of a tick. Only of ticks: answers to nonsense would bring
    /// forth more of it, without end.
    pub(super) fn add(
        &mut self,
        node: usize,
        effects: &mut Vec<Effect>,
        vos: &[VoId],
        sites: &[SiteId],
    ) {
        let Some((of, messages)) = self.open else {
            return;
        };
        if of != node || vos.is_empty() {
            return;
        }
        let is_push = |effect: &&Effect| matches!(effect, Effect::Push { .. });
        let mut added = Vec::with_capacity(messages);
        for _ in 0..messages {
            added.push(self.nonsense(node, effects.iter().find(is_push), vos, sites));
        }
        effects.append(&mut added);
    }

    fn nonsense(
        &mut self,
        node: usize,
        own: Option<&Effect>,
        vos: &[VoId],
        sites: &[SiteId],
    ) -> Effect {
        let choice = self.random.below(3);
        if let (0, Some(Effect::Push { vo, bytes })) = (choice, own) {
            let mut bytes = bytes.clone();
            let at = self.random.index(bytes.len());
            bytes[at] ^= 1 << self.random.below(8);
            return Effect::Push { vo: *vo, bytes };
        }
        let length = self.random.between(1, NONSENSE_BYTES_MAX);
        let bytes = self.random_bytes(length);
        if choice == 1 {
            self.requests += 1;
            let to = self.random.index(sites.len());
            let to = if to == node {
                (to + 1) % sites.len()
            } else {
                to
            };
            let (to, id) = (sites[to], REQUESTS_FROM + self.requests);
            return Effect::Ask { to, id, bytes };
        }
        let vo = vos[self.random.index(vos.len())];
        Effect::Push { vo, bytes }
    }

    pub(super) fn random_bytes(&mut self, length: u64) -> Vec<u8> {
        let byte = |_| u8::try_from(self.random.below(256)).expect("below 256");
        (0..length).map(byte).collect()
    }
}
