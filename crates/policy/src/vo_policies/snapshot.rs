//! The snapshot of a VO: what its online role says is in force, and what is lacking here of that.
//!
//! Invariant: no snapshot puts a document into force or out of it. The one held is, of those that the role in
//! force has signed, the one with the highest version, and of two of one version that with the lower hash; so
//! it does not depend on the order in which they came. The highest version is remembered for the role.
//! Deliberately not here: asking for what is lacking, which peers bring like any document (docs/snapshot.md).
//! Source: TUF specification 1.0, sections 4.4 and 5.5.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, Charter, ContentHash, Named, Role, Signed, Snapshot, Verified, WallTime, mutated,
};

use super::{Adopted, VoPolicies};
use crate::error::{DocumentKind, PolicyError};
use crate::highest_seen::{SeenSnapshot, role_hash};
use crate::in_force::{DocumentRef, Warning, validity};

/// Most roles whose highest snapshot is remembered: the one in force and those before it. A role that changes
/// every week comes back after a year.
const ROLES_MAX: usize = 64;

/// How what is in force compares with what the snapshot names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compared {
    /// How many documents it names that are not here, nor newer ones in their place.
    pub missing: usize,
    /// The first of them, and which version is here; 0 for none.
    pub first: Option<(DocumentRef, u64)>,
    /// How many documents in force are newer than it.
    pub newer: usize,
}

/// What is known of a VO's snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouched {
    /// The snapshot that vouches for the documents.
    pub snapshot: DocumentRef,
    /// When it was signed, by the signer's clock.
    pub issued: WallTime,
    /// When there should have been another.
    pub expires: WallTime,
    /// How what is here compares.
    pub compared: Compared,
}

impl VoPolicies {
    /// Takes a snapshot that the threshold of the charter's role for it has signed, and that is no older than
    /// the newest such one seen.
    pub fn adopt_snapshot(&mut self, signed: Signed<Snapshot>) -> Result<Adopted, PolicyError> {
        let adopted = self.offer_snapshot(signed)?;
        self.forget();
        Ok(adopted)
    }

    /// Who signs snapshots, if anybody does.
    pub fn snapshot_role(&self) -> Option<&Role> {
        self.charter()?.body().snapshot.as_ref()
    }

    /// The snapshot that is held.
    pub fn snapshot(&self) -> Option<&Verified<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// What is known of it.
    pub fn vouched(&self) -> Option<Vouched> {
        let held = self.snapshot.as_ref()?;
        Some(Vouched {
            snapshot: reference(held),
            issued: held.body().issued,
            expires: held.body().expires,
            compared: self.compared.clone(),
        })
    }

    /// What members should know of it at `now`: that it has expired, that there is none although somebody should
    /// sign it, and that documents are lacking.
    pub fn snapshot_warnings(&self, now: WallTime) -> Vec<Warning> {
        if self.snapshot_role().is_none() {
            return Vec::new();
        }
        let Some(Vouched {
            snapshot,
            issued,
            expires,
            compared,
        }) = self.vouched()
        else {
            return vec![Warning::NoSnapshot];
        };
        let validity = match validity(&snapshot, issued, expires, now) {
            Some(Warning::Expired { document, since }) => Some(Warning::Unvouched {
                snapshot: document,
                since,
            }),
            other => other,
        };
        let lacking = compared.first.filter(|_| !mutated!(LackUnsaid));
        let lacking = lacking.map(|(document, have)| Warning::Lacking {
            snapshot,
            document,
            have,
            more: compared.missing - 1,
        });
        validity.into_iter().chain(lacking).collect()
    }

    /// The next snapshot, which names all that is in force here; `None` where no charter is.
    pub fn next_snapshot(&self, issued: WallTime, expires: WallTime) -> Option<Snapshot> {
        let charter = self.charter()?;
        let last = self.snapshot.as_ref().map_or(0, |held| held.body().version);
        let policies = self.policies();
        let policies = policies.map(|policy| {
            let version = policy.body().version;
            (policy.body().path.clone(), named(version, policy.hash()))
        });
        // Of an allocation the first version comes first, and the later one takes its place.
        let allocations = self.allocations().map(|of| {
            let body = of.body();
            let id = body.id.unwrap_or_else(|| of.hash().into());
            (id, named(body.version, of.hash()))
        });
        Some(Snapshot {
            vo: self.vo,
            version: last.saturating_add(1),
            issued,
            expires,
            charter: named(charter.body().version, charter.hash()),
            policies: policies.collect(),
            allocations: allocations.collect(),
        })
    }

    pub(super) fn offer_snapshot(
        &mut self,
        signed: Signed<Snapshot>,
    ) -> Result<Adopted, PolicyError> {
        if signed.vo() != self.vo {
            return Err(PolicyError::WrongVo {
                kind: DocumentKind::Snapshot,
                expected: self.vo,
                got: signed.vo(),
            });
        }
        let Some(role) = self.snapshot_role() else {
            return Err(PolicyError::NoSnapshotRole);
        };
        let held = self.snapshot.as_ref();
        if held.is_some_and(|held| held.hash() == signed.hash()) {
            return Ok(Adopted::Known);
        }
        let by = role_hash(role);
        let document = signed.verify(&[role])?;
        let version = document.body().version;
        let seen = self.snapshots_seen.get(&by).copied().unwrap_or(0);
        if version < seen && !mutated!(SnapshotRolledBack) {
            return Err(PolicyError::Rollback {
                kind: DocumentKind::Snapshot,
                path: AccountPath::root(),
                have: seen,
                got: version,
            });
        }
        let is_first = |held: &Verified<Snapshot>| {
            held.body().version == version && held.hash() < document.hash()
        };
        if held.is_some_and(is_first) {
            return Err(PolicyError::SnapshotRival { version });
        }
        self.snapshots_seen.insert(by, version.max(seen));
        self.snapshot = Some(document);
        self.sum_up();
        Ok(Adopted::InForce)
    }

    /// The charter has changed: whether its role has signed what is held.
    pub(super) fn review_snapshot(&mut self) {
        let Some(held) = self.snapshot.take() else {
            return;
        };
        let Some(role) = self.snapshot_role() else {
            return;
        };
        let signed = Signed::<Snapshot>::parse(held.bytes()).expect("it was parsed before");
        let (by, verified) = (role_hash(role), signed.verify(&[role]));
        if let Ok(document) = verified {
            let seen = self.snapshots_seen.entry(by).or_default();
            *seen = document.body().version.max(*seen);
            self.snapshot = Some(document);
        }
    }

    /// Bounds what is remembered of roles out of force.
    pub(super) fn forget_snapshots(&mut self) {
        let in_force = self.snapshot_role().map(role_hash);
        while self.snapshots_seen.len() > ROLES_MAX {
            let mut old = self.snapshots_seen.keys().copied();
            let gone = old.find(|of| Some(*of) != in_force);
            gone.and_then(|gone| self.snapshots_seen.remove(&gone));
        }
    }

    pub(super) fn snapshot_memory(&self) -> Vec<SeenSnapshot> {
        let seen = self.snapshots_seen.iter();
        seen.map(|(&role, &version)| SeenSnapshot { role, version })
            .collect()
    }

    /// Compares what is in force with what the snapshot names. Worked out when either changes.
    pub(super) fn compare(&self) -> Compared {
        let (Some(held), Some(head)) = (&self.snapshot, self.charter()) else {
            return Compared::default();
        };
        let mut compared = Compared::default();
        let says = held.body();
        let is_moot = self.compare_charter(says, head, &mut compared);
        self.compare_policies(says, is_moot, &mut compared);
        self.compare_allocations(says, is_moot, &mut compared);
        compared
    }

    /// Whether the charter is newer than the snapshot, so that it may have ended what that names.
    fn compare_charter(
        &self,
        says: &Snapshot,
        head: &Verified<Charter>,
        compared: &mut Compared,
    ) -> bool {
        let have = head.body().version;
        if self.charters().any(|of| of.hash() == says.charter.hash) {
            let is_newer = have > says.charter.version;
            compared.newer += usize::from(is_newer);
            return is_newer;
        }
        compared.lack(
            DocumentKind::Charter,
            &AccountPath::root(),
            says.charter,
            have,
        );
        false
    }

    fn compare_policies(&self, says: &Snapshot, is_moot: bool, compared: &mut Compared) {
        for (path, named) in &says.policies {
            let held = self.active.get(path);
            let mut held = held.into_iter().flat_map(|active| &active.documents);
            if held.any(|held| held.hash() == named.hash) {
                continue;
            }
            let have = self.policy_version(path);
            if have <= named.version && !is_moot && !self.is_newer_above(path, says) {
                compared.lack(DocumentKind::SharePolicy, path, *named, have);
            }
        }
        let newer = self.policies().filter(|policy| {
            let named = says.policies.get(&policy.body().path);
            named.is_none_or(|named| named.version < policy.body().version)
        });
        compared.newer += newer.count();
    }

    fn compare_allocations(&self, says: &Snapshot, is_moot: bool, compared: &mut Compared) {
        // Of each the one in force: the later one stands behind the first.
        let mut have = BTreeMap::new();
        for of in self.allocations() {
            let id = of.body().id.unwrap_or_else(|| of.hash().into());
            have.insert(id, (of.body(), of.hash()));
        }
        for (id, named) in &says.allocations {
            let held = have.get(id);
            let version = held.map_or(0, |(body, _)| body.version);
            let is_here = held.is_some_and(|(_, hash)| *hash == named.hash);
            // Where it is not here at all, nothing says whose it is: any newer policy may have ended it.
            let may_have_ended = is_moot || compared.newer > 0 && held.is_none();
            if !is_here && version <= named.version && !may_have_ended {
                let path = held.map_or_else(AccountPath::root, |(body, _)| body.path.clone());
                compared.lack(DocumentKind::Allocation, &path, *named, version);
            }
        }
        let newer = have.iter().filter(|(id, (body, _))| {
            let named = says.allocations.get(id);
            named.is_none_or(|named| named.version < body.version)
        });
        compared.newer += newer.count();
    }

    fn policy_version(&self, path: &AccountPath) -> u64 {
        let active = self.active.get(path);
        active
            .and_then(|active| active.documents.first())
            .map_or(0, |held| held.version())
    }

    /// Whether a policy above `path` is newer than the snapshot, so that it may delegate it to others or not at
    /// all.
    fn is_newer_above(&self, path: &AccountPath, says: &Snapshot) -> bool {
        let mut above = path.ancestors().filter(|above| above != path);
        above.any(|above| {
            let named = says.policies.get(&above).map_or(0, |named| named.version);
            self.policy_version(&above) > named
        })
    }
}

impl Compared {
    fn lack(&mut self, kind: DocumentKind, path: &AccountPath, named: Named, have: u64) {
        self.missing += 1;
        self.first.get_or_insert_with(|| {
            let document = DocumentRef {
                kind,
                path: path.clone(),
                version: named.version,
                hash: named.hash,
            };
            (document, have)
        });
    }
}

const fn named(version: u64, hash: ContentHash) -> Named {
    Named { version, hash }
}

/// How answers name a snapshot.
fn reference(snapshot: &Verified<Snapshot>) -> DocumentRef {
    DocumentRef {
        kind: DocumentKind::Snapshot,
        path: AccountPath::root(),
        version: snapshot.body().version,
        hash: snapshot.hash(),
    }
}

#[cfg(test)]
mod tests;
