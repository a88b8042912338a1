//! The shape of a tree: parents, weights, scopes and names, in path order.
//!
//! Invariants: entry 0 is the root; a parent comes before its children, so the entries of a subtree
//! are one range of ids, and the accounts without a line follow after all of them; nothing but these is added
//! after building. Path order compares name by name, so `/a/b` comes before `/a-b`.
//! Under the rule of weights every entry that has children has a child `*`, so all usage in the tree counts at a
//! leaf or at an account without a line, and the usage of siblings adds up to that of their parent.
//! Deliberately not here: usage.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use fairmesh_model::path::PATH_DEPTH_MAX;
use fairmesh_model::{
    AccountPath, Date, Distance, HashSecret, Scope, Share, ShareRule, Span, Window, mutant, mutated,
};

use super::amounts::Sums;
use super::entry::{EntryId, EntryKind, Node, at};
use super::siblings::Siblings;
use super::unlisted::{Unlisted, UnlistedAccounts};
use crate::deviation::{DeviationVector, Level, VECTOR_LEVELS_MAX};
use crate::history::WeightTable;
use crate::target::Target;

/// Entries from a leaf to the root.
pub(crate) const CHAIN_MAX: usize = VECTOR_LEVELS_MAX + 1;

/// The last name of usage booked on an entry that has children, among the accounts without a line.
const ITSELF: &str = "=";

/// The entries from one up to the root.
pub(crate) struct Chain {
    ids: [u32; CHAIN_MAX],
    len: usize,
}

#[derive(Debug)]
pub(crate) struct Topology {
    pub(super) rule: ShareRule,
    pub(crate) nodes: Vec<Node>,
    pub(super) paths: Vec<AccountPath>,
    /// The levels; that of the root comes first and has no other entries.
    pub(super) levels: Vec<Siblings>,
    pub(crate) histories: Vec<WeightTable>,
    pub(crate) local: usize,
    /// Levels below the root of the deepest entry.
    pub(super) depth: usize,
    /// The first day of which usage counts, for each entry; empty where no entry has one.
    pub(super) periods: Vec<u32>,
    /// How many levels have sums of their own.
    pub(super) level_sums: usize,
    /// Entries by path. For look-ups only, never iterated.
    pub(super) index: HashMap<AccountPath, u32, HashSecret>,
    /// Entries by former path, likewise.
    pub(super) moved: HashMap<AccountPath, u32, HashSecret>,
    pub(super) unlisted: UnlistedAccounts,
}

/// Where usage of an account counts.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// At an entry: its own, or a leaf above it.
    Entry { id: u32, exact: bool },
    /// Among the accounts without a line of a level, under this name.
    Others {
        others: u32,
        account: Cow<'a, AccountPath>,
    },
}

/// Where usage of a path counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// The leaf that the path is or lies below, or else the account without a line. One that has used nothing
    /// yet is the entry `*` of its level.
    pub entry: EntryId,
    /// Whether the path is that of an entry with a line, and its usage counts there.
    pub exact: bool,
}

impl Chain {
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }
}

impl Topology {
    /// How many entries there are now.
    pub(crate) fn entries(&self) -> usize {
        self.nodes.len() + self.unlisted.len()
    }

    /// Levels below the root of the deepest entry.
    pub(crate) fn depth(&self) -> usize {
        self.depth.max(self.unlisted.depth())
    }

    /// The same without accounts that have no line and have used nothing.
    pub(super) fn depth_of_used(&self, sums: &[Sums]) -> usize {
        if self.unlisted.depth() <= self.depth {
            return self.depth;
        }
        let unlisted = sums[self.nodes.len()..].iter().enumerate();
        let used = unlisted.filter(|(_, sums)| **sums != Sums::default());
        let depths = used.map(|(index, _)| self.unlisted.get(index).node.depth);
        depths.max().map_or(self.depth, usize::from).max(self.depth)
    }

    pub(crate) fn node(&self, entry: EntryId) -> &Node {
        let index = entry.index();
        match index.checked_sub(self.nodes.len()) {
            None => &self.nodes[index],
            Some(index) => &self.unlisted.get(index).node,
        }
    }

    pub(crate) fn path(&self, entry: EntryId) -> &AccountPath {
        let index = entry.index();
        match index.checked_sub(self.nodes.len()) {
            None => &self.paths[index],
            Some(index) => &self.unlisted.get(index).path,
        }
    }

    pub(crate) fn history_of(&self, entry: EntryId) -> usize {
        usize::from(self.node(entry).history)
    }

    /// The first day of which usage counts for an entry.
    pub(crate) fn period(&self, entry: EntryId) -> u32 {
        if self.periods.is_empty() {
            return 0;
        }
        let node = self.node(entry);
        let listed = match node.kind {
            EntryKind::Unlisted => at(node.parent),
            _ => entry.index(),
        };
        self.periods[listed]
    }

    /// The date from which on usage counts for an entry, if a line states one for it or for an entry above it.
    pub(crate) fn since(&self, entry: EntryId) -> Option<Date> {
        Some(Date(self.period(entry))).filter(|date| date.0 > 0)
    }

    /// Where usage of `path` counts.
    pub(crate) fn place<'a>(&self, path: &'a AccountPath) -> Place<'a> {
        let account = self.follow(path);
        let (id, exact) = self.deepest(&account);
        let others = self.others_of(id);
        match others {
            Some(others) => Place::Others { others, account },
            None => Place::Entry { id, exact },
        }
    }

    /// The entry where usage of `path` counts: for an account without a line that has used nothing yet, the
    /// entry of all such. And whether the path is that entry's.
    pub(crate) fn resolve(&self, path: &AccountPath) -> Resolved {
        let (id, exact) = match self.place(path) {
            Place::Entry { id, exact } => (id, exact),
            Place::Others { others, account } => {
                let known = self.unlisted.find(account.as_str());
                (known.unwrap_or(others), false)
            }
        };
        Resolved {
            entry: EntryId(id),
            exact,
        }
    }

    /// The entry of exactly this path, or the one that has become of it.
    pub(crate) fn find(&self, path: &AccountPath) -> Option<EntryId> {
        let path = self.follow(path);
        let listed = self.index.get(path.as_str()).copied();
        listed
            .or_else(|| self.unlisted.find(path.as_str()))
            .map(EntryId)
    }

    /// Adds an account without a line. For the writer.
    pub(super) fn add_unlisted(&self, others: u32, account: AccountPath) -> EntryId {
        let parent = self.nodes[at(others)];
        let id = u32::try_from(self.entries()).expect("entries are numbered in 32 bits");
        let is_listed = self.index.contains_key(account.as_str());
        // Usage of an entry that has children gets a name, because the path is that of the entry.
        let itself = is_listed.then(|| self.paths[at(others)].child(ITSELF).ok());
        let path = itself.flatten().unwrap_or_else(|| account.clone());
        let node = Node {
            parent: others,
            end: id + 1,
            weight: 0,
            at_most: Share::WHOLE,
            siblings: parent.siblings,
            history: parent.history,
            depth: parent.depth + 1,
            kind: EntryKind::Unlisted,
        };
        self.unlisted.add(account, id, Unlisted { node, path });
        EntryId(id)
    }

    /// The entry of the accounts without a line below entry `id`; `None` where all usage below it is its own.
    fn others_of(&self, id: u32) -> Option<u32> {
        let node = &self.nodes[at(id)];
        if node.is_others() {
            return Some(id);
        }
        let first = (node.end > id + 1).then(|| &self.nodes[at(id + 1)])?;
        self.levels[first.level()].others
    }

    /// A path with the former paths in it replaced. Entries are no former paths, so each step uses up a name.
    fn follow<'a>(&self, path: &'a AccountPath) -> Cow<'a, AccountPath> {
        let mut path = Cow::Borrowed(path);
        if self.moved.is_empty() || mutated!(FormerPathsIgnored) {
            return path;
        }
        for _ in 0..=PATH_DEPTH_MAX {
            match self.follow_once(&path) {
                Some(next) => path = Cow::Owned(next),
                None => break,
            }
        }
        path
    }

    fn follow_once(&self, path: &AccountPath) -> Option<AccountPath> {
        let mut text = path.as_str();
        while text != "/" && !self.index.contains_key(text) {
            if let Some(id) = self.moved.get(text) {
                let below = mutant!(BelowFormerLost, &path.as_str()[text.len()..], "");
                let entry = &self.paths[at(*id)];
                let whole = AccountPath::parse(&format!("{entry}{below}"));
                // Where the new path would be too long, the entry has the usage all the same.
                return Some(whole.unwrap_or_else(|_| entry.clone()));
            }
            text = above(text);
        }
        None
    }

    /// The deepest entry with a line, or `*`, that `path` is or lies below, and whether it is that entry.
    fn deepest(&self, path: &AccountPath) -> (u32, bool) {
        let mut text = path.as_str();
        let whole = text;
        loop {
            if let Some(id) = self.index.get(text) {
                return (*id, text.len() == whole.len());
            }
            text = above(text);
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
            id = self.node(EntryId(id)).parent;
            chain.ids[chain.len] = id;
            chain.len += 1;
        }
        chain
    }

    /// The ids of the subtree of `entry`, itself first, without accounts that have no line.
    pub(crate) fn subtree(&self, entry: EntryId) -> Range<usize> {
        entry.index()..at(self.node(entry).end)
    }

    /// Where the sum of what counts at the level of `entry` is kept, if not with its parent.
    pub(super) fn level_sums(&self, entry: EntryId) -> Option<u32> {
        if self.level_sums == 0 {
            return None;
        }
        let node = self.node(entry);
        match node.kind {
            EntryKind::Unlisted => None,
            _ => self.levels[node.level()].sums,
        }
    }

    /// The level between an entry and its parent; `all` is what counts there of the entry and its siblings.
    pub(crate) fn level(&self, node: &Node, own: Sums, all: Sums) -> Level {
        let siblings = &self.levels[node.level()];
        let (usage, parent_usage) = match siblings.scope {
            Scope::Global if !mutated!(GlobalLevelsLocal) => (own.global, all.global),
            _ => (own.local, all.local),
        };
        let is_unlisted = node.kind == EntryKind::Unlisted;
        let usage = mutant!(UnlistedTied, usage, if is_unlisted { 0 } else { usage });
        Level {
            target: self.target(node, siblings),
            at_most: node.at_most,
            distance: match is_unlisted {
                true => Distance::Absolute,
                false => siblings.distance,
            },
            usage,
            parent_usage,
        }
    }

    fn target(&self, node: &Node, siblings: &Siblings) -> Target {
        match (self.rule, node.kind) {
            (ShareRule::AsPublished, _) => Target::of_units(node.weight),
            (ShareRule::Weights, EntryKind::Unlisted) => Target::UNLISTED,
            (ShareRule::Weights, _) => Target::of_siblings(node.weight, siblings.total),
        }
    }

    /// What the weights of an entry's level were divided by.
    pub(crate) fn unit(&self, node: &Node) -> u64 {
        self.levels[node.level()].unit
    }

    pub(crate) fn scope(&self, entry: EntryId) -> Scope {
        self.levels[self.node(entry).level()].scope
    }

    /// Fills in the vector of the entry whose chain this is; `sums[i]` belongs to `chain.ids()[i]`, and `all[i]`
    /// to its level.
    pub(crate) fn vector(
        &self,
        chain: &Chain,
        sums: &[Sums; CHAIN_MAX],
        all: &[Sums; CHAIN_MAX],
        vector: &mut DeviationVector,
    ) {
        let depth = chain.len - 1;
        vector.set_depth(depth);
        for (above, id) in chain.ids()[..depth].iter().enumerate() {
            let node = self.node(EntryId(*id));
            *vector.level_mut(depth - 1 - above) = self.level(node, sums[above], all[above]);
        }
    }

    /// Whether what is booked on entries of `history` is in the global sums of these and of all above: not
    /// usage that is of no VO.
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

/// The text of the path above one that is not the root.
fn above(text: &str) -> &str {
    match text.rfind('/') {
        Some(cut) if cut > 0 => &text[..cut],
        _ => "/",
    }
}
