//! The tables of both parts, in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::fault::Row;
use super::quiet::Quiet;

const BEGIN: &str = "<!-- hours: begin, written by `cargo xtask hours` -->\n";
const END: &str = "<!-- hours: end -->\n";

/// A cell without what would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('\n', " ")
        .replace('<', "&lt;")
}

/// One row of the faults.
pub(super) fn line(row: &Row) -> String {
    let seconds = |time: Option<Duration>| {
        time.map_or_else(
            || "–".to_owned(),
            |time| format!("{:.0}", time.as_secs_f64()),
        )
    };
    let outcome = match row.wrong.is_empty() {
        true => "good".to_owned(),
        false => format!("**wrong:** {}", cell(&row.wrong.join("; "))),
    };
    format!(
        "| `{}` | {} | {} | {} | {} | {} | {outcome} |\n",
        row.fault.name,
        cell(row.fault.done),
        row.who,
        cell(&row.message),
        seconds(row.reported),
        seconds(row.cleared),
    )
}

/// Both tables.
pub(super) fn tables(quiet: Option<&Quiet>, rows: &[Row]) -> String {
    let mut text = String::new();
    if let Some(quiet) = quiet {
        let _ = writeln!(
            text,
            "Without faults: {} minutes, {} readings of a node, {} alerts evaluated, {} warnings.\n",
            quiet.minutes,
            quiet.readings,
            quiet.alerts,
            quiet.warnings.len()
        );
        if !quiet.warnings.is_empty() {
            text += "| node | where | text | after, s |\n|---|---|---|--:|\n";
        }
        for warning in &quiet.warnings {
            let (text_of, after) = (cell(&warning.text), warning.after.as_secs());
            let _ = writeln!(
                text,
                "| {} | {} | {text_of} | {after} |",
                warning.node, warning.place
            );
        }
        text += "\n";
    }
    text += "| fault | what is done | who reports | first message | reported, s | cleared, s | outcome |\n\
             |---|---|---|---|--:|--:|---|\n";
    rows.iter().for_each(|row| text += &line(row));
    text
}

/// Writes them into the page.
pub(super) fn write(quiet: &Quiet, rows: &[Row]) -> anyhow::Result<()> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = tests.with_file_name("docs").join("reference/faults.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("no begin of the tables")?;
    let (_, after) = rest.split_once(END).context("no end of the tables")?;
    let tables = tables(Some(quiet), rows);
    Ok(fs::write(
        page,
        format!("{before}{BEGIN}{tables}{END}{after}"),
    )?)
}
