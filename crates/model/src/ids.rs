//! Identities: sites and their incarnations, virtual organisations, keys and content hashes.
//!
//! Invariant: an id is its 32 bytes; text forms are for people and round-trip exactly. A text may end with `-` and
//! four check digits, by which a slip of a person who copies it is found; programs leave them out.
//! Deliberately not here: the mapping from local users to account paths (the node's configuration).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Why a textual id was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text has another form than an id.
    #[error(
        "`{text}` is not a {kind}: expected 64 hexadecimal digits, perhaps with `-` and four check digits"
    )]
    Form {
        /// The kind of id that was expected.
        kind: &'static str,
        /// The text as it was given.
        text: String,
    },
    /// Its check digits are of another id.
    #[error("`{text}` is not a {kind}: its check digits do not fit, so one of its digits is wrong")]
    Check {
        /// The kind of id that was expected.
        kind: &'static str,
        /// The text as it was given.
        text: String,
    },
}

/// What a text adds to an id so that wrong digits are found: 65,535 of 65,536 slips.
fn check_digits(bytes: &[u8; 32]) -> String {
    let hash = Sha256::digest(bytes);
    format!("{:02x}{:02x}", hash[0], hash[1])
}

/// An id as numbers that are ordered as its bytes are: most look-ups compare ids, and the first of four
/// numbers decides almost all of them, without a call.
fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_be_bytes(words[at]))
}

macro_rules! id32 {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(#[serde(with = "serde_bytes")] [u8; 32]);

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                words(&self.0).cmp(&words(&other.0))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// An id from its 32 raw bytes.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// The id for people to copy, with check digits.
            pub fn checked(&self) -> String {
                format!("{self}-{}", check_digits(&self.0))
            }

            /// The first eight hexadecimal digits: enough for a table, never for a decision.
            pub fn short(&self) -> String {
                self.to_string()[..8].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let (digits, check) = match text.split_once('-') {
                    Some((digits, check)) => (digits, Some(check)),
                    None => (text, None),
                };
                let (kind, wrong) = ($kind, text);
                let bytes = parse_hex32(digits)
                    .ok_or_else(|| IdError::Form { kind, text: wrong.to_owned() })?;
                match check.is_none_or(|check| check == check_digits(&bytes)) {
                    true => Ok(Self(bytes)),
                    false => Err(IdError::Check { kind, text: wrong.to_owned() }),
                }
            }
        }
    };
}

id32!(
    /// One cluster with one node: the Ed25519 public key of that node, which is also the key of
    /// its libp2p peer id.
    SiteId,
    "site id"
);
id32!(
    /// A virtual organisation: the hash of the payload of its first charter.
    VoId,
    "VO id"
);
id32!(
    /// An Ed25519 public key that signs documents.
    KeyId,
    "key id"
);
id32!(
    /// Credit that an authority has granted: the hash of the payload of its document's first version.
    AllocationId,
    "allocation id"
);
id32!(
    /// SHA-256 of some exact bytes.
    ContentHash,
    "content hash"
);

impl ContentHash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl From<SiteId> for KeyId {
    /// A site signs its own usage with its identity key.
    fn from(site: SiteId) -> Self {
        Self(site.0)
    }
}

impl From<ContentHash> for VoId {
    fn from(hash: ContentHash) -> Self {
        Self(hash.0)
    }
}

impl From<ContentHash> for AllocationId {
    fn from(hash: ContentHash) -> Self {
        Self(hash.0)
    }
}

/// One start of a site's node. A site never counts under an incarnation that an earlier start of it
/// may have used, so a lost or restored disk can never reuse a counter.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// Number of a head in its incarnation. The first head has 1; 0 means "nothing yet".
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The number after this one. Saturates, which 2^64 heads do not reach.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One start of one site's node. In each VO its heads are numbered from 1 without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncarnationId {
    /// The site that counts and signs.
    pub site: SiteId,
    /// The start, higher than that of any earlier start the site remembers.
    pub incarnation: Incarnation,
}

fn parse_hex32(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_rejects_signs_and_lengths() {
        let id = SiteId::from_bytes([0xa7; 32]);
        assert_eq!(id.to_string().parse::<SiteId>(), Ok(id));
        assert!("a7".parse::<SiteId>().is_err());
        assert_eq!(id.checked().parse::<SiteId>(), Ok(id));
        assert_eq!(id.checked().len(), 69);
        let slip = id.checked().replacen("a7", "a1", 1);
        let told = slip
            .parse::<SiteId>()
            .expect_err("a wrong digit")
            .to_string();
        assert!(
            told.ends_with("its check digits do not fit, so one of its digits is wrong"),
            "{told}"
        );
        assert!(format!("+{}", "a".repeat(63)).parse::<SiteId>().is_err());
    }
}
