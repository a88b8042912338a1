//! `[records]`: how much of the jobs' own records is kept.
//!
//! Invariant: a size is at least [`SIZE_MIN`]. Deliberately not here: keeping them (`record_log`).

use serde::Deserialize;
use toml::Spanned;

use super::quantity::RawDuration;
use super::text::{FileError, Source};
use crate::record_log::Keep;

/// Smallest size that is kept: less would not hold a day of a small site.
const SIZE_MIN: u64 = 16 << 20;

/// `[records]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecords {
    enabled: Option<bool>,
    keep: Option<RawDuration>,
    keep_size: Option<Spanned<String>>,
}

/// The bounds; `None` where no records are kept.
pub(super) fn checked(source: Source<'_>, raw: &RawRecords) -> Result<Option<Keep>, FileError> {
    let default = Keep::default();
    let age = raw.keep.as_ref();
    let keep = Keep {
        age: age.map_or(Ok(default.age), |age| source.duration("records.keep", age))?,
        bytes: raw
            .keep_size
            .as_ref()
            .map_or(Ok(default.bytes), |size| bytes(source, size))?,
    };
    Ok(raw.enabled.unwrap_or(true).then_some(keep))
}

fn bytes(source: Source<'_>, raw: &Spanned<String>) -> Result<u64, FileError> {
    parse_size(raw.get_ref())
        .filter(|bytes| *bytes >= SIZE_MIN)
        .ok_or_else(|| {
            let problem = format!("`{}` is not a size of 16 MiB or more", raw.get_ref());
            let help = "write a whole number and a unit: \"512MiB\", \"4GiB\", \"1TiB\"";
            source
                .wrong("records.keep_size", raw, problem)
                .with_help(help)
        })
}

/// Reads `512MiB`, `4 GiB`.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: u64 = match text[digits.len()..].trim() {
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(parse_size("4GiB"), Some(4 << 30));
        assert_eq!(parse_size(" 512 MiB"), Some(512 << 20));
        for wrong in ["", "4", "GiB", "4GB", "1.5GiB", "-1GiB", "99999999999TiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
