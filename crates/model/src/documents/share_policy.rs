//! The share policy: a signed tree of target shares, for a VO or for a delegated subtree of it.
//!
//! Invariant: every entry's parent is an entry too (or the root of the policy), and an entry that
//! is delegated has no entries of its own below it here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::charter::Role;
use crate::ids::{ContentHash, VoId};
use crate::path::AccountPath;
use crate::signed::Document;
use crate::time::WallTime;
use crate::units::Share;

/// Most entries of one policy: bounds a document's size and what one signature can make every
/// site build. Larger VOs delegate.
pub const POLICY_ENTRIES_MAX: usize = 100_000;

/// One line of a share tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareEntry {
    /// Target share of the parent's usage.
    pub share: Share,
    /// The most that it may have of the parent's usage before its siblings all go first; no limit where
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Share>,
    /// Who divides this entry further, if not this policy's own signers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Role>,
}

/// Target shares below one path of a VO's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePolicy {
    /// The VO.
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
        for (path, entry) in &self.shares {
            self.validate_entry(path, entry)?;
        }
        Ok(())
    }
}

impl SharePolicy {
    fn validate_entry(&self, path: &AccountPath, entry: &ShareEntry) -> Result<(), String> {
        let Some(parent) = path.parent() else {
            return Err("the root of a policy has no share of its own".to_owned());
        };
        self.path.join(path).map_err(|error| error.to_string())?;
        if let Some(at_most) = entry.at_most.filter(|most| *most < entry.share) {
            let share = entry.share;
            return Err(format!(
                "`{path}` may have at most {at_most}, less than its share of {share}"
            ));
        }
        if let Some(role) = &entry.delegate {
            role.validate(&format!("delegate of {path}"))?;
        }
        if parent.is_root() {
            return Ok(());
        }
        match self.shares.get(&parent) {
            None => Err(format!(
                "`{path}` has a share but its parent `{parent}` has none"
            )),
            Some(above) if above.delegate.is_some() => Err(format!(
                "`{path}` lies below `{parent}`, which is delegated to others"
            )),
            Some(_) => Ok(()),
        }
    }
}
