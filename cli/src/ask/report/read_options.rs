//! What a file does not say about itself, as the command line or the first line of a file of rejects has it.
//!
//! Invariant: what is written into a file of rejects makes its records read as they were read before.

use anyhow::Context as _;
use fairmesh_records::{Options, Zone};
use serde::{Deserialize, Serialize};

use super::item::Kind;

/// How a line of options begins.
pub(super) const OPTIONS_MARK: &[u8] = b"# fairmesh report: ";

/// The options of `fairmesh report` that decide how a file is read, by their names there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::ask) struct ReadOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) tz: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) columns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) delimiter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::ask) unix_start: Option<u64>,
}

impl ReadOptions {
    /// Nothing but a format as the command line names it; `auto` is none.
    pub(in crate::ask) fn of_format(format: &str) -> Self {
        Self {
            format: Some(format.to_owned()).filter(|format| format != "auto"),
            ..Self::default()
        }
    }

    /// These, and where they say nothing the others.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            format: self.format.or(others.format),
            cluster: self.cluster.or(others.cluster),
            tz: self.tz.or(others.tz),
            columns: self.columns.or(others.columns),
            delimiter: self.delimiter.or(others.delimiter),
            unix_start: self.unix_start.or(others.unix_start),
        }
    }

    /// The format, unless the file's beginning is to tell.
    pub(in crate::ask) fn kind(&self) -> anyhow::Result<Option<Kind>> {
        Ok(self
            .format
            .as_deref()
            .map(Kind::parse)
            .transpose()?
            .flatten())
    }

    /// The same for a reader.
    pub(super) fn for_reader(&self) -> anyhow::Result<Options> {
        let zone = match &self.tz {
            None => jiff::tz::TimeZone::system(),
            Some(name) => jiff::tz::TimeZone::get(name)
                .with_context(|| format!("no time zone `{}`", name.escape_debug()))?,
        };
        Ok(Options {
            cluster: self.cluster.clone().unwrap_or_default(),
            zone: Zone::new(zone),
            columns: self.columns.clone(),
            delimiter: self.delimiter.clone(),
            growing: false,
            noted_slots: false,
        })
    }

    /// With this machine's zone where none is named: on another machine, or later, it may be another.
    pub(super) fn with_zone(mut self) -> Self {
        let here = || jiff::tz::TimeZone::system().iana_name().map(str::to_owned);
        self.tz = self.tz.or_else(here);
        self
    }

    /// As a line of a file of rejects.
    pub(super) fn to_line(&self) -> String {
        let options = serde_json::to_string(self).unwrap_or_default();
        format!("{}{options}\n", String::from_utf8_lossy(OPTIONS_MARK))
    }

    /// Of such a line; `None` if it is another.
    pub(super) fn of_line(line: &[u8]) -> Option<serde_json::Result<Self>> {
        line.strip_prefix(OPTIONS_MARK).map(serde_json::from_slice)
    }
}
