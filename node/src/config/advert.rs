//! `[advert]` and `[sla]`: what VOs are told of free CPUs, and what is promised to them.
//!
//! Invariant: every entry of `[sla]` is of a VO of `[vos]`, and what is above a VO's is none of the site's.
//! Deliberately not here: the form of an SLA (`fairmesh_broker`), and where free CPUs come from (`fairmesh_site`).

use std::collections::BTreeMap;

use fairmesh_broker::Sla;
use fairmesh_model::VoId;
use fairmesh_site::AdvertRules;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::names::vo_of;
use super::quantity::{RawDuration, RawPercent};
use super::tables::only_table;
use super::text::Source;

/// `[advert]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAdvert {
    cpus: Option<Spanned<u64>>,
    disk: Option<Spanned<String>>,
    interval: Option<RawDuration>,
    change: Option<RawPercent>,
}

/// What is told, if anything is.
pub(super) fn checked(
    source: Source<'_>,
    (raw, sla): (Option<&RawAdvert>, Option<&Spanned<IgnoredAny>>),
    vos: &BTreeMap<String, VoId>,
) -> anyhow::Result<Option<AdvertRules>> {
    let Some(advert) = raw else {
        return match sla {
            None => Ok(None),
            Some(sla) => {
                let problem =
                    "what is promised to VOs is published to nobody, and nothing goes by it";
                let error = source.wrong("sla", sla, problem);
                Err(error
                    .with_help("add a table [advert], which may be empty")
                    .into())
            }
        };
    };
    let default = AdvertRules::default();
    let cpus = advert.cpus.as_ref();
    if let Some(cpus) = cpus.filter(|cpus| !(1..=u64::from(u32::MAX)).contains(cpus.get_ref())) {
        let problem = "a site has from 1 to 4294967295 CPUs";
        let error = source.wrong("advert.cpus", cpus, problem);
        return Err(error.into());
    }
    let interval = advert.interval.as_ref();
    let change = advert.change.as_ref();
    Ok(Some(AdvertRules {
        total: cpus.map(|cpus| *cpus.get_ref()),
        disk_mib: advert
            .disk
            .as_ref()
            .map(|disk| source.mebibytes("advert.disk", disk))
            .transpose()?,
        sla: sla.map(|_| self::sla(source, vos)).transpose()?,
        interval: interval.map_or(Ok(default.interval), |of| {
            source.duration("advert.interval", of)
        })?,
        change: change.map_or(Ok(default.change), |of| source.percent("advert.change", of))?,
    }))
}

fn sla(source: Source<'_>, vos: &BTreeMap<String, VoId>) -> anyhow::Result<Sla> {
    let text = only_table(source.text, "sla");
    let sla = Sla::parse(&text, source.file)?;
    for path in sla.entries.keys() {
        let alias = path.names().next().unwrap_or_default();
        if vos.contains_key(alias) {
            continue;
        }
        let quoted = format!("\"{path}\"");
        let place = text.find(&quoted).map(|at| at..at + quoted.len());
        vo_of(source, vos, alias, place, &format!("sla.{path}"))?;
    }
    Ok(sla)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::Millis;

    use super::super::tests::with_physics as parse;

    #[test]
    fn what_is_wrong_with_an_sla_is_shown_there_whatever_else_names_its_path() {
        let text =
            "# Not \"/biology\", größer.\n[advert]\n[sla]\n\"/biology\" = { cpu = \"10%+\" }\n";
        let wrong = parse(text).expect_err("no such VO");
        assert!(wrong.contains("f.toml:8:"), "{wrong}");
    }

    #[test]
    fn nothing_is_told_unless_the_owner_says_so() {
        let rules = |text: &str| parse(text).expect(text).advert;
        assert_eq!(rules(""), None);
        let rules = rules("[advert]\ndisk = \"2GiB\"\n[sla]\n\"/physics\" = { cpu = \"10%+\" }\n")
            .expect("said");
        assert_eq!((rules.total, rules.interval), (None, Millis(30_000)));
        assert_eq!(rules.disk_mib, Some(2_048));
        assert_eq!(rules.sla.expect("promised").entries.len(), 1);
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let rows = [
            (
                "[sla]\n",
                "f.toml:5:1: `sla`: what is promised to VOs is published to nobody",
            ),
            (
                "[advert]\ncpus = 0\n",
                "f.toml:6:8: `advert.cpus`: a site has from 1",
            ),
            (
                "[advert]\ndisk = \"1\"\n",
                "f.toml:6:8: `advert.disk`: `1` is not a size",
            ),
            (
                "[advert]\ninterval = \"0s\"\n",
                "f.toml:6:12: `advert.interval`: `0s` is not",
            ),
            (
                "[advert]\nchange = 101\n",
                "f.toml:6:10: `advert.change`: a share of 101 %",
            ),
            ("[advert]\nfree = 1\n", "f.toml:6:1: unknown field `free`"),
            (
                "[advert]\n[sla]\n\"/chemistry\" = {}\n",
                "f.toml:7:1: `sla./chemistry`: no VO has the alias `chemistry`",
            ),
            (
                "[advert]\n[sla]\n\"/physics\" = { cpu = \"10\" }\n",
                "f.toml:7:22: `/physics.cpu`: `10` is no amount",
            ),
        ];
        for (text, expected) in rows {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
