//! From a [`TreeSpec`] to a tree: checks, order, the entries `*`, reduced weights, periods.
//!
//! Invariant: the result depends on the set of entries alone. O(n log n).
//! Deliberately not here: anything that changes after building.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Date, Distance, HashSecret, Scope, Share, ShareRule, Weight, Window, mutant,
    mutated,
};

use super::entry::{EntryKind, Node, at};
use super::siblings::{Siblings, reduce};
use super::spec::{BuildError, EntrySpec, TreeSpec};
use super::topology::Topology;
use super::unlisted::UnlistedAccounts;
use super::writer::TreeWriter;

/// An entry that is to be added, and whether somebody wrote its line.
struct Line {
    spec: EntrySpec,
    is_implied: bool,
}

/// An entry whose subtree is being added, and the level below it, once it has an entry.
struct Open {
    id: u32,
    level: Option<u32>,
}

impl TreeSpec {
    /// Builds the tree, without usage, seen from `references` (one window per history, each in the
    /// windows of its history). O(n log n).
    ///
    /// # Errors
    /// A [`BuildError`] names the first entry at fault.
    pub fn build(self, references: &[Window]) -> Result<TreeWriter, BuildError> {
        if references.len() != self.histories.len() {
            return Err(BuildError::References {
                given: references.len(),
                histories: self.histories.len(),
            });
        }
        Ok(TreeWriter::new(Arc::new(Topology::new(self)?), references))
    }
}

impl Topology {
    pub(crate) fn new(spec: TreeSpec) -> Result<Self, BuildError> {
        // Half of the ids are left for entries `*` and for accounts without a line.
        if u32::try_from(spec.entries.len()).map_or(true, |count| count > 1 << 31) {
            return Err(BuildError::TooMany);
        }
        let mut lines = lines_of(&spec);
        let TreeSpec {
            rule,
            histories,
            local_history,
            root_history,
            secret,
            moves,
            entries: _,
        } = spec;
        lines.sort_unstable_by(|a, b| path_order(&a.spec.path, &b.spec.path));
        let mut tree = Self {
            rule,
            nodes: Vec::with_capacity(lines.len() + 1),
            paths: Vec::with_capacity(lines.len() + 1),
            levels: vec![level_of(Scope::Local, Distance::Absolute)],
            histories,
            local: local_history,
            depth: 0,
            periods: Vec::new(),
            level_sums: 0,
            index: index(lines.len() + 1, secret),
            moved: index(moves.len(), secret),
            unlisted: UnlistedAccounts::new(secret),
        };
        tree.check_history(&AccountPath::root(), local_history)?;
        let root = Node {
            parent: 0,
            end: 1,
            weight: 1,
            at_most: Share::WHOLE,
            siblings: 0,
            history: tree.check_history(&AccountPath::root(), root_history)?,
            depth: 0,
            kind: EntryKind::Listed,
        };
        tree.push(root, AccountPath::root());
        let mut open = vec![Open { id: 0, level: None }];
        let mut since: Vec<(u32, Date)> = Vec::new();
        for line in lines {
            let from = line.spec.since;
            let id = tree.add(line, &mut open)?;
            since.extend(from.map(|from| (id, from)));
        }
        tree.close(&mut open, 0);
        if rule == ShareRule::Weights {
            reduce(&mut tree.nodes, &mut tree.levels);
        }
        tree.begin_periods(&since);
        tree.take_moves(moves);
        Ok(tree)
    }

    fn add(&mut self, line: Line, open: &mut Vec<Open>) -> Result<u32, BuildError> {
        let EntrySpec {
            path,
            weight,
            at_most,
            scope,
            distance,
            history,
            since: _,
        } = line.spec;
        if path.is_root() {
            return Err(BuildError::RootListed);
        }
        if self.paths.last() == Some(&path) {
            return Err(BuildError::Duplicate(path));
        }
        let keep = open
            .iter()
            .take_while(|open| path.starts_with(&self.paths[at(open.id)]))
            .count();
        self.close(open, keep);
        let above = open.last_mut().expect("every path starts with the root");
        let parent = self.nodes[at(above.id)];
        if path.parent_str() != Some(self.paths[at(above.id)].as_str()) {
            let missing = path.parent().expect("not the root");
            return Err(BuildError::MissingParent { path, missing });
        }
        if parent.is_others() {
            return Err(BuildError::BelowOthers(path));
        }
        let id = u32::try_from(self.nodes.len()).expect("counted before");
        let siblings = *above.level.get_or_insert_with(|| {
            self.levels.push(level_of(scope, distance));
            u32::try_from(self.levels.len() - 1).expect("fewer than entries")
        });
        let kind = match (self.rule, path.is_others(), line.is_implied) {
            (ShareRule::AsPublished, ..) | (_, false, _) => EntryKind::Listed,
            (_, true, false) => EntryKind::Others,
            (_, true, true) => EntryKind::ImpliedOthers,
        };
        let level = &mut self.levels[at(siblings)];
        if matches!(kind, EntryKind::Others | EntryKind::ImpliedOthers) {
            level.others = Some(id);
        }
        let node = Node {
            parent: above.id,
            end: 0,
            weight,
            at_most,
            siblings,
            history: self.check_history(&path, history)?,
            depth: parent.depth + 1,
            kind,
        };
        self.depth = self.depth.max(usize::from(node.depth));
        open.push(Open { id, level: None });
        self.push(node, path);
        Ok(id)
    }

    fn push(&mut self, node: Node, path: AccountPath) {
        let id = u32::try_from(self.nodes.len()).expect("counted before");
        self.index.insert(path.clone(), id);
        self.nodes.push(node);
        self.paths.push(path);
    }

    /// Ends the subtrees that are open beyond the first `keep`.
    fn close(&mut self, open: &mut Vec<Open>, keep: usize) {
        let end = u32::try_from(self.nodes.len()).expect("counted before");
        for ended in open.drain(keep..) {
            self.nodes[at(ended.id)].end = end;
        }
    }

    fn check_history(&self, path: &AccountPath, index: usize) -> Result<u16, BuildError> {
        let count = self.histories.len();
        match u16::try_from(index) {
            Ok(history) if index < count => Ok(history),
            _ => Err(BuildError::UnknownHistory {
                path: path.clone(),
                index,
                count,
            }),
        }
    }

    /// The first day that counts for each entry: the latest that it or an entry above it says. A level where
    /// entries begin later than their parent has sums of its own.
    fn begin_periods(&mut self, since: &[(u32, Date)]) {
        if since.is_empty() {
            return;
        }
        self.periods = vec![0; self.nodes.len()];
        for (id, date) in since {
            self.periods[at(*id)] = mutant!(SinceOneDayLater, date.0, date.0 + 1);
        }
        for id in 1..self.nodes.len() {
            let (node, parent) = (self.nodes[id], at(self.nodes[id].parent));
            let begins_later = self.periods[id] > self.periods[parent];
            let of_parent = mutant!(PeriodsNotInherited, self.periods[parent], 0);
            self.periods[id] = self.periods[id].max(of_parent);
            let level = &mut self.levels[node.level()];
            if begins_later && level.sums.is_none() && !mutated!(PeriodsLeaveTotals) {
                level.sums = Some(u32::try_from(self.level_sums).expect("fewer than entries"));
                self.level_sums += 1;
            }
        }
    }

    fn take_moves(&mut self, moves: Vec<(AccountPath, AccountPath)>) {
        for (from, to) in moves {
            let entry = self.index.get(to.as_str()).copied();
            if let Some(id) = entry.filter(|_| !self.index.contains_key(from.as_str())) {
                self.moved.entry(from).or_insert(id);
            }
        }
    }
}

/// The entries, and those that nobody wrote: `*` below every entry that has others below it.
fn lines_of(spec: &TreeSpec) -> Vec<Line> {
    let written = spec.entries.iter().map(|spec| Line {
        spec: spec.clone(),
        is_implied: false,
    });
    let mut lines: Vec<Line> = written.collect();
    if spec.rule == ShareRule::AsPublished {
        return lines;
    }
    let mut histories: HashMap<&str, usize> = HashMap::from([("/", spec.root_history)]);
    let mut levels: BTreeMap<&str, &EntrySpec> = BTreeMap::new();
    for entry in &spec.entries {
        histories.insert(entry.path.as_str(), entry.history);
        let Some(parent) = entry.path.parent_str() else {
            continue;
        };
        let first = levels.entry(parent).or_insert(entry);
        if entry.path.is_others() {
            *first = entry;
        }
    }
    let implied = levels.iter().filter(|(_, first)| !first.path.is_others());
    let implied = implied.filter_map(|(parent, first)| {
        let history = *histories.get(parent)?;
        let path = AccountPath::parse(parent).ok()?.others()?;
        Some(Line {
            spec: EntrySpec {
                path,
                weight: mutant!(OthersWeighOne, 0, Weight::ONE),
                at_most: Share::WHOLE,
                scope: first.scope,
                distance: first.distance,
                history,
                since: None,
            },
            is_implied: true,
        })
    });
    lines.extend(implied);
    lines
}

const fn level_of(scope: Scope, distance: Distance) -> Siblings {
    Siblings {
        scope,
        distance,
        total: 0,
        unit: 1,
        others: None,
        sums: None,
    }
}

fn index(capacity: usize, secret: HashSecret) -> HashMap<AccountPath, u32, HashSecret> {
    HashMap::with_capacity_and_hasher(capacity, secret)
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
