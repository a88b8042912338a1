//! The chain of charters of one VO, from the first to the one in force.
//!
//! Invariant: `settled` has versions 1, 2, 3 … without gaps, each signed by the threshold of its
//! predecessor's authority and of its own, each naming its predecessor's hash. `heads` are the
//! valid successors of the last settled charter; more than one means that an authority signed twice.
//!
//! Which head is in force does not depend on who came first: one that changes the authority's keys
//! goes before one that keeps them (else a thief could undo the rotation that shut him out), then
//! the lower hash. A successor settles the question, and what is settled is not opened again: from
//! then on keys that were rotated out can say nothing, at the price that an authority which forks
//! its chain two charters deep splits its VO, visibly, until people act.
//!
//! Source: TUF specification 1.0, section 5.3; tailnet lock's "remove key wins".

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Charter, ContentHash, Signed, Verified, VoId, mutant};

use crate::error::{DocumentKind, PolicyError};
use crate::in_force::DocumentRef;
use crate::slot::CONCURRENT_MAX;

/// Whether a charter keeps its predecessor's authority; those that do not go first.
type KeepsAuthority = bool;

#[derive(Debug, Clone)]
pub(crate) struct CharterChain {
    vo: VoId,
    settled: Vec<Verified<Charter>>,
    heads: BTreeMap<(KeepsAuthority, ContentHash), Verified<Charter>>,
}

impl CharterChain {
    pub(crate) fn new(vo: VoId) -> Self {
        Self {
            vo,
            settled: Vec::new(),
            heads: BTreeMap::new(),
        }
    }

    /// The charter in force.
    pub(crate) fn head(&self) -> Option<&Verified<Charter>> {
        self.heads.values().next()
    }

    /// The version in force; 0 for none.
    pub(crate) fn version(&self) -> u64 {
        self.head().map_or(0, |head| head.body().version)
    }

    /// Valid charters of the version in force, the one in force first.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &Verified<Charter>> {
        self.heads.values()
    }

    /// All charters, oldest first; at the end the one in force and then its rivals.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Verified<Charter>> {
        self.settled.iter().chain(self.heads.values())
    }

    /// Verifies and takes a charter. Returns `false` where it was known already.
    pub(crate) fn adopt(&mut self, signed: Signed<Charter>) -> Result<bool, PolicyError> {
        self.check_vo(&signed)?;
        let hash = signed.hash();
        if self.iter().any(|known| known.hash() == hash) {
            return Ok(false);
        }
        let (have, got) = (self.version(), signed.claimed().version);
        if got > have.saturating_add(1) {
            return Err(PolicyError::Missing { have, got });
        }
        if got < have {
            return Err(self.rollback(got));
        }
        let own = signed.claimed().authority.clone();
        if got == 1 {
            let verified = signed.verify(&[&own])?;
            self.heads.insert((true, hash), verified);
            return Ok(true);
        }
        let predecessor = self.predecessor(signed.claimed())?.clone();
        let above = &predecessor.body().authority;
        if signed.claimed().window != predecessor.body().window {
            return Err(PolicyError::Fixed {
                version: got,
                what: "the window length",
            });
        }
        let above_or_own = mutant!(CharterSignedByItself, above, &own);
        let verified = signed.verify(&[above_or_own, &own])?;
        let keeps_authority = own == *above;
        if got > have {
            self.settled.push(predecessor);
            self.heads.clear();
        }
        self.heads.insert((keeps_authority, hash), verified);
        if self.heads.len() > CONCURRENT_MAX {
            self.heads.pop_last();
        }
        Ok(true)
    }

    fn check_vo(&self, signed: &Signed<Charter>) -> Result<(), PolicyError> {
        if signed.vo() == self.vo {
            return Ok(());
        }
        Err(PolicyError::WrongVo {
            kind: DocumentKind::Charter,
            expected: self.vo,
            got: signed.vo(),
        })
    }

    /// The charter that `next` must build on: one of the heads, or, for a rival of the heads,
    /// what they build on.
    fn predecessor(&self, next: &Charter) -> Result<&Verified<Charter>, PolicyError> {
        let previous = next
            .previous
            .expect("a charter after the first names its predecessor");
        let unknown = PolicyError::UnknownPredecessor {
            version: next.version,
            previous,
        };
        if next.version == self.version() {
            let last = self
                .settled
                .last()
                .expect("a head after the first has a settled predecessor");
            return if last.hash() == previous {
                Ok(last)
            } else {
                Err(unknown)
            };
        }
        let best = self.heads.keys().next().map(|(keeps, _)| *keeps);
        let found = self
            .heads
            .iter()
            .find(|((_, hash), _)| *hash == previous)
            .ok_or(unknown)?;
        if Some(found.0.0) != best {
            return Err(PolicyError::Outranked {
                version: next.version,
                previous,
            });
        }
        Ok(found.1)
    }

    fn rollback(&self, got: u64) -> PolicyError {
        PolicyError::Rollback {
            kind: DocumentKind::Charter,
            path: AccountPath::root(),
            have: self.version(),
            got,
        }
    }
}

/// How answers name a charter.
pub(crate) fn reference(charter: &Verified<Charter>) -> DocumentRef {
    DocumentRef {
        kind: DocumentKind::Charter,
        path: AccountPath::root(),
        version: charter.body().version,
        hash: charter.hash(),
    }
}
