//! Reading a tree from any thread.
//!
//! Invariants: every answer is of one moment; a reader never makes the writer wait; a look-up costs
//! O(depth) and allocates nothing. A reader that meets a write reads again: a write is a few dozen
//! stores, and the second read finds its lines in the cache.
//! Deliberately not here: ranks, which need all entries (`order`).

use std::sync::Arc;

use fairmesh_model::{AccountPath, Date, Window};

use super::amounts::Sums;
use super::entry::{EntryId, EntryKind};
use super::snapshot::Snapshot;
use super::sums::SumStore;
use super::topology::{Resolved, Topology};
use crate::deviation::DeviationVector;

/// A handle to a tree's sums. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TreeReader {
    pub(super) topology: Arc<Topology>,
    pub(super) store: Arc<SumStore>,
}

impl TreeReader {
    /// Where usage of `path` counts; at worst among the accounts without a line at the root.
    pub fn resolve(&self, path: &AccountPath) -> Resolved {
        self.topology.resolve(path)
    }

    /// The entry of exactly this path, or the one that it has become.
    pub fn entry(&self, path: &AccountPath) -> Option<EntryId> {
        self.topology.find(path)
    }

    /// The entry of this index, as [`EntryId::index`] gave it; `None` if this tree has none.
    pub fn entry_at(&self, index: u32) -> Option<EntryId> {
        let entry = EntryId(index);
        (entry.index() < self.topology.entries()).then_some(entry)
    }

    /// The path of `entry` in the tree.
    pub fn path(&self, entry: EntryId) -> &AccountPath {
        self.topology.path(entry)
    }

    /// Whether `entry` has a line of its own, and whether it is an entry `*`.
    pub fn kind(&self, entry: EntryId) -> EntryKind {
        self.topology.node(entry).kind
    }

    /// The date from which on usage counts for `entry`, if a line states one for it or for an entry above it.
    pub fn since(&self, entry: EntryId) -> Option<Date> {
        self.topology.since(entry)
    }

    /// Whether `entry` is `above`, or below it. O(depth).
    pub fn is_within(&self, entry: EntryId, above: EntryId) -> bool {
        self.topology.chain(entry).ids().contains(&above.0)
    }

    /// The entry above; `None` for the root.
    pub fn parent(&self, entry: EntryId) -> Option<EntryId> {
        (entry != EntryId::ROOT).then(|| EntryId(self.topology.node(entry).parent))
    }

    /// How many entries there are, the root included.
    pub fn entries(&self) -> usize {
        self.topology.entries()
    }

    /// Levels below the root of the deepest entry.
    pub fn depth(&self) -> usize {
        self.topology.depth()
    }

    /// The windows that the sums are seen from, one per history.
    pub fn references(&self) -> Vec<Window> {
        self.store
            .read(|generation| self.store.references(generation))
    }

    /// The window that local sums are seen from, in windows of the site's history.
    pub fn local_reference(&self) -> Window {
        let local = self.topology.local;
        self.store
            .read(|generation| self.store.reference(local, generation))
    }

    /// The sums of one entry.
    pub fn sums(&self, entry: EntryId) -> Sums {
        self.store
            .read(|generation| self.store.sums(entry.index(), generation))
    }

    /// The deviation vector of one entry. O(depth).
    pub fn vector(&self, entry: EntryId) -> DeviationVector {
        let chain = self.topology.chain(entry);
        let [sums, all] = self
            .store
            .read(|generation| self.store.chain_sums(&self.topology, &chain, generation));
        let mut vector = DeviationVector::EMPTY;
        self.topology.vector(&chain, &sums, &all, &mut vector);
        vector
    }

    /// Grows with each write: where it is what it was, so are all sums and references.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// All sums of one moment, or `None` where the writer wrote during each of `attempts` copies
    /// (then ask the writer, whose copy needs no second attempt).
    pub fn snapshot(&self, attempts: u32) -> Option<Snapshot> {
        (0..attempts).find_map(|_| {
            self.store
                .try_read(|generation| Snapshot::copy(&self.topology, &self.store, generation))
        })
    }
}
