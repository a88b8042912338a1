//! Snapshots as TOML, both ways: for whoever signs them with several keys, or away from any node.
//!
//! Invariant: the text of a snapshot reads back as that snapshot. Deliberately not here: what is in force
//! (`fairmesh_policy`), and signing it in one go (`snapshot`).

use std::collections::BTreeMap;
use std::fmt::Write;

use fairmesh_api::words::timestamp;
use fairmesh_model::{ContentHash, Named, Snapshot};
use fairmesh_node::config::quantity::RawMoment;
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::fields::{by_key, quoted};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDraft {
    snapshot: RawSnapshot,
    #[serde(default)]
    policies: BTreeMap<Spanned<String>, RawNamed>,
    #[serde(default)]
    allocations: BTreeMap<Spanned<String>, RawNamed>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSnapshot {
    vo: Spanned<String>,
    version: u64,
    issued: RawMoment,
    expires: RawMoment,
    charter: RawNamed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNamed {
    version: u64,
    hash: Spanned<String>,
}

pub(super) fn parse(source: Source<'_>) -> Result<Snapshot, FileError> {
    let raw: RawDraft = source.parse()?;
    let help = "`fairmesh policy new snapshot` fills it in";
    Ok(Snapshot {
        vo: source.parsed("snapshot.vo", &raw.snapshot.vo, help)?,
        version: raw.snapshot.version,
        issued: source.moment("snapshot.issued", &raw.snapshot.issued)?,
        expires: source.moment("snapshot.expires", &raw.snapshot.expires)?,
        charter: named(source, "snapshot.charter", &raw.snapshot.charter)?,
        policies: by_key(source, "policies", help, &raw.policies, |of| {
            named(source, "policies", of)
        })?,
        allocations: by_key(source, "allocations", help, &raw.allocations, |of| {
            named(source, "allocations", of)
        })?,
    })
}

fn named(source: Source<'_>, key: &str, raw: &RawNamed) -> Result<Named, FileError> {
    let help = "`fairmesh policy show` of the document prints it";
    let hash: ContentHash = source.parsed(&format!("{key}.hash"), &raw.hash, help)?;
    let version = raw.version;
    Ok(Named { version, hash })
}

/// A snapshot as a draft, with comments.
pub(super) fn snapshot_toml(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    write(&mut text, snapshot).expect("a string takes all text");
    text
}

fn write(text: &mut String, snapshot: &Snapshot) -> std::fmt::Result {
    let (vo, version) = (snapshot.vo, snapshot.version);
    writeln!(text, "[snapshot]\nvo = \"{vo}\"\nversion = {version}")?;
    let (issued, expires) = (timestamp(snapshot.issued), timestamp(snapshot.expires));
    writeln!(text, "issued = {issued}")?;
    writeln!(
        text,
        "# From then on answers say that nobody vouches for what is in force; 31 days at most."
    )?;
    writeln!(text, "expires = {expires}")?;
    writeln!(text, "charter = {}", inline(&snapshot.charter))?;
    writeln!(text, "\n# Share policies, by what they divide.\n[policies]")?;
    for (path, document) in &snapshot.policies {
        writeln!(text, "{} = {}", quoted(path.as_str()), inline(document))?;
    }
    writeln!(text, "\n# Allocations, by their ids.\n[allocations]")?;
    for (id, document) in &snapshot.allocations {
        writeln!(text, "\"{id}\" = {}", inline(document))?;
    }
    Ok(())
}

fn inline(document: &Named) -> String {
    let Named { version, hash } = document;
    format!("{{ version = {version}, hash = \"{hash}\" }}")
}
