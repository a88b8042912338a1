//! How much usage belongs to accounts without a line, and to which.
//!
//! Invariant: the usage of a level's `*` is weighted and counted as the level compares it, so it is the part of
//! its parent's usage that `share` shows. Deliberately not here: who may see which account.

use fairmesh_model::AccountPath;

use crate::history::ONE;
use crate::tree::{EntryId, EntryKind, Snapshot};

/// The accounts without a line of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Others {
    /// The entry of all of them, such as `/cms/*`.
    pub path: AccountPath,
    /// Whether somebody wrote its line; without one its share is 0.
    pub has_line: bool,
    /// Weighted usage, in core-ms, rounded down.
    pub usage: u128,
    /// Weighted usage of the level, in core-ms, rounded down.
    pub level_usage: u128,
    /// The accounts that have weighted usage, the largest first.
    pub accounts: Vec<(AccountPath, u128)>,
}

/// Those of all levels, in path order; levels whose accounts have no weighted usage are left out.
pub fn others(snapshot: &Snapshot) -> Vec<Others> {
    let ids = snapshot.ids().filter(|entry| snapshot.is_others(*entry));
    ids.filter_map(|entry| others_of(snapshot, entry)).collect()
}

fn others_of(snapshot: &Snapshot, entry: EntryId) -> Option<Others> {
    let level = snapshot.level(entry);
    if level.usage == 0 {
        return None;
    }
    let usage = |account: EntryId| {
        let used = snapshot.level(account).usage / u128::from(ONE);
        (snapshot.path(account).clone(), used)
    };
    let mut accounts: Vec<_> = snapshot.children(entry).map(usage).collect();
    accounts.retain(|(_, used)| *used > 0);
    accounts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Some(Others {
        path: snapshot.path(entry).clone(),
        has_line: snapshot.kind(entry) == EntryKind::Others,
        usage: level.usage / u128::from(ONE),
        level_usage: level.parent_usage / u128::from(ONE),
        accounts,
    })
}
