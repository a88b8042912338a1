//! Slurm's tree of accounts as entries of a share tree, and the entry of each association.
//!
//! Fair Tree compares an association with the children of the nearest account above it whose `Fairshare` is a number
//! (`fs_assoc_ptr` in Slurm's `assoc_mgr.c`). So an account with `parent` has no entry, and what is in it stands one
//! level higher, with its own weight. A user with `parent` has an infinite level fairshare (`fair_tree.c`): such
//! users go before all of that level that used something, and tie with those that used nothing. They have one entry
//! together, whose period never begins: what they use counts for the account and never for this entry.
//!
//! Invariant: no two associations have one entry, apart from users with `parent` in one level; weights are as Slurm has
//! them. Nothing here is worse than n log n. Deliberately not here: rules and text.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use fairmesh_model::{AccountPath, clean, record};

use super::assoc::{Assoc, Fairshare, ROOT};

/// The entry of users with `Fairshare=parent` in a level that has other entries.
const PARENT_ENTRY: &str = "fairshare=parent";

/// What an entry weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// As Slurm has it.
    Shares(u32),
    /// That of users with `parent`: so little that it changes no percentage, and no usage ever counts.
    Parent,
}

/// Entries, and where jobs count.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    pub(super) entries: BTreeMap<String, Weight>,
    /// Ascending by account, user and partition.
    pub(super) places: Vec<Place<'a>>,
    pub(super) notes: Notes<'a>,
}

/// Where the jobs of one association count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) account: &'a str,
    pub(super) user: &'a str,
    /// The partition, if it is for one.
    pub(super) partition: Option<&'a str>,
    pub(super) path: String,
    /// The same with `{account}` and `{user}` wherever these words give the names.
    pub(super) template: String,
}

/// What somebody who knows Slurm's tree would look for in vain.
#[derive(Debug, Default)]
pub(super) struct Notes<'a> {
    /// Accounts without an entry, because their `Fairshare` is `parent`.
    pub(super) flattened: Vec<&'a str>,
    /// Users with `Fairshare=parent`, as `user of account`.
    pub(super) parents: Vec<String>,
    /// Entries of weight 0.
    pub(super) zeros: Vec<String>,
    /// Entries whose names Slurm has otherwise, as `name: path`.
    pub(super) renamed: Vec<String>,
    /// Accounts, the root apart.
    pub(super) accounts: usize,
}

/// Where the children of an account stand.
#[derive(Debug, Clone)]
struct Home {
    path: String,
    template: String,
    /// Whether the account has no entry of its own.
    is_flat: bool,
}

impl<'a> Tree<'a> {
    /// Makes the tree of associations that are sorted as `assoc::parse` does.
    ///
    /// # Errors
    /// An account without the one above it, or a place that no path can name.
    pub(super) fn new(associations: &'a [Assoc<'a>], file: &str) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        let accounts = associations.iter().filter(|assoc| assoc.user.is_none());
        let accounts: BTreeMap<&str, &Assoc<'_>> = accounts
            .filter(|assoc| assoc.account != ROOT)
            .map(|assoc| (&*assoc.account, assoc))
            .collect();
        tree.notes.accounts = accounts.len();
        let root = Home {
            path: "/".to_owned(),
            template: "/".to_owned(),
            is_flat: false,
        };
        let mut homes = BTreeMap::from([(ROOT, root)]);
        for assoc in accounts.values() {
            tree.settle(assoc, &accounts, &mut homes, file)?;
        }
        let mut parents = Vec::new();
        for assoc in associations {
            let Some(user) = assoc.user.as_deref() else {
                continue;
            };
            let at = || format!("{file}:{}: user {}", assoc.line, clean(user));
            let home = homes.get(&*assoc.account).with_context(|| {
                format!("{}: account {} is not listed", at(), clean(&assoc.account))
            })?;
            match assoc.fairshare {
                Fairshare::Parent => parents.push((assoc, user, home)),
                Fairshare::Shares(shares) => {
                    tree.add_user(assoc, user, home, shares).with_context(at)?
                }
            }
        }
        tree.add_parents(&parents)?;
        tree.places
            .sort_by_key(|place| (place.account, place.user, place.partition));
        let zeros = tree.entries.iter();
        let zeros = zeros.filter(|(_, weight)| **weight == Weight::Shares(0));
        tree.notes.zeros = zeros.map(|(path, _)| path.clone()).collect();
        Ok(tree)
    }

    /// Finds the place of an account, and of those above it that have none yet.
    fn settle(
        &mut self,
        assoc: &'a Assoc<'a>,
        accounts: &BTreeMap<&'a str, &'a Assoc<'a>>,
        homes: &mut BTreeMap<&'a str, Home>,
        file: &str,
    ) -> anyhow::Result<()> {
        let mut chain = vec![assoc];
        let mut above: &'a str = &assoc.parent;
        if homes.contains_key(&*assoc.account) {
            return Ok(());
        }
        while !homes.contains_key(above) {
            let line = chain[chain.len() - 1].line;
            let Some(next) = accounts.get(above) else {
                bail!(
                    "{file}:{line}: account {} above it is not listed",
                    clean(above)
                );
            };
            if chain.len() > accounts.len() {
                bail!("{file}:{line}: account {} is above itself", clean(above));
            }
            chain.push(next);
            above = &next.parent;
        }
        for assoc in chain.into_iter().rev() {
            let home = self.home(assoc, &homes[&*assoc.parent], file)?;
            homes.insert(&assoc.account, home);
        }
        Ok(())
    }

    /// Where the children of an account stand: at an entry of its own, or with those of the account above it.
    fn home(&mut self, assoc: &'a Assoc<'a>, above: &Home, file: &str) -> anyhow::Result<Home> {
        let Fairshare::Shares(shares) = assoc.fairshare else {
            self.notes.flattened.push(&assoc.account);
            // Its own name is not the name of that level.
            return Ok(Home {
                path: above.path.clone(),
                template: above.path.clone(),
                is_flat: true,
            });
        };
        let at = || format!("{file}:{}: account {}", assoc.line, clean(&assoc.account));
        let name = element(&assoc.account);
        let weight = Weight::Shares(shares);
        let path = self.add(&above.path, &name, weight).with_context(at)?;
        let is_as_named = self.is_as_named(&path, &above.path, &name, &[&assoc.account]);
        let template = match is_as_named {
            true => join(&above.path, "{account}"),
            false => path.clone(),
        };
        Ok(Home {
            path,
            template,
            is_flat: false,
        })
    }

    /// A user with a weight of his own: an entry among the children of his account.
    fn add_user(
        &mut self,
        assoc: &'a Assoc<'a>,
        user: &'a str,
        home: &Home,
        shares: u32,
    ) -> anyhow::Result<()> {
        let partition = assoc.partition.as_deref();
        let behind = partition.map_or_else(String::new, |of| format!("@{}", element(of)));
        // A user may be in several accounts that stand for one level.
        let before = match home.is_flat {
            true => format!("{}:", element(&assoc.account)),
            false => String::new(),
        };
        let name = format!("{before}{}{behind}", element(user));
        let path = self.add(&home.path, &name, Weight::Shares(shares))?;
        let names: &[&str] = match home.is_flat {
            true => &[&assoc.account, user],
            false => &[user],
        };
        let template = match (
            self.is_as_named(&path, &home.path, &name, names),
            home.is_flat,
        ) {
            (true, true) => join(&home.path, &format!("{{account}}:{{user}}{behind}")),
            (true, false) => join(&home.template, &format!("{{user}}{behind}")),
            (false, _) => path.clone(),
        };
        self.place(assoc, user, path, template);
        Ok(())
    }

    fn place(&mut self, assoc: &'a Assoc<'a>, user: &'a str, path: String, template: String) {
        self.places.push(Place {
            account: &assoc.account,
            user,
            partition: assoc.partition.as_deref(),
            path,
            template,
        });
    }

    /// Adds an entry; where the name is taken, under another one. Gives its path.
    fn add(&mut self, above: &str, name: &str, weight: Weight) -> anyhow::Result<String> {
        let mut path = join(above, name);
        let mut suffix = 1;
        while self.entries.contains_key(&path) {
            suffix += 1;
            path = join(above, &format!("{name}#{suffix}"));
        }
        AccountPath::check(&path)?;
        self.entries.insert(path.clone(), weight);
        Ok(path)
    }

    /// Whether a rule's placeholders give the last name of the path; notes it where they do not.
    fn is_as_named(&mut self, path: &str, above: &str, name: &str, words: &[&str]) -> bool {
        let is_as_named = path == join(above, name)
            && words
                .iter()
                .all(|word| element(word) == word.replace('/', "|"));
        if !is_as_named {
            let words: Vec<String> = words.iter().map(|word| clean(word)).collect();
            self.notes
                .renamed
                .push(format!("{}: {path}", words.join(":")));
        }
        is_as_named
    }

    /// Users with `parent`, at an entry for all of them in one level. Where they are all that an account has, it is the
    /// account's own.
    fn add_parents(&mut self, parents: &[(&'a Assoc<'a>, &'a str, &Home)]) -> anyhow::Result<()> {
        let levels: BTreeSet<&str> = parents.iter().map(|(.., home)| &*home.path).collect();
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for level in levels {
            let first = join(level, "");
            let mut below = self.entries.range(first.clone()..);
            let has_others = below
                .next()
                .is_some_and(|(path, _)| path.starts_with(&first));
            if has_others || level == "/" {
                let path = self.add(level, PARENT_ENTRY, Weight::Parent)?;
                names.insert(level, path[first.len()..].to_owned());
            }
        }
        for (assoc, user, home) in parents {
            let whose = format!("{} of {}", clean(user), clean(&assoc.account));
            self.notes.parents.push(whose);
            let (path, template) = match names.get(&*home.path) {
                Some(name) => (join(&home.path, name), join(&home.template, name)),
                None => (home.path.clone(), home.template.clone()),
            };
            self.place(assoc, user, path, template);
        }
        Ok(())
    }
}

/// A name of Slurm's as one name of a path. A slash becomes `|`, as in rules; braces would be placeholders there,
/// and `*` all accounts without a line.
fn element(name: &str) -> String {
    match name {
        "." | ".." | "*" => format!("({name})"),
        name => record::element(name).replace('{', "(").replace('}', ")"),
    }
}

fn join(above: &str, name: &str) -> String {
    match above {
        "/" => format!("/{name}"),
        above => format!("{above}/{name}"),
    }
}
