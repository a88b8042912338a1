//! The shares of a tree file, whoever it is for.
//!
//! `fairmesh_policy::parse_tree` checks the file; this takes each entry's target out of it, so that
//! one command reads an owner's tree (a mount is an entry with a target: its share, times its
//! weight, at most its cap), a VO's (a delegation is an entry) and a whole Grid's, where entries
//! stand below mounts.
//!
//! Invariant: parents of all entries are entries, or the root. Deliberately not here: whose usage counts
//! at a level; whoever emulates has one table of charges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fairmesh_fairshare::{EntrySpec, TreeReader, TreeSpec, WeightTable};
use fairmesh_model::{
    AccountPath, Date, Distance, HistoryRule, PolicyMount, Scope, Share, SharePolicy, ShareRule,
    Window, WindowLength,
};
use fairmesh_node::config::OtherSums;
use fairmesh_policy::{SiteEntry, TreeFileError, parse_tree, weights};

/// Entries and their targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareTree {
    shares: BTreeMap<AccountPath, SiteEntry>,
    /// What entries say of the level below them, and the root; those that say nothing are left out.
    terms: BTreeMap<AccountPath, Terms>,
    lists_root: bool,
}

/// What an entry says of the level below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    usage: Option<Scope>,
    distance: Option<Distance>,
    policy: Option<PolicyMount>,
    was: Vec<AccountPath>,
    since: Option<Date>,
}

impl Terms {
    fn of_entry(entry: &SiteEntry, policy: Option<&PolicyMount>) -> Self {
        Self {
            usage: entry.usage,
            distance: entry.distance,
            policy: policy.cloned(),
            was: entry.was.clone(),
            since: entry.since,
        }
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.usage.map(|scope| format!("usage {scope}"));
        let distance = self.distance.map(|distance| format!("distance {distance}"));
        let policy = self.policy.as_ref();
        let policy = policy.map(|mount| format!("mounts {} of {}", mount.path, mount.vo));
        let was = self.was.iter().map(|was| format!("was {was}"));
        let since = self.since.map(|since| format!("since {since}"));
        let said = [usage, distance, policy].into_iter().flatten();
        let said: Vec<String> = said.chain(was).chain(since).collect();
        f.write_str(&said.join(", "))
    }
}

impl ShareTree {
    /// Reads a tree file. `file_name` is for error messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, TreeFileError> {
        let file = parse_tree(text, file_name)?;
        let mut tree = Self::default();
        let mut dropped = BTreeSet::new();
        for (path, entry, policy) in file.entries() {
            tree.say(path, Terms::of_entry(&entry, policy));
            if path.is_root() {
                tree.lists_root = true;
            } else if entry.is_dropped() {
                dropped.insert(path.clone());
            } else {
                tree.shares.insert(path.clone(), entry);
            }
        }
        let is_dropped =
            |path: &AccountPath| path.ancestors().any(|above| dropped.contains(&above));
        if !dropped.is_empty() {
            tree.shares.retain(|path, _| !is_dropped(path));
        }
        Ok(tree)
    }

    /// The entries of a share policy, where they are in the VO's tree. `None` where one is longer
    /// or deeper than a path can be.
    pub fn of_policy(policy: &SharePolicy) -> Option<Self> {
        let mut tree = Self::default();
        let whole = Terms {
            usage: policy.usage,
            distance: policy.distance,
            ..Terms::default()
        };
        tree.say(&policy.path, whole);
        for (below, entry) in &policy.shares {
            let path = policy.path.join(below).ok()?;
            let mount = entry.mount.as_ref();
            let was = entry.was.iter().map(|was| policy.path.join(was));
            let entry = SiteEntry {
                at_most: entry.at_most.unwrap_or(Share::WHOLE),
                was: was.collect::<Result<_, _>>().ok()?,
                since: entry.since,
                usage: entry.usage,
                distance: entry.distance,
                ..SiteEntry::local(entry.share)
            };
            tree.say(&path, Terms::of_entry(&entry, mount));
            tree.shares.insert(path, entry);
        }
        Some(tree)
    }

    /// Several trees as one, as when policies divide what another delegates; a later one counts
    /// where two have an entry.
    ///
    /// # Errors
    /// An entry whose parent is in none of them.
    pub fn union(trees: impl IntoIterator<Item = Self>) -> Result<Self, AccountPath> {
        let mut union = Self::default();
        for tree in trees {
            union.shares.extend(tree.shares);
            union.terms.extend(tree.terms);
            union.lists_root |= tree.lists_root;
        }
        let orphan = union.shares.keys().find(|path| {
            let parent = path.parent().filter(|parent| !parent.is_root());
            parent.is_some_and(|parent| !union.shares.contains_key(&parent))
        });
        match orphan {
            Some(path) => Err(path.clone()),
            None => Ok(union),
        }
    }

    /// The entries, ascending by path, without the root.
    pub fn entries(&self) -> impl Iterator<Item = (&AccountPath, &SiteEntry)> + Clone {
        self.shares.iter()
    }

    /// The entries as a tree is built of them, each compared as the entries above it say, or else by `distance`.
    /// Charges are of `today`: they count in all periods but those that begin later.
    pub fn specs(&self, rule: ShareRule, distance: Distance, today: Date) -> Vec<EntrySpec> {
        let weights = weights(&self.shares, rule);
        let spec = |(path, entry): (&AccountPath, &SiteEntry)| EntrySpec {
            path: path.clone(),
            weight: weights[path],
            at_most: entry.at_most,
            scope: Scope::Local,
            distance: self.distance(path).unwrap_or(distance),
            history: 0,
            since: entry.since.filter(|since| *since > today),
        };
        self.shares.iter().map(spec).collect()
    }

    /// Levels that do not add up to 100.
    pub fn other_sums(&self) -> Option<OtherSums> {
        OtherSums::of(self.shares.iter().map(|(path, entry)| (path, entry.share)))
    }

    /// The tree without usage, to find out where an account counts.
    pub fn reader(&self) -> TreeReader {
        let history = WeightTable::new(HistoryRule::RunningOnly, WindowLength::HOUR);
        let mut spec = TreeSpec::new(vec![history], 0);
        spec.entries = self.specs(ShareRule::Weights, Distance::Absolute, Date(0));
        spec.moves = self.moves();
        let tree = spec.build(&[Window(0)]);
        tree.expect("a share tree has no gaps and no doubles")
            .reader()
    }

    /// Former paths, and the entries that they have become.
    pub fn moves(&self) -> Vec<(AccountPath, AccountPath)> {
        let moves = |(path, entry): (&AccountPath, &SiteEntry)| {
            let was = entry.was.iter();
            was.map(|was| (was.clone(), path.clone()))
                .collect::<Vec<_>>()
        };
        self.shares.iter().flat_map(moves).collect()
    }

    /// How an entry's distance from its target is measured, if any entry above it says so.
    pub fn distance(&self, path: &AccountPath) -> Option<Distance> {
        let above = std::iter::successors(path.parent(), AccountPath::parent);
        let mut said = above.map(|above| self.terms.get(&above)?.distance);
        said.find_map(|said| said)
    }

    /// What entries say of the level below them, ascending by path; those that say nothing are left out.
    pub fn terms(&self) -> impl Iterator<Item = (&AccountPath, &Terms)> {
        self.terms.iter()
    }

    fn say(&mut self, path: &AccountPath, terms: Terms) {
        if terms != Terms::default() {
            self.terms.insert(path.clone(), terms);
        }
    }

    /// Whether the file has a line for the root.
    pub fn lists_root(&self) -> bool {
        self.lists_root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_delegations_are_entries_with_weights() {
        let key = "a7".repeat(32);
        let text = format!(
            "[shares]\n\"/a\" = {{ share = 30, mount = \"a\", weight = 50 }}\n\"/a/p\" = 12.5\n\
             \"/b\" = {{ share = 40, delegate = {{ keys = [\"{key}\"] }} }}\n\
             \"/c\" = {{ share = 9, mount = \"c\", drop = true }}\n\"/c/p\" = 1\n"
        );
        let tree = ShareTree::parse(&text, "tree.toml").expect("a valid tree");
        let weights = |rule| {
            let specs = tree.specs(rule, Distance::Absolute, Date(0)).into_iter();
            let specs = specs.map(|spec| (spec.path.to_string(), spec.weight));
            specs.collect::<Vec<_>>()
        };
        let named = |of: [(&str, u64); 3]| of.map(|(path, weight)| (path.to_owned(), weight));
        assert_eq!(
            weights(ShareRule::Weights),
            named([("/a", 3), ("/a/p", 1), ("/b", 8)])
        );
        assert_eq!(
            weights(ShareRule::AsPublished),
            named([
                ("/a", 150_000_000),
                ("/a/p", 125_000_000),
                ("/b", 400_000_000)
            ])
        );
    }

    #[test]
    fn a_share_below_zero_is_refused_where_it_stands() {
        let error = ShareTree::parse("[shares]\n\"/A\" = -1\n", "t.toml").expect_err("no share");
        assert!(error.to_string().starts_with("t.toml:2:8: "), "{error}");
    }
}
