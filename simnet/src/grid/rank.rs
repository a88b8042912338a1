//! The exact order of accounts, as numbers for a scheduler.
//!
//! Invariant: the order is that of the deviation vectors, without loss; equal vectors have equal
//! places. Deliberately not here: whose tree it is.

use std::collections::BTreeMap;

use fairmesh_cluster::AccountKey;
use fairmesh_fairshare::{DeviationVector, EntryId, TreeReader};

/// Places of accounts by their entries in a tree, from 0 up; the greatest is served first.
pub fn rank(
    reader: &TreeReader,
    accounts: impl Iterator<Item = (AccountKey, EntryId)>,
) -> BTreeMap<AccountKey, u64> {
    let vector = |(account, entry)| (account, reader.vector(entry));
    let mut sorted: Vec<(AccountKey, DeviationVector)> = accounts.map(vector).collect();
    sorted.sort_by(|(_, a), (_, b)| a.compare(b));
    let mut places = BTreeMap::new();
    let mut place = 0;
    let mut last: Option<DeviationVector> = None;
    for (account, vector) in sorted {
        if last.is_some_and(|last| last.compare(&vector).is_ne()) {
            place += 1;
        }
        places.insert(account, place);
        last = Some(vector);
    }
    places
}
