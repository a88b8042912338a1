//! What is in force for one VO at one moment, and what is wrong with it.
//!
//! Invariant: time only adds warnings. A document that has expired, or that claims to come from
//! the future, stays in force; a cluster never stops because somebody forgot to sign
//! (design: "expiry degrades").

use std::collections::BTreeSet;

use fairmesh_model::{
    AccountPath, ContentHash, Date, Millis, PolicyMount, Share, VoId, WallTime, Weight, mutated,
};

use crate::error::DocumentKind;
use crate::level::LevelRule;

/// How far ahead of this node's clock a document may have been issued before it is remarked on.
/// Half a minute of drift is common, five minutes is what Kerberos allows.
pub const CLOCK_TOLERANCE: Millis = Millis::from_secs(300);

/// The name of a document in answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct DocumentRef {
    /// The kind of document.
    pub kind: DocumentKind,
    /// The path that it divides; `/` for a charter.
    pub path: AccountPath,
    /// The version, by which the newer of two is in force.
    pub version: u64,
    /// Hash of its payload.
    pub hash: ContentHash,
}

impl std::fmt::Display for DocumentRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, hash) = (self.kind, self.hash.short());
        match kind {
            DocumentKind::Charter | DocumentKind::Snapshot => {
                write!(f, "{kind} {} ({hash})", self.version)
            }
            DocumentKind::SharePolicy | DocumentKind::Allocation => {
                write!(f, "{kind} {} of `{}` ({hash})", self.version, self.path)
            }
        }
    }
}

/// One entry of a VO's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoEntry {
    /// Its path in the VO's tree.
    pub path: AccountPath,
    /// Its weight among its siblings.
    pub share: Weight,
    /// The most that it may have before its siblings all go first; the whole is no limit.
    pub at_most: Share,
    /// How it is compared with its siblings.
    pub level: LevelRule,
    /// Whose policy divides it, if another VO's.
    pub mount: Option<PolicyMount>,
    /// Paths that it had before, in the VO's tree: usage there counts here.
    pub was: Vec<AccountPath>,
    /// Usage before this date does not count for it and the entries below it.
    pub since: Option<Date>,
    /// The policy that says so.
    pub from: DocumentRef,
}

/// A VO's tree at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The VO of all the documents.
    pub vo: VoId,
    /// The charter in force; `None` where not even the first one has arrived.
    pub charter: Option<DocumentRef>,
    /// The VOs that may mount its policies, by that charter.
    pub readers: BTreeSet<VoId>,
    /// All entries, ascending by path, parents before children; without the root.
    pub entries: Vec<VoEntry>,
    /// What an operator should know, the worst first.
    pub warnings: Vec<Warning>,
}

/// Misbehaviour of those who hold a VO's keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Alarm {
    /// Two valid documents with one version. The first is in force everywhere, until a higher
    /// version comes.
    #[error(
        "{kind} {version} of `{path}` was signed in {} different forms; {} is in force: \
         sign a higher version",
        .hashes.len(),
        .hashes[0].short()
    )]
    Equivocation {
        /// The kind of the two documents.
        kind: DocumentKind,
        /// The path that they divide; `/` for charters.
        path: AccountPath,
        /// The version that both have.
        version: u64,
        /// Their hashes; the one in force first.
        hashes: Vec<ContentHash>,
    },
}

impl Alarm {
    /// Which of the forms is in force.
    pub fn in_force(&self) -> ContentHash {
        let Self::Equivocation { hashes, .. } = self;
        hashes[0]
    }
}

/// What an operator should know about the documents in force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Warning {
    /// Somebody who holds keys misbehaves.
    #[error(transparent)]
    Alarm(#[from] Alarm),
    /// A newer version was seen once and is not here, as after a restored backup.
    #[error("version {seen} of the {kind} of `{path}` was seen before; only {have} is here")]
    Behind {
        /// The kind of the document.
        kind: DocumentKind,
        /// The path that it divides; `/` for a charter.
        path: AccountPath,
        /// The highest version seen.
        seen: u64,
        /// The version in force; 0 for none.
        have: u64,
    },
    /// The first charter has not arrived: nothing is known of the VO but its id.
    #[error("no charter has arrived yet")]
    NoCharter,
    /// The last good document stays in force after its time.
    #[error("{document} expired at {} and stays in force", utc(*since))]
    Expired {
        /// The document that has expired.
        document: DocumentRef,
        /// The end of its validity.
        since: WallTime,
    },
    /// Issued in the future by this node's clock: one of the clocks is wrong.
    #[error("{document} claims to be issued at {}, which lies ahead of this node's clock", utc(*issued))]
    NotYetValid {
        /// The document from the future.
        document: DocumentRef,
        /// When it was issued, by its signer's clock.
        issued: WallTime,
    },
    /// A path was delegated, and no policy of its signers has arrived; it stays undivided.
    #[error("`{path}` is delegated, and no policy for it has arrived")]
    NoPolicy {
        /// The path that is delegated.
        path: AccountPath,
    },
    /// Whoever signed it may no longer: an older version is in force, and with it what this one took back.
    #[error(
        "{document} was signed by keys that sign for it no more, and {counting} is in force: sign it again with those that do"
    )]
    Lapsed {
        /// The newest version here.
        document: DocumentRef,
        /// The version in force.
        counting: DocumentRef,
    },
    /// The charter says who signs snapshots, and none has arrived.
    #[error("no snapshot has arrived: nobody vouches that what is in force here is the newest")]
    NoSnapshot,
    /// The snapshot's time is over.
    #[error("{snapshot} expired at {}: since then nobody vouches that what is in force here is the newest", utc(*since))]
    Unvouched {
        /// The last snapshot that arrived.
        snapshot: DocumentRef,
        /// The end of its validity.
        since: WallTime,
    },
    /// The snapshot names documents that are not here: somebody holds them back, or they are on their way.
    #[error("{snapshot} names {document}, which has not arrived; {} is here{}", version_here(*have), and_more(*more))]
    Lacking {
        /// The last snapshot that arrived.
        snapshot: DocumentRef,
        /// The first of the documents.
        document: DocumentRef,
        /// Which version is here; 0 for none.
        have: u64,
        /// How many more it names that are not here.
        more: usize,
    },
    /// The VO delegates more paths than a node follows.
    #[error("{ignored} delegations beyond the first {limit} are ignored")]
    TooManyPolicies {
        /// How many were left out.
        ignored: usize,
        /// How many are followed.
        limit: usize,
    },
}

fn version_here(version: u64) -> String {
    match version {
        0 => "none".to_owned(),
        version => format!("version {version}"),
    }
}

fn and_more(more: usize) -> String {
    match more {
        0 => String::new(),
        more => format!("; and {more} more documents"),
    }
}

/// A moment for people, as in `2026-11-21T01:45:00Z`.
fn utc(at: WallTime) -> String {
    let moment = i64::try_from(at.0).ok();
    let moment = moment.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    moment.map_or_else(|| format!("{at} s"), |moment| moment.to_string())
}

/// The warnings that a document's validity period gives at `now`.
pub(crate) fn validity(
    document: &DocumentRef,
    issued: WallTime,
    expires: WallTime,
    now: WallTime,
) -> Option<Warning> {
    if now >= expires && !mutated!(ExpiryUnsaid) {
        return Some(Warning::Expired {
            document: document.clone(),
            since: expires,
        });
    }
    (issued > now.after(CLOCK_TOLERANCE)).then(|| Warning::NotYetValid {
        document: document.clone(),
        issued,
    })
}
