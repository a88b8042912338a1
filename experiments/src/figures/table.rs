//! The numbers of a figure as CSV.
//!
//! Invariant: every number has six decimals, so that equal figures give equal files; a number that
//! is none is an empty cell. Lines end with a line feed.
//!
//! The long form, one point a line, lets series have different x, and is what plotting programs
//! group by. Deliberately not here: labels and captions; the SVG has those.

use csv::{Writer, WriterBuilder};

use super::{FigureError, Groups, Series};

pub(super) fn of_lines(series: &[Series]) -> Result<String, FigureError> {
    let mut table = table();
    table.write_record(["series", "x", "y", "target"])?;
    for series in series {
        let target = series.target.map_or_else(String::new, decimal);
        for (x, y) in &series.points {
            table.write_record([&series.name, &decimal(*x), &decimal(*y), &target])?;
        }
    }
    text(table)
}

pub(super) fn of_bars(groups: &Groups) -> Result<String, FigureError> {
    let mut table = table();
    table.write_record(["series", "group", "mean", "min", "max"])?;
    for bars in &groups.bars {
        for (group, spread) in groups.names.iter().zip(&bars.spreads) {
            let numbers = spread.map(|spread| [spread.mean, spread.min, spread.max].map(decimal));
            let [mean, min, max] = numbers.unwrap_or_default();
            table.write_record([&bars.name, group, &mean, &min, &max])?;
        }
    }
    text(table)
}

fn table() -> Writer<Vec<u8>> {
    WriterBuilder::new().from_writer(Vec::new())
}

fn text(table: Writer<Vec<u8>>) -> Result<String, FigureError> {
    let bytes = table
        .into_inner()
        .map_err(|error| FigureError::Draw(error.to_string()))?;
    Ok(String::from_utf8(bytes).expect("a table of text is text"))
}

/// Six decimals; never `-0.000000`.
fn decimal(number: f64) -> String {
    if !number.is_finite() {
        return String::new();
    }
    let text = format!("{number:.6}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}
