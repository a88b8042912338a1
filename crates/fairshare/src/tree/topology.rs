//! The shape of a tree: parents, shares, scopes and names, in path order.
//!
//! Invariants: entry 0 is the root; a parent comes before its children, so the entries of a subtree
//! are one range of ids; nothing changes after building. Path order compares name by name, so `/a/b`
//! comes before `/a-b`.
//! Deliberately not here: usage.

use std::collections::HashMap;
use std::ops::Range;

use fairmesh_model::path::PATH_DEPTH_MAX;
use fairmesh_model::{AccountPath, Distance, HashSecret, Scope, Share, Span, Window, mutated};

use super::spec::{BuildError, EntryId, EntrySpec, TreeSpec};
use super::sums::Sums;
use crate::deviation::{DeviationVector, Level};
use crate::history::WeightTable;

/// Entries from a leaf to the root.
pub(crate) const CHAIN_MAX: usize = PATH_DEPTH_MAX + 1;

/// One entry, in 32 bytes: a look-up reads one a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// The first id after the subtree.
    pub(crate) end: u32,
    pub(crate) share: Share,
    pub(crate) at_most: Share,
    pub(crate) history: u32,
    pub(crate) depth: u8,
    pub(crate) scope: Scope,
    pub(crate) distance: Distance,
}

/// The entries from one up to the root.
pub(crate) struct Chain {
    ids: [u32; CHAIN_MAX],
    len: usize,
}

#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) paths: Vec<AccountPath>,
    pub(crate) histories: Vec<WeightTable>,
    pub(crate) local: usize,
    /// Levels below the root of the deepest entry.
    pub(crate) depth: usize,
    /// For look-ups only, never iterated.
    index: HashMap<AccountPath, u32, HashSecret>,
}

impl Chain {
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }
}

impl Topology {
    pub(crate) fn new(spec: TreeSpec) -> Result<Self, BuildError> {
        let TreeSpec {
            histories,
            local_history,
            root_history,
            secret,
            mut entries,
        } = spec;
        if u32::try_from(entries.len()).map_or(true, |count| count > u32::MAX - 2) {
            return Err(BuildError::TooMany);
        }
        entries.sort_unstable_by(|a, b| path_order(&a.path, &b.path));
        let mut tree = Self {
            nodes: Vec::with_capacity(entries.len() + 1),
            paths: Vec::with_capacity(entries.len() + 1),
            histories,
            local: local_history,
            depth: 0,
            index: HashMap::with_capacity_and_hasher(entries.len() + 1, secret),
        };
        tree.check_history(&AccountPath::root(), local_history)?;
        let history = tree.check_history(&AccountPath::root(), root_history)?;
        let root = Node {
            parent: 0,
            end: 1,
            share: Share::WHOLE,
            at_most: Share::WHOLE,
            history,
            depth: 0,
            scope: Scope::Local,
            distance: Distance::Absolute,
        };
        tree.push(root, AccountPath::root());
        let mut open = vec![0u32];
        for entry in entries {
            tree.add(entry, &mut open)?;
        }
        tree.close(&mut open, 0);
        Ok(tree)
    }

    fn add(&mut self, entry: EntrySpec, open: &mut Vec<u32>) -> Result<(), BuildError> {
        let EntrySpec {
            path,
            share,
            at_most,
            scope,
            distance,
            history,
        } = entry;
        if path.is_root() {
            return Err(BuildError::RootListed);
        }
        if self.paths.last() == Some(&path) {
            return Err(BuildError::Duplicate(path));
        }
        let keep = open
            .iter()
            .take_while(|id| path.starts_with(&self.paths[at(**id)]))
            .count();
        self.close(open, keep);
        let parent = *open.last().expect("every path starts with the root");
        if path.parent_str() != Some(self.paths[at(parent)].as_str()) {
            let missing = path.parent().expect("not the root");
            return Err(BuildError::MissingParent { path, missing });
        }
        let history = self.check_history(&path, history)?;
        let depth = self.nodes[at(parent)].depth + 1;
        self.depth = self.depth.max(usize::from(depth));
        open.push(self.push(
            Node {
                parent,
                end: 0,
                share,
                at_most,
                history,
                depth,
                scope,
                distance,
            },
            path,
        ));
        Ok(())
    }

    fn push(&mut self, node: Node, path: AccountPath) -> u32 {
        let id = u32::try_from(self.nodes.len()).expect("counted before");
        self.index.insert(path.clone(), id);
        self.nodes.push(node);
        self.paths.push(path);
        id
    }

    /// Ends the subtrees that are open beyond the first `keep`.
    fn close(&mut self, open: &mut Vec<u32>, keep: usize) {
        let end = u32::try_from(self.nodes.len()).expect("counted before");
        for id in open.drain(keep..) {
            self.nodes[at(id)].end = end;
        }
    }

    fn check_history(&self, path: &AccountPath, index: usize) -> Result<u32, BuildError> {
        let count = self.histories.len();
        match u32::try_from(index) {
            Ok(history) if index < count => Ok(history),
            _ => Err(BuildError::UnknownHistory {
                path: path.clone(),
                index,
                count,
            }),
        }
    }

    pub(crate) fn node(&self, entry: EntryId) -> &Node {
        &self.nodes[entry.index()]
    }

    pub(crate) fn history_of(&self, entry: EntryId) -> usize {
        at(self.node(entry).history)
    }

    /// The deepest entry that `path` is or lies below, and whether it is that entry.
    pub(crate) fn resolve(&self, path: &AccountPath) -> (EntryId, bool) {
        let mut text = path.as_str();
        let whole = text;
        loop {
            if let Some(id) = self.index.get(text) {
                return (EntryId(*id), text.len() == whole.len());
            }
            text = match text.rfind('/') {
                Some(cut) if cut > 0 => &text[..cut],
                _ => "/",
            };
        }
    }

    pub(crate) fn chain(&self, entry: EntryId) -> Chain {
        let mut chain = Chain {
            ids: [0; CHAIN_MAX],
            len: 1,
        };
        chain.ids[0] = entry.0;
        let mut id = entry.0;
        while id != 0 {
            id = self.nodes[at(id)].parent;
            chain.ids[chain.len] = id;
            chain.len += 1;
        }
        chain
    }

    /// The ids of the subtree of `entry`, itself first.
    pub(crate) fn subtree(&self, entry: EntryId) -> Range<usize> {
        entry.index()..at(self.node(entry).end)
    }

    /// The level between an entry and its parent.
    pub(crate) fn level(&self, node: &Node, own: Sums, parent: Sums) -> Level {
        let (usage, parent_usage) = match node.scope {
            Scope::Global if !mutated!(GlobalLevelsLocal) => (own.global, parent.global),
            _ => (own.local, parent.local),
        };
        Level {
            target: node.share,
            at_most: node.at_most,
            distance: node.distance,
            usage,
            parent_usage,
        }
    }

    /// Fills in the vector of the entry whose chain this is; `sums[i]` belongs to `chain.ids()[i]`.
    pub(crate) fn vector(
        &self,
        chain: &Chain,
        sums: &[Sums; CHAIN_MAX],
        vector: &mut DeviationVector,
    ) {
        let depth = chain.len - 1;
        vector.set_depth(depth);
        for (above, id) in chain.ids()[..depth].iter().enumerate() {
            *vector.level_mut(depth - 1 - above) =
                self.level(&self.nodes[at(*id)], sums[above], sums[above + 1]);
        }
    }

    /// Whether what is booked on entries of `history` is in the global sums of these and of all above: not
    /// the usage of the owner's own entries, so that a level over VOs counts theirs and nothing else.
    pub(crate) fn is_of_vo(&self, history: usize) -> bool {
        history != self.local
    }

    /// The weights of usage booked on an entry of `history` in `span`: local, then global.
    pub(crate) fn weights(&self, history: usize, span: Span, references: &[Window]) -> (u64, u64) {
        let own = &self.histories[history];
        let global = own.weight_of_span(span, references[history]);
        if !self.is_of_vo(history) {
            return (global, 0);
        }
        let site = &self.histories[self.local];
        (
            site.weight_of_span(site.convert(span, own.length()), references[self.local]),
            global,
        )
    }
}

/// Compares names from the root down. No name holds a control character, so a slash that sorts
/// first makes the order of the text the order of the names.
fn path_order(a: &AccountPath, b: &AccountPath) -> std::cmp::Ordering {
    let key = |path: &AccountPath, index: usize| path.as_str().as_bytes().get(index).copied();
    let same = a
        .as_str()
        .bytes()
        .zip(b.as_str().bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let slash_first = |byte: Option<u8>| byte.map(|byte| if byte == b'/' { 0 } else { byte });
    slash_first(key(a, same)).cmp(&slash_first(key(b, same)))
}

/// A stored id as an index.
pub(crate) fn at(id: u32) -> usize {
    usize::try_from(id).expect("32 bits fit an index")
}
