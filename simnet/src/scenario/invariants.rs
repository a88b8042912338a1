//! The invariants of `check` that need no ledger of losses, looked at in scenarios too.
//!
//! What a scenario loses with its disks is the point of some of its stories, so what must be known in
//! the end is for [`CalmEnd`] to say; but whatever happens, who holds the same computes the same,
//! streams have one writer, and policies do not fall back.
//!
//! Invariant: each is looked at after every step, as in `check`. Deliberately not here: the
//! invariants themselves (`crate::invariants`).

use crate::facts::Books;
use crate::facts::watch::{Facts, SharedFacts};
use crate::invariants::{Invariant, Seen, TABLE};
use crate::oracle::Oracle;
use crate::vo::Vo;
use crate::world::{StepInfo, World};

use super::Scenario;
use super::condition::{Acknowledged, CalmEnd, Condition};

/// Those that go by what nodes hold and say alone.
const CHECKED: [&str; 6] = [
    "agreement",
    "incarnations",
    "owner",
    "policies",
    "priorities",
    "coverage",
];

/// Steps between two checks that cost more.
const DEEP_EVERY: u64 = 64;

/// Watches a scenario by them, and by [`CalmEnd`].
pub struct Invariants {
    facts: SharedFacts,
    checked: Vec<(&'static str, Box<dyn Invariant>)>,
    oracle: Oracle,
    /// Nobody is said to have all of its own: disks may be lost.
    whole: Vec<bool>,
    /// Stores that each node has set aside: damage is found at a start, not when it is done.
    set_aside: Vec<u32>,
    checks: u64,
}

impl Invariants {
    /// For one run of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let sites = scenario.grid.sites;
        let mine = TABLE.iter().filter(|entry| CHECKED.contains(&entry.name));
        Self {
            facts: SharedFacts::default(),
            checked: mine
                .map(|entry| (entry.name, (entry.make)(sites)))
                .collect(),
            oracle: Oracle::new(sites),
            whole: vec![false; sites],
            set_aside: vec![0; sites],
            checks: 0,
        }
    }

    fn note_damage(&mut self, world: &World) {
        for node in 0..self.set_aside.len() {
            let set_aside = world.node(node).disk.set_aside();
            if std::mem::replace(&mut self.set_aside[node], set_aside) < set_aside {
                self.forgot(node, true);
            }
        }
    }

    /// How many checks were made.
    pub fn checks(&self) -> u64 {
        self.checks
    }
}

impl Condition for Invariants {
    fn facts(&self) -> Option<SharedFacts> {
        Some(SharedFacts::clone(&self.facts))
    }

    fn forgot(&mut self, node: usize, keeps_side: bool) {
        for (_, invariant) in &mut self.checked {
            invariant.forgot(node, keeps_side);
        }
    }

    fn step(&mut self, world: &World, step: &StepInfo) -> Result<(), String> {
        self.note_damage(world);
        for bytes in world.founded_vos().iter().flat_map(Vo::documents) {
            self.oracle.documents.signed(bytes);
        }
        let facts: Facts = self.facts.take();
        let vos: Vec<_> = world.vos().into_iter().collect();
        let seen = Seen {
            liars: &[],
            world,
            node: step.node,
            kind: step.kind,
            facts: &facts,
            oracle: &self.oracle,
            books: &Books::default(),
            deep: step.number.is_multiple_of(DEEP_EVERY),
            whole: &self.whole,
            vos: &vos,
        };
        for (name, invariant) in &mut self.checked {
            let looked = invariant.after_step(&seen, &mut self.checks);
            looked.map_err(|violation| match violation.node {
                Some(node) => format!("{name}: site {node}: {}", violation.message),
                None => format!("{name}: {}", violation.message),
            })?;
        }
        Ok(())
    }

    fn end(&mut self, world: &World, acknowledged: &Acknowledged) -> Result<(), String> {
        CalmEnd.end(world, acknowledged)
    }
}
