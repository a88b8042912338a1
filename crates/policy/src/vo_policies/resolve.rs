//! Who may speak for which path, and how much is remembered of those who no longer may.
//!
//! Invariant: `active` is a function of the charter in force and of what the slots hold: the roles
//! that a walk from the charter down the delegations meets, each with the newest documents that
//! enough of its keys have signed. It is walked anew after every change.
//! Deliberately not here: whether an offered document is taken (`super`).

use std::collections::{BTreeMap, VecDeque};

use fairmesh_model::{AccountPath, ContentHash, Role, Signed, mutated};

use super::{Active, INACTIVE_MAX, POLICIES_MAX, SlotId, VoPolicies, digest_of, verify};
use crate::highest_seen::keys_hash;

/// A path whose role signs a policy, until that is followed, and what it hands on.
struct Branch {
    own: Option<(AccountPath, Role)>,
    below: VecDeque<Branch>,
}

impl Branch {
    /// How many of its paths are known and not followed.
    fn waiting(&self) -> usize {
        usize::from(self.own.is_some()) + self.below.iter().map(Self::waiting).sum::<usize>()
    }
}

impl VoPolicies {
    /// Walks the delegations from the charter down.
    pub(super) fn resolve(&mut self) {
        let before = std::mem::take(&mut self.active);
        let policy = self.chain.head().map(|head| head.body().policy.clone());
        let mut root = Branch {
            own: policy.map(|role| (AccountPath::root(), role)),
            below: VecDeque::new(),
        };
        while self.active.len() < POLICIES_MAX && self.follow(&mut root, &before) {}
        self.ignored = root.waiting();
        self.review_allocations();
        self.review_snapshot();
        self.sum_up();
    }

    /// Follows one more path of a branch, the one that it begins with first; false where there is none. Behind that all whom
    /// it is handed on to take turns, so that none of them takes the places of others, however often he hands on.
    fn follow(&mut self, branch: &mut Branch, before: &BTreeMap<AccountPath, Active>) -> bool {
        if let Some((path, role)) = branch.own.take() {
            branch.below = self.activate(path, role, before);
            return true;
        }
        while let Some(mut next) = branch.below.pop_front() {
            if self.follow(&mut next, before) {
                branch.below.push_back(next);
                return true;
            }
        }
        false
    }

    /// Puts what the role of a path has signed in force, and says whom that hands on to.
    fn activate(
        &mut self,
        path: AccountPath,
        role: Role,
        before: &BTreeMap<AccountPath, Active>,
    ) -> VecDeque<Branch> {
        let keys = keys_hash(&role.keys);
        let id = (path.clone(), keys);
        if before.get(&path).is_none_or(|active| active.role != role) {
            self.carry_over(&id, &role);
        }
        let slot = self.slots.get(&id);
        let documents = slot.map_or_else(Vec::new, |slot| slot.current(role.threshold));
        let delegating = documents.first().filter(|_| !mutated!(DelegationIgnored));
        let delegations = delegating.iter().flat_map(|held| &held.delegations);
        let below = delegations.map(|(path, role)| Branch {
            own: Some((path.clone(), role.clone())),
            below: VecDeque::new(),
        });
        let below = below.collect();
        let active = Active {
            role,
            keys,
            documents,
        };
        self.active.insert(path, active);
        below
    }

    /// Works out what is asked for often, once documents have changed.
    pub(super) fn sum_up(&mut self) {
        self.digest = digest_of(&self.hashes());
        self.compared = self.compare();
    }

    /// A role has come into force: what was kept for its path under other roles may have its
    /// signatures too. Nobody would offer it again, because everybody has it.
    fn carry_over(&mut self, id: &SlotId, role: &Role) {
        let lowest = ContentHash::from_bytes([0; 32]);
        let same_path = self.slots.range((id.0.clone(), lowest)..);
        let same_path = same_path.take_while(|(other, _)| other.0 == id.0);
        let others = same_path.filter(|(other, _)| other.1 != id.1);
        let kept: Vec<_> = others.flat_map(|(_, slot)| slot.documents()).collect();
        for held in kept {
            let signed = Signed::parse(held.document.bytes()).expect("it was parsed before");
            let Ok(held) = verify(signed, role) else {
                continue;
            };
            if self.check_version(id, role.threshold, &held).is_ok() {
                self.slots.entry(id.clone()).or_default().put(held);
            }
        }
    }

    /// Bounds what is remembered of roles out of force. Not called while a restart is under way,
    /// when most roles are not in force yet.
    pub(super) fn forget(&mut self) {
        let inactive: Vec<SlotId> = self.inactive().collect();
        for id in inactive.into_iter().skip(INACTIVE_MAX) {
            self.slots.remove(&id);
        }
        self.forget_snapshots();
    }

    pub(super) fn inactive(&self) -> impl Iterator<Item = SlotId> {
        let in_force = |id: &SlotId| self.active.get(&id.0).is_some_and(|a| a.keys == id.1);
        self.slots.keys().filter(move |id| !in_force(id)).cloned()
    }
}
