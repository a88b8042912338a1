//! Allocations: the credit of a VO's paths, and which of it is in force.
//!
//! An allocation is signed by the role in force for its path: of the delegated paths that it is or lies below
//! the deepest one's. Its first version says what is granted and is its name; of the later ones, which may end
//! slices sooner and change terms, the highest is in force beside it (of two of one version the lower hash).
//! A part of another allocation is signed by the leaders that this one names in its newest version in force.
//!
//! Invariant: limits aside, what is in force is a function of the documents that were offered and of the roles
//! in force; each later version in force grants what the first does. What a change of roles puts out of force
//! is kept, and counts again if its role comes back.
//! Deliberately not here: what sites spend by them (`fairmesh-quota`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::documents::PARTS_MAX;
use fairmesh_model::{
    AccountPath, Allocation, AllocationId, PartOf, Role, Signed, Verified, WallTime,
};

use super::{Adopted, VoPolicies, room};
use crate::error::{DocumentKind, PolicyError};
use crate::in_force::{DocumentRef, Warning, validity};

/// Most allocations of one VO that a node follows: every member counts rows for the slices of each. One a
/// year for each project of the largest VOs, for ten years.
pub const ALLOCATIONS_MAX: usize = 4_096;

/// An allocation: its first version, and the later one that is in force beside it.
#[derive(Debug, Clone)]
pub(super) struct Credit {
    first: Kept,
    later: Option<Kept>,
}

/// A document, and the role that has signed it.
#[derive(Debug, Clone)]
struct Kept {
    document: Verified<Allocation>,
    role: Role,
    /// Whether that role is in force for its path.
    counts: bool,
}

impl Kept {
    /// Whether it goes before another later version of the same allocation.
    fn precedes(&self, other: &Self) -> bool {
        let (a, b) = (self.document.body().version, other.document.body().version);
        a > b || a == b && self.document.hash() < other.document.hash()
    }

    fn reference(&self) -> DocumentRef {
        let body = self.document.body();
        DocumentRef {
            kind: DocumentKind::Allocation,
            path: body.path.clone(),
            version: body.version,
            hash: self.document.hash(),
        }
    }
}

impl Credit {
    /// What counts: the first version, and behind it the later one.
    fn counting(&self) -> impl Iterator<Item = &Kept> {
        let all = self.all();
        all.filter(|kept| self.first.counts && kept.counts)
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        let all = [Some(&self.first), self.later.as_ref()];
        all.into_iter().flatten()
    }

    fn bytes(&self) -> usize {
        self.all().map(|kept| kept.document.bytes().len()).sum()
    }

    fn part_of(&self) -> Option<&PartOf> {
        self.first.document.body().part_of.as_ref()
    }

    /// Which of its documents the role that signs for it has signed, verified anew where that role is another now.
    fn review(&mut self, role: Option<&Role>) {
        for kept in [Some(&mut self.first), self.later.as_mut()]
            .into_iter()
            .flatten()
        {
            kept.counts = role == Some(&kept.role);
            let Some(role) = role.filter(|_| !kept.counts) else {
                continue;
            };
            let signed = Signed::parse(kept.document.bytes()).expect("it was parsed before");
            if let Ok(document) = signed.verify(&[role]) {
                let (role, counts) = (role.clone(), true);
                *kept = Kept {
                    document,
                    role,
                    counts,
                };
            }
        }
    }
}

impl VoPolicies {
    /// Takes an allocation that the threshold of its path's role has signed. A later version needs the first
    /// one, and grants the same.
    pub fn adopt_allocation(&mut self, signed: Signed<Allocation>) -> Result<Adopted, PolicyError> {
        let adopted = self.offer_allocation(signed)?;
        self.forget();
        Ok(adopted)
    }

    /// The allocations in force: of each the first version, and behind it the later one, if any. Parts come behind
    /// what they are parts of.
    pub fn allocations(&self) -> impl Iterator<Item = &Verified<Allocation>> {
        let of = |is_part: bool| {
            let all = self.allocations.values();
            all.filter(move |credit| credit.part_of().is_some() == is_part)
        };
        let counting = of(false).chain(of(true)).flat_map(Credit::counting);
        counting.map(|kept| &kept.document)
    }

    /// The newest version of each allocation that counts here, where in `after` an older one would, or none: without the later
    /// version of a revoked one its credit is back.
    pub(super) fn credit_that_falls(&self, after: &Self) -> impl Iterator<Item = DocumentRef> {
        let newest = |of: &Credit| of.counting().last().map(Kept::reference);
        let version = |of: Option<DocumentRef>| of.map_or(0, |of| of.version);
        let counted = self.allocations.iter();
        counted.filter_map(move |(id, of)| {
            let left = version(after.allocations.get(id).and_then(newest));
            newest(of).filter(|of| left < of.version)
        })
    }

    /// Who signs for what lies at `path`: the role of the deepest delegated path that it is or lies below.
    pub fn role_above(&self, path: &AccountPath) -> Option<&Role> {
        path.ancestors().find_map(|above| self.role(&above))
    }

    pub(super) fn offer_allocation(
        &mut self,
        signed: Signed<Allocation>,
    ) -> Result<Adopted, PolicyError> {
        if signed.vo() != self.vo {
            return Err(PolicyError::WrongVo {
                kind: DocumentKind::Allocation,
                expected: self.vo,
                got: signed.vo(),
            });
        }
        let role = self.signers_of(signed.claimed()).cloned();
        let role = role.ok_or_else(|| match &signed.claimed().part_of {
            Some(part_of) => PolicyError::NoWhole {
                id: part_of.allocation,
            },
            None => PolicyError::NotYet {
                path: signed.claimed().path.clone(),
            },
        })?;
        let hash = signed.hash();
        let id = signed.claimed().id.unwrap_or_else(|| hash.into());
        let is_same = |credit: &Credit| credit.counting().any(|kept| kept.document.hash() == hash);
        if self.allocations.get(&id).is_some_and(is_same) {
            return Ok(Adopted::Known);
        }
        let (path, signers) = (signed.claimed().path.clone(), signed.signers().collect());
        let document = signed.verify(&[&role]).map_err(|error| {
            let widens = self.widens(DocumentKind::Allocation, &path, &signers);
            widens.unwrap_or(error.into())
        })?;
        let counts = true;
        let kept = Kept {
            document,
            role,
            counts,
        };
        self.check_part(kept.document.body())?;
        self.make_room(kept.document.bytes().len())?;
        match kept.document.body().id {
            None => self.put_first(id, kept)?,
            Some(_) => self.put_later(id, kept)?,
        }
        self.review_parts();
        self.sum_up();
        self.keep_within();
        let credit = self.allocations.get(&id).into_iter();
        let mut kept = credit.flat_map(Credit::all);
        match kept.any(|kept| kept.document.hash() == hash) {
            true => Ok(Adopted::InForce),
            false => Err(room::full_branch()),
        }
    }

    fn put_first(&mut self, id: AllocationId, first: Kept) -> Result<(), PolicyError> {
        if let Some(credit) = self.allocations.get_mut(&id) {
            credit.first = first;
            return Ok(());
        }
        if self.allocations.len() >= ALLOCATIONS_MAX {
            self.allocations.retain(|_, credit| credit.first.counts);
        }
        self.allocations.insert(id, Credit { first, later: None });
        if self.allocations.len() > ALLOCATIONS_MAX {
            self.drop_last();
        }
        let limit = ALLOCATIONS_MAX;
        let is_held = self.allocations.contains_key(&id);
        is_held.then_some(()).ok_or(PolicyError::TooMany { limit })
    }

    /// Lets one allocation go: of those whose places the most are, but for the VO's own signers, the one that was issued
    /// last. So what stays does not depend on the order in which they came, and nobody's stays at the cost of who has fewer.
    fn drop_last(&mut self) {
        let mut of_givers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (id, credit) in &self.allocations {
            let issued = credit.first.document.body().issued;
            let of_giver = of_givers.entry(self.giver(credit)).or_default();
            of_giver.insert((issued, *id));
        }
        let own = (AccountPath::root(), None);
        let most = of_givers
            .iter()
            .max_by_key(|(giver, all)| (**giver != own, all.len()));
        if let Some((_, last)) = most.and_then(|(_, all)| all.last()) {
            self.allocations.remove(last);
        }
    }

    /// Who takes a place by an allocation: whoever divides the path that the policy of `/` hands on, for all below it, or
    /// else the VO's own signers; of a part of what these grant its leaders.
    fn giver(&self, credit: &Credit) -> (AccountPath, Option<AllocationId>) {
        let whole = credit.part_of().map(|part_of| part_of.allocation);
        let whole = whole.filter(|id| self.allocations.contains_key(id));
        let from = whole.map_or(credit, |id| &self.allocations[&id]);
        let above = from.first.document.body().path.ancestors();
        let handed_on = above.filter(|path| !path.is_root() && self.active.contains_key(path));
        match handed_on.last() {
            Some(path) => (path, None),
            None => (AccountPath::root(), whole),
        }
    }

    fn put_later(&mut self, id: AllocationId, later: Kept) -> Result<(), PolicyError> {
        let body = later.document.body();
        let version = body.version;
        let credit = self.allocations.get_mut(&id);
        let Some(credit) = credit.filter(|credit| credit.first.counts) else {
            return Err(PolicyError::NoFirst { id, version });
        };
        // Always against the first: nobody need know which versions lie between.
        if let Some(what) = credit.first.document.body().forbidden_change(body) {
            return Err(PolicyError::Regrant { id, version, what });
        }
        let rival = credit.later.as_ref().filter(|rival| rival.counts);
        match rival.filter(|rival| rival.precedes(&later)) {
            Some(rival) if rival.document.body().version == version => {
                Err(PolicyError::Rival { id, version })
            }
            Some(rival) => Err(PolicyError::Rollback {
                kind: DocumentKind::Allocation,
                path: body.path.clone(),
                have: rival.document.body().version,
                got: version,
            }),
            _ => {
                credit.later = Some(later);
                Ok(())
            }
        }
    }

    /// Roles have changed: which allocations their paths' roles have signed, and which parts their leaders.
    pub(super) fn review_allocations(&mut self) {
        let mut allocations = std::mem::take(&mut self.allocations);
        for credit in allocations.values_mut() {
            if credit.part_of().is_none() {
                let role = self.role_above(&credit.first.document.body().path);
                credit.review(role);
            }
        }
        self.allocations = allocations;
        self.review_parts();
    }

    /// An allocation or its leaders have changed: which parts count.
    fn review_parts(&mut self) {
        let is_part = |(id, credit): (&AllocationId, &Credit)| {
            let part_of = credit.part_of()?;
            Some((*id, part_of.allocation))
        };
        let parts: Vec<_> = self.allocations.iter().filter_map(is_part).collect();
        for (id, whole) in parts {
            let leaders = self.leaders(whole).cloned();
            if let Some(credit) = self.allocations.get_mut(&id) {
                credit.review(leaders.as_ref());
            }
        }
    }

    /// Who signs parts of an allocation.
    fn leaders(&self, whole: AllocationId) -> Option<&Role> {
        let newest = self.allocations.get(&whole)?.counting().last()?;
        newest.document.body().leaders.as_ref()
    }

    /// Who signs an allocation: the role of its path, or the leaders of what it is a part of.
    pub fn signers_of(&self, body: &Allocation) -> Option<&Role> {
        match &body.part_of {
            Some(part_of) => self.leaders(part_of.allocation),
            None => self.role_above(&body.path),
        }
    }

    /// Whether a part fits the allocation that it is a part of.
    fn check_part(&self, body: &Allocation) -> Result<(), PolicyError> {
        let Some(part_of) = &body.part_of else {
            return Ok(());
        };
        let id = part_of.allocation;
        let whole = self.allocations.get(&id).expect("its leaders are known");
        if let Some(what) = body.misfit(whole.first.document.body()) {
            return Err(PolicyError::Misfit { id, what });
        }
        let counting = self.allocations.values().filter(|of| of.first.counts);
        let siblings = counting.filter(|of| of.part_of().is_some_and(|of| of.allocation == id));
        let count = siblings.count();
        match body.id {
            None if count >= PARTS_MAX => Err(PolicyError::TooMany { limit: PARTS_MAX }),
            _ => Ok(()),
        }
    }

    /// What is wrong with allocations that can still be spent.
    pub(super) fn allocation_warnings(&self, now: WallTime) -> Vec<Warning> {
        let newest = self
            .allocations
            .values()
            .filter_map(|credit| credit.counting().last());
        let lives = |kept: &&Kept| {
            let mut slices = kept.document.body().slices.iter();
            slices.any(|slice| now < slice.end)
        };
        let warnings = newest.filter(lives).filter_map(|kept| {
            let body = kept.document.body();
            validity(&kept.reference(), body.issued, body.expires, now)
        });
        let all = self.allocations.values();
        let lapsed = all
            .filter(|credit| lives(&&credit.first))
            .filter_map(|credit| {
                let later = credit.later.as_ref().filter(|later| !later.counts)?;
                Some(Warning::Lapsed {
                    document: later.reference(),
                    counting: credit.counting().last()?.reference(),
                })
            });
        warnings.chain(lapsed).collect()
    }

    pub(super) fn allocation_bytes(&self) -> usize {
        self.allocations.values().map(Credit::bytes).sum()
    }

    /// The same, by the path whose role has signed, or has named the leaders who have.
    pub(super) fn allocation_bytes_of_paths(&self) -> impl Iterator<Item = (AccountPath, usize)> {
        let all = self.allocations.values();
        all.map(|credit| (self.signed_at(credit), credit.bytes()))
    }

    /// Lets the allocation go that was issued last of those that the role of a path has signed; false where it has none.
    pub(super) fn drop_last_of(&mut self, path: &AccountPath) -> bool {
        let all = self.allocations.iter();
        let of_path = all.filter(|(_, credit)| self.signed_at(credit) == *path);
        let last = of_path.max_by_key(|(id, credit)| (credit.first.document.body().issued, **id));
        let last = last.map(|(id, _)| *id);
        last.is_some_and(|id| self.allocations.remove(&id).is_some())
    }

    fn signed_at(&self, credit: &Credit) -> AccountPath {
        let whole = credit.part_of().map(|part_of| part_of.allocation);
        let whole = whole.and_then(|id| self.allocations.get(&id));
        let path = &whole.unwrap_or(credit).first.document.body().path;
        let mut above = path.ancestors();
        let signed = above.find(|path| self.active.contains_key(path));
        signed.unwrap_or_else(AccountPath::root)
    }
}

#[cfg(test)]
mod tests;
