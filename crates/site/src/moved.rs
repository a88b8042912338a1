//! What changed between two tables of amounts.
//!
//! Invariant: applied to the table before, the changes give the table after.

/// A change of what counts: before and after, core-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved<K> {
    pub(crate) key: K,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// The differences between two tables, each ascending by its keys.
pub(crate) fn moved<K: Ord + Clone>(
    before: impl IntoIterator<Item = (K, u64)>,
    after: impl IntoIterator<Item = (K, u64)>,
) -> Vec<Moved<K>> {
    let (mut old, mut new) = (before.into_iter().peekable(), after.into_iter().peekable());
    let all = std::iter::from_fn(|| {
        let first = [old.peek(), new.peek()].into_iter().flatten();
        let key = first.map(|(key, _)| key).min()?.clone();
        let before = old.next_if(|(of, _)| *of == key);
        let after = new.next_if(|(of, _)| *of == key);
        let amount = |row: Option<(K, u64)>| row.map_or(0, |(_, amount)| amount);
        Some(Moved {
            before: amount(before),
            after: amount(after),
            key,
        })
    });
    all.filter(|moved| moved.before != moved.after).collect()
}
