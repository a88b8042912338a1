//! What is in force for a VO at one moment, and what an operator should know about it.
//!
//! Invariant: reads only, and time only adds warnings: `now` never changes an entry.
//! Deliberately not here: how a document came into force (`super`).

use fairmesh_model::{AccountPath, Distance, Share, Verified, WallTime, mutant, mutated};

use super::{Active, POLICIES_MAX, VoPolicies};
use crate::chain;
use crate::error::DocumentKind;
use crate::in_force::{Alarm, DocumentRef, InForce, VoEntry, Warning, validity};
use crate::level::{LevelRule, Levels};
use crate::slot::full_path;

impl VoPolicies {
    /// The tree in force, with what is wrong with it at `now`.
    pub fn in_force(&self, now: WallTime) -> InForce {
        let levels = self.levels();
        let mut entries = Vec::new();
        for held in self.active.values().filter_map(Active::in_force) {
            let (policy, from) = (held.document.body(), held.reference());
            if mutated!(ExpiredLapses) && now >= policy.expires {
                continue;
            }
            entries.extend(policy.shares.iter().map(|(below, entry)| {
                let path = full_path(policy, below);
                VoEntry {
                    share: entry.share,
                    at_most: entry.at_most.unwrap_or(Share::WHOLE),
                    level: levels.rule_of(&path),
                    mount: entry.mount.clone(),
                    was: entry.was.iter().map(|was| full_path(policy, was)).collect(),
                    since: entry.since,
                    from: from.clone(),
                    path,
                }
            }));
        }
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        InForce {
            vo: self.vo,
            charter: self.chain.head().map(chain::reference),
            readers: self.readers(),
            entries,
            warnings: self.warnings(now),
        }
    }

    /// What all policies in force say of the levels below their entries.
    fn levels(&self) -> Levels {
        let charter = self.chain.head().map(Verified::body);
        let distance = charter.map(|charter| charter.distance).unwrap_or_default();
        let distance = mutant!(DistanceIgnored, distance, Distance::default());
        let mut levels = Levels::new(LevelRule::of_vo(distance));
        for held in self.active.values().filter_map(Active::in_force) {
            let policy = held.document.body();
            levels.say(|| policy.path.clone(), policy.usage, policy.distance);
            for (below, entry) in &policy.shares {
                let path = || full_path(policy, below);
                levels.say(path, entry.usage, entry.distance);
            }
        }
        levels
    }

    /// What is in force here and would be replaced by nothing: in `after` no policy of its path is in force, or no
    /// version of its allocation.
    pub fn falls(&self, after: &Self) -> Vec<DocumentRef> {
        let is_divided =
            |path: &AccountPath| after.active.get(path).and_then(Active::in_force).is_some();
        let divided = self.active.iter().filter(|(path, _)| !is_divided(path));
        let policies = divided.filter_map(|(_, active)| Some(active.in_force()?.reference()));
        policies.chain(self.credit_that_falls(after)).collect()
    }

    /// When the charter and each share policy in force expires, the first to do so first.
    pub fn expiries(&self) -> Vec<(WallTime, DocumentRef)> {
        let charter = self.chain.head().into_iter();
        let charter = charter.map(|head| (head.body().expires, chain::reference(head)));
        let policies = self.active.values().filter_map(Active::in_force);
        let policies = policies.map(|held| (held.document.body().expires, held.reference()));
        let mut expiries: Vec<_> = charter.chain(policies).collect();
        expiries.sort();
        expiries
    }

    /// What is wrong with the documents in force at `now`, the worst first.
    pub fn warnings(&self, now: WallTime) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = self.alarms().into_iter().map(Warning::Alarm).collect();
        warnings.extend(self.behind());
        match self.chain.head() {
            None => warnings.push(Warning::NoCharter),
            Some(head) => {
                let (charter, reference) = (head.body(), chain::reference(head));
                warnings.extend(validity(&reference, charter.issued, charter.expires, now));
            }
        }
        for (path, active) in &self.active {
            let Some(held) = active.in_force() else {
                warnings.push(Warning::NoPolicy { path: path.clone() });
                continue;
            };
            let policy = held.document.body();
            warnings.extend(validity(
                &held.reference(),
                policy.issued,
                policy.expires,
                now,
            ));
        }
        warnings.extend(self.allocation_warnings(now));
        if self.ignored > 0 {
            warnings.push(Warning::TooManyPolicies {
                ignored: self.ignored,
                limit: POLICIES_MAX,
            });
        }
        warnings.sort();
        warnings
    }

    /// Equivocations among the documents in force.
    pub fn alarms(&self) -> Vec<Alarm> {
        let policies = self.active.values().filter_map(Active::alarm);
        self.charter_alarm().into_iter().chain(policies).collect()
    }

    pub(super) fn charter_alarm(&self) -> Option<Alarm> {
        let hashes: Vec<_> = self.chain.heads().map(Verified::hash).collect();
        (hashes.len() > 1).then(|| Alarm::Equivocation {
            kind: DocumentKind::Charter,
            path: AccountPath::root(),
            version: self.chain.version(),
            hashes,
        })
    }

    fn behind(&self) -> Vec<Warning> {
        let mut behind = Vec::new();
        let mut compare = |kind, path: &AccountPath, seen, have| {
            if seen > have {
                let path = path.clone();
                behind.push(Warning::Behind {
                    kind,
                    path,
                    seen,
                    have,
                });
            }
        };
        let (seen, have) = (self.charter_seen, self.chain.version());
        compare(DocumentKind::Charter, &AccountPath::root(), seen, have);
        for (path, active) in &self.active {
            let slot = self.slots.get(&(path.clone(), active.keys));
            let seen = slot.map_or(0, |slot| slot.highest(active.role.threshold));
            let have = active.in_force().map_or(0, |held| held.version());
            compare(DocumentKind::SharePolicy, path, seen, have);
        }
        behind
    }
}

impl Active {
    pub(super) fn alarm(&self) -> Option<Alarm> {
        let first = self.documents.first()?;
        (self.documents.len() > 1).then(|| {
            let reference = first.reference();
            Alarm::Equivocation {
                kind: reference.kind,
                path: reference.path,
                version: reference.version,
                hashes: self.documents.iter().map(|held| held.hash()).collect(),
            }
        })
    }
}
