//! All sums of one moment, for what needs every entry: ranks, explanations, Fair Tree.
//!
//! Invariant: nothing in it changes; the topology is shared with the tree, only sums are copied.
//! Deliberately not here: anything that a single look-up needs.

use std::ops::Range;
use std::sync::Arc;

use fairmesh_model::{AccountPath, Window};

use super::spec::EntryId;
use super::sums::{SumStore, Sums};
use super::topology::{CHAIN_MAX, Topology, at};
use crate::deviation::{DeviationVector, Level};

/// A consistent copy of a tree's sums, 32 bytes an entry.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) topology: Arc<Topology>,
    sums: Vec<Sums>,
    references: Vec<Window>,
}

impl Snapshot {
    pub(super) fn copy(topology: &Arc<Topology>, store: &SumStore, generation: usize) -> Self {
        let sums = (0..store.len())
            .map(|entry| store.sums(entry, generation))
            .collect();
        Self {
            topology: Arc::clone(topology),
            sums,
            references: store.references(generation),
        }
    }

    /// How many entries there are, the root included.
    pub fn entries(&self) -> usize {
        self.sums.len()
    }

    /// All entries, in path order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = EntryId> + use<> {
        ids(0..self.sums.len())
    }

    /// Levels below the root of the deepest entry.
    pub fn depth(&self) -> usize {
        self.topology.depth
    }

    /// The windows that the sums are seen from, one per history.
    pub fn references(&self) -> &[Window] {
        &self.references
    }

    /// Where `entry` is.
    pub fn path(&self, entry: EntryId) -> &AccountPath {
        &self.topology.paths[entry.index()]
    }

    /// The entry above; `None` for the root.
    pub fn parent(&self, entry: EntryId) -> Option<EntryId> {
        (entry != EntryId::ROOT).then(|| EntryId(self.topology.node(entry).parent))
    }

    /// `entry` and all entries below it, in path order.
    pub fn subtree(&self, entry: EntryId) -> impl ExactSizeIterator<Item = EntryId> + use<> {
        ids(self.topology.subtree(entry))
    }

    /// The entries right below `entry`, in path order: O(children).
    pub fn children(&self, entry: EntryId) -> impl Iterator<Item = EntryId> {
        let end = self.topology.subtree(entry).end;
        let from = move |at: usize| ids(at..end).next();
        let first = from(entry.index() + 1);
        std::iter::successors(first, move |child| from(self.topology.subtree(*child).end))
    }

    /// Whether nothing is below `entry`.
    pub fn is_leaf(&self, entry: EntryId) -> bool {
        self.topology.subtree(entry).len() == 1
    }

    /// The sums of `entry`.
    pub fn sums(&self, entry: EntryId) -> Sums {
        self.sums[entry.index()]
    }

    /// The level between `entry` and its parent; a missing level for the root.
    pub fn level(&self, entry: EntryId) -> Level {
        let node = self.topology.node(entry);
        if entry == EntryId::ROOT {
            return Level::MISSING;
        }
        self.topology
            .level(node, self.sums(entry), self.sums[at(node.parent)])
    }

    /// The deviation vector of `entry`.
    pub fn vector(&self, entry: EntryId) -> DeviationVector {
        let chain = self.topology.chain(entry);
        let mut sums = [Sums::default(); CHAIN_MAX];
        for (sum, id) in sums.iter_mut().zip(chain.ids()) {
            *sum = self.sums[at(*id)];
        }
        let mut vector = DeviationVector::EMPTY;
        self.topology.vector(&chain, &sums, &mut vector);
        vector
    }
}

fn ids(range: Range<usize>) -> impl ExactSizeIterator<Item = EntryId> + use<> {
    let id = |index| u32::try_from(index).expect("ids are 32 bits");
    (id(range.start)..id(range.end.max(range.start))).map(EntryId)
}
