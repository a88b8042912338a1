//! Signed documents: bytes from anywhere become a [`Signed`], and only enough good signatures
//! make a [`Verified`] of it.
//!
//! Form: a tagged `COSE_Sign` (RFC 9052, section 4.1) around the document's canonical CBOR, one
//! Ed25519 signature a key (algorithm −19, RFC 9864), the key itself as `kid`. Project, document
//! type and VO are the external data of every signature, so that a signature for one thing is
//! never good for another.
//!
//! Invariant: the bytes received are the bytes hashed, verified, stored and relayed; nothing is
//! ever re-encoded on the way. A `Verified<T>` cannot be made without [`Signed::verify`].

mod parsed;
mod role;
mod verdicts;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use coset::iana::Algorithm;
use coset::{
    CborSerializable, CoseSign, CoseSignBuilder, CoseSignature, CoseSignatureBuilder,
    HeaderBuilder, ProtectedHeader, RegisteredLabelWithPrivate, TaggedCborSerializable,
};
use ed25519_dalek::Signer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::Bytes;

use crate::cbor::{self, CborError};
use crate::ids::{ContentHash, KeyId, SiteId, VoId};

pub use parsed::remember_documents;
pub use role::Role;
pub use verdicts::remember_verdicts;

/// Most signatures on one document: bounds the verification work that one input can cause.
/// Authorities of more than a dozen keys are unheard of.
pub const SIGNATURES_MAX: usize = 32;

/// A kind of document that can be signed.
pub trait Document: Serialize + DeserializeOwned + Clone + 'static {
    /// Name of the kind, part of what is signed.
    const TYPE: &'static str;
    /// Largest envelope in bytes.
    const BYTES_MAX: usize;

    /// The VO it belongs to; `None` in a first charter, whose own hash is the id.
    fn vo(&self) -> Option<VoId>;

    /// What must hold beyond the shape of the fields; the message says what does not.
    fn validate(&self) -> Result<(), String>;
}

/// Why a document was refused. State is unchanged; the sender or the signer is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The envelope or the payload is not canonical CBOR of the right shape and size.
    #[error("{kind}: {error}")]
    Encoding {
        /// The kind of document.
        kind: &'static str,
        /// The CBOR error.
        error: CborError,
    },
    /// The envelope is not the COSE that we write.
    #[error("{kind}: {what}")]
    Envelope {
        /// The kind of document.
        kind: &'static str,
        /// The rule that it breaks.
        what: String,
    },
    /// The content contradicts itself.
    #[error("{kind}: {what}")]
    Invalid {
        /// The kind of document.
        kind: &'static str,
        /// The rule that it breaks.
        what: String,
    },
    /// Too few of the role's keys have signed.
    #[error("{kind}: {valid} valid signatures of the {threshold} that are needed")]
    Threshold {
        /// The kind of document.
        kind: &'static str,
        /// Distinct keys of the role with a valid signature.
        valid: usize,
        /// How many are needed.
        threshold: u32,
    },
}

/// A secret key. Debug and Display show its public half only.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// The key of 32 secret bytes, which the caller drew at random.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(secret))
    }

    /// The 32 secret bytes, for a transport that proves the same identity.
    pub fn to_secret(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public key, which is the id of the signer.
    pub fn key_id(&self) -> KeyId {
        KeyId::from_bytes(self.0.verifying_key().to_bytes())
    }

    /// Its public half, as a site's identity.
    pub fn site_id(&self) -> SiteId {
        SiteId::from_bytes(self.0.verifying_key().to_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.key_id().short())
    }
}

/// A document as it was received: well-formed, of unknown truth. Cheap to clone.
#[derive(Clone)]
pub struct Signed<T> {
    bytes: Arc<[u8]>,
    envelope: Arc<CoseSign>,
    hash: ContentHash,
    claimed: Arc<T>,
}

impl<T: Document> Signed<T> {
    /// Signs `body` with every one of `keys`.
    pub fn sign(body: T, keys: &[&SigningKey]) -> Result<Self, DocumentError> {
        let payload = cbor::to_vec(&body);
        let vo = body
            .vo()
            .unwrap_or_else(|| ContentHash::of(&payload).into());
        let aad = external_aad(T::TYPE, vo);
        let mut envelope = CoseSignBuilder::new().payload(payload).build();
        for key in keys {
            add_signature(&mut envelope, key, &aad);
        }
        Self::parse(&to_bytes(envelope))
    }

    /// Takes bytes from anywhere. Checks form and size, not signatures.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        parsed::once(bytes, || Self::parse_now(bytes))
    }

    fn parse_now(bytes: &[u8]) -> Result<Self, DocumentError> {
        let encoding = |error| DocumentError::Encoding {
            kind: T::TYPE,
            error,
        };
        let foreign = |what: String| DocumentError::Envelope {
            kind: T::TYPE,
            what,
        };
        cbor::check(bytes, T::BYTES_MAX).map_err(encoding)?;
        let envelope =
            CoseSign::from_tagged_slice(bytes).map_err(|error| foreign(error.to_string()))?;
        if to_bytes(envelope.clone()) != bytes {
            return Err(foreign(
                "envelope does not re-encode to the same bytes".to_owned(),
            ));
        }
        if envelope.signatures.len() > SIGNATURES_MAX {
            return Err(foreign(format!("more than {SIGNATURES_MAX} signatures")));
        }
        let twice = signed_twice(&envelope).filter(|_| !crate::mutated!(SignedTwiceCounts));
        if let Some(key) = twice {
            return Err(foreign(format!("{key} has signed it twice")));
        }
        let payload = envelope
            .payload
            .as_deref()
            .ok_or_else(|| foreign("detached payload".to_owned()))?;
        let claimed: T = cbor::from_slice(payload, T::BYTES_MAX).map_err(encoding)?;
        claimed.validate().map_err(|what| DocumentError::Invalid {
            kind: T::TYPE,
            what,
        })?;
        let hash = ContentHash::of(payload);
        Ok(Self {
            bytes: bytes.into(),
            envelope: Arc::new(envelope),
            hash,
            claimed: Arc::new(claimed),
        })
    }

    /// What the document says, before anyone has vouched for it. Good for finding out whose
    /// signature is needed, and for nothing else.
    pub fn claimed(&self) -> &T {
        &self.claimed
    }

    /// Whether [`Signed::claimed`] is all that is signed: what a later release may say beside it passes and is kept.
    pub fn is_read_whole(&self) -> bool {
        self.envelope.payload.as_deref() == Some(&cbor::to_vec(self.claimed())[..])
    }

    /// The exact bytes received.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Hash of the payload: the document's identity, the same whoever has signed so far.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    /// The VO that the document belongs to.
    pub fn vo(&self) -> VoId {
        self.claimed.vo().unwrap_or_else(|| self.hash.into())
    }

    /// Adds a signature, or does nothing where this key has signed already.
    pub fn add_signature(&mut self, key: &SigningKey) -> Result<(), DocumentError> {
        let mut envelope = CoseSign::clone(&self.envelope);
        if add_signature(&mut envelope, key, &external_aad(T::TYPE, self.vo())) {
            *self = Self::parse(&to_bytes(envelope))?;
        }
        Ok(())
    }

    /// The keys that claim to have signed, in order, good signatures or not.
    pub fn signers(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.envelope.signatures.iter().filter_map(signer)
    }

    /// The signatures that came with it, good or not, by key, in order.
    pub fn signatures(&self) -> impl Iterator<Item = (KeyId, &[u8])> + '_ {
        let all = self.envelope.signatures.iter();
        all.filter_map(|signature| Some((signer(signature)?, signature.signature.as_slice())))
    }

    /// The inverse of [`Signed::claimed`] and [`Signed::signatures`]: the document that was signed, from
    /// what it says and the signatures alone, byte for byte.
    ///
    /// # Errors
    /// What is no document. Signatures are not checked.
    pub fn assemble(body: &T, signatures: &[(KeyId, &[u8])]) -> Result<Self, DocumentError> {
        let payload = cbor::to_vec(body);
        let mut envelope = CoseSignBuilder::new().payload(payload).build();
        for (key, bytes) in signatures {
            let mut signature = unsigned_signature(*key);
            signature.signature = bytes.to_vec();
            envelope.signatures.push(signature);
        }
        Self::parse(&to_bytes(envelope))
    }

    /// How many distinct keys of `keys` have signed this payload for this VO and document type.
    /// The one place where signatures are counted.
    pub fn count_valid(&self, keys: &BTreeSet<KeyId>) -> usize {
        let aad = external_aad(T::TYPE, self.vo());
        let good = |signature: &CoseSignature, key: KeyId| -> Option<()> {
            let expected = unsigned_signature(key);
            (signature.protected.header == expected.protected.header).then_some(())?;
            let signed = to_be_signed(&self.envelope, signature, &aad);
            let is_good = verdicts::is_good(key.as_bytes(), &signature.signature, &signed);
            (is_good || crate::mutated!(SignatureUnchecked)).then_some(())
        };
        let valid = self
            .envelope
            .signatures
            .iter()
            .filter_map(|signature| Some((signature, signer(signature)?)))
            .filter(|(_, key)| keys.contains(key))
            .filter(|(signature, key)| good(signature, *key).is_some())
            .map(|(_, key)| key);
        crate::mutant!(
            SignedTwiceCounts,
            valid.collect::<BTreeSet<KeyId>>().len(),
            valid.count()
        )
    }

    /// Makes the document usable, if every one of `roles` has signed with its threshold.
    pub fn verify(self, roles: &[&Role]) -> Result<Verified<T>, DocumentError> {
        for role in roles {
            let valid = self.count_valid(&role.keys);
            if valid < crate::mutant!(ThresholdOfOne, role.threshold, 1) as usize {
                return Err(DocumentError::Threshold {
                    kind: T::TYPE,
                    valid,
                    threshold: role.threshold,
                });
            }
        }
        assert!(!roles.is_empty(), "a document is verified against somebody");
        let vo = self.vo();
        Ok(Verified {
            bytes: self.bytes,
            hash: self.hash,
            vo,
            body: self.claimed,
        })
    }
}

impl<T: fmt::Debug> fmt::Debug for Signed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signed")
            .field("hash", &self.hash)
            .field("claimed", &self.claimed)
            .finish()
    }
}

/// A document whose signatures were checked against the keys in force. Only these are merged,
/// adopted, stored or relayed.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    bytes: Arc<[u8]>,
    hash: ContentHash,
    vo: VoId,
    body: Arc<T>,
}

impl<T> Verified<T> {
    /// The exact bytes received.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Hash of the payload.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    /// The VO that the document belongs to.
    pub fn vo(&self) -> VoId {
        self.vo
    }

    /// The signed content.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// What it says, for whoever keeps it.
    pub fn shared(&self) -> &Arc<T> {
        &self.body
    }
}

impl<T> PartialEq for Verified<T> {
    /// Two documents are the same when their payloads are.
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl<T> Eq for Verified<T> {}

/// What a signature is for, beside the payload.
fn external_aad(kind: &str, vo: VoId) -> Vec<u8> {
    cbor::to_vec(&("fairmesh/1", kind, vo))
}

/// A protected header as it came, or as we encode it; nothing where it is empty.
fn encoded(header: &ProtectedHeader) -> Cow<'_, [u8]> {
    match &header.original_data {
        Some(bytes) => Cow::Borrowed(bytes),
        None if header.is_empty() => Cow::Borrowed(&[]),
        None => Cow::Owned(header.clone().to_vec().expect("our own headers encode")),
    }
}

/// The bytes that a signature is of: RFC 9052, section 4.4.
fn to_be_signed(envelope: &CoseSign, signature: &CoseSignature, aad: &[u8]) -> Vec<u8> {
    let (body, own) = (encoded(&envelope.protected), encoded(&signature.protected));
    let payload = envelope.payload.as_deref().unwrap_or_default();
    let parts = [&body, &own, aad, payload].map(Bytes::new);
    cbor::to_vec(&("Signature", parts[0], parts[1], parts[2], parts[3]))
}

/// Adds the key's signature; false if it has signed already.
fn add_signature(envelope: &mut CoseSign, key: &SigningKey, aad: &[u8]) -> bool {
    let id = key.key_id();
    if envelope
        .signatures
        .iter()
        .filter_map(signer)
        .any(|signer| signer == id)
    {
        return false;
    }
    let mut signature = unsigned_signature(id);
    let to_sign = to_be_signed(envelope, &signature, aad);
    signature.signature = key.0.sign(&to_sign).to_bytes().to_vec();
    verdicts::made(id.as_bytes(), &signature.signature, &to_sign);
    envelope.signatures.push(signature);
    true
}

/// A key that stands there with more than one signature. Only one of them could count.
fn signed_twice(envelope: &CoseSign) -> Option<KeyId> {
    let mut seen = BTreeSet::new();
    let mut signers = envelope.signatures.iter().filter_map(signer);
    signers.find(|key| !seen.insert(*key))
}

fn unsigned_signature(key: KeyId) -> CoseSignature {
    let header = HeaderBuilder::new()
        .algorithm(Algorithm::Ed25519)
        .key_id(key.as_bytes().to_vec())
        .build();
    CoseSignatureBuilder::new().protected(header).build()
}

fn signer(signature: &CoseSignature) -> Option<KeyId> {
    let header = &signature.protected.header;
    let ours = header.alg == Some(RegisteredLabelWithPrivate::Assigned(Algorithm::Ed25519));
    let key: [u8; 32] = header.key_id.as_slice().try_into().ok()?;
    ours.then_some(KeyId::from_bytes(key))
}

fn to_bytes(envelope: CoseSign) -> Vec<u8> {
    envelope
        .to_tagged_vec()
        .expect("an envelope of byte strings encodes")
}

#[cfg(test)]
mod tests;
