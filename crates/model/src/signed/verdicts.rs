//! Remembering which signatures were found good, for a process that is many sites.
//!
//! A simulator runs a thousand sites in one thread, and each of them checks every signature: nine
//! tenths of its time. A check is a function of key, signature and signed bytes, so its verdict may
//! be remembered; nothing that a site decides can differ.
//!
//! Invariant: a verdict is remembered under the hash of all that it depends on, and only in a
//! thread that asked for it. A node never asks.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

/// Most verdicts remembered; then all are forgotten. Bounds memory to some 20 MB a thread.
const VERDICTS_MAX: usize = 1 << 18;

type Verdicts = BTreeMap<[u8; 32], bool>;

thread_local! {
    static VERDICTS: RefCell<Option<Verdicts>> = const { RefCell::new(None) };
}

/// Remembers verdicts about signatures in this thread from now on.
pub fn remember_verdicts() {
    VERDICTS.with_borrow_mut(|verdicts| {
        verdicts.get_or_insert_default();
    });
}

/// Whether `signature` is `key`'s on `signed`.
pub(super) fn is_good(key: &[u8; 32], signature: &[u8], signed: &[u8]) -> bool {
    VERDICTS.with_borrow_mut(|verdicts| match verdicts {
        None => check(key, signature, signed),
        Some(verdicts) => {
            if verdicts.len() >= VERDICTS_MAX {
                verdicts.clear();
            }
            let name = name_of(key, signature, signed);
            *verdicts
                .entry(name)
                .or_insert_with(|| check(key, signature, signed))
        }
    })
}

/// A signature was just made with the key itself.
pub(super) fn made(key: &[u8; 32], signature: &[u8], signed: &[u8]) {
    VERDICTS.with_borrow_mut(|verdicts| {
        if let Some(verdicts) = verdicts {
            verdicts.insert(name_of(key, signature, signed), true);
        }
    });
}

fn check(key: &[u8; 32], signature: &[u8], signed: &[u8]) -> bool {
    let key = VerifyingKey::from_bytes(key);
    let signature = Signature::from_slice(signature);
    key.ok()
        .zip(signature.ok())
        .is_some_and(|(key, signature)| key.verify_strict(signed, &signature).is_ok())
}

fn name_of(key: &[u8; 32], signature: &[u8], signed: &[u8]) -> [u8; 32] {
    let length = u64::try_from(signature.len()).unwrap_or(u64::MAX);
    Sha256::new()
        .chain_update(key)
        .chain_update(length.to_le_bytes())
        .chain_update(signature)
        .chain_update(signed)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    #[test]
    fn a_remembered_verdict_is_about_these_bytes_only() {
        let key = SigningKey::from_bytes(&[5; 32]);
        let public = key.verifying_key().to_bytes();
        let signature = key.sign(b"this").to_bytes();
        remember_verdicts();
        for _ in 0..2 {
            assert!(is_good(&public, &signature, b"this"));
            assert!(!is_good(&public, &signature, b"that"));
            assert!(!is_good(&[6; 32], &signature, b"this"));
            assert!(!is_good(&public, &signature[..63], b"this"));
        }
        made(&public, &signature, b"this");
        assert!(!is_good(&public, &signature, b"that"));
    }
}
