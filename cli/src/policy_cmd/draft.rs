//! Drafts: documents as TOML, before anyone has signed them.
//!
//! Invariant: one text gives one payload, on any machine and at any time: nothing is filled in from
//! a clock or a host when a draft is read. Deliberately not here: signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::str::FromStr;

use fairmesh_model::{
    Allocation, Charter, Document, KeyId, Role, SharePolicy, Signed, Snapshot, hides,
};
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::document::PolicyDocument;
use super::shares_draft;
use super::{allocation_draft, charter_draft, snapshot_draft};

/// What stands above a document's `expires`.
pub(super) const EXPIRES: &str = "# Expiry degrades answers, it does not stop them.\n";

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

/// Keys of which a number must sign, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRole {
    keys: Vec<Spanned<String>>,
    threshold: Option<u32>,
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

/// What may be left out.
pub(super) fn optional<R, T>(
    raw: &Option<R>,
    read: impl FnOnce(&R) -> Result<T, FileError>,
) -> Result<Option<T>, FileError> {
    raw.as_ref().map(read).transpose()
}

/// A table by ids or paths.
pub(super) fn by_key<K: FromStr<Err: Display> + Ord, R, T>(
    source: Source<'_>,
    table: &str,
    help: &str,
    raw: &BTreeMap<Spanned<String>, R>,
    read: impl Fn(&R) -> Result<T, FileError>,
) -> Result<BTreeMap<K, T>, FileError> {
    let entry =
        |(key, value): (&Spanned<String>, &R)| Ok((source.parsed(table, key, help)?, read(value)?));
    raw.iter().map(entry).collect()
}

impl RawRole {
    pub(super) fn role(&self, source: Source<'_>, key: &str) -> Result<Role, FileError> {
        let key_name = format!("{key}.keys");
        let help = "key ids are printed by `fairmesh policy keygen`";
        let mut keys = BTreeSet::new();
        for id in &self.keys {
            let key = source.parsed::<KeyId>(&key_name, id, help)?;
            if !keys.insert(key) {
                let problem = format!("{key} is listed twice: one key signs once");
                return Err(source.error(Some(id.span()), Some(&key_name), problem));
            }
        }
        Ok(Role {
            keys,
            threshold: self.threshold.unwrap_or(1),
        })
    }
}

/// The lines of a role below its table's header.
pub(super) fn role_lines(text: &mut String, role: &Role) {
    text.push_str("keys = [\n");
    for key in &role.keys {
        writeln!(text, "  \"{key}\",").expect("a string takes all text");
    }
    writeln!(text, "]\nthreshold = {}", role.threshold).expect("a string takes all text");
}

/// A TOML string of which all is seen: what hides or turns stands there as its number, and reads back as it was.
pub(super) fn quoted(text: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if !hides(c) => c.to_string(),
        c => format!("\\U{:08X}", u32::from(c)),
    };
    let shown: String = text.chars().map(shown).collect();
    format!("\"{shown}\"")
}
