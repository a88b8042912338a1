//! Fields that drafts of several kinds have, read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::str::FromStr;

use fairmesh_model::{KeyId, Role, hides};
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

/// What stands above a document's `expires`.
pub(super) const EXPIRES: &str = "# Expiry degrades answers, it does not stop them.\n";

/// Keys of which a number must sign, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRole {
    keys: Vec<Spanned<String>>,
    threshold: Option<u32>,
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
