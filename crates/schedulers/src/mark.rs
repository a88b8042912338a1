//! What stands between the columns of a list to which no user can add one.
//!
//! Batch systems print what users write, line ends and separators too. A mark that is drawn anew for each call cannot
//! be in what was chosen before it.
//!
//! Invariant: each row is what the batch system printed of one job. Deliberately not here: what the columns mean.

use fairmesh_model::clean;

use crate::command::CommandError;

/// What stands between columns in one list.
#[derive(Debug, Clone)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn draw() -> Result<Self, CommandError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|why| CommandError::NoRandomness(why.to_string()))?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // A digit behind the colon would be the column's width.
        Ok(Self(format!("|{digits}|")))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The columns of all rows of a list in which it stands behind each.
    pub(crate) fn columns<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut columns: Vec<&str> = text.split(self.text()).map(str::trim).collect();
        if columns.last() == Some(&"") {
            columns.pop();
        }
        columns
    }

    /// The lines of a list in which it stands between columns, and a line end behind the last of them,
    /// which is the only one that may hold line ends: with `|` between columns again. Also gives the
    /// lines that are none.
    pub(crate) fn lines(&self, text: &str, columns: usize) -> (String, Vec<String>) {
        let (mut lines, mut bad) = (String::new(), Vec::new());
        let mut row: Vec<&str> = Vec::new();
        for word in text.split(self.text()) {
            row.push(word);
            if row.len() < columns {
                continue;
            }
            // The last column, and the first of the next row behind it.
            let (last, next) = word.rsplit_once('\n').unwrap_or((word, ""));
            row.pop();
            let is_plain = row.iter().all(|word| !word.contains(['|', '\n']));
            let line = format!("{}|{}", row.join("|"), last.replace('\n', " "));
            match is_plain {
                true => lines.push_str(&format!("{line}\n")),
                false => bad.push(clean(&line)),
            }
            row.clear();
            row.push(next);
        }
        if row.iter().any(|word| !word.trim().is_empty()) {
            bad.push(clean(&row.join("|")));
        }
        (lines, bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark("|1f|".to_owned())
    }

    #[test]
    fn marks_differ() -> Result<(), CommandError> {
        assert_ne!(Mark::draw()?.text(), Mark::draw()?.text());
        Ok(())
    }

    #[test]
    fn a_line_end_in_an_account_makes_no_row() {
        let list = "5|1f|x\n777|vo1|mallory|1f|ann|1f|\n6|1f|vo1|1f|bob|1f|\n";
        let columns = mark().columns(list);
        let rows: Vec<&[&str]> = columns.chunks(3).collect();
        assert_eq!(
            rows,
            [["5", "x\n777|vo1|mallory", "ann"], ["6", "vo1", "bob"]]
        );
        assert!(mark().columns("").is_empty());
        assert_eq!(mark().columns("5|1f|vo1|1f|"), ["5", "vo1"]);
    }

    #[test]
    fn a_line_end_in_a_name_makes_no_line() {
        let list =
            "Id|1f|User|1f|Name\n5|1f|ann|1f|x\n777|mallory|y\n\n6|1f|bob|1f|\n7|1f|a|b|1f|z\n";
        let (lines, bad) = mark().lines(list, 3);
        assert_eq!(lines, "Id|User|Name\n5|ann|x 777|mallory|y \n6|bob|\n");
        assert_eq!(bad, ["7|a|b|z"]);
        assert_eq!(mark().lines("", 3), (String::new(), Vec::new()));
        let (lines, bad) = mark().lines("5|ann|x\n", 3);
        assert_eq!((lines.as_str(), bad.len()), ("", 1));
    }
}
