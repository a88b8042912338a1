//! From text to an [`Sla`].
//!
//! Invariant: the first thing wrong is reported where it stands, with its file, line and key.

use std::collections::BTreeMap;
use std::ops::Range;

use fairmesh_model::{AccountPath, Share};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use toml::de::DeTable;

use super::grant::{Grant, Resource, parse_cpus};
use super::{ENTRIES_MAX, Sla, SlaEntry};

/// Why a document was refused. Nothing changed; its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{problem}", .key.as_ref().map(|key| format!("`{key}`: ")).unwrap_or_default())]
pub struct SlaError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The entry or key at fault.
    pub key: Option<String>,
    /// What is wrong with it, and what to write.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    sla: Option<BTreeMap<AccountPath, SlaEntry>>,
}

pub(super) fn parse(text: &str, file: &str) -> Result<Sla, SlaError> {
    let refused = |span: Option<Range<usize>>, key: Option<String>, problem: String| {
        let before = span.and_then(|span| text.get(..span.start)).unwrap_or("");
        let last_line = before.rsplit('\n').next().unwrap_or("");
        SlaError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: last_line.chars().count() + 1,
            key,
            problem,
        }
    };
    let syntax = |error: toml::de::Error, key| refused(error.span(), key, error.message().into());
    let document = toml::Deserializer::parse(text).map_err(|error| syntax(error, None))?;
    let document: Document = serde_path_to_error::deserialize(document).map_err(|error| {
        let key = error.path().to_string();
        let key = key.strip_prefix("sla.").map(str::to_owned);
        syntax(error.into_inner(), key)
    })?;
    let Some(entries) = document.sla else {
        let problem = "there is no table [sla]: put the entries below a line `[sla]`";
        return Err(refused(None, None, problem.to_owned()));
    };
    if entries.len() > ENTRIES_MAX {
        let problem = format!("more than {ENTRIES_MAX} entries");
        return Err(refused(None, None, problem));
    }
    let at =
        |path: &AccountPath, problem| refused(key_of(text, path), Some(path.to_string()), problem);
    for path in entries.keys() {
        let parent = path.parent().filter(|parent| !parent.is_root());
        if let Some(parent) = parent.filter(|parent| !entries.contains_key(parent)) {
            let problem = format!(
                "there is no entry `{parent}` above it: add one, which may be empty ({{}})"
            );
            return Err(at(path, problem));
        }
    }
    let sla = Sla { entries };
    if let Some((above, first, sum)) = sla.guaranteed_beyond_all() {
        let sum = sum.div_ceil(u64::from(Share::ONE) / 100);
        let problem = format!(
            "the guarantees below `{above}` add up to {sum} %, which nobody can keep: 100 % at most"
        );
        return Err(at(&first, problem));
    }
    Ok(sla)
}

/// Where an entry's key stands.
fn key_of(text: &str, path: &AccountPath) -> Option<Range<usize>> {
    let document = DeTable::parse(text).ok()?;
    let entries = document.get_ref().get("sla")?.get_ref().as_table()?;
    let (key, _) = entries.get_key_value(path.as_str())?;
    Some(key.span())
}

pub(super) fn cpu<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Grant>, D::Error> {
    grant(from, Resource::Cpu)
}

pub(super) fn disk<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Grant>, D::Error> {
    grant(from, Resource::Disk)
}

pub(super) fn net<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Grant>, D::Error> {
    grant(from, Resource::Net)
}

pub(super) fn at_most<'d, D: Deserializer<'d>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = in_quotes(from, "CPUs in quotes, such as \"150cpus\"")?;
    parse_cpus(&text).map(Some).map_err(Error::custom)
}

fn grant<'d, D: Deserializer<'d>>(from: D, of: Resource) -> Result<Option<Grant>, D::Error> {
    let text = in_quotes(from, "a share in quotes, such as \"10%+ / 30d\"")?;
    Grant::parse(&text, of).map(Some).map_err(Error::custom)
}

fn in_quotes<'d, D: Deserializer<'d>>(from: D, expected: &str) -> Result<String, D::Error> {
    String::deserialize(from).map_err(|_| Error::custom(format!("expected {expected}")))
}
