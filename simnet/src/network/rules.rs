//! Who can reach whom: cuts, islands and bridges.
//!
//! Invariant: without a rule everybody reaches everybody. Symmetric cuts divide sites into sides; a
//! bridge belongs to all sides; cuts of one direction come on top.
//!
//! Deliberately not here: who is *connected*, which follows later and is asked of `plan` and of the
//! sites' allow lists too.

use std::collections::BTreeSet;

/// What stands between sites.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    sides: Vec<u32>,
    sides_used: u32,
    bridges: BTreeSet<usize>,
    one_way: BTreeSet<(usize, usize)>,
}

impl Rules {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            sides: vec![0; nodes],
            ..Self::default()
        }
    }

    /// Whether what `from` sends can reach `to`.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        let together = self.sides[from] == self.sides[to]
            || self.bridges.contains(&from)
            || self.bridges.contains(&to);
        together && (self.one_way.is_empty() || !self.one_way.contains(&(from, to)))
    }

    /// Whether the two can hold a connection.
    pub(crate) fn both_ways(&self, a: usize, b: usize) -> bool {
        self.reaches(a, b) && self.reaches(b, a)
    }

    /// Each set is a side of its own; whoever is in none of them is on one side together.
    pub(crate) fn partition(&mut self, sets: &[Vec<usize>]) {
        self.sides.fill(0);
        self.sides_used = 0;
        sets.iter().for_each(|set| self.island(set));
    }

    /// Takes these sites away from whatever side they are on, together.
    pub(crate) fn island(&mut self, set: &[usize]) {
        self.sides_used += 1;
        for node in set {
            self.sides[*node] = self.sides_used;
        }
    }

    pub(crate) fn bridge(&mut self, node: usize) {
        self.bridges.insert(node);
    }

    /// What `from` sends does not reach `to` any more.
    pub(crate) fn cut_one_way(&mut self, from: &[usize], to: &[usize]) {
        for a in from {
            self.one_way
                .extend(to.iter().filter(|b| a != *b).map(|b| (*a, *b)));
        }
    }

    pub(crate) fn heal(&mut self) {
        *self = Self::new(self.sides.len());
    }
}
