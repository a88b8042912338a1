//! Whose signatures a document needs.
//!
//! Invariant: a role lists no key twice, and can be satisfied.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::SIGNATURES_MAX;
use crate::ids::KeyId;

/// Keys of which a number must sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// The keys that may sign.
    #[serde(deserialize_with = "distinct")]
    pub keys: BTreeSet<KeyId>,
    /// How many distinct ones of them are needed, at least 1.
    pub threshold: u32,
}

impl Role {
    /// One key that decides alone.
    pub fn single(key: impl Into<KeyId>) -> Self {
        Self {
            keys: BTreeSet::from([key.into()]),
            threshold: 1,
        }
    }

    /// Says what is wrong with the role, if anything.
    pub fn validate(&self, name: &str) -> Result<(), String> {
        if self.threshold == 0 || self.threshold as usize > self.keys.len() {
            return Err(format!(
                "{name}: threshold {} of {} keys",
                self.threshold,
                self.keys.len()
            ));
        }
        if self.keys.len() > SIGNATURES_MAX {
            return Err(format!("{name}: more than {SIGNATURES_MAX} keys"));
        }
        Ok(())
    }
}

/// Keys, of which none is listed twice: who reads the list would count more of them than there are.
fn distinct<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeSet<KeyId>, D::Error> {
    let listed = Vec::<KeyId>::deserialize(from)?;
    let mut keys = BTreeSet::new();
    for key in listed {
        if !keys.insert(key) {
            let problem = format!("{key} is listed twice: one key signs once");
            return Err(serde::de::Error::custom(problem));
        }
    }
    Ok(keys)
}
