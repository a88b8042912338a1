//! A signed document of any kind, read from a file.
//!
//! Invariant: its form was checked and its bytes are those of the file; its signatures are as good
//! as [`PolicyDocument::count_valid`] says. Deliberately not here: drafts.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, bail};
use fairmesh_model::signed::DocumentError;
use fairmesh_model::{
    Allocation, Charter, ContentHash, Document, KeyId, Role, SharePolicy, Signed, SigningKey,
    Snapshot, VoId, WallTime,
};
use fairmesh_policy::{Adopted, DocumentKind, PolicyError, VoPolicies};

/// A charter, a share policy, an allocation or a snapshot.
#[derive(Debug, Clone)]
pub enum PolicyDocument {
    /// Signed by the VO's coordinators: members and roles.
    Charter(Signed<Charter>),
    /// Signed by the officers of a path: shares below it.
    Shares(Signed<SharePolicy>),
    /// Signed by the authority of a path: a quota.
    Allocation(Signed<Allocation>),
    /// Signed by the VO's online key: which documents exist.
    Snapshot(Signed<Snapshot>),
}

/// Calls the same method of any kind.
macro_rules! either {
    ($self:expr, $document:ident => $body:expr) => {
        match $self {
            PolicyDocument::Charter($document) => $body,
            PolicyDocument::Shares($document) => $body,
            PolicyDocument::Allocation($document) => $body,
            PolicyDocument::Snapshot($document) => $body,
        }
    };
}

impl PolicyDocument {
    /// Reads a signed document of any kind from a file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = read_bytes(path)?;
        if as_text(&bytes).is_some() {
            let shown = path.display();
            bail!(
                "{shown} is text, not a signed document: a draft is signed first, with `fairmesh policy sign`"
            );
        }
        Self::parse(&bytes).with_context(|| format!("{} is no document", path.display()))
    }

    /// Takes bytes from anywhere.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        type Parse = fn(&[u8]) -> Result<PolicyDocument, DocumentError>;
        let kinds: [Parse; 4] = [
            |bytes| Signed::parse(bytes).map(Self::Charter),
            |bytes| Signed::parse(bytes).map(Self::Shares),
            |bytes| Signed::parse(bytes).map(Self::Allocation),
            |bytes| Signed::parse(bytes).map(Self::Snapshot),
        ];
        let mut errors = Vec::new();
        for parse in kinds {
            match parse(bytes) {
                Ok(document) => return Ok(document),
                Err(error) => errors.push(error),
            }
        }
        // A document that is of one kind and contradicts itself says so only as that kind.
        let is_invalid = |error: &&DocumentError| matches!(error, DocumentError::Invalid { .. });
        if let Some(invalid) = errors.iter().find(is_invalid) {
            return Err(invalid.clone().into());
        }
        // What ends in the middle, or is no CBOR, is wrong in one way whatever it was meant to be.
        let wrong = |error: &DocumentError| match error {
            DocumentError::Encoding { error, .. } => error.to_string(),
            other => other.to_string(),
        };
        let all: BTreeSet<String> = errors.iter().map(wrong).collect();
        if let (1, Some(wrong)) = (all.len(), all.first()) {
            bail!("{wrong}");
        }
        let by_kind: Vec<String> = errors.iter().map(ToString::to_string).collect();
        bail!("{}", by_kind.join("; "))
    }

    /// The kind, as commands and messages name it.
    pub fn kind(&self) -> DocumentKind {
        match self {
            Self::Charter(_) => DocumentKind::Charter,
            Self::Shares(_) => DocumentKind::SharePolicy,
            Self::Allocation(_) => DocumentKind::Allocation,
            Self::Snapshot(_) => DocumentKind::Snapshot,
        }
    }

    /// The version, by which the newer of two documents is in force.
    pub fn version(&self) -> u64 {
        either!(self, document => document.claimed().version)
    }

    /// The end of its validity.
    pub fn expires(&self) -> WallTime {
        either!(self, document => document.claimed().expires)
    }

    /// Itself, of which everything is known that a signature would be for.
    pub(super) fn whole(self) -> anyhow::Result<Self> {
        match either!(&self, document => document.is_read_whole()) {
            true => Ok(self),
            false => bail!("{}: take a newer release for it", self.name()),
        }
    }

    /// Kind, version and, of share policies and allocations, the path that it is about; and whether it says more than
    /// is read of it here.
    pub fn name(&self) -> String {
        let more = match either!(self, document => document.is_read_whole()) {
            true => "",
            false => ", which says more than this release reads",
        };
        let name = match self {
            Self::Charter(charter) => format!("charter {}", charter.claimed().version),
            Self::Shares(shares) => {
                let policy = shares.claimed();
                format!("share policy {} of `{}`", policy.version, policy.path)
            }
            Self::Allocation(allocation) => {
                let body = allocation.claimed();
                format!("allocation {} of `{}`", body.version, body.path)
            }
            Self::Snapshot(snapshot) => format!("snapshot {}", snapshot.claimed().version),
        };
        name + more
    }

    /// Hash of its payload: the same whoever has signed.
    pub fn hash(&self) -> ContentHash {
        either!(self, document => document.hash())
    }

    /// The VO that it belongs to.
    pub fn vo(&self) -> VoId {
        either!(self, document => document.vo())
    }

    /// The bytes that were signed, as they are published.
    pub fn bytes(&self) -> &[u8] {
        either!(self, document => document.bytes())
    }

    /// Those who claim to have signed.
    pub fn signers(&self) -> BTreeSet<KeyId> {
        either!(self, document => document.signers().collect())
    }

    /// How many of `keys` have signed, really.
    pub fn count_valid(&self, keys: &BTreeSet<KeyId>) -> usize {
        either!(self, document => document.count_valid(keys))
    }

    /// Adds a signature; a repeat changes nothing.
    pub fn add_signature(&mut self, key: &SigningKey) -> Result<(), DocumentError> {
        either!(self, document => document.add_signature(key))
    }

    /// The role that must sign it, as far as the document itself can say: a charter must be signed
    /// by its own authority (and by its predecessor's, which it does not name).
    pub fn own_role(&self) -> Option<&Role> {
        match self {
            Self::Charter(charter) => Some(&charter.claimed().authority),
            Self::Shares(_) | Self::Allocation(_) | Self::Snapshot(_) => None,
        }
    }

    /// The role that must sign it, by what is in force.
    pub fn role<'a>(&'a self, policies: &'a VoPolicies) -> Option<&'a Role> {
        match self {
            Self::Charter(_) => self.own_role(),
            Self::Shares(shares) => policies.role(&shares.claimed().path),
            Self::Allocation(allocation) => policies.signers_of(allocation.claimed()),
            Self::Snapshot(_) => policies.snapshot_role(),
        }
    }

    /// Offers it to what is in force.
    pub fn adopt(&self, policies: &mut VoPolicies) -> Result<Adopted, PolicyError> {
        policies.adopt(self.kind(), self.bytes())
    }
}

/// Reads a file that may hold a document, and no more than the largest one.
pub(crate) fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let (shares, charter) = (SharePolicy::BYTES_MAX, Charter::BYTES_MAX);
    let (allocation, snapshot) = (Allocation::BYTES_MAX, Snapshot::BYTES_MAX);
    let limit = shares.max(charter).max(allocation).max(snapshot) as u64;
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > limit {
        bail!(
            "{} is larger than any document, {limit} bytes",
            path.display()
        );
    }
    Ok(bytes)
}

/// Whether bytes are text, and so a draft. A document begins with the byte of a CBOR tag, 0xd8,
/// which continues no UTF-8 character that could stand here.
pub(super) fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
