//! The memory against rollback, in the form that a node makes durable.
//!
//! Invariant: a version is remembered for a path *and* the keys that signed it. Whoever takes over
//! from a thief who signed version 2^63 has other keys and starts afresh (the fast-forward attack).
//! A version is remembered with the number of signatures that it had, so that a role whose
//! threshold rises does not mistake an under-signed document for its newest.

use std::collections::BTreeSet;

use fairmesh_model::{AccountPath, ContentHash, KeyId, Role, cbor};
use serde::{Deserialize, Serialize};

/// What must be durable before a document is used, and comes back at the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HighestSeen {
    /// The highest charter; 0 for none.
    pub charter: u64,
    /// Share policies, ascending by path and keys.
    pub policies: Vec<SeenVersion>,
    /// Snapshots, ascending by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SeenSnapshot>,
}

/// The highest snapshot that one role has signed. With its threshold: what fewer keys had signed is no memory of
/// a role that asks for more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeenSnapshot {
    /// Hash of the role.
    pub role: ContentHash,
    /// The highest version seen.
    pub version: u64,
}

/// The highest version of one path's policy that one set of keys has signed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeenVersion {
    /// The path that the policy divides.
    pub path: AccountPath,
    /// Hash of the keys, see [`keys_hash`].
    pub keys: ContentHash,
    /// How many of the keys had signed.
    pub signatures: u32,
    /// The highest version seen.
    pub version: u64,
}

/// A short name for a role: the hash of its encoding.
pub(crate) fn role_hash(role: &Role) -> ContentHash {
    ContentHash::of(&cbor::to_vec(role))
}

/// A short name for a set of keys: the hash of the keys in ascending order.
pub fn keys_hash(keys: &BTreeSet<KeyId>) -> ContentHash {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
    ContentHash::of(&bytes)
}
