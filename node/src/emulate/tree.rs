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

use fairmesh_model::{AccountPath, Distance, PolicyMount, Scope, Share, SharePolicy};
use fairmesh_policy::{TreeFileError, parse_tree};

/// Entries and their targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareTree {
    shares: BTreeMap<AccountPath, Share>,
    limits: BTreeMap<AccountPath, Share>,
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
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.usage.map(|scope| format!("usage {scope}"));
        let distance = self.distance.map(|distance| format!("distance {distance}"));
        let policy = self.policy.as_ref();
        let policy = policy.map(|mount| format!("mounts {} of {}", mount.path, mount.vo));
        let said: Vec<String> = [usage, distance, policy].into_iter().flatten().collect();
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
            tree.say(path, (entry.usage, entry.distance, policy));
            if path.is_root() {
                tree.lists_root = true;
            } else if entry.is_dropped() {
                dropped.insert(path.clone());
            } else {
                tree.limits.insert(path.clone(), entry.at_most);
                tree.shares.insert(path.clone(), entry.target());
            }
        }
        tree.shares
            .retain(|path, _| !path.ancestors().any(|above| dropped.contains(&above)));
        Ok(tree)
    }

    /// The entries of a share policy, where they are in the VO's tree. `None` where one is longer
    /// or deeper than a path can be.
    pub fn of_policy(policy: &SharePolicy) -> Option<Self> {
        let mut tree = Self::default();
        tree.say(&policy.path, (policy.usage, policy.distance, None));
        for (below, entry) in &policy.shares {
            let path = policy.path.join(below).ok()?;
            tree.say(&path, (entry.usage, entry.distance, entry.mount.as_ref()));
            let at_most = entry.at_most.unwrap_or(Share::WHOLE);
            tree.limits.insert(path.clone(), at_most);
            tree.shares.insert(path, entry.share);
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
            union.limits.extend(tree.limits);
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
    pub fn shares(&self) -> impl Iterator<Item = (&AccountPath, Share)> {
        self.shares.iter().map(|(path, share)| (path, *share))
    }

    /// The most that an entry may have of its parent; the whole is no limit.
    pub fn at_most(&self, path: &AccountPath) -> Share {
        self.limits.get(path).copied().unwrap_or(Share::WHOLE)
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

    fn say(
        &mut self,
        path: &AccountPath,
        (usage, distance, policy): (Option<Scope>, Option<Distance>, Option<&PolicyMount>),
    ) {
        let terms = Terms {
            usage,
            distance,
            policy: policy.cloned(),
        };
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

    fn shares(text: &str) -> Vec<(String, String)> {
        let tree = ShareTree::parse(text, "tree.toml").expect("a valid tree");
        tree.shares()
            .map(|(path, share)| (path.to_string(), share.to_string()))
            .collect()
    }

    #[test]
    fn mounts_and_delegations_are_entries_with_targets() {
        let key = "a7".repeat(32);
        let text = format!(
            "[shares]\n\"/a\" = {{ share = 30, mount = \"a\", weight = 50 }}\n\"/a/p\" = 12.5\n\
             \"/b\" = {{ share = 40, delegate = {{ keys = [\"{key}\"] }} }}\n\
             \"/c\" = {{ share = 9, mount = \"c\", drop = true }}\n\"/c/p\" = 1\n"
        );
        let expected = [("/a", "15"), ("/a/p", "12.5"), ("/b", "40")];
        assert_eq!(
            shares(&text),
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
    }

    #[test]
    fn a_share_outside_the_whole_is_refused_where_it_stands() {
        let error = ShareTree::parse("[shares]\n\"/A\" = 120\n", "t.toml").expect_err("too much");
        assert!(error.to_string().starts_with("t.toml:2:8: "), "{error}");
    }
}
