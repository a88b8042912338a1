//! Sites from a JSON file.
//!
//! Invariant: what is not understood is refused, with its file, line and key; percentages are read from the
//! digits that were written, in units of 10⁻⁹ of the whole, and never through a float.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use fairmesh_broker::disk::DiskRoom;
use fairmesh_broker::{Sign, SiteView, Standing};
use fairmesh_model::{Factor, Millis, Share, is_visible};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::GridDiskBody;

/// How the sites of a Grid stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grid {
    /// The sites, in the order of the file.
    pub sites: Vec<SiteView>,
}

/// Why a file of sites was refused. Its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: `{key}`: {problem}")]
pub struct GridError {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The key at fault, from the root; `.` is the whole file.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Grid {
    /// Reads JSON text. `file_name` is for error messages.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, GridError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let refuse = |key: String, error: &serde_json::Error| {
            let words = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            GridError {
                file: file_name.to_owned(),
                line: error.line(),
                column: error.column(),
                key,
                problem: words.strip_suffix(&place).unwrap_or(&words).to_owned(),
            }
        };
        let mut reader = serde_json::Deserializer::from_str(text);
        let raw: RawGrid = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| refuse(error.path().to_string(), error.inner()))?;
        reader
            .end()
            .map_err(|error| refuse(".".to_owned(), &error))?;
        let sites = raw.sites.into_iter().map(RawSite::into_view);
        Ok(Self {
            sites: sites.collect(),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrid {
    #[serde(deserialize_with = "sites")]
    sites: Vec<RawSite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    #[serde(deserialize_with = "name")]
    name: String,
    total: NonZeroU64,
    free: Option<u64>,
    #[serde(default)]
    waiting: u64,
    #[serde(default)]
    vos: BTreeMap<String, RawStanding>,
    wait_s: Option<u64>,
    #[serde(default, deserialize_with = "spec")]
    spec: Factor,
    #[serde(default, deserialize_with = "factor")]
    factor: Option<u32>,
    age_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStanding {
    #[serde(deserialize_with = "percent")]
    epoch_used: u64,
    #[serde(deserialize_with = "share")]
    epoch_share: Share,
    burst_used: u64,
    burst_limit: u64,
    #[serde(default)]
    extensible: bool,
    #[serde(default)]
    sign: RawSign,
    #[serde(default)]
    waiting: u64,
    over_s: Option<u64>,
    #[serde(default)]
    disk: GridDiskBody,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum RawSign {
    #[default]
    Limit,
    Target,
    Guarantee,
}

impl RawSite {
    fn into_view(self) -> SiteView {
        let standings = self.vos.into_iter();
        SiteView {
            name: self.name,
            total: self.total.get(),
            free: self.free,
            waiting: self.waiting,
            vos: standings
                .map(|(vo, raw)| (vo.into(), raw.into_standing().into()))
                .collect(),
            wait: self.wait_s.map(Millis::from_secs),
            spec: self.spec,
            factor: self.factor,
            age: self.age_s.map(Millis::from_secs),
            ..SiteView::default()
        }
    }
}

impl RawStanding {
    fn into_standing(self) -> Standing {
        Standing {
            epoch_used: self.epoch_used,
            epoch_share: self.epoch_share,
            sign: match self.sign {
                RawSign::Limit => Sign::AtMost,
                RawSign::Target => Sign::Target,
                RawSign::Guarantee => Sign::AtLeast,
            },
            burst_used: self.burst_used,
            burst_limit: self.burst_limit,
            extensible: self.extensible,
            waiting: self.waiting,
            over_for: self.over_s.map(Millis::from_secs),
            disk: DiskRoom {
                quota_mib: self.disk.quota_mib,
                share_mib: self.disk.share_mib,
                staged_mib: self.disk.staged_mib,
                reserved_mib: 0,
            },
        }
    }
}

fn sites<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RawSite>, D::Error> {
    let sites: Vec<RawSite> = Vec::deserialize(from)?;
    let mut names = BTreeSet::new();
    match sites.iter().find(|site| !names.insert(site.name.as_str())) {
        Some(twice) => Err(D::Error::custom(format!(
            "two sites are called `{}`",
            twice.name
        ))),
        None => Ok(sites),
    }
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    match name.is_empty() || !name.chars().all(is_visible) {
        true => Err(D::Error::custom("a site has a name, of visible characters")),
        false => Ok(name),
    }
}

/// Units of 10⁻⁹ of the whole: a percentage with seven decimals, cut behind them.
fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let written = Box::<RawValue>::deserialize(from)?;
    let units = scaled(written.get(), 7).and_then(|units| u64::try_from(units).ok());
    units.ok_or_else(|| {
        D::Error::custom(format!(
            "{written} is no percentage: write a number from 0, such as 12.5"
        ))
    })
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
    let units = percent(from)?;
    let share = u32::try_from(units).ok().and_then(Share::from_units);
    share.ok_or_else(|| D::Error::custom("a share is 100 % at most"))
}

fn spec<'de, D: Deserializer<'de>>(from: D) -> Result<Factor, D::Error> {
    let written = Box::<RawValue>::deserialize(from)?;
    let factor = Factor::parse(written.get()).map_err(D::Error::custom)?;
    match factor.millionths() {
        0 => Err(D::Error::custom("a speed is above 0")),
        _ => Ok(factor),
    }
}

/// Millionths of 1.
fn factor<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let written = Box::<RawValue>::deserialize(from)?;
    if written.get() == "null" {
        return Ok(None);
    }
    let units = scaled(written.get(), 6).and_then(|units| u32::try_from(units).ok());
    let units = units.filter(|units| *units <= Factor::UNITS);
    units.map(Some).ok_or_else(|| {
        D::Error::custom(format!(
            "{written} is no factor: write a number from 0 to 1"
        ))
    })
}

/// A JSON number times a power of ten, cut to a whole number; `None` below 0 or where it is none, or absurdly large.
fn scaled(number: &str, decimals: i32) -> Option<u128> {
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // A zero may be negative: nobody who computes means anything by that.
        return (mantissa.starts_with('-') && mantissa.bytes().all(|byte| b"-0.".contains(&byte)))
            .then_some(0);
    }
    let digits: u128 = digits.parse().ok()?;
    let power = decimals
        .checked_add(exponent)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let size = 10_u128.checked_pow(power.unsigned_abs());
    match power {
        0.. => digits.checked_mul(size?),
        // Beyond all digits nothing is left.
        _ => Some(size.map_or(0, |size| digits / size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_their_digits() {
        let rows = [
            ("12.5", Some(125_000_000)),
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("1e2", Some(1_000_000_000)),
            ("1.5E-3", Some(15_000)),
            ("33.333333333333336", Some(333_333_333)),
            ("1e-40", Some(0)),
            ("120", Some(1_200_000_000)),
            ("-1", None),
            ("1e40", None),
            ("\"5\"", None),
            ("null", None),
            ("true", None),
        ];
        for (text, expected) in rows {
            assert_eq!(scaled(text, 7), expected, "{text}");
        }
    }

    #[test]
    fn files_are_refused_where_they_are_wrong() {
        let vo = |keys: &str| {
            format!(
                "{{\"sites\": [\n{{\"name\": \"s\", \"total\": 1,\n\"vos\": {{\"a\": {{{keys}}}}}}}]}}"
            )
        };
        let whole = "\"epoch_used\": 0, \"epoch_share\": 50, \"burst_used\": 0";
        let rows = [
            ("".to_owned(), "`.`: EOF"),
            ("{}".to_owned(), "`.`: missing field `sites`"),
            ("{\"sites\": []} x".to_owned(), "`.`: trailing characters"),
            (
                "{\"site\": []}".to_owned(),
                "`site`: unknown field `site`, expected `sites`",
            ),
            (
                "{\"sites\": [{\"name\": \"s\"}]}".to_owned(),
                "`sites[0]`: missing field `total`",
            ),
            (
                "{\"sites\": [{\"name\": \"s\", \"total\": 0}]}".to_owned(),
                "`sites[0].total`: invalid value: integer `0`",
            ),
            (
                "{\"sites\": [{\"name\": \"\", \"total\": 1}]}".to_owned(),
                "`sites[0].name`: a site has a name",
            ),
            (
                "{\"sites\": [{\"name\": \"s\", \"total\": 1}, {\"name\": \"s\", \"total\": 1}]}"
                    .to_owned(),
                "`sites`: two sites are called `s`",
            ),
            (
                vo("\"epoch_used\": 0"),
                "`sites[0].vos.a`: missing field `epoch_share`",
            ),
            (
                vo("\"epoch_used\": \"5\""),
                "`sites[0].vos.a.epoch_used`: \"5\" is no percentage",
            ),
            (
                vo("\"epoch_share\": 101"),
                "`sites[0].vos.a.epoch_share`: a share is 100 % at most",
            ),
            (
                vo(&format!("{whole}, \"burst_limit\": 1.5")),
                "`sites[0].vos.a.burst_limit`: invalid type: floating point",
            ),
            (
                vo(&format!("{whole}, \"burst_limit\": -1")),
                "`sites[0].vos.a.burst_limit`: invalid value: integer `-1`",
            ),
            (
                vo(&format!("{whole}, \"sign\": \"+\"")),
                "`sites[0].vos.a.sign`: unknown variant `+`, expected one of `limit`",
            ),
        ];
        for (text, expected) in rows {
            let error = Grid::parse(&text, "g.json").expect_err(&text).to_string();
            let line = 1 + text.trim_end().matches('\n').count();
            assert!(
                error.starts_with(&format!("g.json:{line}:")) && error.contains(expected),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn what_may_be_absent_is_absent() {
        let text = r#"{"sites": [{"name": "s", "total": 8, "free": null, "factor": null, "spec": 1.5, "vos": {"a":
            {"epoch_used": 0, "epoch_share": 50, "burst_used": 0, "burst_limit": 50, "sign": "target"}}}]}"#;
        let grid = Grid::parse(text, "g.json").expect("valid");
        let site = &grid.sites[0];
        assert_eq!(
            (site.free, site.waiting, site.factor, site.age),
            (None, 0, None, None)
        );
        assert_eq!(site.spec.to_string(), "1.5");
        assert_eq!(
            (site.vos["a"].sign, site.vos["a"].extensible),
            (Sign::Target, false)
        );
    }
}
