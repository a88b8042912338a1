//! Moving the reference windows on: the recomputation of all sums, in bounded slices.
//!
//! Invariants: readers keep the old generation, complete and up to date, until the new one is; then
//! all entries change at once. An entry that the sweep has passed takes part in the new generation,
//! and so do its later changes; one that it has not passed does not, and will be read in full.
//! Deliberately not here: when to move on. The design recomputes "the next time it is read, not for
//! everybody at once"; as `actual` divides two sums, both must be seen from one window, so it is the
//! work that is spread instead, and the moment that is common.

use fairmesh_model::{Window, mutant, mutated};

use super::TreeWriter;
use crate::tree::amounts::Change;
use crate::tree::entry::EntryId;
use crate::tree::topology::Topology;

/// Cells that are weighed in the time that an entry takes beside them.
const CELLS_PER_ENTRY: usize = 8;

/// How far the next generation is.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) references: Vec<Window>,
    /// Entries whose old sums are zeroed; all must be before the first is summed.
    cleared: usize,
    /// Entries whose bookings the next generation holds.
    summed: usize,
}

impl Sweep {
    pub(super) const fn towards(references: Vec<Window>) -> Self {
        Self {
            references,
            cleared: 0,
            summed: 0,
        }
    }

    pub(super) fn has_passed(&self, entry: usize) -> bool {
        mutant!(BorderTwice, entry < self.summed, entry <= self.summed)
    }
}

impl TreeWriter {
    /// Works towards sums seen from `references` (one window per history), on at most `entries_max`
    /// entries (at least one; fewer where much is booked on them), and says whether readers see them. Call
    /// again until it does.
    ///
    /// References never move back: raw amounts that weigh nothing are dropped, so an earlier window
    /// is read as the present one. After a clock ran ahead, build the tree anew. A sweep under way
    /// is finished before a later target is begun.
    ///
    /// # Panics
    /// If there are not as many references as histories.
    pub fn advance(&mut self, references: &[Window], entries_max: usize) -> bool {
        assert_eq!(
            references.len(),
            self.references.len(),
            "one reference window per history"
        );
        let target: Vec<Window> = self
            .references
            .iter()
            .zip(references)
            .map(|(now, next)| *now.max(next))
            .collect();
        if self.sweep.is_none() {
            if target == self.references {
                return true;
            }
            self.sweep = Some(Sweep::towards(target.clone()));
        }
        self.sweep_some(entries_max.max(1));
        self.sweep.is_none()
            && self
                .references
                .iter()
                .zip(&target)
                .all(|(now, wanted)| now >= wanted)
    }

    /// Recomputes everything at once, towards the window that a sweep under way aims at.
    pub(super) fn recompute(&mut self) {
        let references = self
            .sweep
            .take()
            .map_or_else(|| self.references.clone(), |sweep| sweep.references);
        self.sweep = Some(Sweep::towards(references));
        self.sweep_some(usize::MAX);
    }

    fn sweep_some(&mut self, mut budget: usize) {
        let Some(mut sweep) = self.sweep.take() else {
            return;
        };
        let (entries, next) = (self.booked.len(), self.store.generation() ^ 1);
        if sweep.cleared == 0 {
            self.store.clear_levels(next);
        }
        while budget > 0 && sweep.cleared < entries {
            if !mutated!(SweptTwice) {
                self.store.clear(sweep.cleared, next);
            }
            sweep.cleared += 1;
            budget -= 1;
        }
        while budget > 0 && sweep.summed < entries {
            if budget > 1 || !mutated!(SliceEndSkipped) {
                self.sum_entry(sweep.summed, next, &sweep.references);
            }
            let cells = self.booked[sweep.summed].len();
            budget = budget.saturating_sub(1 + cells / CELLS_PER_ENTRY);
            sweep.summed += 1;
        }
        if sweep.summed + mutant!(SwappedEarly, 0, 1) >= entries {
            self.store.swap(&sweep.references);
            self.references = sweep.references;
            self.is_loading = false;
        } else {
            self.sweep = Some(sweep);
        }
    }

    fn sum_entry(&mut self, index: usize, generation: usize, references: &[Window]) {
        let entry = EntryId(u32::try_from(index).expect("ids are 32 bits"));
        let topology: &Topology = &self.topology;
        let history = topology.history_of(entry);
        let booked = &mut self.booked[index];
        if !booked.is_empty() {
            booked.compact(topology, history, references);
        }
        let sum_since = |since: u32| {
            let running = self.running_weighted(entry, references, since);
            let booked = &self.booked[index];
            if booked.is_empty() && running == 0 {
                return Change::default();
            }
            let change = booked.weighted(topology, history, references, since);
            Change {
                local: change.local.wrapping_add(running),
                ..change
            }
        };
        let chain = topology.chain(entry);
        let period = |id: &u32| topology.period(EntryId(*id));
        // Entries of one period next to each other count the same.
        for entries in chain.ids().chunk_by(|a, b| period(a) == period(b)) {
            let change = sum_since(period(&entries[0]));
            if change != Change::default() {
                self.store.add(topology, entries, generation, change);
            }
        }
    }
}
