//! Columns that the user chooses, as in `sshare -o account%20,user,levelfs`.
//!
//! Invariant: with a width a cell is cut to it, as Slurm does; without one a column is as wide as
//! its widest cell. `-P` never cuts. Deliberately not here: what the columns say.

use std::io::Write;

use crate::output::OutputArgs;

/// A chosen column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Index into the known names.
    pub(super) field: usize,
    width: Option<usize>,
}

impl Column {
    /// The column of `field`, as wide as it needs.
    pub(super) const fn of(field: usize) -> Self {
        Self { field, width: None }
    }
}

/// Reads a list such as `account%20,User`, names in any case.
pub(super) fn parse(list: &str, known: &[&str]) -> anyhow::Result<Vec<Column>> {
    let column = |text: &str| {
        let (name, width) = match text.trim().split_once('%') {
            Some((name, width)) => (name, Some(width.parse::<usize>()?)),
            None => (text.trim(), None),
        };
        let field = known
            .iter()
            .position(|field| field.eq_ignore_ascii_case(name));
        let field = field.ok_or_else(|| {
            anyhow::anyhow!(
                "no field `{}`; known: {}",
                name.escape_debug(),
                known.join(", ")
            )
        })?;
        Ok(Column { field, width })
    };
    list.split(',')
        .filter(|text| !text.trim().is_empty())
        .map(column)
        .collect()
}

/// Writes rows of all known fields, as the chosen columns.
pub(super) fn write(
    out: &mut dyn Write,
    format: &OutputArgs,
    names: &[&str],
    columns: &[Column],
    rows: &[Vec<String>],
) -> std::io::Result<()> {
    let header: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let header = (!format.noheader).then_some(&header);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let cells = header
                .into_iter()
                .chain(rows)
                .map(|row| row[column.field].chars().count());
            column.width.unwrap_or_else(|| cells.max().unwrap_or(0))
        })
        .collect();
    for row in header.into_iter().chain(rows) {
        let cells = columns.iter().map(|column| row[column.field].as_str());
        let line = if format.parsable {
            cells
                .map(|cell| cell.replace('|', " "))
                .collect::<Vec<_>>()
                .join("|")
        } else {
            let aligned = cells
                .zip(&widths)
                .map(|(cell, width)| aligned(cell, *width));
            aligned.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Numbers on the right, words on the left.
fn aligned(cell: &str, width: usize) -> String {
    let cut: String = cell.chars().take(width).collect();
    let number = cut
        .trim_start_matches(['+', '-'])
        .starts_with(|c: char| c.is_ascii_digit())
        || cut == "inf";
    if number {
        format!("{cut:>width$}")
    } else {
        format!("{cut:<width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_chosen_by_name_and_cut_to_their_width() {
        let names = ["Account", "Share"];
        let columns = parse("share,account%4", &names).expect("known");
        let rows = [vec!["/VO-A".to_owned(), "7.5".to_owned()]];
        let mut out = Vec::new();
        write(&mut out, &OutputArgs::default(), &names, &columns, &rows).expect("writes");
        assert_eq!(String::from_utf8_lossy(&out), "Share  Acco\n  7.5  /VO-\n");
        assert!(parse("nonsense", &names).is_err());
        assert!(parse("account%x", &names).is_err());
    }
}
