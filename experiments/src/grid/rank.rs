//! The exact order of accounts, as numbers for a scheduler.
//!
//! Invariant: the order is that of the deviation vectors, without loss; equal vectors have equal
//! places. Deliberately not here: whose vectors they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fairmesh_cluster::AccountKey;
use fairmesh_fairshare::{DeviationVector, EntryId, TreeReader};

/// Places of accounts by their entries in a tree, from 0 up; the greatest is served first.
pub fn rank(
    reader: &TreeReader,
    accounts: impl Iterator<Item = (AccountKey, EntryId)>,
) -> BTreeMap<AccountKey, u64> {
    let vectors = accounts.map(|(account, entry)| (account, reader.vector(entry)));
    places(vectors.collect(), DeviationVector::compare)
}

/// Places of accounts by their vectors, from 0 up; the greatest is served first.
pub fn places<V>(
    mut vectors: Vec<(AccountKey, V)>,
    compare: impl Fn(&V, &V) -> Ordering,
) -> BTreeMap<AccountKey, u64> {
    vectors.sort_by(|(_, a), (_, b)| compare(a, b));
    let mut places = BTreeMap::new();
    let mut place = 0;
    let mut last: Option<V> = None;
    for (account, vector) in vectors {
        if last.is_some_and(|last| compare(&last, &vector).is_ne()) {
            place += 1;
        }
        places.insert(account, place);
        last = Some(vector);
    }
    places
}
