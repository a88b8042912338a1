//! Tables of text: aligned for people, or separated by `|` as Slurm's `-P` does.
//!
//! Invariant: both forms have the same cells in the same order; only the aligned form wraps or cuts them to the
//! terminal's width, and the parsable form never breaks a line. Deliberately not here: JSON, whose shape is the
//! command's.

use std::fmt::Display;
use std::io::Write;

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, presets};

use super::{OutputArgs, cut};

/// Rows below named columns.
#[derive(Debug, Clone)]
pub struct Table {
    heading: Option<String>,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Cells of a row.
    cells: usize,
    is_cut: bool,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    /// Whether its cells line up on the right.
    is_number: bool,
    /// Its place in a row.
    at: usize,
    /// The width that the user chose.
    width: Option<usize>,
}

impl Table {
    /// An empty table. `columns` is its header as `-P` writes it, with `>` before each column of numbers.
    pub fn new(columns: &str) -> Self {
        let column = |(at, text): (usize, &str)| Column {
            name: text.trim_start_matches('>').to_owned(),
            is_number: text.starts_with('>'),
            at,
            width: None,
        };
        let columns: Vec<Column> = columns.split('|').enumerate().map(column).collect();
        Self {
            heading: None,
            cells: columns.len(),
            columns,
            rows: Vec::new(),
            is_cut: false,
        }
    }

    /// Puts a line above the table, as a rule what it rests on. Only people see it.
    #[must_use]
    pub fn with_heading(mut self, heading: impl Display) -> Self {
        self.heading = Some(heading.to_string());
        self
    }

    /// Cuts cells where the terminal is too narrow, and does not wrap them.
    #[must_use]
    pub(crate) fn cut(mut self) -> Self {
        self.is_cut = true;
        self
    }

    /// Shows only the columns of a list such as `account%20,User`, names in any case; rows have all cells.
    ///
    /// # Errors
    /// If a name is unknown, or a width is no number.
    pub(crate) fn choose(mut self, list: &str) -> anyhow::Result<Self> {
        let chosen = list.split(',').map(str::trim);
        let chosen = chosen.filter(|text| !text.is_empty());
        self.columns = chosen
            .map(|text| self.chosen(text))
            .collect::<anyhow::Result<_>>()?;
        Ok(self)
    }

    fn chosen(&self, text: &str) -> anyhow::Result<Column> {
        let (name, width) = match text.split_once('%') {
            Some((name, width)) => (name, Some(width.parse()?)),
            None => (text, None),
        };
        let mut known = self.columns.iter();
        let column = known.find(|of| of.name.eq_ignore_ascii_case(name));
        let column = column.ok_or_else(|| {
            let known: Vec<&str> = self.columns.iter().map(|of| of.name.as_str()).collect();
            let (name, known) = (name.escape_debug(), known.join(", "));
            anyhow::anyhow!("no field `{name}`; known: {known}")
        })?;
        Ok(Column {
            width,
            ..column.clone()
        })
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as there are columns: a bug of the caller.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.cells, "a cell for each column");
        self.rows.push(cells);
    }

    /// Writes the table in the form that `format` asks for; with `--json` as with `-P`, for want
    /// of a better form.
    pub fn write(&self, out: &mut dyn Write, format: &OutputArgs) -> std::io::Result<()> {
        if format.parsable || format.json {
            for row in self.shown(format.noheader) {
                let cells: Vec<String> = row.into_iter().map(unbroken).collect();
                writeln!(out, "{}", cells.join("|"))?;
            }
            return Ok(());
        }
        if let Some(heading) = self.heading.as_ref().filter(|_| !format.noheader) {
            writeln!(out, "{heading}")?;
        }
        let widths: Vec<_> = self.columns.iter().map(|of| of.width).collect();
        let lines = match self.is_cut {
            true => cut::lines(&self.shown(format.noheader), &widths, cut::terminal_width()),
            false => self.wrapped(format.noheader),
        };
        let mut lines = lines.iter().map(|line| line.trim_end());
        lines.try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Writes the table as comma-separated values.
    pub(crate) fn write_csv(&self, out: &mut dyn Write, noheader: bool) -> anyhow::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        for row in self.shown(noheader) {
            csv.write_record(row)?;
        }
        Ok(csv.flush()?)
    }

    /// The header and the rows, of the columns that are shown.
    fn shown(&self, noheader: bool) -> Vec<Vec<&str>> {
        let header = self.columns.iter().map(|of| of.name.as_str()).collect();
        let header = (!noheader).then_some(header);
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().map(|of| row[of.at].as_str());
            cells.collect()
        });
        header.into_iter().chain(rows).collect()
    }

    fn wrapped(&self, noheader: bool) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        let bold = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if !noheader {
            table.set_header(self.columns.iter().map(|of| {
                let cell = Cell::new(&of.name);
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
        for (of, column) in self.columns.iter().zip(table.column_iter_mut()) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match of.is_number {
                true => CellAlignment::Right,
                false => CellAlignment::Left,
            });
        }
        table.lines().collect()
    }
}

/// A cell, or a dash for one that is not there.
pub(crate) fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
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
        let mut table = Table::new("Entry|>Share").with_heading("as of now");
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

    #[test]
    fn columns_are_chosen_by_name_and_cut_to_their_width() {
        let table = Table::new("Account|Share").cut();
        let mut chosen = table.clone().choose("share,account%4").expect("known");
        chosen.row(["/VO-A".to_owned(), "7.5".to_owned()]);
        let mut out = Vec::new();
        let format = OutputArgs::default();
        chosen.write(&mut out, &format).expect("writes");
        assert_eq!(String::from_utf8_lossy(&out), "Share  Acco\n  7.5  /VO-\n");
        assert!(table.clone().choose("nonsense").is_err());
        assert!(table.choose("account%x").is_err());
    }
}
