//! Seals by their hash, each kept for as long as a checkpoint holds it.
//!
//! Invariant: an entry's `holders` is the number of checkpoints (adopted or pending, of any
//! stream: equal sheets of two sites are one seal) that hold it; at zero it is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::ContentHash;

#[derive(Debug, Clone)]
struct Held {
    bytes: Arc<[u8]>,
    holders: u32,
}

/// A content-addressed store of seal bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct SealStore {
    by_hash: BTreeMap<ContentHash, Held>,
    bytes: usize,
}

impl SealStore {
    pub(crate) fn get(&self, hash: &ContentHash) -> Option<&Arc<[u8]>> {
        self.by_hash.get(hash).map(|held| &held.bytes)
    }

    /// Adds a holder; `bytes` must hash to `hash`.
    pub(crate) fn hold(&mut self, hash: ContentHash, bytes: &Arc<[u8]>) {
        let total = &mut self.bytes;
        let held = self.by_hash.entry(hash).or_insert_with(|| {
            *total += bytes.len();
            Held {
                bytes: bytes.clone(),
                holders: 0,
            }
        });
        held.holders += 1;
    }

    /// Takes a holder off each of `hashes`; those that nobody holds any more.
    pub(crate) fn release(
        &mut self,
        hashes: impl IntoIterator<Item = ContentHash>,
    ) -> Vec<ContentHash> {
        let mut gone = Vec::new();
        for hash in hashes {
            let held = self
                .by_hash
                .get_mut(&hash)
                .expect("a checkpoint releases what it holds");
            held.holders -= 1;
            if held.holders == 0 {
                self.bytes -= held.bytes.len();
                self.by_hash.remove(&hash);
                gone.push(hash);
            }
        }
        gone
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.by_hash.len() * (size_of::<ContentHash>() + size_of::<Held>()) * 3 / 2
    }
}
