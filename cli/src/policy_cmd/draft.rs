//! Drafts: documents as TOML, before anyone has signed them.
//!
//! Invariant: one text gives one payload, on any machine and at any time: nothing is filled in from
//! a clock or a host when a draft is read. Deliberately not here: signatures.

use fairmesh_model::{Allocation, Charter, Document, SharePolicy, Signed, Snapshot};
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::document::PolicyDocument;
use super::shares_draft;
use super::{allocation_draft, charter_draft, snapshot_draft};

/// A charter, a share policy, an allocation or a snapshot that nobody has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// A charter, before it is signed.
    Charter(Box<Charter>),
    /// A share policy, before it is signed.
    Shares(Box<SharePolicy>),
    /// An allocation, before it is signed.
    Allocation(Box<Allocation>),
    /// A snapshot, before it is signed.
    Snapshot(Box<Snapshot>),
}

impl Draft {
    /// Reads the text of a draft: a charter has a table `[charter]`, a share policy `[shares]`, an
    /// allocation `[allocation]`, a snapshot `[snapshot]`, which in a charter is who signs those.
    pub fn parse(text: &str, file: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            charter: Option<IgnoredAny>,
            shares: Option<IgnoredAny>,
            allocation: Option<IgnoredAny>,
            snapshot: Option<IgnoredAny>,
        }
        let source = Source { file, text };
        let kind: Kind = source.parse()?;
        Ok(if kind.charter.is_some() {
            Self::Charter(valid(source, charter_draft::parse(source)?)?)
        } else if kind.shares.is_some() {
            Self::Shares(valid(source, shares_draft::parse(source)?)?)
        } else if kind.allocation.is_some() {
            Self::Allocation(valid(source, allocation_draft::parse(source)?)?)
        } else if kind.snapshot.is_some() {
            Self::Snapshot(valid(source, snapshot_draft::parse(source)?)?)
        } else {
            let problem = "neither a charter ([charter]) nor a share policy ([policy], [shares]) nor an \
                           allocation ([allocation]) nor a snapshot ([snapshot])";
            let help =
                "begin with `fairmesh policy new charter`, `shares`, `allocation` or `snapshot`";
            return Err(source.error(None, None, problem).with_help(help).into());
        })
    }

    /// The document, without any signature yet.
    pub fn into_document(self) -> anyhow::Result<PolicyDocument> {
        Ok(match self {
            Self::Charter(charter) => PolicyDocument::Charter(Signed::sign(*charter, &[])?),
            Self::Shares(shares) => PolicyDocument::Shares(Signed::sign(*shares, &[])?),
            Self::Allocation(body) => PolicyDocument::Allocation(Signed::sign(*body, &[])?),
            Self::Snapshot(body) => PolicyDocument::Snapshot(Signed::sign(*body, &[])?),
        })
    }
}

fn valid<T: Document>(source: Source<'_>, document: T) -> Result<Box<T>, FileError> {
    match document.validate() {
        Ok(()) => Ok(Box::new(document)),
        Err(problem) => Err(source.error(None, None, problem)),
    }
}
