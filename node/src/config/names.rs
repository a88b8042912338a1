//! Names in `fairmesh.toml`: of VOs by their aliases, and of users of this machine.

use std::collections::BTreeMap;
use std::ops::Range;

use fairmesh_model::{VoId, is_visible};
use serde::Deserialize;
use toml::Spanned;

use super::text::{FileError, Source};
use crate::users::Writer;

/// A user by name or number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum RawWriter {
    Uid(u32),
    Name(String),
}

/// Users by name or number, as `key` lists them.
pub(super) fn users(
    source: Source<'_>,
    key: &str,
    raw: &[Spanned<RawWriter>],
) -> Result<Vec<Writer>, FileError> {
    raw.iter()
        .map(|writer| match writer.get_ref() {
            RawWriter::Uid(uid) => Ok(Writer::Uid(*uid)),
            RawWriter::Name(name) if is_user_name(name) => Ok(Writer::Name(name.clone())),
            RawWriter::Name(name) => {
                let problem = format!("`{}` is not a user name", name.escape_debug());
                let help = "write names or numbers of users: [\"root\", \"slurm\", 990]";
                Err(source.wrong(key, writer, problem).with_help(help))
            }
        })
        .collect()
}

pub(super) fn is_user_name(name: &str) -> bool {
    let good = |c: char| is_visible(c) && !c.is_whitespace() && !matches!(c, ':' | '/' | ',');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(good)
}

/// The VO of that alias, which is written at `place` as (a part of) the value of `key`.
pub(super) fn vo_of(
    source: Source<'_>,
    vos: &BTreeMap<String, VoId>,
    alias: &str,
    place: Option<Range<usize>>,
    key: &str,
) -> Result<VoId, FileError> {
    vos.get(alias).copied().ok_or_else(|| {
        let known: Vec<&str> = vos.keys().map(String::as_str).collect();
        let problem = format!("no VO has the alias `{alias}`");
        let help = format!("add it to [vos]; known there: {}", known.join(", "));
        source.error(place, Some(key), problem).with_help(help)
    })
}
