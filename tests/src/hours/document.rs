//! The tables of both parts, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::fault::Row;
use super::quiet::Quiet;

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

/// The part without faults.
pub(super) fn of_quiet(quiet: &Quiet) -> String {
    let mut text = format!(
        "{} minutes, {} readings of a node, {} alerts evaluated, {} warnings.\n",
        quiet.minutes,
        quiet.readings,
        quiet.alerts,
        quiet.warnings.len()
    );
    if !quiet.warnings.is_empty() {
        text += "\n| node | where | text | after, s |\n|---|---|---|--:|\n";
    }
    for warning in &quiet.warnings {
        let (text_of, after) = (cell(&warning.text), warning.after.as_secs());
        let _ = writeln!(
            text,
            "| {} | {} | {text_of} | {after} |",
            warning.node, warning.place
        );
    }
    text
}

/// The table of the faults.
pub(super) fn of_faults(rows: &[Row]) -> String {
    let mut text = "| fault | what is done | who reports | first message | reported, s | cleared, s | outcome |\n\
                    |---|---|---|---|--:|--:|---|\n"
        .to_owned();
    rows.iter().for_each(|row| text += &line(row));
    text
}

/// Prints what a part has shown, and writes it into the page: the whole part, or the rows of faults that ran again.
pub(super) fn show(part: &str, text: &str, is_whole: bool) -> anyhow::Result<()> {
    print!("{text}");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = tests.with_file_name("docs").join("reference/faults.md");
    let old = fs::read_to_string(&page)?;
    let begin = format!("<!-- hours: {part}, written by `cargo xtask hours` -->\n");
    let (before, rest) = old.split_once(&begin).context("no begin of the table")?;
    let (shown, after) = rest.split_once(END).context("no end of the table")?;
    let text = match is_whole {
        true => text.to_owned(),
        false => again(shown, text),
    };
    Ok(fs::write(
        page,
        format!("{before}{begin}{text}{END}{after}"),
    )?)
}

/// The rows of before, with those of faults that ran again in their places.
fn again(shown: &str, text: &str) -> String {
    let name = |line: &str| line.split('`').nth(1).map(str::to_owned);
    let rows: BTreeMap<_, _> = text.lines().map(|line| (name(line), line)).collect();
    let newest = |line| match name(line) {
        None => line,
        name => rows.get(&name).copied().unwrap_or(line),
    };
    let lines = shown.lines().map(newest);
    lines.flat_map(|line| [line, "\n"]).collect()
}
