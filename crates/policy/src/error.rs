//! Why a document was not adopted.
//!
//! Invariant: after any of these errors the state is what it was before. Some of them pass by
//! themselves when another document arrives: a caller drops the document and lets anti-entropy offer it again.

use std::fmt;

use fairmesh_model::signed::DocumentError;
use fairmesh_model::{AccountPath, AllocationId, ContentHash, VoId};

/// The kinds of document that this crate keeps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentKind {
    /// A VO's root document.
    Charter,
    /// Target shares of a VO or of a delegated subtree.
    SharePolicy,
    /// Credit of a path.
    Allocation,
    /// What is in force of all of these.
    Snapshot,
}

impl fmt::Display for DocumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Charter => "charter",
            Self::SharePolicy => "share policy",
            Self::Allocation => "allocation",
            Self::Snapshot => "snapshot",
        })
    }
}

/// Why a document was refused. The state is unchanged in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Malformed, too large, contradictory, or without enough good signatures of the role. The
    /// sender or the signer is at fault; for a missing signature also, perhaps, a document that
    /// names other keys and is still on its way.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It belongs to another VO. The sender is at fault.
    #[error("{kind} is of VO {got}, not of {expected}")]
    WrongVo {
        /// The kind of document.
        kind: DocumentKind,
        /// The VO whose documents are kept here.
        expected: VoId,
        /// The VO that it names, or that a first charter makes.
        got: VoId,
    },
    /// Charters in between are missing. Nobody is at fault: ask for them.
    #[error("charter {got} cannot follow charter {have}: the ones in between are missing")]
    Missing {
        /// The version in force; 0 for none.
        have: u64,
        /// The version of the refused document.
        got: u64,
    },
    /// The document that would say who may sign it is not here. Nobody is at fault, or the sender
    /// made the path up: offer it again when something else was adopted.
    #[error("no delegation of `{path}` is known (yet)")]
    NotYet {
        /// The path that it divides.
        path: AccountPath,
    },
    /// Whoever signed it divides something else, and nothing beside that. Its signers are at fault, unless a
    /// document that delegates this to them is on its way.
    #[error("{kind} of `{path}` is signed by who divides `{own}` and nothing beside it")]
    Widens {
        /// The kind of document.
        kind: DocumentKind,
        /// What it is about.
        path: AccountPath,
        /// What its signers divide.
        own: AccountPath,
    },
    /// A charter builds on one that is not known. Perhaps that one is still on its way.
    #[error("charter {version} builds on {previous}, which is not known (yet)")]
    UnknownPredecessor {
        /// The version of the refused document.
        version: u64,
        /// What it names as its predecessor.
        previous: ContentHash,
    },
    /// A charter builds on one of two rivals, and not on the one that changed the authority's
    /// keys. Its signers are at fault, or hold keys that were taken out of office.
    #[error("charter {version} builds on {previous}, a rival of a charter that rotated the keys")]
    Outranked {
        /// The version of the refused document.
        version: u64,
        /// The charter that it builds on.
        previous: ContentHash,
    },
    /// A lower version than one seen before, or another charter in a settled place. The sender is
    /// out of date, or replays.
    #[error("{kind} {got} of `{path}` is older than version {have}, which was seen before")]
    Rollback {
        /// The kind of document.
        kind: DocumentKind,
        /// The path that it divides; `/` for a charter.
        path: AccountPath,
        /// The highest version seen.
        have: u64,
        /// The version of the refused document.
        got: u64,
    },
    /// A later charter changes what is fixed for as long as a VO exists. Its signers are at fault.
    #[error("charter {version} changes {what}, which is fixed for as long as the VO exists")]
    Fixed {
        /// The version of the refused document.
        version: u64,
        /// The field that may not change.
        what: &'static str,
    },
    /// A later version of an allocation whose first is not here. Nobody is at fault: it is on its way.
    #[error("version {version} of allocation {id}: the first version is not known (yet)")]
    NoFirst {
        /// The allocation.
        id: AllocationId,
        /// The version of the refused document.
        version: u64,
    },
    /// A part of an allocation that is not in force here, or that names no leaders. Nobody is at fault: it is on its
    /// way; or its signers are.
    #[error("it is a part of allocation {id}, which is not in force here (yet) or has no leaders")]
    NoWhole {
        /// The allocation.
        id: AllocationId,
    },
    /// A part does not fit what it is a part of. Its signers are at fault.
    #[error("it is a part of allocation {id}: {what}")]
    Misfit {
        /// The allocation.
        id: AllocationId,
        /// What does not fit.
        what: &'static str,
    },
    /// A later version of an allocation changes what sites may have spent already. Its signers are at fault.
    #[error(
        "version {version} of allocation {id}: {what} may not change; grant another allocation"
    )]
    Regrant {
        /// The allocation.
        id: AllocationId,
        /// The version of the refused document.
        version: u64,
        /// The field that may not change.
        what: &'static str,
    },
    /// Another form of the same version is in force. Its signers are at fault.
    #[error("another version {version} of allocation {id} is in force: sign a higher one")]
    Rival {
        /// The allocation.
        id: AllocationId,
        /// The version of both.
        version: u64,
    },
    /// The charter in force lets nobody sign snapshots. Perhaps one that does is on its way.
    #[error("the charter in force names nobody who signs snapshots (`[snapshot]` in its draft)")]
    NoSnapshotRole,
    /// Another snapshot of the same version goes before it. Nobody is at fault: two signers at once.
    #[error("another snapshot {version} is in force: sign a higher one")]
    SnapshotRival {
        /// The version of both.
        version: u64,
    },
    /// The VO has granted more allocations than
    /// [`ALLOCATIONS_MAX`](crate::vo_policies::ALLOCATIONS_MAX), or leaders have passed on more parts of one than
    /// [`PARTS_MAX`](fairmesh_model::documents::PARTS_MAX). The signers are at fault.
    #[error(
        "there are {limit} already, as many allocations of a VO, or parts of one, as a node follows"
    )]
    TooMany {
        /// How many are followed.
        limit: usize,
    },
    /// The documents of this VO would take more than
    /// [`HELD_BYTES_MAX`](crate::vo_policies::HELD_BYTES_MAX), or those of a path that its policy delegates, and below
    /// it, more than an eighth of that. Their signers are at fault.
    #[error(
        "the share policies and allocations of the VO, or of one delegated path and below it, would take {bytes} bytes, more than {limit}"
    )]
    Full {
        /// What they would take.
        bytes: usize,
        /// The highest number that is allowed.
        limit: usize,
    },
}
