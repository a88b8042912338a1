//! Share policies as TOML, both ways: a header `[policy]` and the flat form `[shares]`.
//!
//! Invariant: the text of a share policy reads back as that policy. Deliberately not here: the flat
//! form itself (`fairmesh_policy::tree_file`).

use std::fmt::Write;

use fairmesh_api::words::timestamp;
use fairmesh_model::{AccountPath, SharePolicy};
use fairmesh_node::config::Source;
use fairmesh_node::config::quantity::RawMoment;
use fairmesh_policy::{parse_draft, to_toml};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::fields::{EXPIRES, optional, quoted};

// What a draft says above its lines.
const PATH: &str =
    "# What is divided: `/`, or an entry that was delegated to this policy's signers.\n";
const SHARES: &str = "
# Weights among siblings, by paths below `path` (docs/shares.md). \"/P-B1/*\" = 10 is one share for all accounts below
# /P-B1 that have no line; { share = 60, was = [\"/old\"] } takes over the usage of a former path, and
# { share = 60, since = \"2026-07-01\" } counts usage from that day on. An entry that others divide is
# \"/P-B1\" = { share = 60, delegate = { keys = [\"<key id>\"], threshold = 1 } }, or, as another
# VO's policy says, { share = 40, mount = { vo = \"<VO id>\", path = \"/\" } }.
";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDraft {
    policy: RawPolicy,
    #[serde(rename = "shares")]
    _shares: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    vo: Spanned<String>,
    path: Option<Spanned<String>>,
    version: u64,
    previous: Option<Spanned<String>>,
    issued: RawMoment,
    expires: RawMoment,
}

/// What stands in `[policy]`: most drafts have it before their shares, which may be a hundred thousand.
fn header(source: Source<'_>) -> anyhow::Result<RawDraft> {
    let before = source.text.split_once("\n[shares]");
    let before = before.map(|(text, _)| Source { text, ..source });
    let first = before.and_then(|before| before.parse().ok());
    Ok(first.map_or_else(|| source.parse(), Ok)?)
}

pub(super) fn parse(source: Source<'_>) -> anyhow::Result<SharePolicy> {
    let raw = header(source)?;
    let policy = &raw.policy;
    let vo_help = "it is printed by `fairmesh policy show` of the VO's charter";
    let previous_help = "`fairmesh policy new shares --from OLD.cbor` fills it in";
    let path_help = "write \"/\", or the path that was delegated, such as \"/P-B1\"";
    let tree = parse_draft(source.text, source.file)?;
    let (usage, distance) = tree.of_root();
    Ok(SharePolicy {
        vo: source.parsed("policy.vo", &policy.vo, vo_help)?,
        path: optional(&policy.path, |path| {
            source.parsed("policy.path", path, path_help)
        })?
        .unwrap_or_else(AccountPath::root),
        version: policy.version,
        previous: optional(&policy.previous, |id| {
            source.parsed("policy.previous", id, previous_help)
        })?,
        issued: source.moment("policy.issued", &policy.issued)?,
        expires: source.moment("policy.expires", &policy.expires)?,
        usage,
        distance,
        shares: tree.to_shares()?,
    })
}

/// A share policy as a draft, with comments.
pub fn shares_toml(policy: &SharePolicy) -> String {
    let mut text = String::new();
    write_header(&mut text, policy).expect("a string takes all text");
    text.push_str(&to_toml(policy));
    text
}

fn write_header(text: &mut String, policy: &SharePolicy) -> std::fmt::Result {
    let (issued, expires) = (timestamp(policy.issued), timestamp(policy.expires));
    let (vo, path, version) = (policy.vo, quoted(policy.path.as_str()), policy.version);
    writeln!(text, "[policy]\nvo = \"{vo}\"\n{PATH}path = {path}")?;
    writeln!(text, "version = {version}")?;
    if let Some(previous) = policy.previous {
        writeln!(text, "previous = \"{previous}\"")?;
    }
    writeln!(text, "issued = {issued}\n{EXPIRES}expires = {expires}")?;
    text.write_str(SHARES)
}
