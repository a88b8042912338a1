//! The share policy: a signed tree of target shares, for a VO or for a delegated subtree of it.
//!
//! Invariant: every entry's parent is an entry too (or the root of the policy), and an entry that
//! is delegated has no entries of its own below it here. The rest is in `share_rules`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::level::{Distance, Scope};
use super::share_rules::{ShareLine, check_shares};
use crate::date::Date;
use crate::ids::{ContentHash, VoId};
use crate::path::AccountPath;
use crate::signed::{Document, Role};
use crate::time::WallTime;
use crate::units::Share;
use crate::weight::Weight;

/// Most entries of one policy: bounds a document's size and what one signature can make every
/// site build. Larger VOs delegate.
pub const POLICY_ENTRIES_MAX: usize = 100_000;

/// One line of a share tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareEntry {
    /// Its weight among its siblings: the target share is this, divided by the sum of all of them.
    pub share: Weight,
    /// The most that it may have of the parent's usage before its siblings all go first; no limit where
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Share>,
    /// By whose usage the entries right below this one are compared, and those further down until one of
    /// them says otherwise. Where nobody says it, all members' usage counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Scope>,
    /// How far those are from their targets, in the same way. Where nobody says it, the charter does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
    /// Who divides this entry further, if not this policy's own signers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Role>,
    /// Whose policy divides it, if another VO's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PolicyMount>,
    /// Paths that this entry had before, below the policy's own path: usage there counts here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<AccountPath>,
    /// Usage before this date does not count for this entry and the entries below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Date>,
}

/// A part of another VO's tree of shares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyMount {
    /// The other VO. Its charter must list this one among its readers.
    pub vo: VoId,
    /// The path in its tree whose parts are taken; `/` for all of it.
    pub path: AccountPath,
}

/// Target shares below one path of a VO's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePolicy {
    /// The VO of the charter that names the signers.
    pub vo: VoId,
    /// The path that this policy divides: `/`, or an entry that was delegated.
    pub path: AccountPath,
    /// Rises with every change; gaps are allowed.
    pub version: u64,
    /// Payload hash of the version before, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<ContentHash>,
    /// When it was signed, by the signer's clock.
    pub issued: WallTime,
    /// When it should have been renewed. Expiry degrades answers, it does not stop them.
    pub expires: WallTime,
    /// As [`ShareEntry::usage`], of the root of the VO's tree, which is no entry. Only the policy of `/` may
    /// say it: of a delegated path its entry above does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Scope>,
    /// As [`ShareEntry::distance`], of the root of the VO's tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
    /// Entries by their path below `path`.
    pub shares: BTreeMap<AccountPath, ShareEntry>,
}

impl Document for SharePolicy {
    const TYPE: &'static str = "share-policy";
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
        if self.shares.len() > POLICY_ENTRIES_MAX {
            return Err(format!(
                "more than {POLICY_ENTRIES_MAX} entries; delegate subtrees"
            ));
        }
        if !self.path.is_root() && (self.usage.is_some() || self.distance.is_some()) {
            return Err(format!(
                "`usage` and `distance` of `{}` are for the policy that delegates it",
                self.path
            ));
        }
        for (path, entry) in &self.shares {
            self.validate_entry(path, entry)?;
        }
        let lines = self.shares.iter().map(|(path, entry)| (path, entry.line()));
        check_shares(&lines.collect()).map_err(|error| error.to_string())
    }
}

impl ShareEntry {
    /// An entry of this share, which says nothing else.
    pub const fn of(share: Weight) -> Self {
        Self {
            share,
            at_most: None,
            usage: None,
            distance: None,
            delegate: None,
            mount: None,
            was: Vec::new(),
            since: None,
        }
    }

    /// The entry as the rules of share trees read it.
    fn line(&self) -> ShareLine<'_> {
        let keys = [
            (self.delegate.is_some(), "delegate"),
            (self.mount.is_some(), "mount"),
            (self.usage.is_some(), "usage"),
            (self.distance.is_some(), "distance"),
            (!self.was.is_empty(), "was"),
        ];
        ShareLine {
            weight: self.share,
            was: &self.was,
            is_divided: self.delegate.is_some() || self.mount.is_some(),
            divides: keys.iter().find(|(given, _)| *given).map(|(_, key)| *key),
        }
    }
}

impl SharePolicy {
    fn validate_entry(&self, path: &AccountPath, entry: &ShareEntry) -> Result<(), String> {
        let Some(parent) = path.parent() else {
            return Err("the root of a policy has no share of its own".to_owned());
        };
        self.path.join(path).map_err(|error| error.to_string())?;
        for was in &entry.was {
            self.path.join(was).map_err(|error| error.to_string())?;
        }
        if let Some(role) = &entry.delegate {
            role.validate(&format!("delegate of {path}"))?;
        }
        if let Some(mount) = &entry.mount {
            if mount.vo == self.vo {
                return Err(format!("`{path}` mounts a policy of its own VO"));
            }
            if entry.delegate.is_some() || entry.usage.is_some() || entry.distance.is_some() {
                return Err(format!(
                    "`{path}` mounts another VO's policy: that says who divides it, and how it is compared"
                ));
            }
        }
        if parent.is_root() {
            return Ok(());
        }
        match self.shares.get(&parent) {
            None => Err(format!(
                "`{path}` has a share but its parent `{parent}` has none"
            )),
            Some(above) if above.delegate.is_some() || above.mount.is_some() => Err(format!(
                "`{path}` lies below `{parent}`, which others divide"
            )),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor;

    fn path(text: &str) -> AccountPath {
        AccountPath::parse(text).expect("a valid path")
    }

    fn policy() -> SharePolicy {
        let limited = ShareEntry {
            at_most: Some(Share::WHOLE),
            ..ShareEntry::of(Weight::HUNDRED)
        };
        let half = Weight::whole(50);
        SharePolicy {
            vo: VoId::from_bytes([1; 32]),
            path: AccountPath::root(),
            version: 3,
            previous: None,
            issued: WallTime(5),
            expires: WallTime(7),
            usage: None,
            distance: None,
            shares: BTreeMap::from([(path("/a"), ShareEntry::of(half)), (path("/a/x"), limited)]),
        }
    }

    /// Put together by hand from RFC 8949: what was signed before an entry could say more.
    #[test]
    fn a_policy_that_says_nothing_new_has_the_bytes_that_it_had() {
        let bytes: String = cbor::to_vec(&policy())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let expected = "a662766f58200101010101010101010101010101010101010101010101010101010101010101647061746861\
         2f666973737565640566736861726573a2622f61a16573686172651a1dcd6500642f612f78a2657368617265\
         1a3b9aca006761745f6d6f73741a3b9aca006765787069726573076776657273696f6e03";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_an_entry_says_survives_the_journey_and_only_the_whole_speaks_of_its_root() {
        let mut policy = policy();
        let renamed = ShareEntry {
            was: vec![path("/old")],
            since: Some(Date(20_635)),
            ..ShareEntry::of(Weight::whole(1_000))
        };
        policy.shares.insert(path("/b"), renamed);
        let entry = policy.shares.get_mut(&path("/a")).expect("it is there");
        (entry.usage, entry.distance) = (Some(Scope::Local), Some(Distance::Relative));
        (policy.usage, policy.distance) = (Some(Scope::Global), Some(Distance::Absolute));
        let bytes = cbor::to_vec(&policy);
        let read: SharePolicy =
            cbor::from_slice(&bytes, SharePolicy::BYTES_MAX).expect("it is canonical");
        assert_eq!(read, policy);
        assert_eq!(policy.validate(), Ok(()));
        policy.path = path("/p");
        assert!(policy.validate().is_err());
    }
}
