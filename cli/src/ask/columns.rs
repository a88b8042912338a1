//! Columns that the user chooses, as in `sshare -o account%20,user,levelfs`.
//!
//! Invariant: with a width a cell is cut to it, as Slurm does; without one a column is as wide as
//! its widest cell, or less where the terminal is too narrow. `-P` never cuts, and what is no terminal gets
//! all. Deliberately not here: what the columns say.

use std::io::Write;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::output::{OutputArgs, unbroken};

/// What is between two columns.
const GAP: &str = "  ";

/// Columns are not cut to less than this: room for a number.
const WIDTH_MIN: usize = 12;

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
    let widths = widths(columns, header, rows, terminal_width());
    for row in header.into_iter().chain(rows) {
        let cells = columns.iter().map(|column| row[column.field].as_str());
        let line = if format.parsable {
            cells.map(unbroken).collect::<Vec<_>>().join("|")
        } else {
            let cells = cells.zip(columns).zip(&widths);
            let aligned = cells.map(|((cell, column), width)| aligned(cell, column, *width));
            aligned.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The width of each column; where that is more than a terminal has, the widest are cut first.
fn widths(
    columns: &[Column],
    header: Option<&Vec<String>>,
    rows: &[Vec<String>],
    terminal: Option<usize>,
) -> Vec<usize> {
    let wanted = |column: &Column| {
        let cells = header.into_iter().chain(rows);
        let widest = cells.map(|row| row[column.field].width()).max();
        column.width.unwrap_or(widest.unwrap_or(0))
    };
    let mut widths: Vec<usize> = columns.iter().map(wanted).collect();
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let mut excess = terminal.map_or(0, |most| {
        (widths.iter().sum::<usize>() + gaps).saturating_sub(most)
    });
    while excess > 0 {
        let cuttable = columns.iter().zip(&mut widths);
        let cuttable =
            cuttable.filter(|(column, width)| column.width.is_none() && **width > WIDTH_MIN);
        let Some((_, widest)) = cuttable.max_by_key(|(_, width)| **width) else {
            break;
        };
        *widest -= 1;
        excess -= 1;
    }
    widths
}

/// How wide the terminal is, if standard output is one.
fn terminal_width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// Numbers on the right, words on the left.
fn aligned(cell: &str, column: &Column, width: usize) -> String {
    let cut = match (cell.width() > width, column.width) {
        (false, _) => cell.to_owned(),
        (true, Some(_)) => beginning(cell.chars(), width),
        // Of a path the end says most.
        (true, None) if cell.starts_with('/') => {
            let end = beginning(cell.chars().rev(), width - 1);
            std::iter::once('…').chain(end.chars().rev()).collect()
        }
        (true, None) => beginning(cell.chars(), width - 1) + "…",
    };
    let number = cut
        .trim_start_matches(['+', '-'])
        .starts_with(|c: char| c.is_ascii_digit())
        || cut == "inf";
    let blanks = " ".repeat(width.saturating_sub(cut.width()));
    match number {
        true => blanks + &cut,
        false => cut + &blanks,
    }
}

/// As many characters as have room.
fn beginning(text: impl Iterator<Item = char>, width: usize) -> String {
    let mut room = width;
    let fits = text.map_while(|c| {
        room = room.checked_sub(c.width().unwrap_or(0))?;
        Some(c)
    });
    fits.collect()
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

    #[test]
    fn a_wide_character_takes_two_places() {
        let rows = [["/物理", "1"], ["/ann", "2"]].map(|row| row.map(str::to_owned).to_vec());
        let columns = [Column::of(0), Column::of(1)];
        let mut out = Vec::new();
        let format = OutputArgs::default();
        write(&mut out, &format, &["Account", "N"], &columns, &rows).expect("writes");
        let expected = "Account  N\n/物理    1\n/ann     2\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert_eq!(beginning("物理".chars(), 3), "物");
    }

    #[test]
    fn on_a_narrow_terminal_the_widest_column_is_cut() {
        let rows = [vec!["/physics/atlas/higgs/ann".to_owned(), "12".to_owned()]];
        let columns = [Column::of(0), Column::of(1)];
        let narrow = widths(&columns, None, &rows, Some(20));
        assert_eq!(narrow, [16, 2]);
        assert_eq!(aligned(&rows[0][0], &columns[0], 16), "…atlas/higgs/ann");
        assert_eq!(widths(&columns, None, &rows, None), [24, 2]);
        assert_eq!(widths(&columns, None, &rows, Some(5)), [WIDTH_MIN, 2]);
    }
}
