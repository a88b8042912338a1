//! A site that has gone mad: at every tick it also sends nonsense.
//!
//! Invariant: the site itself is honest; what it sends beside its own messages is drawn from one
//! stream, and so is which of its own pushes goes out a second time with one byte changed.
//! Deliberately not here: lies that are well signed (the swarm).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{SiteId, VoId};
use fairmesh_site::{Effect, Event};

use crate::world::Tamper;

/// Longest piece of nonsense, in bytes.
const NONSENSE_BYTES_MAX: u64 = 2_048;

/// Numbers of nonsensical requests begin here, far above those that a site takes.
const REQUESTS_FROM: u64 = 1 << 63;

/// Who floods, and how much; the runner changes it.
pub(super) type Valve = Rc<RefCell<Option<(usize, usize)>>>;

/// Adds nonsense to what the flooding node sends.
#[derive(Debug)]
pub(super) struct Flood {
    pub(super) valve: Valve,
    vos: Vec<VoId>,
    sites: Vec<SiteId>,
    random: Stream,
    requests: u64,
    is_tick: bool,
}

impl Flood {
    pub(super) fn new(seed: Seed, vos: BTreeSet<VoId>, sites: Vec<SiteId>) -> Self {
        Self {
            valve: Valve::default(),
            vos: vos.into_iter().collect(),
            sites,
            random: seed.stream("scenario flood"),
            requests: 0,
            is_tick: false,
        }
    }

    fn nonsense(&mut self, node: usize, own: Option<&Effect>) -> Effect {
        let choice = self.random.below(3);
        if let (0, Some(Effect::Push { vo, bytes })) = (choice, own) {
            let mut bytes = bytes.clone();
            let at = self.random.index(bytes.len());
            bytes[at] ^= 1 << self.random.below(8);
            return Effect::Push { vo: *vo, bytes };
        }
        let length = self.random.between(1, NONSENSE_BYTES_MAX);
        let bytes: Vec<u8> = (0..length)
            .map(|_| u8::try_from(self.random.below(256)).expect("below 256"))
            .collect();
        if choice == 1 {
            self.requests += 1;
            let others: Vec<SiteId> = self.sites.clone();
            let to = self.random.index(others.len());
            let to = if to == node {
                (to + 1) % others.len()
            } else {
                to
            };
            let (to, id) = (others[to], REQUESTS_FROM + self.requests);
            return Effect::Ask { to, id, bytes };
        }
        let vo = self.vos[self.random.index(self.vos.len())];
        Effect::Push { vo, bytes }
    }
}

impl Tamper for Flood {
    /// Only ticks: answers to nonsense would bring forth more of it, without end.
    fn event(&mut self, _: usize, event: &mut Event) {
        self.is_tick = matches!(event, Event::Tick);
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        let Some((of, messages)) = *self.valve.borrow() else {
            return;
        };
        if of != node || !self.is_tick || self.vos.is_empty() {
            return;
        }
        let is_push = |effect: &&Effect| matches!(effect, Effect::Push { .. });
        let mut added = Vec::with_capacity(messages);
        for _ in 0..messages {
            added.push(self.nonsense(node, effects.iter().find(is_push)));
        }
        effects.append(&mut added);
    }
}
