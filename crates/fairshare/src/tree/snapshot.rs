//! All sums of one moment, for what needs every entry: ranks, explanations, Fair Tree.
//!
//! Invariant: nothing in it changes; the topology is shared with the tree, only sums are copied.
//! Deliberately not here: anything that a single look-up needs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fairmesh_model::{AccountPath, Date, Weight, Window};

use super::amounts::Sums;
use super::entry::{EntryId, EntryKind, at};
use super::sums::SumStore;
use super::topology::{CHAIN_MAX, Resolved, Topology};
use crate::deviation::{DeviationVector, Level};

/// A consistent copy of a tree's sums, 32 bytes an entry.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) topology: Arc<Topology>,
    sums: Vec<Sums>,
    /// Of the levels that have sums of their own.
    levels: Vec<Sums>,
    depth: usize,
    references: Vec<Window>,
    /// The accounts without a line by their `*`, each list by path. Made when it is first asked for.
    unlisted: OnceLock<BTreeMap<u32, Vec<u32>>>,
}

impl Snapshot {
    pub(super) fn copy(topology: &Arc<Topology>, store: &SumStore, generation: usize) -> Self {
        let entries = topology.entries();
        let sums: Vec<Sums> = (0..entries)
            .map(|entry| store.sums(entry, generation))
            .collect();
        let depth = topology.depth_of_used(&sums);
        Self {
            topology: Arc::clone(topology),
            sums,
            levels: store.own_level_sums(generation),
            depth,
            references: store.references(generation),
            unlisted: OnceLock::new(),
        }
    }

    /// How many entries there are, the root included.
    pub fn entries(&self) -> usize {
        self.sums.len()
    }

    /// All entries: in path order, and then the accounts without a line.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = EntryId> + use<> {
        ids(0..self.sums.len())
    }

    /// Levels below the root of the deepest entry.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The windows that the sums are seen from, one per history.
    pub fn references(&self) -> &[Window] {
        &self.references
    }

    /// Where usage of `path` counted when the copy was made. An account that got its entry later stands as the
    /// entry `*` of its level does.
    pub fn resolve(&self, path: &AccountPath) -> Resolved {
        let Resolved { entry, exact } = self.topology.resolve(path);
        let entry = match entry.index() < self.sums.len() {
            true => entry,
            false => EntryId(self.topology.node(entry).parent),
        };
        Resolved { entry, exact }
    }

    /// The entry of exactly this path, or the one that it has become.
    pub fn entry(&self, path: &AccountPath) -> Option<EntryId> {
        let found = self.topology.find(path);
        found.filter(|entry| entry.index() < self.sums.len())
    }

    /// How many accounts without a line belong to the entry `*` of this id.
    pub fn accounts(&self, others: EntryId) -> usize {
        self.unlisted().get(&others.0).map_or(0, Vec::len)
    }

    /// The path of `entry` in the tree.
    pub fn path(&self, entry: EntryId) -> &AccountPath {
        self.topology.path(entry)
    }

    /// Whether `entry` has a line of its own, and whether it is an entry `*`.
    pub fn kind(&self, entry: EntryId) -> EntryKind {
        self.topology.node(entry).kind
    }

    /// Whether it is an entry `*`, with a line or without.
    pub fn is_others(&self, entry: EntryId) -> bool {
        self.topology.node(entry).is_others()
    }

    /// Whether people should see it: all lines, and of the accounts without a line, and the `*` that nobody wrote,
    /// those that have used something. So ranks follow from documents and usage, and not from what a node has
    /// booked since it started.
    pub fn is_present(&self, entry: EntryId) -> bool {
        match self.kind(entry) {
            EntryKind::Listed | EntryKind::Others => true,
            EntryKind::ImpliedOthers | EntryKind::Unlisted => self.sums(entry) != Sums::default(),
        }
    }

    /// The weight of an entry with a line in the unit that the tree was built of, where that is the unit of shares.
    pub fn written(&self, entry: EntryId) -> Option<Weight> {
        let node = self.topology.node(entry);
        let has_line = matches!(node.kind, EntryKind::Listed | EntryKind::Others);
        let unit = self.topology.unit(node);
        let units = node.weight.checked_mul(unit).filter(|_| has_line)?;
        Weight::from_units(units)
    }

    /// The date from which on usage counts for `entry`, if a line states one for it or for an entry above it.
    pub fn since(&self, entry: EntryId) -> Option<Date> {
        self.topology.since(entry)
    }

    /// The entry above; `None` for the root.
    pub fn parent(&self, entry: EntryId) -> Option<EntryId> {
        (entry != EntryId::ROOT).then(|| EntryId(self.topology.node(entry).parent))
    }

    /// `entry` and all entries below it that are present: in path order, and then the accounts without a line by
    /// path.
    pub fn subtree(&self, entry: EntryId) -> impl Iterator<Item = EntryId> {
        let listed = self.topology.subtree(entry);
        let others = match u32::try_from(listed.start)
            .ok()
            .zip(u32::try_from(listed.end).ok())
        {
            Some((start, end)) if start < end => Some(self.unlisted().range(start..end)),
            _ => None,
        };
        let unlisted = others
            .into_iter()
            .flatten()
            .flat_map(|(_, accounts)| accounts);
        ids(listed)
            .chain(unlisted.map(|id| EntryId(*id)))
            .filter(|entry| self.is_present(*entry))
    }

    /// The entries right below `entry` that are present, in path order: O(children).
    pub fn children(&self, entry: EntryId) -> impl Iterator<Item = EntryId> {
        let all = self.all_children(entry);
        all.filter(|entry| self.is_present(*entry))
    }

    /// The same, and those that are not present.
    pub(crate) fn all_children(&self, entry: EntryId) -> impl Iterator<Item = EntryId> {
        let end = self.topology.subtree(entry).end;
        let from = move |at: usize| ids(at..end).next();
        let first = match self.kind(entry) {
            EntryKind::Unlisted => None,
            _ => from(entry.index() + 1),
        };
        let listed =
            std::iter::successors(first, move |child| from(self.topology.subtree(*child).end));
        let unlisted = self.is_others(entry).then(|| self.unlisted().get(&entry.0));
        let unlisted = unlisted.flatten().into_iter().flatten();
        listed.chain(unlisted.map(|id| EntryId(*id)))
    }

    /// Whether nothing is below `entry`, and nothing can be.
    pub fn is_leaf(&self, entry: EntryId) -> bool {
        match self.kind(entry) {
            EntryKind::Unlisted => true,
            EntryKind::Others | EntryKind::ImpliedOthers => false,
            EntryKind::Listed => self.topology.subtree(entry).len() == 1,
        }
    }

    /// The sums of `entry`.
    pub fn sums(&self, entry: EntryId) -> Sums {
        self.sums[entry.index()]
    }

    /// What counts at the level of `entry`, of the entry and its siblings.
    fn level_sums(&self, entry: EntryId) -> Sums {
        let of_parent = || self.sums[at(self.topology.node(entry).parent)];
        self.own_level_sums(entry).unwrap_or_else(of_parent)
    }

    /// The same where it is not what counts for the parent.
    pub(super) fn own_level_sums(&self, entry: EntryId) -> Option<Sums> {
        let level = self.topology.level_sums(entry)?;
        Some(self.levels[at(level)])
    }

    /// The level between `entry` and its parent; a missing level for the root.
    pub fn level(&self, entry: EntryId) -> Level {
        if entry == EntryId::ROOT {
            return Level::MISSING;
        }
        let node = self.topology.node(entry);
        let (own, all) = (self.sums(entry), self.level_sums(entry));
        self.topology.level(node, own, all)
    }

    /// The deviation vector of `entry`. That of an entry `*` ends with the level of an account that has used
    /// nothing, as which new accounts are served.
    pub fn vector(&self, entry: EntryId) -> DeviationVector {
        let chain = self.topology.chain(entry);
        let mut sums = [[Sums::default(); CHAIN_MAX]; 2];
        for (index, id) in chain.ids().iter().enumerate() {
            sums[0][index] = self.sums[at(*id)];
            sums[1][index] = self.level_sums(EntryId(*id));
        }
        let mut vector = DeviationVector::EMPTY;
        self.topology
            .vector(&chain, &sums[0], &sums[1], &mut vector);
        if self.is_others(entry) {
            let used = vector.levels().last().map_or(0, |level| level.usage);
            vector.push(Level {
                parent_usage: used,
                ..Level::MISSING
            });
        }
        vector
    }

    fn unlisted(&self) -> &BTreeMap<u32, Vec<u32>> {
        self.unlisted.get_or_init(|| {
            let mut by_others: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for entry in ids(self.topology.nodes.len()..self.sums.len()) {
                let others = self.topology.node(entry).parent;
                by_others.entry(others).or_default().push(entry.0);
            }
            for accounts in by_others.values_mut() {
                accounts.sort_by(|a, b| self.path(EntryId(*a)).cmp(self.path(EntryId(*b))));
            }
            by_others
        })
    }
}

fn ids(range: Range<usize>) -> impl ExactSizeIterator<Item = EntryId> + use<> {
    let id = |index| u32::try_from(index).expect("ids are 32 bits");
    (id(range.start)..id(range.end.max(range.start))).map(EntryId)
}
