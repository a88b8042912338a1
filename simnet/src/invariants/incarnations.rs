//! The incarnation rule.
//!
//! Invariant checked: two lives of a site never sign under one incarnation, whatever became of its
//! disk; and as long as it has its side file, which remembers the last one, a new life's is higher
//! than any that anybody holds of it. That file is whole at each start, unless the disk flips a bit of it:
//! who loses it goes by the clock, and clocks are set back.

use std::collections::HashMap;

use fairmesh_model::{ContentHash, Incarnation, SiteId, StreamId, VoId};

use super::{Invariant, Seen, Violation};

/// The checker.
pub(super) struct Incarnations {
    /// In which life of its site each was first signed under. Only looked up, as is `first`.
    life_of: HashMap<(SiteId, Incarnation), u32>,
    /// The first head of each incarnation: one that a peer gives back is the same.
    first: HashMap<(VoId, StreamId), ContentHash>,
    highest: Vec<Incarnation>,
    remembers: Vec<bool>,
}

impl Incarnations {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            life_of: HashMap::new(),
            first: HashMap::new(),
            highest: vec![Incarnation(0); nodes],
            remembers: vec![true; nodes],
        }
    }
}

impl Invariant for Incarnations {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let is_half = |node: &usize| seen.world.node(*node).disk.losses().half_sides > 0;
        if let Some(node) = seen.node.filter(is_half) {
            let message = "found half a side file, though no bit of it was flipped";
            return Err(Violation::at(node, message));
        }
        let own = seen.facts.heads.iter().filter(|seen| seen.own);
        for found in own.filter(|found| found.head.seq.0 == 1) {
            let (node, head) = (found.node, &found.head);
            let stream = StreamId {
                site: head.site,
                incarnation: head.incarnation,
            };
            let life = seen.world.node(node).life();
            *checks += 1;
            if self.first.get(&(head.vo, stream)) == Some(&found.hash) {
                continue;
            }
            self.first.insert((head.vo, stream), found.hash);
            let number = stream.incarnation.0;
            match self.life_of.insert((stream.site, stream.incarnation), life) {
                Some(before) if before != life => {
                    let message = format!("signs under incarnation {number} of life {before}");
                    return Err(Violation::at(node, message));
                }
                Some(_) => continue,
                None => {}
            }
            let highest = self.highest[node];
            if stream.incarnation <= highest && self.remembers[node] {
                let message = format!("begins incarnation {number}, though {} is known", highest.0);
                return Err(Violation::at(node, message));
            }
            self.highest[node] = highest.max(stream.incarnation);
        }
        Ok(())
    }

    fn forgot(&mut self, node: usize, keeps_side: bool) {
        self.remembers[node] &= keeps_side;
    }
}
