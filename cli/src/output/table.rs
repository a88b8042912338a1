//! Tables of text: aligned for people, or separated by `|` as Slurm's `-P` does.
//!
//! Invariant: both forms have the same cells in the same order; only the aligned form wraps to the
//! terminal's width, and the parsable form never breaks a line. Deliberately not here: JSON, whose
//! shape is the command's.

use std::fmt::Display;
use std::io::Write;

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, presets};

use super::OutputArgs;

/// On which side the cells of a column line up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words: padded on the right.
    Left,
    /// For numbers: padded on the left.
    Right,
}

/// Rows below named columns.
#[derive(Debug, Clone)]
pub struct Table {
    heading: Option<String>,
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table of `columns`.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            heading: None,
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Puts a line above the table, as a rule what it rests on. Only people see it.
    #[must_use]
    pub fn with_heading(mut self, heading: impl Display) -> Self {
        self.heading = Some(heading.to_string());
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as there are columns: a bug of the caller.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Writes the table in the form that `format` asks for; with `--json` as with `-P`, for want
    /// of a better form.
    pub fn write(&self, out: &mut dyn Write, format: &OutputArgs) -> std::io::Result<()> {
        if format.parsable || format.json {
            self.write_parsable(out, format.noheader)
        } else {
            self.write_aligned(out, format.noheader)
        }
    }

    fn write_parsable(&self, out: &mut dyn Write, noheader: bool) -> std::io::Result<()> {
        if !noheader {
            let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
            writeln!(out, "{}", names.join("|"))?;
        }
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| unbroken(cell)).collect();
            writeln!(out, "{}", cells.join("|"))?;
        }
        Ok(())
    }

    fn write_aligned(&self, out: &mut dyn Write, noheader: bool) -> std::io::Result<()> {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        let bold = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if !noheader {
            table.set_header(self.columns.iter().map(|(name, _)| {
                let cell = Cell::new(name);
                if bold {
                    cell.add_attribute(Attribute::Bold)
                } else {
                    cell
                }
            }));
        }
        for row in &self.rows {
            table.add_row(row);
        }
        for ((_, align), column) in self.columns.iter().zip(table.column_iter_mut()) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        if let Some(heading) = self.heading.as_ref().filter(|_| !noheader) {
            writeln!(out, "{heading}")?;
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A cell on one line and without the mark that separates cells, as `printf %b` turns it back.
pub(crate) fn unbroken(cell: &str) -> String {
    let escaped = cell.replace('\\', "\\\\").replace('|', "\\x7c");
    escaped.replace('\n', "\\n").replace('\r', "\\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: &OutputArgs) -> String {
        let mut table = Table::new(&[("Entry", Align::Left), ("Share", Align::Right)])
            .with_heading("as of now");
        table.row(["/VO-A".to_owned(), "30".to_owned()]);
        table.row(["/a|b".to_owned(), "7.5".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out, format).expect("writes");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn numbers_line_up_on_the_right() {
        let lines = "as of now\nEntry  Share\n/VO-A     30\n/a|b     7.5\n";
        assert_eq!(written(&OutputArgs::default()), lines);
    }

    #[test]
    fn parsable_rows_have_one_bar_between_cells() {
        let mut format = OutputArgs {
            parsable: true,
            ..OutputArgs::default()
        };
        assert_eq!(written(&format), "Entry|Share\n/VO-A|30\n/a\\x7cb|7.5\n");
        format.noheader = true;
        assert_eq!(written(&format), "/VO-A|30\n/a\\x7cb|7.5\n");
    }
}
