//! The snapshot: version and hash of every document of a VO that is in force, signed anew every hour or so.
//!
//! It puts nothing into force and nothing out of it; whoever holds less than it names knows that he does, and
//! whoever has none that is valid knows that nobody vouches for what he holds (docs/snapshot.md).
//!
//! Invariant: it does not live longer than [`VALID_MAX`], or it would vouch for nothing.
//! Source: TUF specification 1.0, section 4.4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{AllocationId, ContentHash, VoId};
use crate::path::AccountPath;
use crate::signed::Document;
use crate::time::{Millis, WallTime};

/// For how long a snapshot may be valid. It is signed by a program: who must sign by hand, once a month, can too.
pub const VALID_MAX: Millis = Millis::from_secs(31 * 86_400);

/// Most share policies, and most allocations, that one names: as many as a node follows.
pub const NAMES_MAX: usize = 4_096;

/// A document that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// The version in force at the time of the snapshot.
    pub version: u64,
    /// Hash of its payload.
    pub hash: ContentHash,
}

/// What is in force in a VO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The VO whose documents it lists.
    pub vo: VoId,
    /// Rises with every one; gaps are allowed.
    pub version: u64,
    /// When it was signed, by the signer's clock.
    pub issued: WallTime,
    /// When there should have been another. Expiry degrades answers, it does not stop them.
    pub expires: WallTime,
    /// The charter, and by it those before it.
    pub charter: Named,
    /// The share policies, by what they divide.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<AccountPath, Named>,
    /// The allocations, each in its version in force.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocations: BTreeMap<AllocationId, Named>,
}

impl Document for Snapshot {
    const TYPE: &'static str = "snapshot";
    const BYTES_MAX: usize = 3 << 20;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("version 0".to_owned());
        }
        if self.expires <= self.issued {
            return Err("expires before it is issued".to_owned());
        }
        if self.expires.since(self.issued) > VALID_MAX {
            return Err("a snapshot is valid for 31 days at most".to_owned());
        }
        if self.policies.len() > NAMES_MAX || self.allocations.len() > NAMES_MAX {
            return Err(format!(
                "names more than {NAMES_MAX} share policies or allocations"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::{Role, Signed, SigningKey};

    fn valid() -> Snapshot {
        let named = |text: &[u8]| Named {
            version: 2,
            hash: ContentHash::of(text),
        };
        Snapshot {
            vo: VoId::from_bytes([7; 32]),
            version: 1,
            issued: WallTime(1),
            expires: WallTime(9),
            charter: named(b"charter"),
            policies: BTreeMap::from([(AccountPath::root(), named(b"shares"))]),
            allocations: BTreeMap::from([(ContentHash::of(b"1").into(), named(b"credit"))]),
        }
    }

    #[test]
    fn what_is_signed_is_read_back() {
        let key = SigningKey::from_secret(&[5; 32]);
        let role = Role::single(key.key_id());
        let bare = Snapshot {
            policies: BTreeMap::new(),
            allocations: BTreeMap::new(),
            ..valid()
        };
        for body in [valid(), bare] {
            let signed = Signed::sign(body.clone(), &[&key]).expect("valid");
            let read = Signed::<Snapshot>::parse(signed.bytes()).expect("our own");
            assert_eq!(read.verify(&[&role]).expect("signed").body(), &body);
        }
    }

    #[test]
    fn what_vouches_for_nothing_is_refused() {
        let bad: [fn(&mut Snapshot); 3] = [
            |s| s.version = 0,
            |s| s.expires = s.issued,
            |s| s.expires = s.issued.after(VALID_MAX).after(Millis(1)),
        ];
        for change in bad {
            let mut changed = valid();
            change(&mut changed);
            assert!(changed.validate().is_err(), "{changed:?}");
        }
    }

    #[test]
    fn the_largest_fits() {
        let named = Named {
            version: u64::MAX,
            hash: ContentHash::of(b""),
        };
        let name = "a".repeat(crate::path::PATH_BYTES_MAX - 6);
        let path = |k: usize| AccountPath::parse(&format!("/{k:04}{name}")).expect("valid");
        let id = |k: usize| ContentHash::of(&k.to_be_bytes()).into();
        let largest = Snapshot {
            policies: (0..NAMES_MAX).map(|k| (path(k), named)).collect(),
            allocations: (0..NAMES_MAX).map(|k| (id(k), named)).collect(),
            ..valid()
        };
        let key = SigningKey::from_secret(&[5; 32]);
        assert!(Signed::sign(largest, &[&key]).is_ok());
    }
}
