//! What a change of policy would do: the lines of `policy plan`.
//!
//! The absolute share of an entry is what it would get of the whole site with everybody busy: the
//! product, from the root down, of its share among its siblings' shares (which need not add up to
//! 100). So a line appears also for an entry whose own share stays, while a sibling's changes.
//!
//! Invariant: integers only, 10^-18 inside and 10^-9 outside, so that dividing and multiplying
//! sixteen levels deep does not show. Deliberately not here: usage; a plan speaks of targets.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Share, Weight};

use crate::compile::CompiledTree;

/// The whole, at the precision that absolute shares are multiplied in.
const FINE: u128 = 1_000_000_000_000_000_000;

/// Fine units in one unit of 10^-9.
const FINE_PER_UNIT: u128 = 1_000_000_000;

/// An entry's share in one of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PlanShare {
    /// Its share, as it was written.
    pub share: Weight,
    /// The most that it may have of the parent before its siblings all go first; the whole is no limit.
    pub at_most: Share,
    /// Effective share of the whole site, in units of 10^-9.
    pub absolute: u64,
}

/// One entry that a change touches.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PlanLine {
    /// The path of the entry.
    pub path: AccountPath,
    /// Before; `None` where it is new.
    pub before: Option<PlanShare>,
    /// After; `None` where it goes away.
    pub after: Option<PlanShare>,
}

/// How a change touches an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// The entry is new.
    Added,
    /// The entry is removed.
    Removed,
    /// Its own share changes.
    Share,
    /// Its share stays, and the most that it may have changes.
    Limit,
    /// Only what it amounts to changes, because of others.
    Effect,
}

impl PlanLine {
    /// How the change touches the entry.
    pub fn kind(&self) -> PlanKind {
        match (&self.before, &self.after) {
            (None, _) => PlanKind::Added,
            (Some(_), None) => PlanKind::Removed,
            (Some(before), Some(after)) if before.share != after.share => PlanKind::Share,
            (Some(before), Some(after)) if before.at_most != after.at_most => PlanKind::Limit,
            _ => PlanKind::Effect,
        }
    }
}

/// The entries whose share or effective share differs, ascending by path.
pub fn plan(old: &CompiledTree, new: &CompiledTree) -> Vec<PlanLine> {
    let (old, new) = (absolute_shares(old), absolute_shares(new));
    let mut lines = BTreeMap::new();
    for path in old.keys().chain(new.keys()) {
        let (before, after) = (old.get(path).copied(), new.get(path).copied());
        if before != after {
            let path = AccountPath::clone(path);
            let line = PlanLine {
                path: path.clone(),
                before,
                after,
            };
            lines.insert(path, line);
        }
    }
    lines.into_values().collect()
}

fn absolute_shares(tree: &CompiledTree) -> BTreeMap<&AccountPath, PlanShare> {
    let parent = |path: &AccountPath| path.parent().expect("the root is no entry");
    let mut sums: BTreeMap<AccountPath, u128> = BTreeMap::new();
    for entry in &tree.entries {
        *sums.entry(parent(&entry.path)).or_default() += u128::from(entry.weight);
    }
    let mut fine: BTreeMap<AccountPath, u128> = BTreeMap::from([(AccountPath::root(), FINE)]);
    let mut shares = BTreeMap::new();
    for entry in &tree.entries {
        let above = parent(&entry.path);
        let whole = fine.get(&above).copied().unwrap_or(0);
        let sum = sums.get(&above).copied().unwrap_or(0).max(1);
        let absolute = whole * u128::from(entry.weight) / sum;
        fine.insert(entry.path.clone(), absolute);
        let units = (absolute + FINE_PER_UNIT / 2) / FINE_PER_UNIT;
        let share = PlanShare {
            share: entry.share,
            at_most: entry.at_most,
            absolute: u64::try_from(units).expect("at most the whole"),
        };
        shares.insert(&entry.path, share);
    }
    shares
}
