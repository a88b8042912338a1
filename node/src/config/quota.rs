//! `[quota.NAME]`: what the owner says of a VO's quotas on his own cluster.
//!
//! Invariant: each table is of a VO of `[vos]`. Deliberately not here: what it decides (`fairmesh_site`).

use std::collections::BTreeMap;

use fairmesh_model::{QuotaMode, VoId};
use fairmesh_site::{OwnerQuota, Pattern};
use serde::Deserialize;
use toml::Spanned;

use super::sections::vo_of;
use super::text::{FileError, Source};

/// One table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuota {
    mode: Option<RawMode>,
    #[serde(default)]
    exempt: RawExempt,
}

/// What becomes of jobs beyond the quota; `off`: nobody is asked.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawMode {
    Strict,
    Soft,
    Advisory,
    Off,
}

/// Whose jobs are not held to it: words, or beginnings of words followed by `*`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawExempt {
    users: Vec<String>,
    groups: Vec<String>,
    queues: Vec<String>,
}

/// The owner's word, by VO.
pub(super) fn checked(
    source: Source<'_>,
    raw: &BTreeMap<Spanned<String>, RawQuota>,
    vos: &BTreeMap<String, VoId>,
) -> Result<BTreeMap<VoId, OwnerQuota>, FileError> {
    let patterns = |words: &[String]| words.iter().map(|word| Pattern::parse(word)).collect();
    let of = |(alias, raw): (&Spanned<String>, &RawQuota)| {
        let name = alias.get_ref();
        let key = format!("quota.{name}");
        let vo = vo_of(source, vos, name, Some(alias.span()), &key)?;
        let quota = OwnerQuota {
            is_off: matches!(raw.mode, Some(RawMode::Off)),
            mode: raw.mode.and_then(|mode| match mode {
                RawMode::Strict => Some(QuotaMode::Strict),
                RawMode::Soft => Some(QuotaMode::Soft),
                RawMode::Advisory => Some(QuotaMode::Advisory),
                RawMode::Off => None,
            }),
            users: patterns(&raw.exempt.users),
            groups: patterns(&raw.exempt.groups),
            queues: patterns(&raw.exempt.queues),
        };
        Ok((vo, quota))
    };
    raw.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use fairmesh_model::QuotaMode;

    use super::super::tests::with_physics as parse;

    #[test]
    fn an_owner_has_his_word() {
        assert!(parse("").expect("none").quotas.is_empty());
        let config = parse("[quota.physics]\nmode = \"soft\"\nexempt = { users = [\"op*\"] }\n");
        let quotas = config.expect("a word").quotas;
        let quota = quotas.values().next().expect("one");
        assert_eq!((quota.mode, quota.is_off), (Some(QuotaMode::Soft), false));
        assert!(quota.users[0].holds("operator"));
        let off = parse("[quota.\"physics\"]\nmode = \"off\"\n").expect("off");
        let off = off.quotas.into_values().next().expect("one");
        assert_eq!((off.mode, off.is_off), (None, true));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            (
                "[quota.chemistry]\n",
                "f.toml:5:8: `quota.chemistry`: no VO has the alias `chemistry`",
            ),
            (
                "[quota.physics]\nmode = \"lax\"\n",
                "f.toml:6:8: unknown variant `lax`",
            ),
            (
                "[quota.physics]\nexempt = { user = [] }\n",
                "f.toml:6:12: unknown field `user`",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }
}
