//! `[quota.NAME]`: what the owner says of a VO's quotas on his own cluster.
//!
//! Invariant: each table is of a VO of `[vos]`. Deliberately not here: what it decides (`fairmesh_site`).

use std::collections::BTreeMap;

use fairmesh_model::{Factor, QuotaMode, VoId};
use fairmesh_quota::price::{Hours, LoadPrice, Pricing};
use fairmesh_site::{IdleRules, OwnerQuota, Pattern};
use serde::Deserialize;
use toml::Spanned;

use super::names::vo_of;
use super::quantity::{RawDuration, RawFactor, RawPercent};
use super::text::{FileError, Source};

/// Days of a week, as they are written.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Most spans of a calendar: each is looked at every second.
const SPANS_MAX: usize = 64;

/// One table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuota {
    mode: Option<RawMode>,
    #[serde(default)]
    exempt: RawExempt,
    price: Option<Spanned<RawPrice>>,
    idle: Option<RawIdle>,
    #[serde(default)]
    bands: bool,
}

/// What a job of the VO costs here, × its charge: by the hour, or by the load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrice {
    calendar: Option<Vec<RawHours>>,
    load: Option<RawLoad>,
}

/// A span of every week, in UTC.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHours {
    /// `mon`, or `mon-fri`; every day where none is named.
    #[serde(default)]
    days: Vec<Spanned<String>>,
    from: Spanned<String>,
    until: Spanned<String>,
    price: RawFactor,
}

/// base × (1 + gain × (load − usual)), from `min` to `max`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoad {
    base: Option<RawFactor>,
    gain: Option<RawFactor>,
    usual: Option<RawFactor>,
    min: Option<RawFactor>,
    max: Option<RawFactor>,
}

/// Machines that would stand idle are given to jobs beyond their quota.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIdle {
    /// Percent of the cores that stay free.
    reserve: Option<RawPercent>,
    /// The longest that such a job may ask for.
    time: Option<RawDuration>,
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
            pricing: pricing(source, &key, raw.price.as_ref())?,
            idle: raw
                .idle
                .as_ref()
                .map(|raw| idle(source, &key, raw))
                .transpose()?,
            bands: raw.bands,
        };
        Ok((vo, quota))
    };
    raw.iter().map(of).collect()
}

fn pricing(
    source: Source<'_>,
    key: &str,
    raw: Option<&Spanned<RawPrice>>,
) -> Result<Pricing, FileError> {
    let key = format!("{key}.price");
    let Some(raw) = raw else {
        return Ok(Pricing::Fixed);
    };
    let wrong = |problem: &str| {
        let error = source.wrong(&key, raw, problem);
        let help = "write price = { load = {} }, or price = { calendar = [{ from = \"20:00\", until = \"06:00\", \
                    price = 0.7 }] }";
        Err(error.with_help(help))
    };
    match (&raw.get_ref().calendar, &raw.get_ref().load) {
        (Some(spans), None) if spans.len() > SPANS_MAX => {
            wrong(&format!("more than {SPANS_MAX} spans"))
        }
        (Some(spans), None) => {
            let spans = spans.iter().map(|raw| hours(source, &key, raw));
            Ok(Pricing::Calendar(spans.collect::<Result<_, _>>()?))
        }
        (None, Some(raw)) => Ok(Pricing::Load(by_load(source, &key, raw)?)),
        _ => wrong("a price follows either a calendar or the load"),
    }
}

fn hours(source: Source<'_>, key: &str, raw: &RawHours) -> Result<Hours, FileError> {
    let key = format!("{key}.calendar");
    let mut days = [raw.days.is_empty(); 7];
    for word in &raw.days {
        let place = |day: &str| DAYS.iter().position(|name| *name == day);
        let text = word.get_ref().to_ascii_lowercase();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let Some((first, last)) = place(first).zip(place(last)) else {
            let problem = format!("`{}` is no day", word.get_ref());
            let error = source.wrong(&key, word, problem);
            return Err(error.with_help("write \"sat\", or \"mon-fri\""));
        };
        let length = (last + 7 - first) % 7;
        (0..=length).for_each(|ahead| days[(first + ahead) % 7] = true);
    }
    Ok(Hours {
        days,
        from_minute: minute(source, &key, &raw.from)?,
        until_minute: minute(source, &key, &raw.until)?,
        price: price(source, &key, &raw.price)?,
    })
}

/// A minute of the day, as `06:30`.
fn minute(source: Source<'_>, key: &str, raw: &Spanned<String>) -> Result<u16, FileError> {
    let part = |text: &str, most: u16| {
        let is_short = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u16>().ok().filter(|_| is_short)?;
        (number <= most).then_some(number)
    };
    let read = raw.get_ref().split_once(':');
    let read = read.and_then(|(hour, minute)| part(hour, 23).zip(part(minute, 59)));
    match read {
        Some((hour, minute)) => Ok(hour * 60 + minute),
        None => {
            let problem = format!("`{}` is no time of day", raw.get_ref());
            let error = source.wrong(key, raw, problem);
            Err(error.with_help(
                "write hours and minutes in UTC, such as \"06:30\"; midnight is \"00:00\"",
            ))
        }
    }
}

fn by_load(source: Source<'_>, key: &str, raw: &RawLoad) -> Result<LoadPrice, FileError> {
    let key = format!("{key}.load");
    let usual = LoadPrice::default();
    let of = |raw: &Option<RawFactor>, usual| {
        let raw = raw.as_ref();
        raw.map_or(Ok(usual), |raw| source.factor(&key, raw))
    };
    let positive = |raw: &Option<RawFactor>, usual| {
        let raw = raw.as_ref();
        raw.map_or(Ok(usual), |raw| price(source, &key, raw))
    };
    let price = LoadPrice {
        base: positive(&raw.base, usual.base)?,
        gain: of(&raw.gain, usual.gain)?,
        usual: of(&raw.usual, usual.usual)?,
        least: positive(&raw.min, usual.least)?,
        most: positive(&raw.max, usual.most)?,
    };
    if price.least > price.most {
        let place = raw.min.as_ref().or(raw.max.as_ref()).map(RawFactor::span);
        let problem = format!("min ({}) is above max ({})", price.least, price.most);
        return Err(source.error(place, Some(&key), problem));
    }
    Ok(price)
}

fn price(source: Source<'_>, key: &str, raw: &RawFactor) -> Result<Factor, FileError> {
    let price = source.factor(key, raw)?;
    if price.millionths() > 0 {
        return Ok(price);
    }
    let error = source.wrong(key, raw, "a price of 0");
    Err(error.with_help("to charge nothing, exempt users or queues, or write mode = \"off\""))
}

fn idle(source: Source<'_>, key: &str, raw: &RawIdle) -> Result<IdleRules, FileError> {
    let key = format!("{key}.idle");
    let usual = IdleRules::default();
    let (reserve, time) = (raw.reserve.as_ref(), raw.time.as_ref());
    Ok(IdleRules {
        reserve: reserve.map_or(Ok(usual.reserve), |raw| source.percent(&key, raw))?,
        run_max: time.map_or(Ok(usual.run_max), |raw| source.duration(&key, raw))?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_physics as parse;
    use super::*;

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

    fn quota(text: &str) -> OwnerQuota {
        let config = parse(&format!("[quota.physics]\n{text}\n")).expect(text);
        config.quotas.into_values().next().expect("one")
    }

    #[test]
    fn an_owner_sets_his_price_opens_idle_machines_and_puts_others_behind() {
        let plain = quota("");
        assert_eq!(
            (plain.pricing, plain.idle, plain.bands),
            (Pricing::Fixed, None, false)
        );
        let by_load = quota("price = { load = {} }").pricing;
        assert_eq!(by_load, Pricing::Load(LoadPrice::default()));
        let steep =
            quota("price = { load = { base = 1.2, gain = 3, usual = 0.5, min = 1, max = 4 } }");
        let Pricing::Load(steep) = steep.pricing else {
            panic!("{steep:?}")
        };
        assert_eq!(steep.most, Factor::parse("4").expect("a factor"));
        let nights = quota(
            "price = { calendar = [{ days = [\"fri-sun\", \"Tue\"], from = \"20:00\", until = \"06:30\", price = 0.7 }] }",
        );
        let expected = Hours {
            days: [false, true, false, false, true, true, true],
            from_minute: 1_200,
            until_minute: 390,
            price: Factor::parse("0.7").expect("a factor"),
        };
        assert_eq!(nights.pricing, Pricing::Calendar(vec![expected]));
        let open = quota("idle = {}\nbands = true");
        assert_eq!((open.idle, open.bands), (Some(IdleRules::default()), true));
        let short = quota("idle = { reserve = 12.5, time = \"10m\" }").idle;
        assert_eq!(short.map(|idle| idle.run_max.0), Some(600_000));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            (
                "[quota.physics]\nprice = {}\n",
                "f.toml:6:9: `quota.physics.price`: a price follows either a calendar or the load",
            ),
            (
                "[quota.physics]\nprice = { load = { min = 2, max = 1 } }\n",
                "min (2) is above max (1)",
            ),
            (
                "[quota.physics]\nprice = { load = { base = 0 } }\n",
                "a price of 0",
            ),
            (
                "[quota.physics]\nprice = { calendar = [{ from = \"24:00\", until = \"06:00\", price = 1 }] }\n",
                "`24:00` is no time of day",
            ),
            (
                "[quota.physics]\nprice = { calendar = [{ days = [\"may\"], from = \"20:00\", until = \"06:00\", price = 1 }] }\n",
                "`may` is no day",
            ),
            (
                "[quota.physics]\nidle = { time = \"long\" }\n",
                "`quota.physics.idle`: `long` is not a length of time",
            ),
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
