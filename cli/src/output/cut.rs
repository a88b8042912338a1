//! Rows whose cells are cut: to widths that the user chose, as in `sshare -o account%20,user,levelfs`, or to what the
//! terminal has room for.
//!
//! Invariant: with a width a cell is cut to it, as Slurm does; without one a column is as wide as
//! its widest cell, or less where the terminal is too narrow. What is no terminal gets all.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What is between two columns.
const GAP: &str = "  ";

/// Columns are not cut to less than this: room for a number.
const WIDTH_MIN: usize = 12;

/// A line for each row; `chosen` are the widths that the user chose.
pub(super) fn lines(
    rows: &[Vec<&str>],
    chosen: &[Option<usize>],
    terminal: Option<usize>,
) -> Vec<String> {
    let widths = widths(rows, chosen, terminal);
    let line = |row: &Vec<&str>| {
        let cells = row.iter().zip(chosen).zip(&widths);
        let cells = cells.map(|((cell, chosen), width)| aligned(cell, chosen.is_some(), *width));
        cells.collect::<Vec<_>>().join(GAP)
    };
    rows.iter().map(line).collect()
}

/// The width of each column; where that is more than a terminal has, the widest are cut first.
fn widths(rows: &[Vec<&str>], chosen: &[Option<usize>], terminal: Option<usize>) -> Vec<usize> {
    let wanted = |(at, chosen): (usize, &Option<usize>)| {
        let widest = rows.iter().map(|row| row[at].width()).max();
        chosen.or(widest).unwrap_or(0)
    };
    let mut widths: Vec<usize> = chosen.iter().enumerate().map(wanted).collect();
    let gaps = GAP.len() * chosen.len().saturating_sub(1);
    let mut excess = terminal.map_or(0, |most| {
        (widths.iter().sum::<usize>() + gaps).saturating_sub(most)
    });
    while excess > 0 {
        let cuttable = chosen.iter().zip(&mut widths);
        let cuttable = cuttable.filter(|(chosen, width)| chosen.is_none() && **width > WIDTH_MIN);
        let Some((_, widest)) = cuttable.max_by_key(|(_, width)| **width) else {
            break;
        };
        *widest -= 1;
        excess -= 1;
    }
    widths
}

/// How wide the terminal is, if standard output is one.
pub(super) fn terminal_width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// Numbers on the right, words on the left.
fn aligned(cell: &str, is_chosen: bool, width: usize) -> String {
    let cut = match (cell.width() > width, is_chosen) {
        (false, _) => cell.to_owned(),
        (true, true) => beginning(cell.chars(), width),
        // Of a path the end says most.
        (true, false) if cell.starts_with('/') => {
            let end = beginning(cell.chars().rev(), width - 1);
            std::iter::once('…').chain(end.chars().rev()).collect()
        }
        (true, false) => beginning(cell.chars(), width - 1) + "…",
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
    fn a_wide_character_takes_two_places() {
        let rows = [["Account", "N"], ["/物理", "1"], ["/ann", "2"]].map(Vec::from);
        let expected = ["Account  N", "/物理    1", "/ann     2"];
        assert_eq!(lines(&rows, &[None, None], None), expected);
        assert_eq!(beginning("物理".chars(), 3), "物");
    }

    #[test]
    fn on_a_narrow_terminal_the_widest_column_is_cut() {
        let rows = [vec!["/physics/atlas/higgs/ann", "12"]];
        let widths = |terminal| widths(&rows, &[None, None], terminal);
        assert_eq!(widths(Some(20)), [16, 2]);
        assert_eq!(aligned(rows[0][0], false, 16), "…atlas/higgs/ann");
        assert_eq!(widths(None), [24, 2]);
        assert_eq!(widths(Some(5)), [WIDTH_MIN, 2]);
    }
}
