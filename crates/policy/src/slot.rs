//! The share policies that one set of keys has signed for one path.
//!
//! Invariant: a document is kept unless another one makes it useless, and which ones are useless
//! depends on the set of documents only, never on the order in which they came:
//! - one with a higher version and no fewer signatures replaces it;
//! - [`CONCURRENT_MAX`] of its own version with lower hashes and no fewer signatures crowd it out.
//!
//! So for every threshold that the role may come to have, the newest document with that many
//! signatures is here. Concurrent ones live side by side in an `MVReg`: a write replaces exactly
//! what it outdoes. Deliberately not here: who the keys belong to (`vo_policies` walks the
//! delegations).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crdts::ctx::AddCtx;
use crdts::{CmRDT, Dot, MVReg, ResetRemove, VClock};
use fairmesh_model::{
    AccountPath, ContentHash, Role, SharePolicy, Verified, VoId, mutant, mutated,
};

use crate::error::DocumentKind;
use crate::in_force::DocumentRef;

/// Most documents of one version that are kept as evidence. Two prove the equivocation and the
/// lowest hash decides; a few more keep the choice stable while they spread. Without a bound a
/// signer could fill every member's memory with one version.
pub(crate) const CONCURRENT_MAX: usize = 4;

/// A verified policy and how many of the role's keys had signed it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) document: Verified<SharePolicy>,
    pub(crate) signatures: u32,
    /// What it hands on to others: paths in the VO's tree.
    pub(crate) delegations: Vec<(AccountPath, Role)>,
    /// Whose policies it mounts.
    pub(crate) mounted: BTreeSet<VoId>,
}

impl Held {
    pub(crate) fn new(document: Verified<SharePolicy>, signatures: u32) -> Self {
        let policy = document.body();
        let delegations = policy
            .shares
            .iter()
            .filter_map(|(below, entry)| Some((below, entry.delegate.clone()?)))
            .map(|(below, role)| (full_path(policy, below), role))
            .collect();
        let mounts = policy
            .shares
            .values()
            .filter_map(|entry| entry.mount.as_ref());
        let mounted = mounts.map(|mount| mount.vo).collect();
        Self {
            document,
            signatures,
            delegations,
            mounted,
        }
    }

    pub(crate) fn hash(&self) -> ContentHash {
        self.document.hash()
    }

    pub(crate) fn version(&self) -> u64 {
        self.document.body().version
    }

    /// How answers name it.
    pub(crate) fn reference(&self) -> DocumentRef {
        DocumentRef {
            kind: DocumentKind::SharePolicy,
            path: self.document.body().path.clone(),
            version: self.version(),
            hash: self.hash(),
        }
    }

    /// Whether `other` is useless once this one is here.
    fn outdoes(&self, other: &Self) -> bool {
        if self.hash() == other.hash() {
            return self.signatures > other.signatures;
        }
        let (mine, theirs) = (self.version(), other.version());
        let is_newer = mutant!(OlderPolicyWins, mine > theirs, mine < theirs);
        self.signatures >= other.signatures && is_newer
    }

    /// Whether this one is a rival of `other` that goes before it.
    fn precedes(&self, other: &Self) -> bool {
        self.signatures >= other.signatures
            && self.version() == other.version()
            && self.hash() < other.hash()
    }

    fn dot(&self) -> Dot<ContentHash> {
        Dot::new(self.hash(), u64::from(self.signatures))
    }
}

/// The place of `below`, an entry of `policy`, in the VO's tree.
pub(crate) fn full_path(policy: &SharePolicy, below: &AccountPath) -> AccountPath {
    policy
        .path
        .join(below)
        .expect("a valid policy has only entries whose full path is valid")
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    register: MVReg<Arc<Held>, ContentHash>,
    /// Highest version seen, by number of signatures.
    seen: BTreeMap<u32, u64>,
}

impl Slot {
    /// Remembers that a version was seen, with the document or without it.
    pub(crate) fn see(&mut self, signatures: u32, version: u64) {
        let known = self.seen.entry(signatures).or_default();
        *known = version.max(*known);
        let all = self.seen.clone();
        self.seen.retain(|signatures, version| {
            let above = signatures.saturating_add(1);
            !all.range(above..).any(|(_, better)| better >= version)
        });
    }

    /// The versions seen, by number of signatures.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (u32, u64)> {
        self.seen
            .iter()
            .map(|(&signatures, &version)| (signatures, version))
    }

    /// The highest version seen with at least `threshold` signatures; 0 for none.
    pub(crate) fn highest(&self, threshold: u32) -> u64 {
        self.seen
            .range(threshold..)
            .map(|(_, version)| *version)
            .max()
            .unwrap_or(0)
    }

    /// Takes a document that was verified against the slot's keys. Returns whether that changed
    /// anything.
    pub(crate) fn put(&mut self, held: Held) -> bool {
        self.see(held.signatures, held.version());
        let documents = self.documents();
        let same = |other: &Held| other.dot() == held.dot();
        if documents
            .iter()
            .any(|other| other.outdoes(&held) && !mutated!(RollbackAccepted) || same(other))
        {
            return false;
        }
        let rolls_back = mutated!(RollbackAccepted);
        let outdone = documents
            .iter()
            .filter(|other| held.outdoes(other) || rolls_back);
        let replaced: VClock<ContentHash> = outdone.map(|other| other.dot()).collect();
        let (dot, added) = (held.dot(), held.dot());
        let mut clock = replaced.clone();
        clock.apply(dot);
        let write = self.register.write(Arc::new(held), AddCtx { clock, dot });
        self.register.apply(write);
        // Forget the replaced writes, or the register's clocks would grow with every version.
        self.register.reset_remove(&replaced);
        self.crowd_out();
        self.documents().iter().any(|kept| kept.dot() == added)
    }

    /// All documents, by hash.
    pub(crate) fn documents(&self) -> Vec<Arc<Held>> {
        let mut documents = self.register.read().val;
        documents.sort_by_key(|held| held.hash());
        documents
    }

    /// The newest documents with at least `threshold` signatures: the one in force, then rivals.
    pub(crate) fn current(&self, threshold: u32) -> Vec<Arc<Held>> {
        let mut documents = self.documents();
        documents.retain(|held| held.signatures >= threshold);
        let newest = documents.iter().map(|held| held.version()).max();
        documents.retain(|held| Some(held.version()) == newest);
        documents
    }

    /// Forgets the documents but not the versions.
    pub(crate) fn drop_documents(&mut self) {
        self.register = MVReg::default();
    }

    fn crowd_out(&mut self) {
        let documents = self.documents();
        let before = |held: &Held| {
            documents
                .iter()
                .filter(|other| other.precedes(held))
                .count()
        };
        let crowded = documents
            .iter()
            .filter(|held| before(held) >= CONCURRENT_MAX);
        let removed: VClock<ContentHash> = crowded.map(|held| held.dot()).collect();
        self.register.reset_remove(&removed);
    }
}
