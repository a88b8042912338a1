//! How answers are written: tables for people, `-P` for scripts, JSON for programs.
//!
//! Every command takes an [`OutputArgs`] and writes to the `out` that it was given, so that tests
//! read what people see. Data go to `out`; words about how it went go to standard error, which is
//! the caller's.
//!
//! Invariant: JSON carries a versioned schema name as its first field, and numbers in it that may
//! exceed 2^53 or have decimals are strings. Deliberately not here: what is in a table, and colour
//! beyond a bold header (none with `NO_COLOR` or without a terminal) but on a `terminal` as a whole.

mod cut;
mod exit;
mod finishing;
mod progress;
mod table;
pub(crate) mod terminal;

use std::io::{self, Write};

use serde::Serialize;

pub use exit::Exit;
pub(crate) use finishing::Finishing;
pub(crate) use progress::Progress;
pub use table::Table;
pub(crate) use table::{or_dash, unbroken};

/// The form of a command's answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct OutputArgs {
    /// Columns separated by `|`, without alignment and without a trailing `|`
    #[arg(short = 'P', long, conflicts_with = "json", hide_short_help = true)]
    pub parsable: bool,
    /// No header lines
    #[arg(short = 'n', long, hide_short_help = true)]
    pub noheader: bool,
    /// JSON, with a versioned schema
    #[arg(long)]
    pub json: bool,
}

/// Writes `body`, a struct or map, as one indented JSON object whose first field is its schema.
pub fn write_json(out: &mut dyn Write, schema: &str, body: &impl Serialize) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Envelope<'a, T> {
        schema: &'a str,
        #[serde(flatten)]
        body: &'a T,
    }
    // As an `io::Error`, so that a reader who went away is recognised.
    serde_json::to_writer_pretty(&mut *out, &Envelope { schema, body }).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_begins_with_its_schema() {
        let mut out = Vec::new();
        let body = std::collections::BTreeMap::from([("a", "1")]);
        write_json(&mut out, "fairmesh.test/1", &body).expect("writes");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            text,
            "{\n  \"schema\": \"fairmesh.test/1\",\n  \"a\": \"1\"\n}\n"
        );
    }
}
