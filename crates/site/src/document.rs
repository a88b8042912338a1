//! A charter, a share policy, an allocation or a snapshot, read once.
//!
//! Reading a large one takes milliseconds, so it is done in one place and the value is passed on: who hands
//! it in, whose it is and whether it is adopted are asked of the value, never of the bytes again.
//!
//! Invariant: the bytes that were read are those that are kept and passed on.

use std::fmt;
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Allocation, Charter, ContentHash, SharePolicy, Signed, Snapshot, VoId,
};
use fairmesh_policy::{Adopted, DocumentKind, PolicyError, VoPolicies};

/// Bytes of a document that is read at once, on the task that answers everybody: 2,000 entries or 200 sites,
/// some two milliseconds. A larger one is read beside it, as [`crate::Work`].
pub(crate) const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Why a document is not adopted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentRefused {
    /// It is no document of this VO.
    #[error("it belongs to no VO that this site takes part in")]
    Foreign,
    /// Nobody would get it from here.
    #[error(
        "this site only reads that VO's policies, and its charter lists none of the site's VOs among its readers: \
         hand it in at a member of that VO"
    )]
    Unread,
    /// Not in force, or not yet. The message says whose fault it is.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// A signed document of a VO, as it came. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Document {
    Charter(Signed<Charter>),
    Policy(Signed<SharePolicy>),
    Allocation(Signed<Allocation>),
    Snapshot(Signed<Snapshot>),
}

impl Document {
    /// Reads one; `None` for bytes that are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let charter = Signed::parse(bytes).map(Self::Charter);
        let read = charter.or_else(|_| Signed::parse(bytes).map(Self::Policy));
        let read = read.or_else(|_| Signed::parse(bytes).map(Self::Allocation));
        let read = read.or_else(|_| Signed::parse(bytes).map(Self::Snapshot));
        read.ok()
    }

    /// The VO that it names.
    pub(crate) fn vo(&self) -> VoId {
        match self {
            Self::Charter(signed) => signed.vo(),
            Self::Policy(signed) => signed.vo(),
            Self::Allocation(signed) => signed.vo(),
            Self::Snapshot(signed) => signed.vo(),
        }
    }

    /// Hash of its payload.
    pub(crate) fn hash(&self) -> ContentHash {
        match self {
            Self::Charter(signed) => signed.hash(),
            Self::Policy(signed) => signed.hash(),
            Self::Allocation(signed) => signed.hash(),
            Self::Snapshot(signed) => signed.hash(),
        }
    }

    /// What it is, what it is about, and its version; `None` for a snapshot, which is about all others.
    pub(crate) fn subject(&self) -> Option<(DocumentKind, AccountPath, u64)> {
        match self {
            Self::Charter(signed) => {
                let version = signed.claimed().version;
                Some((DocumentKind::Charter, AccountPath::root(), version))
            }
            Self::Policy(signed) => {
                let of = signed.claimed();
                Some((DocumentKind::SharePolicy, of.path.clone(), of.version))
            }
            Self::Allocation(signed) => {
                let of = signed.claimed();
                Some((DocumentKind::Allocation, of.path.clone(), of.version))
            }
            Self::Snapshot(_) => None,
        }
    }

    /// The bytes that were read.
    pub(crate) fn bytes(&self) -> &Arc<[u8]> {
        match self {
            Self::Charter(signed) => signed.bytes(),
            Self::Policy(signed) => signed.bytes(),
            Self::Allocation(signed) => signed.bytes(),
            Self::Snapshot(signed) => signed.bytes(),
        }
    }

    pub(crate) fn kind(&self) -> DocumentKind {
        match self {
            Self::Charter(_) => DocumentKind::Charter,
            Self::Policy(_) => DocumentKind::SharePolicy,
            Self::Allocation(_) => DocumentKind::Allocation,
            Self::Snapshot(_) => DocumentKind::Snapshot,
        }
    }

    /// Hands it to the policies of its VO.
    pub(crate) fn adopt(self, policies: &mut VoPolicies) -> Result<Adopted, DocumentRefused> {
        if self.vo() != policies.vo() {
            return Err(DocumentRefused::Foreign);
        }
        Ok(match self {
            Self::Charter(signed) => policies.adopt_charter(signed)?,
            Self::Policy(signed) => policies.adopt_policy(signed)?,
            Self::Allocation(signed) => policies.adopt_allocation(signed)?,
            Self::Snapshot(signed) => policies.adopt_snapshot(signed)?,
        })
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Charter(signed) => write!(f, "charter {}", signed.claimed().version),
            Self::Policy(signed) => {
                let (version, path) = (signed.claimed().version, &signed.claimed().path);
                write!(f, "share policy {version} of {path}")
            }
            Self::Allocation(signed) => {
                let (version, path) = (signed.claimed().version, &signed.claimed().path);
                write!(f, "allocation {version} of {path}")
            }
            Self::Snapshot(signed) => write!(f, "snapshot {}", signed.claimed().version),
        }
    }
}
