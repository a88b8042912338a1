//! Which seeds are run.
//!
//! Invariant: the seeds of a commit are a function of its hash, so that each commit tries others and
//! anybody can try the same. Deliberately not here: running them.

use fairmesh_cluster::Seed;
use sha2::{Digest, Sha256};

/// Seed number `index` of a commit: the first eight bytes of SHA-256(commit ‖ index), little end
/// first.
pub fn of_commit(commit: &str, index: u64) -> Seed {
    let mut hash = Sha256::new();
    hash.update(commit.as_bytes());
    hash.update(index.to_le_bytes());
    let hash = hash.finalize();
    let first: [u8; 8] = hash[..8].try_into().expect("a hash is longer");
    Seed(u64::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_commit_has_seeds_of_its_own() {
        let seeds = |commit: &'static str| (0..100).map(move |index| of_commit(commit, index));
        let all: BTreeSet<Seed> = seeds("a1b2").chain(seeds("a1b3")).collect();
        assert_eq!(all.len(), 200);
        assert_eq!(of_commit("a1b2", 7), of_commit("a1b2", 7));
    }
}
