//! `[forward]`: which jobs are passed on to other members, and which are taken from them.
//!
//! Invariant: without the table nothing is passed on, and without the name of a VO nothing of it is taken.
//! Deliberately not here: where jobs go (`fairmesh_site`), and who hands them to the batch system.

use std::collections::BTreeMap;

use fairmesh_model::VoId;
use fairmesh_site::ForwardRules;
use serde::Deserialize;
use toml::Spanned;

use super::names::vo_of;
use super::text::Source;

/// Most jobs of one member that may wait, or come in a minute: what one disk takes.
const JOBS_MAX: u32 = 10_000;

/// `[forward]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawForward {
    #[serde(default)]
    accept_forwarded: Vec<Spanned<String>>,
    per_member: Option<Spanned<u32>>,
    per_minute: Option<Spanned<u32>>,
    cpus_max: Option<Spanned<u32>>,
}

/// What the owner agrees to, if to anything.
pub(super) fn checked(
    source: Source<'_>,
    raw: Option<&RawForward>,
    has_advert: bool,
    vos: &BTreeMap<String, VoId>,
) -> anyhow::Result<Option<ForwardRules>> {
    let Some(forward) = raw else {
        return Ok(None);
    };
    let default = ForwardRules::default();
    let accept = forward.accept_forwarded.iter().map(|alias| {
        vo_of(
            source,
            vos,
            alias.get_ref(),
            Some(alias.span()),
            "forward.accept_forwarded",
        )
    });
    let accept = accept.collect::<Result<_, _>>()?;
    if let (Some(first), false) = (forward.accept_forwarded.first(), has_advert) {
        let problem = "members send jobs to sites that say what is free there";
        let error = source.wrong("forward.accept_forwarded", first, problem);
        return Err(error
            .with_help("add a table [advert], which may be empty")
            .into());
    }
    let count = |key: &str, given: &Option<Spanned<u32>>, most: u32| match given {
        Some(given) if !(1..=most).contains(given.get_ref()) => {
            let problem = format!("it is from 1 to {most}");
            Err(source.wrong(key, given, problem))
        }
        given => Ok(given.as_ref().map(|given| *given.get_ref())),
    };
    let per_member = count("forward.per_member", &forward.per_member, JOBS_MAX)?;
    let per_minute = count("forward.per_minute", &forward.per_minute, JOBS_MAX)?;
    Ok(Some(ForwardRules {
        accept,
        per_member: per_member.map_or(default.per_member, |jobs| jobs as usize),
        per_minute: per_minute.unwrap_or(default.per_minute),
        cpus_max: count("forward.cpus_max", &forward.cpus_max, u32::MAX)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_physics as parse;

    #[test]
    fn nothing_is_passed_on_or_taken_unless_the_owner_says_so() {
        let rules = |text: &str| parse(text).expect(text).forward;
        assert_eq!(rules(""), None);
        assert_eq!(rules("[forward]\n"), Some(Default::default()));
        let text = "[advert]\n[forward]\naccept_forwarded = [\"physics\"]\nper_member = 5\n";
        let rules = rules(text).expect("said");
        assert_eq!((rules.accept.len(), rules.per_member), (1, 5));
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let rows = [
            (
                "[forward]\naccept_forwarded = [\"physics\"]\n",
                "f.toml:6:21: `forward.accept_forwarded`: members send jobs to sites that say what is free",
            ),
            (
                "[advert]\n[forward]\naccept_forwarded = [\"chemistry\"]\n",
                "f.toml:7:21: `forward.accept_forwarded`: no VO has the alias `chemistry`",
            ),
            (
                "[forward]\nper_minute = 0\n",
                "f.toml:6:14: `forward.per_minute`: it is from 1 to 10000",
            ),
            (
                "[forward]\nsubmit = \"x\"\n",
                "f.toml:6:1: unknown field `submit`",
            ),
        ];
        for (text, expected) in rows {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
