//! Connections counted by user: what keeps one of them from taking all of a socket's.
//!
//! Invariant: a slot is given back when it is dropped, whatever ended the connection.
//! Deliberately not here: what a refused client is told (each server speaks its own protocol).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections by user; those of unknown users count together.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    by_uid: Mutex<BTreeMap<Option<u32>, usize>>,
}

/// One counted connection; it is given back when dropped.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    uid: Option<u32>,
}

impl Slots {
    /// Counts a connection of `uid`; `None` where there are `max` in all or `per_uid_max` of its own.
    pub(crate) fn take(
        slots: &Arc<Self>,
        uid: Option<u32>,
        max: usize,
        per_uid_max: usize,
    ) -> Option<Slot> {
        let mut by_uid = slots.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = by_uid.values().sum();
        let of_uid = by_uid.get(&uid).copied().unwrap_or(0);
        if total >= max || of_uid >= per_uid_max {
            return None;
        }
        by_uid.insert(uid, of_uid + 1);
        let slots = Arc::clone(slots);
        Some(Slot { slots, uid })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let by_uid = &self.slots.by_uid;
        let mut by_uid = by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        match by_uid.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                by_uid.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_connections() {
        let slots = Arc::default();
        let take = |uid| Slots::take(&slots, uid, 3, 2);
        let (first, second) = (take(Some(1)), take(Some(1)));
        assert!(first.is_some() && second.is_some());
        assert!(take(Some(1)).is_none());
        let third = take(None);
        assert!(third.is_some() && take(Some(2)).is_none());
        drop(first);
        assert!(take(Some(2)).is_some());
    }
}
