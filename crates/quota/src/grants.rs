//! The allocations in force, and each site's initial rights to each slice.
//!
//! Invariant: the amount of a slice and its split never change; a later version of an allocation may only end slices
//! earlier and change terms. So rights that are spent under one version are rights under any other, whichever version a
//! site has received.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Allocation, AllocationId, AllocationSlice, ContentHash, Share, SiteId, Verified,
    WallTime, mutant, mutated,
};
use serde::{Deserialize, Serialize};

use crate::slices::Division;

/// Identifies a slice of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SliceId {
    /// The allocation that contains it.
    pub allocation: AllocationId,
    /// Its index in the document, from 0.
    pub index: u32,
}

impl SliceId {
    /// Length of [`SliceId::to_bytes`].
    pub const BYTES: usize = 36;

    /// The key of the slice in parts of heads and in rows of the store; byte order is the order of ids.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(self.allocation.as_bytes());
        bytes[32..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// The inverse of [`SliceId::to_bytes`]; `None` for bytes of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (allocation, index) = bytes.split_at_checked(32)?;
        Some(Self {
            allocation: AllocationId::from_bytes(allocation.try_into().ok()?),
            index: u32::from_be_bytes(index.try_into().ok()?),
        })
    }
}

/// Why an allocation was not adopted. State is unchanged; its signers are at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It would change rights that sites may have spent already.
    #[error("allocation {id} version {version}: {what} may not change; grant another allocation")]
    Changed {
        /// The allocation.
        id: AllocationId,
        /// The refused version.
        version: u64,
        /// The field that differs.
        what: &'static str,
    },
    /// It is older than the one in force.
    #[error("allocation {id}: version {got} is older than {have}")]
    Older {
        /// The allocation.
        id: AllocationId,
        /// The version in force.
        have: u64,
        /// The version offered.
        got: u64,
    },
    /// It is a part of an unknown allocation, or does not fit the whole.
    #[error("allocation {id}: {what}")]
    Misfit {
        /// The part.
        id: AllocationId,
        /// What is wrong.
        what: &'static str,
    },
}

/// How the slices of an allocation are split: the same for all of its versions.
type Splits = Arc<[Division]>;

/// An allocation in force.
#[derive(Debug, Clone)]
struct Grant {
    body: Arc<Allocation>,
    hash: ContentHash,
    /// The split of each slice, computed once: it costs a pass over all sites.
    splits: Splits,
    /// The end of each slice; a part ends no later than the whole.
    ends: Vec<WallTime>,
}

impl Grant {
    /// Each slice with its effective end.
    fn slices(&self) -> impl Iterator<Item = (&AllocationSlice, WallTime)> {
        self.body.slices.iter().zip(self.ends.iter().copied())
    }

    /// A site's initial rights to a slice. The split of a part may give a site more than the whole's `at_most`
    /// allows; the excess goes to no site.
    fn initial(&self, index: usize, site: SiteId) -> Option<u64> {
        let weight = *self.body.split.get(&site)?;
        let part = self.splits.get(index)?.part(site, weight);
        let most = self.body.at_most.get(&site);
        let slice = self.body.slices.get(index)?;
        Some(most.map_or(part, |most| share(slice, *most).min(part)))
    }
}

/// The allocations of one VO.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    grants: BTreeMap<AllocationId, Grant>,
    paths: BTreeMap<AccountPath, BTreeSet<AllocationId>>,
    /// The parts of each allocation that has parts.
    parts: BTreeMap<AllocationId, BTreeSet<AllocationId>>,
    /// Splits of the allocations that were in force before, for reuse.
    known: BTreeMap<AllocationId, Splits>,
}

impl Grants {
    /// An empty set that reuses the splits of `before`: with each new document all allocations are adopted again, and
    /// computing every split would take time for all sites × all slices.
    pub fn after(before: &Self) -> Self {
        let known = before.grants.iter();
        Self {
            known: known
                .map(|(id, grant)| (*id, grant.splits.clone()))
                .collect(),
            ..Self::default()
        }
    }

    /// Adopts a document whose signatures the caller has checked against the role of its path. Returns false if it,
    /// or one of the same version with a lower hash, is in force. Parts must come after all versions of their whole.
    ///
    /// # Errors
    /// The document is older, would change granted rights, or does not fit its whole.
    pub fn adopt(&mut self, document: &Verified<Allocation>) -> Result<bool, GrantError> {
        let (body, hash) = (self.in_terms_of_whole(document.shared()), document.hash());
        let id = body.id.unwrap_or_else(|| hash.into());
        if let Some(have) = self.grants.get(&id) {
            if have.body.version > body.version && !mutated!(OlderGrantTaken) {
                return Err(GrantError::Older {
                    id,
                    have: have.body.version,
                    got: body.version,
                });
            }
            let changed = have.body.forbidden_change(&body);
            if let Some(what) = changed.filter(|_| !mutated!(GrantsRewritten)) {
                return Err(GrantError::Changed {
                    id,
                    version: body.version,
                    what,
                });
            }
            // Signers may sign two documents of one version. All sites must choose the same one, whichever arrives
            // first.
            if have.body.version == body.version && have.hash <= hash {
                return Ok(false);
            }
        }
        let ends = self.ends(id, &body)?;
        let known = self.grants.get(&id).map(|have| &have.splits);
        let split = |slice: &AllocationSlice| Division::new(slice.amount.0, &body.split);
        let splits = match known.or_else(|| self.known.get(&id)) {
            Some(known) => known.clone(),
            None => body.slices.iter().map(split).collect(),
        };
        if let Some(part_of) = &body.part_of {
            self.parts.entry(part_of.allocation).or_default().insert(id);
        }
        self.paths.entry(body.path.clone()).or_default().insert(id);
        self.grants.insert(
            id,
            Grant {
                body,
                hash,
                splits,
                ends,
            },
        );
        Ok(true)
    }

    /// The allocation in force, in the terms of its whole.
    pub fn get(&self, id: AllocationId) -> Option<&Allocation> {
        self.grants.get(&id).map(|grant| &*grant.body)
    }

    /// Whether no allocation is in force. Then the VO has no quotas, and every job runs.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// All allocations in force.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationId, &Allocation)> {
        self.grants.iter().map(|(id, grant)| (*id, &*grant.body))
    }

    /// The paths with an allocation of their own.
    pub fn paths(&self) -> impl Iterator<Item = &AccountPath> {
        self.paths.keys()
    }

    /// A part in the terms that count: the whole's authority decides what jobs hold and cost and how much a site may
    /// have; the leaders decide only who the members are.
    fn in_terms_of_whole(&self, body: &Arc<Allocation>) -> Arc<Allocation> {
        let part_of = body.part_of.as_ref();
        let whole = part_of.and_then(|part_of| self.get(part_of.allocation));
        let Some(whole) = whole.filter(|_| !mutated!(LeadersSetPrices)) else {
            return body.clone();
        };
        let least = [body.hold_max, whole.hold_max].into_iter().flatten().min();
        let mut at_most = body.at_most.clone();
        for (site, most) in &whole.at_most {
            let of_part = at_most.entry(*site).or_insert(*most);
            *of_part = (*of_part).min(*most);
        }
        Arc::new(Allocation {
            settle: whole.settle,
            hold_max: least,
            hold_factor: whole.hold_factor,
            fee: whole.fee,
            price_max: whole.price_max,
            idle_charge: whole.idle_charge,
            at_most,
            ..Allocation::clone(body)
        })
    }

    /// The ends of the slices of an allocation; those of a part are limited by the whole.
    fn ends(&self, id: AllocationId, body: &Allocation) -> Result<Vec<WallTime>, GrantError> {
        let ends = body.slices.iter().map(|slice| slice.end);
        let Some(part_of) = &body.part_of else {
            return Ok(ends.collect());
        };
        let whole = self.grants.get(&part_of.allocation);
        let of_whole = part_of.slices.iter().map(|place| {
            let ends = whole.and_then(|whole| whole.ends.get(*place as usize));
            ends.copied().ok_or(GrantError::Misfit {
                id,
                what: "what it is a part of is not in force",
            })
        });
        let earlier = |(own, of_whole): (WallTime, Result<WallTime, GrantError>)| {
            Ok(mutant!(PartsOutliveWholes, own.min(of_whole?), own))
        };
        ends.zip(of_whole).map(earlier).collect()
    }

    /// The slice with its effective end, if its allocation is in force.
    pub fn slice(&self, id: SliceId) -> Option<AllocationSlice> {
        let grant = self.grants.get(&id.allocation)?;
        let (slice, end) = grant.slices().nth(id.index as usize)?;
        Some(AllocationSlice { end, ..*slice })
    }

    /// The slice that this one is a part of; `None` for a slice that is no part.
    pub fn whole(&self, id: SliceId) -> Option<SliceId> {
        let part_of = self.get(id.allocation)?.part_of.as_ref()?;
        let index = *part_of.slices.get(id.index as usize)?;
        Some(SliceId {
            allocation: part_of.allocation,
            index,
        })
    }

    /// The slices that are parts of a slice.
    pub fn parts(&self, id: SliceId) -> impl Iterator<Item = SliceId> {
        let parts = self.parts.get(&id.allocation).into_iter().flatten();
        parts.filter_map(move |part| {
            let part_of = self.get(*part)?.part_of.as_ref()?;
            let place = part_of.slices.binary_search(&id.index).ok()?;
            Some(SliceId {
                allocation: *part,
                index: u32::try_from(place).ok()?,
            })
        })
    }

    /// All slices that are parts, in the order in which their allocations were signed: if the whole is short, every
    /// site serves the parts in the same order.
    pub fn all_parts(&self) -> Vec<SliceId> {
        let all = self.parts.values().flatten();
        let mut all: Vec<_> = all.map(|id| (self.grants[id].body.issued, *id)).collect();
        all.sort_unstable();
        let slices = all.into_iter().flat_map(|(_, allocation)| {
            let places = (0..).zip(&self.grants[&allocation].body.slices);
            places.map(move |(index, _)| SliceId { allocation, index })
        });
        slices.collect()
    }

    /// The most rights of a slice that a site may have at a time; `u64::MAX` without a limit.
    pub fn at_most(&self, id: SliceId, site: SiteId) -> u64 {
        let grant = self.grants.get(&id.allocation);
        let most = grant.and_then(|grant| {
            let slice = grant.body.slices.get(id.index as usize)?;
            Some(share(slice, *grant.body.at_most.get(&site)?))
        });
        most.unwrap_or(u64::MAX)
    }

    /// A site's initial rights to a slice; for a part, the rights that it passes on if it can.
    pub fn initial(&self, id: SliceId, site: SiteId) -> u64 {
        let grant = self.grants.get(&id.allocation);
        let initial = grant.and_then(|grant| grant.initial(id.index as usize, site));
        initial.unwrap_or(0)
    }

    /// The sites with initial rights to a slice, and how much each has.
    pub fn initial_sites(&self, id: SliceId) -> impl Iterator<Item = (SiteId, u64)> {
        let grant = self.grants.get(&id.allocation).into_iter();
        grant.flat_map(move |grant| {
            let sites = grant.body.split.keys();
            sites.filter_map(move |site| Some((*site, grant.initial(id.index as usize, *site)?)))
        })
    }

    /// The slices of a path's own allocations, sorted by their end. Rights that perish first are spent first.
    pub fn slices_of(&self, path: &AccountPath) -> Vec<(SliceId, AllocationSlice)> {
        let ids = self.paths.get(path).into_iter().flatten();
        let mut slices: Vec<_> = ids
            .flat_map(|id| {
                let slices = (0..).zip(self.grants[id].slices());
                slices.map(|(index, (slice, end))| {
                    let allocation = *id;
                    let slice = AllocationSlice { end, ..*slice };
                    (SliceId { allocation, index }, slice)
                })
            })
            .collect();
        slices.sort_by_key(|(id, slice)| {
            (
                mutant!(LastSliceFirst, slice.end.0, u64::MAX - slice.end.0),
                *id,
            )
        });
        slices
    }

    /// The slices of a path that can be spent at `now`, sorted by their end.
    pub fn live(&self, path: &AccountPath, now: WallTime) -> Vec<SliceId> {
        let slices = self.slices_of(path).into_iter();
        let live = slices.filter(|(_, slice)| {
            slice.start <= now && (now < slice.end || mutated!(DeadSlicesSpent))
        });
        live.map(|(id, _)| id).collect()
    }

    /// The slices of [`Grants::live`] that `user` may spend.
    pub fn live_for(&self, path: &AccountPath, user: &AccountPath, now: WallTime) -> Vec<SliceId> {
        let mut live = self.live(path, now);
        live.retain(|id| self.admits(id.allocation, user));
        live
    }

    /// The allocation whose terms apply to a path: the one issued last, of those with a slice that has not ended.
    pub fn terms(&self, path: &AccountPath, now: WallTime) -> Option<(AllocationId, &Allocation)> {
        self.current(path, now).next()
    }

    /// The allocation by whose terms a user's holds are decided: the one issued last, of those that the user may
    /// spend and that have a slice which has not ended. `None` if the user may spend nothing of the path.
    pub fn terms_for(
        &self,
        path: &AccountPath,
        user: &AccountPath,
        now: WallTime,
    ) -> Option<(AllocationId, &Allocation)> {
        let mut current = self.current(path, now);
        current.find(|(id, _)| self.admits(*id, user))
    }

    /// The paths with credit that a user may spend: the user's own path and its ancestors, the deepest first.
    pub fn accounts<'a>(
        &'a self,
        user: &'a AccountPath,
        now: WallTime,
    ) -> impl Iterator<Item = AccountPath> + 'a {
        let above = user.ancestors();
        above.filter(move |path| self.terms_for(path, user, now).is_some())
    }

    /// Whether a user below its path may spend an allocation: everyone may if it names no members.
    pub fn admits(&self, id: AllocationId, user: &AccountPath) -> bool {
        let is_member = |members: &BTreeSet<AccountPath>| {
            members.is_empty() || user.ancestors().any(|above| members.contains(&above))
        };
        self.get(id).is_some_and(|body| is_member(&body.members))
    }

    /// Whether debts of the allocation `owing` are settled by rights of the allocation `id` of the same path. They
    /// are if every user who can make such debts may also spend `id`: otherwise members of one group would pay
    /// another group's debts. Debts of an allocation that has ended are the whole path's.
    pub(crate) fn settles(&self, owing: AllocationId, id: AllocationId, now: WallTime) -> bool {
        let owing = &self.grants[&owing];
        let members = &owing.body.members;
        owing.slices().all(|(_, end)| end <= now)
            || self.grants[&id].body.members.is_empty()
            || !members.is_empty() && members.iter().all(|member| self.admits(id, member))
    }

    /// The allocations of a path with a slice that has not ended, the one issued last first. If there is none, the
    /// one issued last, so that a path keeps its terms after its credit has ended.
    fn current(
        &self,
        path: &AccountPath,
        now: WallTime,
    ) -> impl Iterator<Item = (AllocationId, &Allocation)> {
        let ids = self.paths.get(path).into_iter().flatten();
        let rank = |id: &AllocationId| {
            let grant = &self.grants[id];
            let lives = grant.slices().any(|(_, end)| now < end);
            (lives, grant.body.issued, *id)
        };
        let mut all: Vec<_> = ids.map(rank).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let count = all.iter().filter(|(lives, ..)| *lives).count();
        let current = all.into_iter().take(count.max(1));
        current.map(|(.., id)| (id, &*self.grants[&id].body))
    }

    /// The members that may spend some allocations, by path. An empty set means that everyone below the path may.
    pub fn members_of(
        &self,
        ids: impl IntoIterator<Item = AllocationId>,
    ) -> BTreeMap<AccountPath, BTreeSet<AccountPath>> {
        let mut of_paths = BTreeMap::new();
        for body in ids.into_iter().filter_map(|id| self.get(id)) {
            let new = || Some(BTreeSet::new());
            let of_path: &mut Option<BTreeSet<_>> =
                of_paths.entry(body.path.clone()).or_insert_with(new);
            match of_path.as_mut().filter(|_| !body.members.is_empty()) {
                Some(members) => members.extend(body.members.iter().cloned()),
                None => *of_path = None,
            }
        }
        let named = |(path, members): (AccountPath, Option<_>)| (path, members.unwrap_or_default());
        of_paths.into_iter().map(named).collect()
    }
}

/// A share of a slice in core-milliseconds; rounded up, because a split may give the remainder to any of its sites.
fn share(slice: &AllocationSlice, share: Share) -> u64 {
    let amount = u128::from(slice.amount.0) * u128::from(share.units());
    u64::try_from(amount.div_ceil(u128::from(Share::ONE))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{CoreMillis, Role, Signed, SigningKey, VoId};

    use super::*;

    fn document(amount: u64) -> Verified<Allocation> {
        let slice = AllocationSlice {
            amount: CoreMillis(amount),
            start: WallTime(1),
            end: WallTime(9),
        };
        let (vo, path) = (VoId::from_bytes([7; 32]), AccountPath::root());
        let split = (1..=200).map(|number| (SiteId::from_bytes([number; 32]), 1));
        let valid = WallTime(1)..WallTime(9);
        let body = Allocation::new(vo, path, valid, vec![slice; 3], split.collect());
        let key = SigningKey::from_secret(&[9; 32]);
        let signed = Signed::sign(body, &[&key]).expect("a valid allocation");
        let role = Role::single(key.key_id());
        signed.verify(&[&role]).expect("signed by its role")
    }

    #[test]
    fn a_document_that_brings_one_grant_has_one_worked_out() {
        let documents: Vec<_> = (1..=5).map(document).collect();
        let mut before = Grants::default();
        for document in &documents[..4] {
            before.adopt(document).expect("it grants");
        }
        let mut after = Grants::after(&before);
        for document in &documents {
            after.adopt(document).expect("it grants");
        }
        for (id, grant) in &before.grants {
            assert!(Arc::ptr_eq(&grant.splits, &after.grants[id].splits));
        }
        assert_eq!((before.grants.len(), after.grants.len()), (4, 5));
    }
}
