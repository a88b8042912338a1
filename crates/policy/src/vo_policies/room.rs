//! How much is kept of a VO's documents, and whose go where that is too much.
//!
//! Invariant: what one path has signed that the policy of `/` hands on, and all below it, goes at nobody else's cost; of
//! it those documents go first whose signers are furthest down, of whoever has signed most.
//! Deliberately not here: which documents are in force (`resolve`).

use std::collections::BTreeMap;

use fairmesh_model::AccountPath;

use super::{HELD_BYTES_MAX, SlotId, VoPolicies};
use crate::error::PolicyError;
use crate::slot::Slot;

/// Most bytes of documents of one path that the policy of `/` hands on, and of all below it.
pub(super) const BRANCH_BYTES_MAX: usize = HELD_BYTES_MAX / 8;

impl VoPolicies {
    /// Makes room for `more` bytes, at the cost of documents that are out of force.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), PolicyError> {
        if self.held_bytes() + more <= HELD_BYTES_MAX {
            return Ok(());
        }
        let inactive: Vec<SlotId> = self.inactive().collect();
        for id in inactive {
            self.slots.entry(id).or_default().drop_documents();
        }
        let bytes = self.held_bytes() + more;
        if bytes <= HELD_BYTES_MAX {
            return Ok(());
        }
        Err(PolicyError::Full {
            bytes,
            limit: HELD_BYTES_MAX,
        })
    }

    /// Lets documents go of paths that are handed on and have too much of them.
    pub(super) fn keep_within(&mut self) {
        if self.held_bytes() <= BRANCH_BYTES_MAX {
            return;
        }
        loop {
            let bytes = self.bytes_of_paths();
            let of_branches = self.bytes_below(&AccountPath::root(), &bytes);
            let mut over = of_branches.into_iter();
            let Some((mut at, _)) = over.find(|(_, bytes)| *bytes > BRANCH_BYTES_MAX) else {
                return;
            };
            let most = |at: &AccountPath| {
                let below = self.bytes_below(at, &bytes).into_iter();
                below.max_by(|(a, of_a), (b, of_b)| (of_a, a).cmp(&(of_b, b)))
            };
            while let Some((below, _)) = most(&at) {
                at = below;
            }
            if !self.drop_last_of(&at) {
                let keys = self.active[&at].keys;
                self.slots.entry((at, keys)).or_default().drop_documents();
            }
            self.resolve();
        }
    }

    /// Bytes of what the roles in force have signed, by their paths.
    fn bytes_of_paths(&self) -> BTreeMap<AccountPath, usize> {
        let mut bytes: BTreeMap<AccountPath, usize> = BTreeMap::new();
        for (path, active) in &self.active {
            let slot = self.slots.get(&(path.clone(), active.keys));
            let of_path = slot.map_or(0, bytes_of);
            *bytes.entry(path.clone()).or_default() += of_path;
        }
        for (path, of_credit) in self.allocation_bytes_of_paths() {
            *bytes.entry(path).or_default() += of_credit;
        }
        bytes.retain(|_, bytes| *bytes > 0);
        bytes
    }

    /// The same of each path that is handed on at `at`, with all below it.
    fn bytes_below(
        &self,
        at: &AccountPath,
        bytes: &BTreeMap<AccountPath, usize>,
    ) -> BTreeMap<AccountPath, usize> {
        let mut below: BTreeMap<AccountPath, usize> = BTreeMap::new();
        for (path, bytes) in bytes.iter().filter(|(path, _)| path.starts_with(at)) {
            let between = path.ancestors().take_while(|above| above != at);
            let handed_on = between.filter(|above| self.active.contains_key(above));
            if let Some(first) = handed_on.last() {
                *below.entry(first).or_default() += bytes;
            }
        }
        below
    }

    fn held_bytes(&self) -> usize {
        let policies: usize = self.slots.values().map(bytes_of).sum();
        policies + self.allocation_bytes()
    }
}

/// Why a document is not taken whose path, or one above it, has signed too much.
pub(super) fn full_branch() -> PolicyError {
    PolicyError::Full {
        bytes: BRANCH_BYTES_MAX + 1,
        limit: BRANCH_BYTES_MAX,
    }
}

fn bytes_of(slot: &Slot) -> usize {
    let documents = slot.documents().into_iter();
    documents.map(|held| held.document.bytes().len()).sum()
}
