//! Drafts: documents as TOML, before anyone has signed them.
//!
//! Invariant: one text gives one payload, on any machine and at any time: nothing is filled in from
//! a clock or a host when a draft is read. Deliberately not here: signatures.

use std::collections::BTreeSet;
use std::fmt::Write;

use fairmesh_model::{
    Allocation, Charter, Document, KeyId, Role, SharePolicy, Signed, Snapshot, is_visible,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::document::PolicyDocument;
use super::shares_draft;
use super::{allocation_draft, charter_draft, snapshot_draft};
use crate::config::{FileError, Source};

/// A charter, a share policy, an allocation or a snapshot that nobody has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// A charter.
    Charter(Box<Charter>),
    /// A share policy.
    Shares(Box<SharePolicy>),
    /// An allocation.
    Allocation(Box<Allocation>),
    /// A snapshot.
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
        match kind {
            Kind {
                charter: Some(_), ..
            } => {
                let charter = charter_draft::parse(source)?;
                validate(source, &charter)?;
                Ok(Self::Charter(Box::new(charter)))
            }
            Kind {
                shares: Some(_), ..
            } => {
                let shares = shares_draft::parse(source)?;
                validate(source, &shares)?;
                Ok(Self::Shares(Box::new(shares)))
            }
            Kind {
                allocation: Some(_),
                ..
            } => {
                let allocation = allocation_draft::parse(source)?;
                validate(source, &allocation)?;
                Ok(Self::Allocation(Box::new(allocation)))
            }
            Kind {
                snapshot: Some(_), ..
            } => {
                let snapshot = snapshot_draft::parse(source)?;
                validate(source, &snapshot)?;
                Ok(Self::Snapshot(Box::new(snapshot)))
            }
            _ => {
                let problem = "neither a charter ([charter]) nor a share policy ([policy], [shares]) nor an \
                               allocation ([allocation]) nor a snapshot ([snapshot])";
                let help = "begin with `fairmesh policy new charter`, `shares`, `allocation` or `snapshot`";
                Err(source.error(None, None, problem).with_help(help).into())
            }
        }
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

fn validate(source: Source<'_>, document: &impl Document) -> Result<(), FileError> {
    document
        .validate()
        .map_err(|problem| source.error(None, None, problem))
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
        c if is_visible(c) => c.to_string(),
        c => format!("\\U{:08X}", u32::from(c)),
    };
    let shown: String = text.chars().map(shown).collect();
    format!("\"{shown}\"")
}
