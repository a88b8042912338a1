//! Hash tables over names that others choose.
//!
//! Invariant: under keys that everybody knows, whoever chooses the names makes them meet in one place of a
//! table, and each look-up goes through all of them. So the tables of the pure crates are keyed with a secret
//! that is handed in. Order and answers depend on it nowhere: these tables are never iterated.

use std::hash::{BuildHasher, DefaultHasher, Hasher};

use crate::signed::SigningKey;

/// What the names of a hash table are hashed behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashSecret(u64);

impl HashSecret {
    /// A secret of 64 bits.
    pub const fn new(secret: u64) -> Self {
        Self(secret)
    }

    /// The one of whoever has `key`: nobody else can tell it.
    pub fn of(key: &SigningKey) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&key.to_secret());
        Self(hasher.finish())
    }
}

impl BuildHasher for HashSecret {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_meet_under_one_secret_do_not_under_another() {
        let [theirs, ours] =
            [1, 2].map(|byte| HashSecret::of(&SigningKey::from_secret(&[byte; 32])));
        let place = |secret: HashSecret, name: &String| secret.hash_one(name) % 64;
        let names = (0..64 * 64).map(|number| format!("/u{number}"));
        let meet: Vec<String> = names.filter(|name| place(theirs, name) == 0).collect();
        assert!(meet.len() > 32, "{} names", meet.len());
        let still = meet.iter().filter(|name| place(ours, name) == 0).count();
        assert!(still < meet.len() / 4, "{still} of {} names", meet.len());
    }
}
