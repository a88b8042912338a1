//! All signed policy of one VO, and which of it is in force.
//!
//! The charter names the role of `/`; the policy in force for `/` names the roles of the paths that
//! it delegates; and so on down. A document is in force when it is the newest that the role of its
//! path has signed, and everything above it is in force.
//!
//! Invariant: only documents whose signatures were checked against a role in force are kept; a policy is looked up by
//! its path *and* the role that is in force for it now, so one that was signed under an older delegation stops counting
//! the moment the delegation changes, and counts again if the delegation comes back. So do allocations (`allocations`).
//! Deliberately not here: sending, storing, clocks. Source: TUF specification 1.0, sections 5.3 and 5.6; FSGrid,
//! abstract (delegated parts).

mod allocations;
mod answers;
mod readers;
mod resolve;
mod room;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, AllocationId, Charter, ContentHash, KeyId, Role, SharePolicy, Signed, Snapshot,
    Verified, VoId, mutated,
};

use crate::chain::CharterChain;
use crate::error::{DocumentKind, PolicyError};
use crate::highest_seen::{HighestSeen, SeenVersion};
use crate::in_force::Alarm;
use crate::slot::{Held, Slot};

/// Most delegated paths of one VO that a node follows, by turns of those that one policy delegates. A delegate may
/// delegate again, so without a bound one of them could make every member hold any number of
/// policies. Ten times the projects of the largest VOs.
pub const POLICIES_MAX: usize = 4_096;

/// Most bytes of share policies and allocations of one VO: what its signers can make every member keep. Ten
/// million entries with short names fit. An eighth of it is for each path that the policy of `/` delegates.
pub const HELD_BYTES_MAX: usize = 256 << 20;

/// Most roles out of force whose documents and versions are remembered. Beyond it the ones with the
/// highest paths are forgotten: their documents must be offered again if their delegation returns.
pub const INACTIVE_MAX: usize = 1_024;

/// Most VOs whose policies those of one VO mount and a node follows, the lowest ids first: each of them may
/// have [`HELD_BYTES_MAX`] of documents.
pub const MOUNTED_MAX: usize = 64;

pub use allocations::ALLOCATIONS_MAX;
use allocations::Credit;
pub use snapshot::{Compared, Vouched};

/// What became of an offered document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// It is in force now.
    InForce,
    /// It is one of several valid documents of one version: kept as evidence, and in force only
    /// if it is the first of them.
    Concurrent(Alarm),
    /// It was here already. Nothing changed.
    Known,
}

/// The role in force for one path, and what it has signed.
#[derive(Debug, Clone)]
struct Active {
    role: Role,
    keys: ContentHash,
    /// The document in force, then its rivals; empty where none has arrived.
    documents: Vec<Arc<Held>>,
}

/// A path and the hash of the keys that sign for it.
type SlotId = (AccountPath, ContentHash);

/// The charters and share policies of one VO.
#[derive(Debug, Clone)]
pub struct VoPolicies {
    vo: VoId,
    chain: CharterChain,
    charter_seen: u64,
    slots: BTreeMap<SlotId, Slot>,
    active: BTreeMap<AccountPath, Active>,
    allocations: BTreeMap<AllocationId, Credit>,
    snapshot: Option<Verified<Snapshot>>,
    /// The highest snapshot seen, by the hash of the role that signs it.
    snapshots_seen: BTreeMap<ContentHash, u64>,
    ignored: usize,
    /// Of all documents in force: asked for by every probe, and worked out when these change.
    digest: ContentHash,
    /// Of the snapshot and what it names, likewise.
    compared: Compared,
}

impl VoPolicies {
    /// Knows a VO by its id only. The id is what the operator trusts.
    pub fn new(vo: VoId) -> Self {
        Self {
            vo,
            chain: CharterChain::new(vo),
            charter_seen: 0,
            slots: BTreeMap::new(),
            active: BTreeMap::new(),
            allocations: BTreeMap::new(),
            snapshot: None,
            snapshots_seen: BTreeMap::new(),
            ignored: 0,
            digest: digest_of(&BTreeSet::new()),
            compared: Compared::default(),
        }
    }

    /// The state after a restart: what was durable of [`VoPolicies::highest_seen`] and
    /// [`VoPolicies::documents`], in any order. Every document is verified anew; the ones that are
    /// refused come back with the reason.
    pub fn restore<'a>(
        vo: VoId,
        seen: &HighestSeen,
        documents: impl IntoIterator<Item = (DocumentKind, &'a [u8])>,
    ) -> (Self, Vec<PolicyError>) {
        let mut policies = Self::new(vo);
        policies.charter_seen = seen.charter;
        for entry in &seen.policies {
            let slot = policies.slots.entry((entry.path.clone(), entry.keys));
            slot.or_default().see(entry.signatures, entry.version);
        }
        let seen = seen.snapshots.iter().map(|seen| (seen.role, seen.version));
        policies.snapshots_seen = seen.collect();
        let mut documents: Vec<_> = documents.into_iter().collect();
        documents.sort_by_key(|(kind, _)| *kind);
        loop {
            let before = policies.digest();
            let offer = |(kind, bytes): &(DocumentKind, &[u8])| policies.offer(*kind, bytes).err();
            let refused: Vec<_> = documents.iter().filter_map(offer).collect();
            // A policy may come before the one that says who signs it: then offer all again.
            let complete = policies.documents().count() == documents.len();
            if complete || policies.digest() == before {
                return (policies, refused);
            }
        }
    }

    /// Takes the bytes of a document: form and size first, then signatures, and only then is
    /// anything kept.
    pub fn adopt(&mut self, kind: DocumentKind, bytes: &[u8]) -> Result<Adopted, PolicyError> {
        let adopted = self.offer(kind, bytes)?;
        self.forget();
        Ok(adopted)
    }

    /// Takes a charter: the first must hash to the VO's id, and `N + 1` must follow `N` and be
    /// signed by the threshold of `N`'s authority and of its own.
    pub fn adopt_charter(&mut self, signed: Signed<Charter>) -> Result<Adopted, PolicyError> {
        let adopted = self.offer_charter(signed)?;
        self.forget();
        Ok(adopted)
    }

    /// Takes a share policy that the threshold of its path's role has signed and that is no older
    /// than the newest such policy seen.
    pub fn adopt_policy(&mut self, signed: Signed<SharePolicy>) -> Result<Adopted, PolicyError> {
        let adopted = self.offer_policy(signed)?;
        self.forget();
        Ok(adopted)
    }
    /// The VO of these policies.
    pub fn vo(&self) -> VoId {
        self.vo
    }

    /// The charter in force.
    pub fn charter(&self) -> Option<&Verified<Charter>> {
        self.chain.head()
    }

    /// All charters, oldest first; at the end the one in force and then its rivals.
    pub fn charters(&self) -> impl Iterator<Item = &Verified<Charter>> {
        self.chain.iter()
    }

    /// The share policies in force, ascending by path.
    pub fn policies(&self) -> impl Iterator<Item = &Verified<SharePolicy>> {
        let in_force = self.active.values().filter_map(Active::in_force);
        in_force.map(|held| &held.document)
    }

    /// How many entries the share policies in force have together.
    pub fn entries(&self) -> usize {
        self.policies()
            .map(|policy| policy.body().shares.len())
            .sum()
    }

    /// Who signs for `path`: the role of its own policy, if it has one of its own.
    pub fn role(&self, path: &AccountPath) -> Option<&Role> {
        self.active.get(path).map(|active| &active.role)
    }

    /// Every document that a member must have: the whole chain of charters, the policies in force, the
    /// rivals of either, the allocations in force and the snapshot. Charters come first, then policies from the
    /// top down, then allocations, the first version of each before the later one, so that a newcomer can
    /// adopt them as they come.
    pub fn documents(&self) -> impl Iterator<Item = (DocumentKind, ContentHash, &Arc<[u8]>)> {
        let charters = self
            .chain
            .iter()
            .map(|charter| (DocumentKind::Charter, charter.hash(), charter.bytes()));
        let policies = self
            .active
            .values()
            .flat_map(|active| &active.documents)
            .map(|held| {
                (
                    DocumentKind::SharePolicy,
                    held.hash(),
                    held.document.bytes(),
                )
            });
        let allocations = self
            .allocations()
            .map(|held| (DocumentKind::Allocation, held.hash(), held.bytes()));
        let snapshot = self.snapshot.as_ref();
        let snapshot = snapshot.map(|held| (DocumentKind::Snapshot, held.hash(), held.bytes()));
        charters.chain(policies).chain(allocations).chain(snapshot)
    }

    /// The hashes of [`VoPolicies::documents`].
    pub fn hashes(&self) -> BTreeSet<ContentHash> {
        self.documents().map(|(_, hash, _)| hash).collect()
    }

    /// One hash of [`VoPolicies::hashes`]: two members with the same digest have the same in force.
    pub fn digest(&self) -> ContentHash {
        self.digest
    }

    /// A document that is kept, in force or not.
    pub fn document(&self, hash: ContentHash) -> Option<(DocumentKind, Arc<[u8]>)> {
        let in_force = self.documents().find(|(_, known, _)| *known == hash);
        if let Some((kind, _, bytes)) = in_force {
            return Some((kind, bytes.clone()));
        }
        let mut kept = self.slots.values().flat_map(Slot::documents);
        let held = kept.find(|held| held.hash() == hash)?;
        Some((DocumentKind::SharePolicy, held.document.bytes().clone()))
    }

    /// What must be durable before the documents in force are used.
    pub fn highest_seen(&self) -> HighestSeen {
        let mut policies = Vec::new();
        for ((path, keys), slot) in &self.slots {
            policies.extend(slot.seen().map(|(signatures, version)| SeenVersion {
                path: path.clone(),
                keys: *keys,
                signatures,
                version,
            }));
        }
        HighestSeen {
            charter: self.charter_seen,
            policies,
            snapshots: self.snapshot_memory(),
        }
    }
}

impl VoPolicies {
    /// As [`Self::adopt`], while a restart is under way: most roles are not in force yet, and nothing is forgotten of
    /// them. What is refused may be adopted when others have been.
    ///
    /// # Errors
    /// As [`Self::adopt`].
    pub fn offer(&mut self, kind: DocumentKind, bytes: &[u8]) -> Result<Adopted, PolicyError> {
        match kind {
            DocumentKind::Charter => self.offer_charter(Signed::parse(bytes)?),
            DocumentKind::SharePolicy => self.offer_policy(Signed::parse(bytes)?),
            DocumentKind::Allocation => self.offer_allocation(Signed::parse(bytes)?),
            DocumentKind::Snapshot => self.offer_snapshot(Signed::parse(bytes)?),
        }
    }

    fn offer_charter(&mut self, signed: Signed<Charter>) -> Result<Adopted, PolicyError> {
        if !self.chain.adopt(signed)? {
            return Ok(Adopted::Known);
        }
        self.charter_seen = self.charter_seen.max(self.chain.version());
        if !mutated!(RolesOutliveCharter) || self.chain.version() == 1 {
            self.resolve();
        }
        Ok(match self.charter_alarm() {
            Some(alarm) => Adopted::Concurrent(alarm),
            None => Adopted::InForce,
        })
    }

    fn offer_policy(&mut self, signed: Signed<SharePolicy>) -> Result<Adopted, PolicyError> {
        if signed.vo() != self.vo {
            return Err(PolicyError::WrongVo {
                kind: DocumentKind::SharePolicy,
                expected: self.vo,
                got: signed.vo(),
            });
        }
        let path = signed.claimed().path.clone();
        let Some(active) = self.active.get(&path) else {
            return Err(PolicyError::NotYet { path });
        };
        let id = (path.clone(), active.keys);
        if self.knows(&id, &signed) {
            return Ok(Adopted::Known);
        }
        let signers: BTreeSet<KeyId> = signed.signers().collect();
        let held = verify(signed, &active.role).map_err(|error| {
            let widens = self.widens(DocumentKind::SharePolicy, &path, &signers);
            widens.unwrap_or(error)
        })?;
        self.check_version(&id, active.role.threshold, &held)?;
        self.make_room(held.document.bytes().len())?;
        let hash = held.hash();
        if !self.slots.entry(id.clone()).or_default().put(held) {
            return Ok(Adopted::Known);
        }
        self.resolve();
        self.keep_within();
        let kept = self.slots.get(&id).map_or_else(Vec::new, Slot::documents);
        if !kept.iter().any(|held| held.hash() == hash) {
            return Err(room::full_branch());
        }
        let alarm = self.active.get(&path).and_then(Active::alarm);
        Ok(alarm.map_or(Adopted::InForce, Adopted::Concurrent))
    }

    /// Why a document of `path` that its role has not signed is none, where its signers divide another path. They
    /// are asked for by what the signatures claim: no more is said than that they do.
    fn widens(
        &self,
        kind: DocumentKind,
        path: &AccountPath,
        signers: &BTreeSet<KeyId>,
    ) -> Option<PolicyError> {
        let mut others = self
            .active
            .iter()
            .filter(|(other, _)| !path.starts_with(other));
        let (own, _) = others.find(|(_, active)| !active.role.keys.is_disjoint(signers))?;
        let (path, own) = (path.clone(), own.clone());
        Some(PolicyError::Widens { kind, path, own })
    }

    /// Whether this very document is here, with no fewer signatures than it now claims.
    fn knows(&self, id: &SlotId, signed: &Signed<SharePolicy>) -> bool {
        let documents = self.slots.get(id).map_or_else(Vec::new, Slot::documents);
        documents.iter().any(|held| {
            held.hash() == signed.hash() && signed.signers().count() <= held.signatures as usize
        })
    }

    fn check_version(&self, id: &SlotId, threshold: u32, held: &Held) -> Result<(), PolicyError> {
        let have = self.slots.get(id).map_or(0, |slot| slot.highest(threshold));
        if held.version() >= have || mutated!(RollbackAccepted) {
            return Ok(());
        }
        Err(PolicyError::Rollback {
            kind: DocumentKind::SharePolicy,
            path: id.0.clone(),
            have,
            got: held.version(),
        })
    }
}

impl Active {
    fn in_force(&self) -> Option<&Arc<Held>> {
        self.documents.first()
    }
}

fn digest_of(hashes: &BTreeSet<ContentHash>) -> ContentHash {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
    ContentHash::of(&bytes)
}

/// Checks the signatures against `role` and notes how many of its keys have signed.
fn verify(signed: Signed<SharePolicy>, role: &Role) -> Result<Held, PolicyError> {
    let valid = signed.count_valid(&role.keys);
    let signatures = u32::try_from(valid).expect("a document has few signatures");
    Ok(Held::new(signed.verify(&[role])?, signatures))
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod order_tests;
