//! `[records]`: how much of the jobs' own records is kept.
//!
//! Invariant: a size is at least [`MEBIBYTES_MIN`]. Deliberately not here: keeping them (`record_log`).

use serde::Deserialize;
use toml::Spanned;

use super::quantity::RawDuration;
use super::text::{FileError, Source};
use crate::record_log::Keep;

/// Smallest size that is kept: less would not hold a day of a small site.
const MEBIBYTES_MIN: u64 = 16;

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
    let mebibytes = source.mebibytes("records.keep_size", raw)?;
    if mebibytes < MEBIBYTES_MIN {
        let problem = format!("`{}` is less than {MEBIBYTES_MIN} MiB", raw.get_ref());
        return Err(source.wrong("records.keep_size", raw, problem));
    }
    Ok(mebibytes.saturating_mul(1 << 20))
}
